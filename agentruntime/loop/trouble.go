package loop

import (
	"context"
	"errors"

	"nisse.io/nisse/agentruntime/backoff"
	"nisse.io/nisse/agentruntime/core"
	"nisse.io/nisse/agentruntime/doorclient"
	"nisse.io/nisse/agentruntime/model"
	"nisse.io/nisse/internal/doors"
)

// Troubles takes what keeps the runtime from going on to where people look beside the room.
type Troubles interface {
	Report(ctx context.Context, t doors.Trouble) error
}

// unusable notes that the model cannot be used for the flight's item.
func (l *Loop) unusable(f *core.Flight, e *model.Error) {
	l.troubled(doors.Trouble{WorkItem: f.Item, Reason: doors.TroubleModel, Message: e.Error()})
}

// usable notes that the model answered. Where nobody was told otherwise, by this process or an earlier one, there is nothing to say.
func (l *Loop) usable(f *core.Flight) {
	if t := l.trouble.Load(); t != nil && t.Reason != "" && t.WorkItem == f.Item || f.Ask.Now.Item.Trouble != "" {
		l.troubled(doors.Trouble{WorkItem: f.Item})
	}
}

// troubled replaces what is to be reported: only the last counts. It is called from the one flight that there is at a time.
func (l *Loop) troubled(t doors.Trouble) {
	if last := l.trouble.Load(); last != nil && *last == t {
		return
	}
	l.trouble.Store(&t)
	for {
		select {
		case l.troubles <- &t:
			return
		default:
		}
		select {
		case <-l.troubles:
		default:
		}
	}
}

// tellTroubles reports, each again until it has arrived or another takes its place.
func (l *Loop) tellTroubles(ctx context.Context) {
	wait := backoff.New(l.Timing.First, l.Timing.Limit)
	var t *doors.Trouble
	for pending := false; ; {
		if !pending {
			select {
			case t = <-l.troubles:
			case <-ctx.Done():
				return
			}
		}
		err := l.Troubles.Report(ctx, *t)
		refused := errors.Is(err, doorclient.ErrRefused)
		pending = err != nil && !refused
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			l.Logger.WarnContext(ctx, "trouble.not_reported", "task_id", t.WorkItem, "error", err.Error())
		}
		if refused { // the item was not the active one; if it is again and this still holds, it is news
			l.trouble.CompareAndSwap(t, nil)
		}
		if !pending {
			wait.Reset()
			continue
		}
		_ = wait.Wait(ctx, 0) // ctx is looked at above
		select {
		case t = <-l.troubles:
		default:
		}
	}
}
