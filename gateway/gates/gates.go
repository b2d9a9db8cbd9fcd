// Package gates shows gates in the rooms, from the approvals account: one message a gate in the thread of its item, written by the
// manager, shown in full, and edited once to how it ended. It also tells people why a decision of theirs did not count.
package gates

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/gateway/items"
	"nisse.io/nisse/gateway/metrics"
	"nisse.io/nisse/gateway/progress"
	"nisse.io/nisse/gateway/render"
	"nisse.io/nisse/gateway/store"
	"nisse.io/nisse/internal/approval"
	"nisse.io/nisse/internal/sanitize"
	"nisse.io/nisse/internal/telemetry"
)

// Reconciler shows gates.
type Reconciler struct {
	Objects client.Reader
	// Live reads past the cache.
	Live      client.Reader
	Store     *store.Store
	Namespace string
	// Dropped hears of an agent when a message that was to be read is not shown any more.
	Dropped func(ctx context.Context, agent string)
	Log     *slog.Logger
}

// Reconcile one gate.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var g v1alpha1.Gate
	switch err := r.Objects.Get(ctx, req.NamespacedName, &g); {
	case apierrors.IsNotFound(err):
		return ctrl.Result{}, r.sweep(ctx)
	case err != nil:
		return ctrl.Result{}, err
	}
	var w v1alpha1.WorkItem
	switch err := r.Objects.Get(ctx, client.ObjectKey{Namespace: g.Namespace, Name: g.Spec.WorkItem.Name}, &w); {
	case apierrors.IsNotFound(err): // not in the cache yet, or gone and its gate will follow
		return ctrl.Result{RequeueAfter: again(time.Since(g.CreationTimestamp.Time))}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("read the item of gate %s: %w", g.Name, err)
	}
	approvers, err := r.accounts(ctx, &g)
	if err != nil {
		return ctrl.Result{}, err
	}
	changed := ""
	err = r.Store.Update(ctx, func(tx *store.Tx) error {
		changed = ""
		shown, err := tx.Said(part(&g, 0))
		if err != nil {
			return err
		}
		switch {
		case g.Open() && !shown:
			changed = "gate.shown"
			return show(tx, &g, &w, approvers)
		case !g.Open() && shown:
			ended, err := tx.Said(end(&g))
			if err != nil || ended {
				return err
			}
			changed = "gate.ended"
			return conclude(tx, &g, &w)
		}
		return nil
	})
	if err == nil && changed != "" {
		telemetry.Changed(ctx, r.Log, changed, telemetry.Event{Agent: g.Spec.Agent, TaskID: w.Correlation(), Cause: g.Name})
	}
	return ctrl.Result{}, err
}

// again is when a gate without an item is looked at again: the older it is, the later. A cache that lags catches up within seconds;
// an item that is gone for good takes its gate along, and if that does not happen, nobody is helped by looking every second.
func again(age time.Duration) time.Duration {
	return min(max(age/2, time.Second), 5*time.Minute)
}

// asked is what is shown of a gate: its message, with the code in its last line where only the code approves. The code is in no object.
func asked(g *v1alpha1.Gate) string {
	head, reply, ok := cutLast(g.Spec.Message, "\nReply  approve <code>")
	if g.Spec.Tier != v1alpha1.TierHigh || !ok {
		return g.Spec.Message
	}
	return head + "\nReply  approve " + approval.Code(g.Spec.Digest, string(g.UID)) + reply
}

// Sign is the command that approves a gate which takes a person's own signature; empty for others.
func Sign(g *v1alpha1.Gate) string {
	if len(g.Spec.Signers) == 0 {
		return ""
	}
	return fmt.Sprintf("kubectl nisse approve %s -n %s --key <file>", g.Name, g.Namespace)
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

func show(tx *store.Tx, g *v1alpha1.Gate, w *v1alpha1.WorkItem, approvers []string) error {
	t, err := items.Thread(tx, w)
	if err != nil {
		return err
	}
	// What the agent did stands above what it asks for.
	if err := progress.Flush(tx, w.Name); err != nil {
		return err
	}
	for n, content := range render.Gate(asked(g), approvers) {
		if err := tx.Send(items.In(t, store.Outbound{ID: part(g, n), Sender: store.ByApprovals, Content: content.JSON(), Must: true})); err != nil {
			return err
		}
	}
	return nil
}

func conclude(tx *store.Tx, g *v1alpha1.Gate, w *v1alpha1.WorkItem) error {
	t, err := items.Thread(tx, w)
	if err != nil {
		return err
	}
	if err := tx.Release(Parts(g)); err != nil {
		return err
	}
	messages := render.Ended(Ended(g), asked(g))
	send := func(id string, n int) error {
		return tx.Send(items.In(t, store.Outbound{ID: id, Sender: store.ByApprovals, Replaces: part(g, n), Content: messages[n].JSON()}))
	}
	if err := send(end(g), 0); err != nil {
		return err
	}
	if n := len(messages) - 1; n > 0 { // it says what to reply
		return send(end(g)+"/last", n)
	}
	return nil
}

// accounts of the people who may decide.
func (r *Reconciler) accounts(ctx context.Context, g *v1alpha1.Gate) ([]string, error) {
	var out []string
	for _, name := range g.Spec.Approvers {
		var p v1alpha1.Person
		err := r.Objects.Get(ctx, client.ObjectKey{Namespace: g.Namespace, Name: name}, &p)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read person %s: %w", name, err)
		}
		if err == nil && p.Spec.Identities.Matrix != "" {
			out = append(out, p.Spec.Identities.Matrix)
		}
	}
	return out, nil
}

// Refusals tells people why a decision of theirs did not count.
type Refusals struct {
	Objects client.Reader
	Store   *store.Store
	Log     *slog.Logger
}

// Reconcile one Approval.
func (r *Refusals) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var a v1alpha1.Approval
	if err := r.Objects.Get(ctx, req.NamespacedName, &a); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if a.Status.Reason == "" || a.Spec.Channel.Matrix == nil {
		return ctrl.Result{}, nil
	}
	m, known, err := r.Store.Inbound(ctx, a.Spec.Channel.Matrix.EventID)
	if err != nil || !known {
		return ctrl.Result{}, err // not of this store: it was told by another, or is not ours at all
	}
	text := sanitize.Line(a.Status.Message, 1000)
	if text == "" {
		text = "This decision does not count (" + a.Status.Reason + ")."
	}
	told := false
	err = r.Store.Update(ctx, func(tx *store.Tx) error {
		id := "refused/" + string(a.UID)
		said, err := tx.Said(id)
		if err != nil || said {
			return err
		}
		told = true
		return tx.Send(store.Outbound{
			ID: id, Sender: store.ByApprovals, Agent: m.Agent, WorkItem: m.Route.WorkItem, Room: m.Room, Thread: m.Thread, ReplyTo: m.EventID,
			Content: render.Text(text).JSON(),
		})
	})
	if err == nil && told {
		metrics.Refusals.WithLabelValues(a.Status.Reason).Inc()
		telemetry.Changed(ctx, r.Log, "refusal.told", telemetry.Event{Agent: m.Agent, TaskID: items.Task(ctx, r.Objects, a.Namespace, m.Route.WorkItem), Cause: a.Name},
			slog.String("reason", a.Status.Reason))
	}
	return ctrl.Result{}, err
}
