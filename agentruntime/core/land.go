package core

import (
	"context"
	"errors"
	"fmt"
	"time"

	"nisse.io/nisse/agentruntime/doorclient"
	"nisse.io/nisse/agentruntime/eventlog"
	"nisse.io/nisse/agentruntime/model"
	"nisse.io/nisse/agentruntime/offer"
	"nisse.io/nisse/agentruntime/reducer"
	"nisse.io/nisse/internal/crashpoint"
	"nisse.io/nisse/internal/doors"
)

// maxInternal is how long the broker may fail inside, with the cluster's API away for instance, before a call's outcome counts as
// unknown.
const maxInternal = 15 * time.Minute

// Landing is how a flight ended: one of the two, or neither when it was cut off.
type Landing struct {
	// Call's result.
	Call *doorclient.Result
	// Ask's answer.
	Ask *Answered
}

// Answered is how a request to the model ended.
type Answered struct {
	Answer model.Answer
	// Tools that were on offer with it.
	Tools *offer.Set
	// Err for which the request failed for good.
	Err error
}

func (a *Answered) reply() reducer.Reply {
	r := reducer.Reply{Text: a.Answer.Text, Reasoning: a.Answer.Reasoning, Model: a.Answer.Model, Problem: a.Answer.Problem}
	for _, c := range a.Answer.Calls {
		r.Wanted = append(r.Wanted, reducer.Wanted{ProviderID: c.ID, Tool: c.Tool, Args: c.Args})
	}
	return r
}

// Attempted tells what one attempt at a call comes to, made since a while: its result, or nil when the same call is to be made again
// under the same ID.
func Attempted(r doorclient.Result, err error, since time.Duration) *doorclient.Result {
	switch {
	case err == nil && UnderWay(r.ToolResult):
		// The deed was asked for and has not ended, because its device is away for instance. Asking again under the same ID attaches
		// to it; its end is this call's answer.
		return nil
	case err == nil:
		return &r
	case errors.Is(err, doorclient.ErrInternal) && since > maxInternal:
		unknown := doorclient.FromDoor(doors.ToolResult{Status: doors.Unknown, Reason: "BrokerFailed", Message: "the broker failed while it handled this call; nobody can prove whether it ran"})
		return &unknown
	}
	return nil
}

// UnderWay tells whether a step was asked for and its end is not known yet. A call that waits for a person's decision has no step.
func UnderWay(r doors.ToolResult) bool { return r.Status == doors.Pending && r.Step > 0 }

// Land writes the outcome of the flight.
func (c *Core) Land(ctx context.Context, l Landing) error {
	f := c.flight
	c.flight = nil
	it := c.state.Item(f.Item)
	switch {
	case l.Call != nil:
		delete(c.begun, f.Intent.ID)
		c.Meter.call(f.Call.Tool, l.Call.Status)
		return c.outcome(ctx, f, it.Resulted(*f.Call, l.Call.ToolResult, l.Call.Text))
	case l.Ask != nil && !f.abandoned:
		c.Meter.ask(l.Ask.Err)
		c.budget = f.Ask.Budget
		if l.Ask.Err != nil {
			return c.outcome(ctx, f, it.Failed(f.Ask.AskModel, fmt.Sprintf("I cannot go on: %v. Tell me to go on when that is mended.", l.Ask.Err)))
		}
		c.canAsk = l.Ask.Tools.Has(reducer.AskHuman)
		return c.outcome(ctx, f, it.Replied(f.Ask.AskModel, l.Ask.reply(), l.Ask.Tools.Check, c.env()))
	}
	if f.Call != nil {
		return nil // cut off by the end of the process; the intent stays open
	}
	return c.write(ctx, eventlog.Write{Drop: f.Intent.ID, Cause: "given up"})
}

func (c *Core) outcome(ctx context.Context, f *Flight, b reducer.Batch) error {
	crashpoint.Hit("runtime.outcome.before")
	if err := c.commit(ctx, f.Intent.ID, b, eventlog.Write{Settle: f.Intent.ID}); err != nil {
		return err
	}
	crashpoint.Hit("runtime.outcome.after")
	return nil
}
