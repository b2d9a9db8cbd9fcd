package loop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"nisse.io/nisse/agentruntime/backoff"
	"nisse.io/nisse/agentruntime/doorclient"
	"nisse.io/nisse/agentruntime/event"
	"nisse.io/nisse/agentruntime/eventlog"
	"nisse.io/nisse/agentruntime/model"
	"nisse.io/nisse/agentruntime/offer"
	"nisse.io/nisse/agentruntime/prompt"
	"nisse.io/nisse/agentruntime/reducer"
	"nisse.io/nisse/internal/doors"
)

// maxInternal is how long the broker may fail inside, with the cluster's API away for instance, before a call's outcome counts as
// unknown.
const maxInternal = 15 * time.Minute

type callOutcome struct {
	call   reducer.Call
	result doorclient.Result
}

type askOutcome struct {
	ask    reducer.AskModel
	answer model.Answer
	tools  *offer.Set
	budget int
	err    error
}

func (o *askOutcome) reply() reducer.Reply {
	r := reducer.Reply{Text: o.answer.Text, Reasoning: o.answer.Reasoning, Model: o.answer.Model, Problem: o.answer.Problem}
	for _, c := range o.answer.Calls {
		r.Wanted = append(r.Wanted, reducer.Wanted{ProviderID: c.ID, Tool: c.Tool, Args: c.Args})
	}
	return r
}

// depart starts f in its own goroutine as the one flight.
func (l *Loop) depart(ctx context.Context, item string, i eventlog.Intent, f func(ctx context.Context) landing) {
	ctx, cancel := context.WithCancel(ctx)
	l.flight = &flight{item: item, intent: i, cancel: cancel}
	go func() { l.landed <- f(ctx) }()
}

// call a tool, again and again under the same ID, until there is an answer.
func (l *Loop) call(ctx context.Context, e reducer.CallTool) error {
	c, item := e.Call, l.work.Active.Name
	i := eventlog.Intent{ID: c.ID, Kind: eventlog.KindCall, WorkItem: item, Subject: c.Tool}
	if !l.begun[c.ID] {
		if err := l.begin(ctx, i, c.Ask); err != nil {
			return err
		}
		l.begun[c.ID] = true
	}
	// A call under way outlives the order to stop by the grace; see Loop.stop.
	l.depart(context.WithoutCancel(ctx), item, i, func(ctx context.Context) landing {
		begun, told := time.Now(), false
		wait := backoff.New(l.Timing.First, l.Timing.Limit)
		for {
			r, err := l.Tools.Call(ctx, item, c.ID, c.Tool, json.RawMessage(c.Args))
			if err == nil && !underWay(r.ToolResult) {
				return landing{call: &callOutcome{c, r}}
			}
			if err == nil {
				// The deed was asked for and has not ended, because its device is away for instance. Asking again under the same ID
				// attaches to it; its end is this call's answer.
				if !told && time.Since(begun) >= l.Timing.Notice {
					told = true
					l.tell(ctx, notice{item, "call/" + c.ID, fmt.Sprintf("Step %d has not ended: %s I wait for it; nothing runs twice.", r.Step, r.Message)})
				}
				if wait.Wait(ctx, 0) != nil {
					return landing{}
				}
				continue
			}
			if errors.Is(err, doorclient.ErrInternal) && time.Since(begun) > maxInternal {
				return landing{call: &callOutcome{c, doorclient.FromDoor(doors.ToolResult{Status: doors.Unknown, Reason: "BrokerFailed", Message: "the broker failed while it handled this call; nobody can prove whether it ran"})}}
			}
			l.Logger.WarnContext(ctx, "call.retried", "task_id", item, "cause", c.ID, "error", err.Error())
			if !told && time.Since(begun) >= l.Timing.Notice {
				told = true
				l.tell(ctx, notice{item, "call/" + c.ID, fmt.Sprintf("My tools have not answered for %s (%s). I keep asking under the same ID, so nothing runs twice.", round(time.Since(begun)), c.Tool)})
			}
			if wait.Wait(ctx, 0) != nil {
				return landing{}
			}
		}
	})
	return nil
}

// underWay tells whether a step was asked for and its end is not known yet. A call that waits for a person's decision has no step.
func underWay(r doors.ToolResult) bool { return r.Status == doors.Pending && r.Step > 0 }

