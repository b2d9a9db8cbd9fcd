package core

import (
	"context"
	"fmt"
	"log/slog"

	"nisse.io/nisse/agentruntime/event"
	"nisse.io/nisse/agentruntime/eventlog"
	"nisse.io/nisse/agentruntime/reducer"
	"nisse.io/nisse/internal/telemetry"
)

// Boot reads the log, and sorts out what was under way when the last process ended.
func (c *Core) Boot(ctx context.Context) error {
	if err := c.Log.Each(ctx, func(e event.Event) error { return c.state.Apply(e) }); err != nil {
		return err
	}
	intents, err := c.Log.Intents(ctx)
	if err != nil {
		return err
	}
	for _, i := range intents {
		it := c.state.Item(i.WorkItem)
		verdict := "asked again under the same ID"
		switch {
		case it.Ended, i.Kind == eventlog.KindAsk:
			// Nothing outside depends on a request to the model; its successor may even show more.
			verdict = "dropped"
			if err := c.write(ctx, eventlog.Write{Drop: i.ID, Cause: "boot"}); err != nil {
				return err
			}
		default:
			c.begun[i.ID] = true
		}
		if !it.Ended {
			c.resume[i.WorkItem] = restarted(it, i)
		}
		telemetry.Changed(ctx, c.Logger, "boot.reconciled", telemetry.Event{Agent: c.Config.Agent, TaskID: i.WorkItem, Cause: "boot"},
			slog.String("intent_id", i.ID), slog.String("kind", i.Kind), slog.String("verdict", verdict))
	}
	c.Queued() // what the last process did not get to say
	return nil
}

// restarted is what people read when a turn goes on after a restart. Its key changes only when the turn gets further, so a process
// that dies again and again says it once.
func restarted(it *reducer.Item, i eventlog.Intent) Notice {
	n := Notice{Item: it.Name, Key: fmt.Sprintf("restart/%s/%d/%d", it.Name, it.Wake, it.Answered), Text: "Restarted in the middle of a turn. Nothing was lost; going on."}
	if i.Kind == eventlog.KindCall {
		n.Key += "/" + i.ID
		n.Text = fmt.Sprintf("Restarted while `%s` was under way. I ask for it again under the same ID, so it cannot run twice; going on.", i.Subject)
	}
	return n
}

func (c *Core) tellRestart(ctx context.Context, it *reducer.Item) error {
	n, ok := c.resume[it.Name]
	if !ok {
		return nil
	}
	delete(c.resume, it.Name)
	return c.commit(ctx, "boot", it.Noticed(n.Key, n.Text), eventlog.Write{})
}
