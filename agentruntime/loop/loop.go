// Package loop drives the runtime: one goroutine owns the state, does one effect at a time, and writes down each before it begins
// and after it ends. It works on the active item alone; what others bring is kept until they are active.
package loop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"nisse.io/nisse/agentruntime/doorclient"
	"nisse.io/nisse/agentruntime/eventlog"
	"nisse.io/nisse/agentruntime/model"
	"nisse.io/nisse/agentruntime/prompt"
	"nisse.io/nisse/agentruntime/reducer"
	"nisse.io/nisse/internal/crashpoint"
	"nisse.io/nisse/internal/doors"
)

// Tools that the loop calls.
type Tools interface {
	List(ctx context.Context) ([]doorclient.Tool, error)
	Call(ctx context.Context, workItem, id, tool string, args json.RawMessage) (doorclient.Result, error)
}

// Work is the stream of snapshots.
type Work interface {
	Run(ctx context.Context, got func(doors.Snapshot), lost func(error))
}

// Mailbox at the gateway.
type Mailbox interface {
	Read(ctx context.Context, epoch string, seq int64, patient bool) (in doors.Inbox, moved bool, err error)
	Ack(ctx context.Context, epoch string, seq int64) error
	Send(ctx context.Context, o doors.Outgoing) error
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
	// Grace for a call that is under way when the process is told to stop.
	Grace time.Duration
}

// Usual timing.
var Usual = Timing{Patience: model.Usual, First: 500 * time.Millisecond, Limit: 10 * time.Second, Notice: 30 * time.Second, Settle: 15 * time.Second, Grace: 20 * time.Second}

// Parts that the loop is made of.
type Parts struct {
	Config  doors.RuntimeConfig
	Log     *eventlog.Log
	Model   model.Model
	Tools   Tools
	Work    Work
	Mailbox Mailbox
	Logger  *slog.Logger
	Timing  Timing
	Meter   *Meter
}

// Loop of one agent.
type Loop struct {
	Parts
	state *reducer.State
	// begun calls whose outcome is open, by ID.
	begun map[string]bool
	// resume notices by item, found at boot and told when the item is worked on.
	resume map[string]notice
	work   *doors.Snapshot
	// heard are the sources of what snapshots told, in this process.
	heard  map[string]bool
	flight *flight
	canAsk bool
	budget int
	// settling since, for the event that woke the item.
	settling   time.Time
	settlingAt int64
	ready      atomic.Bool
	// deaf: the last attempt to read the mailbox failed, so words may wait there.
	deaf atomic.Bool
	beat atomic.Int64

	snapshots chan doors.Snapshot
	mail      chan batch
	landed    chan landing
	notices   chan notice
	said      chan struct{} // a message was delivered, or the mailbox can be read again
	toSay     chan struct{} // a message was queued
}

type notice struct{ item, key, text string }

// flight is the one effect that is under way outside.
type flight struct {
	item   string
	intent eventlog.Intent
	cancel context.CancelFunc
	// abandoned: its outcome is not wanted any more.
	abandoned bool
}

// landing is how a flight ended. Exactly one of the two is set, or neither when it was cancelled.
type landing struct {
	call *callOutcome
	ask  *askOutcome
}

