// Package items sees to it that every work item has a thread in its agent's room: the message it began with, or for an item made
// by hand a message that says so.
package items

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/gateway/render"
	"nisse.io/nisse/gateway/store"
	"nisse.io/nisse/internal/sanitize"
)

// ByAge orders items as an agent takes them up: the oldest first, and of one second by name, which begins with the time.
func ByAge(x, y v1alpha1.WorkItem) int {
	return cmp.Or(x.CreationTimestamp.Compare(y.CreationTimestamp.Time), strings.Compare(x.Name, y.Name))
}

// maxRequest is how much of a request made by hand is shown in the room, in runes.
const maxRequest = 2000

// Thread of an item; it is begun if there is none.
func Thread(tx *store.Tx, w *v1alpha1.WorkItem) (store.Thread, error) {
	t, ok, err := tx.Thread(w.Name)
	if err != nil || ok {
		return t, err
	}
	t = store.Thread{WorkItem: w.Name, Agent: w.Spec.Agent}
	if m := w.Spec.Source.Matrix; m != nil {
		// The link was lost with an earlier store; the object still names the message.
		t.Room, t.Root = m.Room, m.EventID
	} else {
		t.RootOf = "root/" + w.Name
		if err := tx.Send(store.Outbound{
			ID: t.RootOf, Sender: store.ByAgent(w.Spec.Agent), Agent: w.Spec.Agent, WorkItem: w.Name, Content: begun(w).JSON(),
		}); err != nil {
			return t, err
		}
	}
	return t, tx.AddThread(t)
}

func begun(w *v1alpha1.WorkItem) render.Content {
	s := fmt.Sprintf("New item %s, made in Kubernetes: %s", w.Name, sanitize.Line(w.Spec.Title, 200))
	if request := sanitize.Line(w.Spec.Request, maxRequest); request != "" && request != w.Spec.Title {
		s += "\n" + request
	}
	return render.Notice(s)
}

// In is an outbound about an item, in its thread.
func In(t store.Thread, o store.Outbound) store.Outbound {
	o.Agent, o.WorkItem, o.Room = t.Agent, t.WorkItem, t.Room
	if t.Root != "" {
		o.Thread = t.Root
	} else {
		o.ThreadOf = t.RootOf
	}
	return o
}

// Reconciler begins the threads of items that were made by hand, notes which items were seen, and tells what people must know of an item
// whatever its agent says.
type Reconciler struct {
	Objects client.Reader
	Store   *store.Store
	Now     func() time.Time
	Log     *slog.Logger
}

// Reconcile one item.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if err := r.Store.Seen(ctx, req.Name); err != nil { // also of one that is gone by now: it was there
		return ctrl.Result{}, fmt.Errorf("note that %s was seen: %w", req.Name, err)
	}
	var w v1alpha1.WorkItem
	if err := r.Objects.Get(ctx, req.NamespacedName, &w); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if o := w.Status.Outcome; o != nil && o.Undone != "" && r.Now().Sub(o.At.Time) < store.Keep { // what is older was told, and that is forgotten
		return ctrl.Result{}, r.tellUndone(ctx, &w)
	}
	if w.Asking() && !w.Unread() {
		if err := r.tellAsked(ctx, &w); err != nil {
			return ctrl.Result{}, err
		}
	}
	if w.Spec.Source.Kind != v1alpha1.SourceKubernetes || w.Over() {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, r.Store.Update(ctx, func(tx *store.Tx) error {
		_, err := Thread(tx, &w)
		return err
	})
}

// Task is the ID by which logs tell an item's story. It reads the cache; an item that is not there goes by its name.
func Task(ctx context.Context, objects client.Reader, namespace, name string) string {
	var w v1alpha1.WorkItem
	if name == "" || objects.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &w) != nil {
		return name
	}
	return w.Correlation()
}
