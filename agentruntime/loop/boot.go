package loop

import (
	"context"
	"fmt"
	"log/slog"

	"nisse.io/nisse/agentruntime/event"
	"nisse.io/nisse/agentruntime/eventlog"
	"nisse.io/nisse/agentruntime/reducer"
	"nisse.io/nisse/internal/telemetry"
)

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