// ask the model, with what the log shows up to now.
func (l *Loop) ask(ctx context.Context, item doors.Item, a reducer.AskModel) error {
	i := eventlog.Intent{ID: a.ID, Kind: eventlog.KindAsk, WorkItem: item.Name, Subject: l.Config.Model.Model}
	if err := l.begin(ctx, i, fmt.Sprint(a.UpTo)); err != nil {
		return err
	}
	it := l.state.Item(item.Name)
	key := fmt.Sprintf("%s/%d/%d", item.Name, it.Wake, it.Answered)
	now := prompt.Now{
		Time: time.Now(), Agent: l.Config.Agent, Own: l.Config.Prompt, Item: item, Devices: l.work.Devices, Queued: len(l.work.Ready), Calls: l.Config.ToolCallsPerTurn,
	}
	budget := l.budget
	l.depart(ctx, item.Name, i, func(ctx context.Context) landing {
		tools, err := l.offers(ctx, item.Name, key)
		if err != nil {
			return landing{}
		}
		o := &askOutcome{ask: a, tools: tools, budget: budget}
		for {
			o.answer, o.err = l.askOnce(ctx, now, a, o.tools, o.budget, key)
			if ctx.Err() != nil {
				return landing{}
			}
			if o.err == nil || model.AsError(o.err).Kind != model.TooLong || o.budget/2 < prompt.LeastBudget {
				return landing{ask: o}
			}
			o.budget /= 2
			l.Logger.WarnContext(ctx, "request.shortened", "task_id", item.Name, "cause", a.ID, "budget", o.budget, "error", o.err.Error())
		}
	})
	return nil
}

func (l *Loop) askOnce(ctx context.Context, now prompt.Now, a reducer.AskModel, tools *offer.Set, budget int, key string) (model.Answer, error) {
	var events []event.Event
	if err := l.Log.EachOf(ctx, now.Item.Name, func(e event.Event) error {
		if e.Seq <= a.UpTo {
			events = append(events, e)
		}
		return nil
	}); err != nil {
		return model.Answer{}, err
	}
	messages, err := prompt.Render(prompt.System(now), events, budget)
	if err != nil {
		return model.Answer{}, &model.Error{Kind: model.Final, Err: err}
	}
	told := false
	return l.Timing.Patience.Ask(ctx, l.Model, model.Request{Messages: messages, Tools: tools.Tools()}, func(since time.Duration, e *model.Error) {
		l.Logger.WarnContext(ctx, "ask.retried", "task_id", now.Item.Name, "cause", a.ID, "error", e.Error())
		if !told && (since >= l.Timing.Notice || e.Kind == model.Misconfigured) {
			told = true
			text := fmt.Sprintf("I have had no answer for %s: %v. I keep asking.", round(since), e)
			if e.Kind == model.Misconfigured {
				text = fmt.Sprintf("I cannot use my model: %v. Its address, name or key needs mending; I keep asking.", e)
			}
			l.tell(ctx, notice{now.Item.Name, "model/" + key, text})
		}
	})
}

// offers lists the tools, however long that takes.
func (l *Loop) offers(ctx context.Context, item, key string) (*offer.Set, error) {
	begun, told := time.Now(), false
	wait := backoff.New(l.Timing.First, l.Timing.Limit)
	for {
		list, err := l.Tools.List(ctx)
		if err == nil {
			set, left := offer.New(list)
			if left != nil {
				l.Logger.WarnContext(ctx, "tools.left-out", "error", left.Error())
			}
			return set, nil
		}
		l.Logger.WarnContext(ctx, "tools.retried", "task_id", item, "error", err.Error())
		if !told && time.Since(begun) >= l.Timing.Notice {
			told = true
			l.tell(ctx, notice{item, "tools/" + key, fmt.Sprintf("My tools have not answered for %s. I keep asking.", round(time.Since(begun)))})
		}
		if err := wait.Wait(ctx, 0); err != nil {
			return nil, err
		}
	}
}

func (l *Loop) tell(ctx context.Context, n notice) {
	select {
	case l.notices <- n:
	case <-ctx.Done():
	}
}

func round(d time.Duration) time.Duration { return d.Round(time.Second) }
