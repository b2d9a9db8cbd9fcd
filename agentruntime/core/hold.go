package core

import (
	"context"

	"nisse.io/nisse/agentruntime/reducer"
	"nisse.io/nisse/internal/doors"
)

// wordsFirst tells whether the words that belong to a call have yet to reach the gateway, or whether people's words may be waiting
// there: an item must not end on what nobody has read.
func (c *Core) wordsFirst(ctx context.Context, e reducer.CallTool) (bool, error) {
	if e.Call.Tool != reducer.Finish && e.Call.Tool != reducer.AskHuman {
		return false, nil
	}
	if !c.heardAll.Load() && !c.begun[e.Call.ID] {
		return true, nil
	}
	n, err := c.Log.Undelivered(context.WithoutCancel(ctx), c.work.Active.Name)
	return n > 0, err
}

// held tells whether an effect has to wait for the cluster or for a person.
func (c *Core) held(item doors.Item, it *reducer.Item, e reducer.Effect) bool {
	if call, ok := e.(reducer.CallTool); ok && c.begun[call.Call.ID] {
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
	if c.settlingAt != it.Wake {
		c.settling, c.settlingAt = c.Now(), it.Wake
	}
	return c.Now().Sub(c.settling) < c.Settle
}

// GiveUp tells whether a request to the model that is under way is not wanted any more: another item is active, or a person said
// stop. It says so once, and its answer will be dropped. A call goes on to its end.
func (c *Core) GiveUp() bool {
	f := c.flight
	if f == nil || f.Ask == nil || f.abandoned {
		return false
	}
	a := c.work.Active
	f.abandoned = a == nil || a.Name != f.Item || a.Stopped || a.Halt != nil || c.state.Item(f.Item).Ended
	return f.abandoned
}
