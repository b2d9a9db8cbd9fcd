package loop

import (
	"context"
	"time"

	"nisse.io/nisse/agentruntime/eventlog"
	"nisse.io/nisse/agentruntime/reducer"
	"nisse.io/nisse/internal/doors"
)

// wordsFirst tells whether the words that belong to a call have yet to reach the gateway, or whether people's words may be waiting
// there: an item must not end on what nobody has read.
func (l *Loop) wordsFirst(ctx context.Context, e reducer.CallTool) (bool, error) {
	if e.Call.Tool != reducer.Finish && e.Call.Tool != reducer.AskHuman {
		return false, nil
	}
	if l.deaf.Load() && !l.begun[e.Call.ID] {
		return true, nil
	}
	n, err := l.Log.Undelivered(context.WithoutCancel(ctx), l.work.Active.Name)
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
	if p := item.Plan; item.State == "AwaitingApproval" && p != nil && decided(*p) != "" {
		return false // the outcome is what counts; the item's state follows it in a moment
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
