// Package loop drives the runtime: one goroutine owns the state, does one effect at a time, and writes down each before it begins
// and after it ends. It works on the active item alone; what others bring is kept until they are active.
package loop

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"nisse.io/nisse/agentruntime/doorclient"
	"nisse.io/nisse/agentruntime/event"
	"nisse.io/nisse/agentruntime/eventlog"
	"nisse.io/nisse/agentruntime/model"
	"nisse.io/nisse/agentruntime/prompt"
	"nisse.io/nisse/agentruntime/reducer"
	"nisse.io/nisse/internal/crashpoint"
	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/internal/telemetry"
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
	Read(ctx context.Context, epoch string, seq int64) (in doors.Inbox, moved bool, err error)
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
var Usual = Timing{Patience: model.Usual, First: 500 * time.Millisecond, Limit: 30 * time.Second, Notice: 30 * time.Second, Settle: 15 * time.Second, Grace: 20 * time.Second}

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
	flight *flight
	canAsk bool
	budget int
	// settling since, for the event that woke the item.
	settling   time.Time
	settlingAt int64
	ready      atomic.Bool
	beat       atomic.Int64

	snapshots chan doors.Snapshot
	mail      chan batch
	landed    chan landing
	notices   chan notice
	said      chan struct{} // a message was delivered
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
		Parts: p, state: reducer.New(p.Log.ID()), begun: map[string]bool{}, resume: map[string]notice{}, canAsk: true, budget: prompt.DefaultBudget,
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

// wordsFirst tells whether the words that belong to a call have yet to reach the gateway.
func (l *Loop) wordsFirst(ctx context.Context, e reducer.CallTool) (bool, error) {
	if e.Call.Tool != reducer.Finish && e.Call.Tool != reducer.AskHuman {
		return false, nil
	}
	n, err := l.Log.Undelivered(ctx, l.work.Active.Name)
	return n > 0, err
}

// held tells whether an effect has to wait for the cluster or for a person.
func (l *Loop) held(item doors.Item, it *reducer.Item, e reducer.Effect) bool {
	if c, ok := e.(reducer.CallTool); ok && l.begun[c.Call.ID] {
		return false // its outcome is open, and only asking again closes that
	}
	if item.Stopped || item.Halt != nil {
		return true
	}
	if _, ok := e.(reducer.AskModel); !ok || item.State == "Working" {
		return false
	}
	if !it.ByPerson {
		return true // what was decided will show in the item's state
	}
	if item.State == "AwaitingApproval" {
		return false // people may talk about a plan that waits for them
	}
	// A person's words answer a question or begin the work, and the cluster is about to say so.
	if l.settlingAt != it.Wake {
		l.settling, l.settlingAt = time.Now(), it.Wake
	}
	return time.Since(l.settling) < l.Timing.Settle
}

// reconsider gives up a request to the model that nobody waits for any more: another item is active, or a person said stop. A call
// goes on to its end.
func (l *Loop) reconsider() {
	f := l.flight
	if f.intent.Kind != eventlog.KindAsk || f.abandoned {
		return
	}
	a := l.work.Active
	if a == nil || a.Name != f.item || a.Stopped || a.Halt != nil || l.state.Item(f.item).Ended {
		f.abandoned = true
		f.cancel()
	}
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

// boot reads the log, and sorts out what was under way when the last process ended.
func (l *Loop) boot(ctx context.Context) error {
	if err := l.Log.Each(ctx, func(e event.Event) error { return l.state.Apply(e) }); err != nil {
		return err
	}
	intents, err := l.Log.Intents(ctx)
	if err != nil {
		return err
	}
	for _, i := range intents {
		it := l.state.Item(i.WorkItem)
		verdict := "asked again under the same ID"
		switch {
		case it.Ended, i.Kind == eventlog.KindAsk:
			// Nothing outside depends on a request to the model; its successor may even show more.
			verdict = "dropped"
			if err := l.write(ctx, eventlog.Write{Drop: i.ID, Cause: "boot"}); err != nil {
				return err
			}
		default:
			l.begun[i.ID] = true
		}
		if !it.Ended {
			l.resume[i.WorkItem] = restarted(it, i)
		}
		telemetry.Changed(ctx, l.Logger, "boot.reconciled", telemetry.Event{Agent: l.Config.Agent, TaskID: i.WorkItem, Cause: "boot"},
			slog.String("intent_id", i.ID), slog.String("kind", i.Kind), slog.String("verdict", verdict))
	}
	kick(l.toSay)
	return nil
}

// restarted is what people read when a turn goes on after a restart. Its key changes only when the turn gets further, so a process
// that dies again and again says it once.
func restarted(it *reducer.Item, i eventlog.Intent) notice {
	n := notice{item: it.Name, key: fmt.Sprintf("restart/%s/%d/%d", it.Name, it.Wake, it.Answered), text: "Restarted in the middle of a turn. Nothing was lost; going on."}
	if i.Kind == eventlog.KindCall {
		n.key += "/" + i.ID
		n.text = fmt.Sprintf("Restarted while `%s` was under way. I ask for it again under the same ID, so it cannot run twice; going on.", i.Subject)
	}
	return n
}

func (l *Loop) tellRestart(ctx context.Context, it *reducer.Item) error {
	n, ok := l.resume[it.Name]
	if !ok {
		return nil
	}
	delete(l.resume, it.Name)
	return l.commit(ctx, it.Name, "boot", it.Noticed(n.key, n.text), eventlog.Write{})
}
