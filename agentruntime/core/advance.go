package core

import (
	"context"
	"fmt"

	"nisse.io/nisse/agentruntime/event"
	"nisse.io/nisse/agentruntime/eventlog"
	"nisse.io/nisse/agentruntime/model"
	"nisse.io/nisse/agentruntime/offer"
	"nisse.io/nisse/agentruntime/prompt"
	"nisse.io/nisse/agentruntime/reducer"
	"nisse.io/nisse/internal/doors"
)

// Flight is the one effect that is under way outside. Its intent is on disk.
type Flight struct {
	Item   string
	Intent eventlog.Intent
	// Call or Ask: exactly one is set.
	Call *reducer.Call
	Ask  *Ask
	// abandoned: its outcome is not wanted any more.
	abandoned bool
}

// Ask is one request to the model.
type Ask struct {
	reducer.AskModel
	// Budget of the request, in the window's measure; halved when the model's context is shorter.
	Budget int
	// Key of what people are told about this stretch of the turn, each thing once.
	Key string
	// Now is what the request says of the world beside the log.
	Now prompt.Now
}

// Advance does all that can be done now, up to the next thing that takes time, which it returns: whoever drives the core does it and
// lands it. nil means that there is nothing to begin.
func (c *Core) Advance(ctx context.Context) (*Flight, error) {
	for ctx.Err() == nil && c.flight == nil && c.work != nil && c.work.Active != nil {
		item := c.work.Active
		it := c.state.Item(item.Name)
		e := it.Next(c.env())
		if c.held(*item, it, e) {
			return nil, nil
		}
		var b reducer.Batch
		var err error
		switch e := e.(type) {
		case reducer.Wait:
			return nil, nil
		case reducer.AskModel:
			if err := c.tellRestart(ctx, it); err != nil {
				return nil, err
			}
			return c.ask(ctx, *item, it.Next(c.env()).(reducer.AskModel))
		case reducer.CallTool:
			if err := c.tellRestart(ctx, it); err != nil {
				return nil, err
			}
			if waits, err := c.wordsFirst(ctx, e); waits || err != nil {
				return nil, err
			}
			return c.call(ctx, e.Call)
		case reducer.Answer:
			b = it.NotMade(e)
		case reducer.Say:
			b = it.Spoken(e)
		case reducer.AskPerson:
			b, err = it.Asked(e)
		}
		if err != nil {
			return nil, err
		}
		if err := c.commit(ctx, "turn", b, eventlog.Write{}); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func (c *Core) call(ctx context.Context, call reducer.Call) (*Flight, error) {
	f := &Flight{Item: c.work.Active.Name, Call: &call}
	f.Intent = eventlog.Intent{ID: call.ID, Kind: eventlog.KindCall, WorkItem: f.Item, Subject: call.Tool}
	if !c.begun[call.ID] {
		if err := c.begin(ctx, f.Intent, call.Ask); err != nil {
			return nil, err
		}
		c.begun[call.ID] = true
	}
	c.flight = f
	return f, nil
}

// ask the model, with what the log shows up to now.
func (c *Core) ask(ctx context.Context, item doors.Item, a reducer.AskModel) (*Flight, error) {
	f := &Flight{Item: item.Name, Intent: eventlog.Intent{ID: a.ID, Kind: eventlog.KindAsk, WorkItem: item.Name, Subject: c.Config.Model.Model}}
	if err := c.begin(ctx, f.Intent, fmt.Sprint(a.UpTo)); err != nil {
		return nil, err
	}
	it := c.state.Item(item.Name)
	f.Ask = &Ask{AskModel: a, Budget: c.budget, Key: fmt.Sprintf("%s/%d/%d", item.Name, it.Wake, it.Answered), Now: prompt.Now{
		Time: c.Now(), Agent: c.Config.Agent, Own: c.Config.Prompt, Item: item, Devices: c.work.Devices, Queued: len(c.work.Ready), Calls: c.Config.ToolCallsPerTurn,
	}}
	c.flight = f
	return f, nil
}

// Request renders what the model is sent: the log as the request was to show it, whatever has been written since. It may be called
// from the goroutine of the flight.
func (c *Core) Request(ctx context.Context, a *Ask, tools *offer.Set) (model.Request, error) {
	var events []event.Event
	if err := c.Log.EachOf(ctx, a.Now.Item.Name, func(e event.Event) error {
		if e.Seq <= a.UpTo {
			events = append(events, e)
		}
		return nil
	}); err != nil {
		return model.Request{}, err
	}
	messages, err := prompt.Render(prompt.System(a.Now), events, a.Budget)
	if err != nil {
		return model.Request{}, &model.Error{Kind: model.Final, Err: err}
	}
	return model.Request{Messages: messages, Tools: tools.Tools()}, nil
}

// Shorten the request, because the model's context is shorter. It reports whether that makes sense.
func (a *Ask) Shorten() bool {
	if a.Budget/2 < prompt.LeastBudget {
		return false
	}
	a.Budget /= 2
	return true
}
