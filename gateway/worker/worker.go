// Package worker does what was routed: it makes work items and approvals, asks for stops, hands words to the agents' mailboxes and
// answers people. Each message's effect has a name made from the message, so that doing it again does nothing, and it is done when
// its row says so. While the API server is away, rows wait.
package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/gateway/items"
	"nisse.io/nisse/gateway/render"
	"nisse.io/nisse/gateway/routing"
	"nisse.io/nisse/gateway/store"
	"nisse.io/nisse/internal/canonical"
	"nisse.io/nisse/internal/sanitize"
	"nisse.io/nisse/internal/telemetry"
)

const (
	firstWait = 200 * time.Millisecond
	mostWait  = 15 * time.Second
	// timeout of one message's effect.
	timeout = 30 * time.Second
)

// Worker of the inbox.
type Worker struct {
	// Objects reads from the cache and writes to the API server; Live reads from the API server.
	Objects   client.Client
	Live      client.Reader
	Store     *store.Store
	Namespace string
	Log       *slog.Logger
}

// Run until the context ends.
func (w *Worker) Run(ctx context.Context) error {
	wait := firstWait
	for {
		changed := w.Store.Changed(store.TopicInbox)
		var retry <-chan time.Time
		if w.work(ctx) {
			wait = firstWait
		} else {
			retry = time.After(wait)
			wait = min(2*wait, mostWait)
		}
		select {
		case <-changed:
		case <-retry:
		case <-ctx.Done():
			return nil
		}
	}
}

// work off what waits, in the order in which it was said. An agent whose message cannot be done now keeps its later ones waiting,
// others not. It tells whether all was done.
func (w *Worker) work(ctx context.Context) bool {
	waiting, err := w.Store.Waiting(ctx)
	if err != nil {
		w.Log.ErrorContext(ctx, "inbox.unreadable", "error", err.Error())
		return false
	}
	held := map[string]bool{}
	for _, m := range waiting {
		if held[m.Agent] || ctx.Err() != nil {
			continue
		}
		if err := w.one(ctx, m); err != nil {
			w.Log.WarnContext(ctx, "message.waits", "agent", m.Agent, "cause", m.EventID, "error", err.Error())
			held[m.Agent] = true
		}
	}
	return len(held) == 0
}

func (w *Worker) one(ctx context.Context, m store.Inbound) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := w.effect(ctx, m)
	var no *refusal
	switch {
	case errors.As(err, &no):
		err = w.finish(ctx, m, no.reason, func(tx *store.Tx) error { return tell(tx, m, no.text, no.gates) })
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		// It will never be taken. Who said it must know.
		text := "This could not be recorded, and nothing was done: " + sanitize.Line(err.Error(), 300)
		err = w.finish(ctx, m, err.Error(), func(tx *store.Tx) error { return tell(tx, m, text, m.Route.Kind == routing.Decide) })
	}
	return err
}

// refusal is an end that the person is told about.
type refusal struct {
	reason string
	text   string
	gates  bool
}

func (r *refusal) Error() string { return r.reason }

func (w *Worker) effect(ctx context.Context, m store.Inbound) error {
	switch m.Route.Kind {
	case routing.Tell:
		return w.finish(ctx, m, "", func(tx *store.Tx) error { return tell(tx, m, m.Route.Tell, m.Route.Gates) })
	case routing.Open:
		return w.open(ctx, m)
	case routing.Words:
		return w.words(ctx, m)
	case routing.Data:
		return w.finish(ctx, m, "", func(tx *store.Tx) error { return deliver(tx, m) })
	case routing.Decide:
		return w.decide(ctx, m)
	case routing.Stop:
		return w.stop(ctx, m)
	case routing.Status:
		return w.status(ctx, m)
	case routing.Silence:
	}
	return w.finish(ctx, m, "", func(*store.Tx) error { return nil })
}

// finish writes what is left of the effect in the store, and that it is done, in one go.
func (w *Worker) finish(ctx context.Context, m store.Inbound, reason string, rest func(*store.Tx) error) error {
	err := w.Store.Update(ctx, func(tx *store.Tx) error {
		if err := rest(tx); err != nil {
			return err
		}
		return tx.Finish(m.EventID, reason)
	})
	if err != nil {
		return fmt.Errorf("finish %s: %w", m.EventID, err)
	}
	telemetry.Changed(ctx, w.Log, "message.handled", telemetry.Event{Agent: m.Agent, TaskID: items.Task(ctx, w.Objects, w.Namespace, m.Route.WorkItem), Cause: m.EventID},
		slog.String("kind", string(m.Route.Kind)), slog.String("person", m.Route.Person))
	return nil
}

// letter of a message. One that was routed by an earlier gateway may be of any length.
func letter(m store.Inbound) store.Letter {
	text, _ := routing.Letter(m.Route.Text)
	return store.Letter{
		Agent: m.Agent, EventID: m.EventID, WorkItem: m.Route.WorkItem, At: m.At, Person: m.Route.Person,
		MayInstruct: m.Route.MayInstruct, Text: text,
	}
}

// deliver hands words on to the agent, and tells their sender what there is to tell about it.
func deliver(tx *store.Tx, m store.Inbound) error {
	if err := tx.AddLetter(letter(m)); err != nil || m.Route.Tell == "" {
		return err
	}
	return tell(tx, m, m.Route.Tell, false)
}

// tell answers a message, where it was said.
func tell(tx *store.Tx, m store.Inbound, text string, gates bool) error {
	id := "tell/" + m.EventID
	if m.Route.Once {
		id = "tell/" + canonical.Hex([]byte(m.Agent + "\x00" + m.Sender + "\x00" + m.Route.Tell + "\x00" + m.At.Truncate(time.Hour).String()))[:32]
		if said, err := tx.Said(id); err != nil || said {
			return err
		}
	}
	sender := store.ByAgent(m.Agent)
	if gates {
		sender = store.ByApprovals
	}
	return tx.Send(store.Outbound{
		ID: id, Sender: sender, Agent: m.Agent, WorkItem: m.Route.WorkItem, Room: m.Room, Thread: m.Thread, ReplyTo: m.EventID,
		Content: render.Notice(text).JSON(),
	})
}
