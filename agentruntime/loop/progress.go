package loop

import (
	"context"
	"crypto/rand"
	"time"

	"nisse.io/nisse/agentruntime/core"
	"nisse.io/nisse/agentruntime/reducer"
	"nisse.io/nisse/internal/doors"
)

const (
	// mostLines that the room is shown about one call while it runs. Each waits twice as long as the one before it.
	mostLines = 5
	// sayTimeout of a line. What is not taken by then is old.
	sayTimeout = 10 * time.Second
)

// watch a call: what is heard of it is shown in the room now and then, if it takes long enough for anybody to wonder, until end is called.
// The lines go past the log: the model does not see them, and one that is lost is missed by nobody.
func (l *Loop) watch(ctx context.Context, f *core.Flight) (hear func(line string), end func()) {
	newest := make(chan string, 1)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		wait, said := l.Timing.Progress, ""
		for range mostLines {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return
			}
			line := said
			for line == said {
				select {
				case line = <-newest:
				case <-ctx.Done():
					return
				}
			}
			l.show(ctx, f, line)
			wait, said = 2*wait, line
		}
	}()
	hear = func(line string) { // by one at a time
		select {
		case <-newest:
		default:
		}
		newest <- line
	}
	return hear, func() { cancel(); <-done }
}

func (l *Loop) show(ctx context.Context, f *core.Flight, line string) {
	ctx, cancel := context.WithTimeout(ctx, sayTimeout)
	defer cancel()
	err := l.Mailbox.Send(ctx, doors.Outgoing{ID: "out_" + rand.Text(), WorkItem: f.Item, Kind: doors.Progress, Text: reducer.Underway(*f.Call, line)})
	if err != nil && ctx.Err() == nil {
		l.Logger.InfoContext(ctx, "progress.lost", "task_id", f.Item, "cause", f.Call.ID, "error", err.Error())
	}
}
