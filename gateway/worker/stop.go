package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/gateway/store"
	"nisse.io/nisse/internal/canonical"
	"nisse.io/nisse/internal/sanitize"
)

const reasonOver = "Over"

// stopRequest of a message. The same message is always the same stop.
func stopRequest(m store.Inbound) *v1alpha1.StopRequest {
	return &v1alpha1.StopRequest{ID: "stop-" + canonical.Hex([]byte("nisse.io/stop/v1\x00" + m.Room + "\x00" + m.EventID))[:32], By: m.Route.Person}
}

// stop asks that nothing more runs for the item; said to the room, for whatever the agent works on now. Both are looked up live: a stop
// must not be lost to a cache that does not show the item yet.
func (w *Worker) stop(ctx context.Context, m store.Inbound) error {
	stop, name := stopRequest(m), m.Route.WorkItem
	if m.Route.Wide {
		var err error
		if name, err = w.running(ctx, m, stop.ID); err != nil {
			return err
		}
	}
	err := w.change(ctx, name, w.patch, func(item *v1alpha1.WorkItem) (map[string]any, error) {
		switch has := item.Spec.Stop; {
		case has != nil && has.ID == stop.ID:
			return nil, nil // made with it, or stopped by an earlier attempt
		case item.Over():
			return nil, &refusal{reason: reasonOver, text: sanitize.Quote(item.Spec.Title) + " is over; nothing runs for it any more."}
		case item.Stopped() && !item.Unasked():
			return nil, &refusal{reason: "Stopped", text: "It is stopped already: answer `continue`, `replan <advice>` or `abandon`."}
		}
		return map[string]any{"spec": map[string]any{"stop": stop}}, nil
	})
	var no *refusal
	ended := apierrors.IsNotFound(err) || errors.As(err, &no) && no.reason == reasonOver
	switch {
	case ended && m.Route.Wide:
		return fmt.Errorf("%s ended while it was being stopped; another may have begun: %w", name, errLookAgain)
	case apierrors.IsNotFound(err):
		return &refusal{reason: "NotFound", text: "It is over; nothing runs for it any more."}
	case err != nil:
		return fmt.Errorf("stop %s: %w", name, err)
	}
	return w.finish(ctx, m, "", func(*store.Tx) error { return nil })
}

var errLookAgain = errors.New("looked up again")

// running is the item that a stop said to the room means: the one the agent works on, else the one that was known when it was said, else
// the next in the queue. One that has this very stop is the one, whatever has become of it: a message stops one item.
func (w *Worker) running(ctx context.Context, m store.Inbound, stop string) (string, error) {
	var all v1alpha1.WorkItemList
	if err := w.Live.List(ctx, &all, client.InNamespace(w.Namespace)); err != nil {
		return "", fmt.Errorf("list work items: %w", err)
	}
	for _, i := range all.Items {
		if i.Spec.Agent == m.Agent && i.Spec.Stop != nil && i.Spec.Stop.ID == stop {
			return i.Name, nil
		}
	}
	var agent v1alpha1.Agent
	if err := w.Live.Get(ctx, client.ObjectKey{Namespace: w.Namespace, Name: m.Agent}, &agent); client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("read agent %s: %w", m.Agent, err)
	}
	open := pending(all.Items, m.Agent, "")
	for _, name := range []string{agent.Status.ActiveWorkItem, m.Route.WorkItem} {
		if slices.ContainsFunc(open, func(i v1alpha1.WorkItem) bool { return i.Name == name }) {
			return name, nil
		}
	}
	if len(open) == 0 {
		return "", &refusal{reason: "Idle", text: "Nothing is running."}
	}
	return open[0].Name, nil
}

// stopFirst puts a stop that was said before an item is made into the item as it is made, so that it never begins. What was said to the
// room while something else is open means that, perhaps, and is looked at in its turn.
func (w *Worker) stopFirst(ctx context.Context, m store.Inbound, item *v1alpha1.WorkItem) error {
	said, ok, err := w.Store.StopOf(ctx, m.Agent, item.Name)
	if err != nil || !ok {
		return err
	}
	if said.Route.Wide {
		others, err := w.others(ctx, m.Agent, item.Name)
		if err != nil || len(others) > 0 {
			return err
		}
	}
	item.Spec.Stop = stopRequest(said)
	return nil
}
