// Package loop drives the runtime's core: one goroutine owns it, beside it are the mailbox, the work stream, and the one effect that
// is under way.
package loop

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"nisse.io/nisse/agentruntime/core"
	"nisse.io/nisse/agentruntime/doorclient"
	"nisse.io/nisse/agentruntime/eventlog"
	"nisse.io/nisse/agentruntime/model"
	"nisse.io/nisse/internal/doors"
)

// Tools that the loop calls.
type Tools interface {
	List(ctx context.Context) ([]doorclient.Tool, error)
	Call(ctx context.Context, workItem, id, tool string, args json.RawMessage, progress func(line string)) (doorclient.Result, error)
}

// Work is the stream of snapshots.
type Work interface {
	Run(ctx context.Context, got func(doors.Snapshot), lost func(error))
}

// Mailbox at the gateway.
type Mailbox interface {
	core.Inbox
	core.Outbox
}

// Timing of the loop. Tests shorten it.
type Timing struct {
	// Patience with the model.
	Patience model.Patience
	// First and Limit of the waits between attempts at the doors.
	First, Limit time.Duration
	// Notice after which people are told that something does not answer.
	Notice time.Duration
	// Settle is how long the cluster may take to follow a person's words before the model is asked anyway.
	Settle time.Duration
	// Progress is how long a call runs before the room is shown how far it is.
	Progress time.Duration
	// Grace for a call that is under way when the process is told to stop.
	Grace time.Duration
}

// Usual timing.
var Usual = Timing{Patience: model.Usual, First: 500 * time.Millisecond, Limit: 10 * time.Second, Notice: 30 * time.Second, Settle: 15 * time.Second, Progress: 15 * time.Second, Grace: 20 * time.Second}

// Parts that the loop is made of.
type Parts struct {
	Config   doors.RuntimeConfig
	Log      *eventlog.Log
	Model    model.Model
	Tools    Tools
	Work     Work
	Mailbox  Mailbox
	Troubles Troubles
	Logger   *slog.Logger
	Timing   Timing
	Meter    *core.Meter
}

// Loop of one agent.
type Loop struct {
	Parts
	core *core.Core
	// flight that is under way, and what ends it early.
	flight *core.Flight
	cancel context.CancelFunc
	ready  atomic.Bool
	beat   atomic.Int64

	snapshots chan doors.Snapshot
	mail      chan batch
	landed    chan core.Landing
	notices   chan core.Notice
	troubles  chan *doors.Trouble
	trouble   atomic.Pointer[doors.Trouble] // that was noted last; nil when it was refused
	said      chan struct{}                 // a message was delivered, or the mailbox can be read again
	toSay     chan struct{}                 // a message was queued
}

// New loop over an open log.
func New(p Parts) *Loop {
	l := &Loop{
		Parts:     p,
		snapshots: make(chan doors.Snapshot, 1), mail: make(chan batch), landed: make(chan core.Landing, 1), notices: make(chan core.Notice), troubles: make(chan *doors.Trouble, 1),
		said: make(chan struct{}, 1), toSay: make(chan struct{}, 1),
	}
	l.core = core.New(core.Parts{Config: p.Config, Log: p.Log, Logger: p.Logger, Meter: p.Meter, Now: time.Now, Settle: p.Timing.Settle, Queued: func() { kick(l.toSay) }})
	return l
}

// Ready tells whether the broker has said what to work on.
func (l *Loop) Ready() bool { return l.ready.Load() }

// Alive tells whether the loop has gone round lately.
func (l *Loop) Alive() bool { return time.Since(time.Unix(l.beat.Load(), 0)) < 2*time.Minute }

// Run until ctx ends or the log cannot be written. It may be killed at any point and started again.
func (l *Loop) Run(ctx context.Context) error {
	err := l.run(ctx)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil // told to stop while it read
	}
	return err
}

func (l *Loop) run(ctx context.Context) error {
	if err := l.core.Boot(ctx); err != nil {
		return err
	}
	outside, stop := context.WithCancel(ctx)
	defer stop()
	go l.Work.Run(outside, l.gotWork, func(error) { l.ready.Store(false) })
	go l.readMail(outside)
	go l.sayWords(outside)
	go l.tellTroubles(outside)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		l.beat.Store(time.Now().Unix())
		if err := l.advance(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return l.stop(ctx)
		case s := <-l.snapshots:
			if err := l.core.Observe(ctx, s); err != nil {
				return err
			}
			l.ready.Store(true)
		case b := <-l.mail:
			if err := l.core.Receive(ctx, b.in); err != nil {
				return err
			}
			close(b.done)
		case d := <-l.landed:
			if err := l.land(ctx, d); err != nil {
				return err
			}
		case n := <-l.notices:
			if err := l.core.Notify(ctx, n); err != nil {
				return err
			}
		case <-l.said:
		case <-tick.C:
		}
	}
}

// gotWork keeps the latest snapshot only.
func (l *Loop) gotWork(s doors.Snapshot) {
	for {
		select {
		case l.snapshots <- s:
			return
		default:
		}
		select {
		case <-l.snapshots:
		default:
		}
	}
}

// stop at a safe point: a request to the model is given up, a call may still end within the grace. What does not is asked for again
// by the next process.
func (l *Loop) stop(ctx context.Context) error {
	if l.flight == nil || l.flight.Ask != nil {
		return nil
	}
	grace := time.NewTimer(l.Timing.Grace)
	defer grace.Stop()
	for {
		select {
		case d := <-l.landed:
			return l.land(ctx, d)
		case n := <-l.notices:
			l.Logger.InfoContext(ctx, "notice.dropped", "text", n.Text)
		case <-grace.C:
			return nil
		}
	}
}

// advance begins what the core wants next, and ends what it does not want any more.
func (l *Loop) advance(ctx context.Context) error {
	if l.flight != nil {
		if l.core.GiveUp() {
			l.cancel()
		}
		return nil
	}
	f, err := l.core.Advance(ctx)
	if err != nil || f == nil {
		return err
	}
	l.depart(ctx, f)
	return nil
}

func (l *Loop) land(ctx context.Context, d core.Landing) error {
	l.flight = nil
	l.cancel()
	return l.core.Land(ctx, d)
}

func kick(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
