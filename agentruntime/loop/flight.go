package loop

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"nisse.io/nisse/agentruntime/backoff"
	"nisse.io/nisse/agentruntime/core"
	"nisse.io/nisse/agentruntime/model"
	"nisse.io/nisse/agentruntime/offer"
)

// depart on a flight in a goroutine of its own. The core has one at a time.
func (l *Loop) depart(ctx context.Context, f *core.Flight) {
	do := l.ask
	if f.Call != nil {
		do = l.call
		ctx = context.WithoutCancel(ctx) // a call under way outlives the order to stop by the grace; see Loop.stop
	}
	ctx, l.cancel = context.WithCancel(ctx)
	l.flight = f
	go func() { l.landed <- do(ctx, f) }()
}

// call a tool, again and again under the same ID, until there is an answer.
func (l *Loop) call(ctx context.Context, f *core.Flight) core.Landing {
	begun, told := time.Now(), false
	wait := backoff.New(l.Timing.First, l.Timing.Limit)
	hear, end := l.watch(ctx, f)
	defer end()
	for {
		r, err := l.Tools.Call(ctx, f.Item, f.Call.ID, f.Call.Tool, json.RawMessage(f.Call.Args), hear)
		if final := core.Attempted(r, err, time.Since(begun)); final != nil {
			return core.Landing{Call: final}
		}
		notice := fmt.Sprintf("Step %d has not ended: %s I wait for it; nothing runs twice.", r.Step, r.Message)
		if err != nil {
			l.Logger.WarnContext(ctx, "call.retried", "task_id", f.Item, "cause", f.Call.ID, "error", err.Error())
			notice = fmt.Sprintf("My tools have not answered for %s (%s). I keep asking under the same ID, so nothing runs twice.", round(time.Since(begun)), f.Call.Tool)
		}
		if !told && time.Since(begun) >= l.Timing.Notice {
			told = true
			l.tell(ctx, core.Notice{Item: f.Item, Key: "call/" + f.Call.ID, Text: notice})
		}
		if wait.Wait(ctx, 0) != nil {
			return core.Landing{}
		}
	}
}

// ask the model until it answers, or never will.
func (l *Loop) ask(ctx context.Context, f *core.Flight) core.Landing {
	tools, err := l.offers(ctx, f.Item, f.Ask.Key)
	if err != nil {
		return core.Landing{}
	}
	for {
		answer, err := l.askOnce(ctx, f, tools)
		if ctx.Err() != nil {
			return core.Landing{}
		}
		if err == nil || model.AsError(err).Kind != model.TooLong || !f.Ask.Shorten() {
			l.usable(f) // an answer that refuses the request is one
			return core.Landing{Ask: &core.Answered{Answer: answer, Tools: tools, Err: err}}
		}
		l.Logger.WarnContext(ctx, "request.shortened", "task_id", f.Item, "cause", f.Ask.ID, "budget", f.Ask.Budget, "error", err.Error())
	}
}

func (l *Loop) askOnce(ctx context.Context, f *core.Flight, tools *offer.Set) (model.Answer, error) {
	r, err := l.core.Request(ctx, f.Ask, tools)
	if err != nil {
		return model.Answer{}, err
	}
	told := false
	return l.Timing.Patience.Ask(ctx, l.Model, r, func(since time.Duration, e *model.Error) {
		l.Logger.WarnContext(ctx, "ask.retried", "task_id", f.Item, "cause", f.Ask.ID, "error", e.Error())
		if e.Kind == model.Misconfigured {
			l.unusable(f, e)
		}
		if !told && (since >= l.Timing.Notice || e.Kind == model.Misconfigured) {
			told = true
			text := fmt.Sprintf("I have had no answer for %s: %v. I keep asking.", round(since), e)
			if e.Kind == model.Misconfigured {
				text = fmt.Sprintf("I cannot use my model: %v. Its address, name or key needs mending; I keep asking.", e)
			}
			l.tell(ctx, core.Notice{Item: f.Item, Key: "model/" + f.Ask.Key, Text: text})
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
			l.tell(ctx, core.Notice{Item: item, Key: "tools/" + key, Text: fmt.Sprintf("My tools have not answered for %s. I keep asking.", round(time.Since(begun)))})
		}
		if err := wait.Wait(ctx, 0); err != nil {
			return nil, err
		}
	}
}

func (l *Loop) tell(ctx context.Context, n core.Notice) {
	select {
	case l.notices <- n:
	case <-ctx.Done():
	}
}

func round(d time.Duration) time.Duration { return d.Round(time.Second) }