// New loop over an open log.
func New(p Parts) *Loop {
	return &Loop{
		Parts: p, state: reducer.New(p.Log.ID()), begun: map[string]bool{}, resume: map[string]notice{}, heard: map[string]bool{}, canAsk: true, budget: prompt.DefaultBudget,
		snapshots: make(chan doors.Snapshot, 1), mail: make(chan batch), landed: make(chan landing, 1), notices: make(chan notice),
		said: make(chan struct{}, 1), toSay: make(chan struct{}, 1),
	}
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
	if err := l.boot(ctx); err != nil {
		return err
	}
	outside, stop := context.WithCancel(ctx)
	defer stop()
	go l.Work.Run(outside, l.gotWork, func(error) { l.ready.Store(false) })
	go l.readMail(outside)
	go l.sayWords(outside)
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
			if err := l.observe(ctx, s); err != nil {
				return err
			}
		case b := <-l.mail:
			if err := l.receive(ctx, b); err != nil {
				return err
			}
		case d := <-l.landed:
			if err := l.land(ctx, d); err != nil {
				return err
			}
		case n := <-l.notices:
			if err := l.commit(ctx, n.item, "notice", l.state.Item(n.item).Noticed(n.key, n.text), eventlog.Write{}); err != nil {
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
	if l.flight == nil || l.flight.intent.Kind == eventlog.KindAsk {
		return nil
	}
	grace := time.NewTimer(l.Timing.Grace)
	defer grace.Stop()
	for {
		select {
		case d := <-l.landed:
			return l.land(ctx, d)
		case n := <-l.notices:
			l.Logger.InfoContext(ctx, "notice.dropped", "text", n.text)
		case <-grace.C:
			return nil
		}
	}
}

// advance does all that can be done now, up to the next thing that takes time.
func (l *Loop) advance(ctx context.Context) error {
	if l.flight != nil {
		l.reconsider()
		return nil
	}
	for ctx.Err() == nil && l.flight == nil && l.work != nil && l.work.Active != nil {
		item := l.work.Active
		it := l.state.Item(item.Name)
		e := it.Next(reducer.Env{Calls: l.Config.ToolCallsPerTurn, CanAsk: l.canAsk, Begun: l.begun})
		if l.held(*item, it, e) {
			return nil
		}
		var b reducer.Batch
		var err error
		switch e := e.(type) {
		case reducer.Wait:
			return nil
		case reducer.AskModel:
			if err := l.tellRestart(ctx, it); err != nil {
				return err
			}
			return l.ask(ctx, *item, it.Next(l.env()).(reducer.AskModel))
		case reducer.CallTool:
			if err := l.tellRestart(ctx, it); err != nil {
				return err
			}
			if waits, err := l.wordsFirst(ctx, e); waits || err != nil {
				return err
			}
			return l.call(ctx, e)
		case reducer.Answer:
			b = it.NotMade(e)
		case reducer.Say:
			b = it.Spoken(e)
		case reducer.AskPerson:
			b, err = it.Asked(e)
		}
		if err != nil {
			return err
		}
		if err := l.commit(ctx, item.Name, "turn", b, eventlog.Write{}); err != nil {
			return err
		}
	}
	return nil
}

func (l *Loop) env() reducer.Env {
	return reducer.Env{Calls: l.Config.ToolCallsPerTurn, CanAsk: l.canAsk, Begun: l.begun}
}

// commit writes a batch and folds what was new.
func (l *Loop) commit(ctx context.Context, item, cause string, b reducer.Batch, w eventlog.Write) error {
	w.Cause = cause
	w.Events = append(w.Events, b.Events...)
	w.Say = append(w.Say, b.Say...)
	w.Asides = append(w.Asides, b.Asides...)
	return l.write(ctx, w)
}

func (l *Loop) write(ctx context.Context, w eventlog.Write) error {
	added, err := l.Log.Commit(ctx, w)
	if err != nil {
		return err
	}
	for _, e := range added {
		l.Meter.event(e.Type)
		if err := l.state.Apply(e); err != nil {
			return err
		}
	}
	if len(w.Say) > 0 {
		kick(l.toSay)
	}
	return nil
}

func kick(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// begin writes an intent down before its effect.
func (l *Loop) begin(ctx context.Context, i eventlog.Intent, cause string) error {
	crashpoint.Hit("runtime.intent.before")
	if err := l.write(ctx, eventlog.Write{Begin: &i, Cause: cause}); err != nil {
		return err
	}
	crashpoint.Hit("runtime.intent.after")
	return nil
}

// land writes the outcome of the flight.
func (l *Loop) land(ctx context.Context, d landing) error {
	f := l.flight
	l.flight = nil
	f.cancel()
	it := l.state.Item(f.item)
	switch {
	case d.call != nil:
		delete(l.begun, f.intent.ID)
		l.Meter.call(d.call.call.Tool, d.call.result.Status)
		return l.outcome(ctx, f, it.Resulted(d.call.call, d.call.result.ToolResult, d.call.result.Text))
	case d.ask != nil && !f.abandoned:
		l.Meter.ask(d.ask.err)
		l.budget = d.ask.budget
		if d.ask.err != nil {
			return l.outcome(ctx, f, it.Failed(d.ask.ask, fmt.Sprintf("I cannot go on: %v. Tell me to go on when that is mended.", d.ask.err)))
		}
		l.canAsk = d.ask.tools.Has(reducer.AskHuman)
		return l.outcome(ctx, f, it.Replied(d.ask.ask, d.ask.reply(), d.ask.tools.Check, l.env()))
	}
	if f.intent.Kind == eventlog.KindCall {
		return nil // cut off by the end of the process; the intent stays open
	}
	return l.write(ctx, eventlog.Write{Drop: f.intent.ID, Cause: "given up"})
}

func (l *Loop) outcome(ctx context.Context, f *flight, b reducer.Batch) error {
	crashpoint.Hit("runtime.outcome.before")
	if err := l.commit(ctx, f.item, f.intent.ID, b, eventlog.Write{Settle: f.intent.ID}); err != nil {
		return err
	}
	crashpoint.Hit("runtime.outcome.after")
	return nil
}
