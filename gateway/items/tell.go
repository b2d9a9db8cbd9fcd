package items

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/gateway/render"
	"nisse.io/nisse/gateway/store"
	"nisse.io/nisse/internal/sanitize"
	"nisse.io/nisse/internal/telemetry"
)

// maxQuestion is how much of a question is repeated, in runes; it stands above in full.
const maxQuestion = 200

// tellUndone says in the thread of an item that is closed what of it was approved and did not succeed. The agent's own words may say otherwise.
func (r *Reconciler) tellUndone(ctx context.Context, w *v1alpha1.WorkItem) error {
	return r.tell(ctx, w, "undone/"+string(w.UID), render.Text("This work has ended. "+sanitize.Line(w.Status.Outcome.Undone, 1024)))
}

// tellAsked says that the agent waits for an answer, and what will be taken for one, to those who may give it: an agent's words do not look
// like a question by themselves, and call nobody.
func (r *Reconciler) tellAsked(ctx context.Context, w *v1alpha1.WorkItem) error {
	accounts, err := r.instructors(ctx, w)
	if err != nil {
		return err
	}
	q := w.Status.Runtime.Question
	c := render.Text(fmt.Sprintf("%s waits for an answer to %s. Your next words in the room, or in this thread, are taken for it.",
		sanitize.Line(w.Spec.Agent, 40), sanitize.Quote(sanitize.Line(q.Text, maxQuestion))))
	c.Mentions.UserIDs = accounts
	return r.tell(ctx, w, "asked/"+string(w.UID)+"/"+q.ID, c)
}

// tell something in the item's thread, once, from the approvals account: others than the agent say it.
func (r *Reconciler) tell(ctx context.Context, w *v1alpha1.WorkItem, id string, c render.Content) error {
	told := false
	err := r.Store.Update(ctx, func(tx *store.Tx) error {
		said, err := tx.Said(id)
		if err != nil || said {
			return err
		}
		t, err := Thread(tx, w)
		if err != nil {
			return err
		}
		told = true
		return tx.Send(In(t, store.Outbound{ID: id, Sender: store.ByApprovals, Content: c.JSON()}))
	})
	if err == nil && told {
		telemetry.Changed(ctx, r.Log, "item.told", telemetry.Event{Agent: w.Spec.Agent, TaskID: w.Correlation(), Cause: id})
	}
	return err
}

// instructors are the accounts of those who may answer the agent.
func (r *Reconciler) instructors(ctx context.Context, w *v1alpha1.WorkItem) ([]string, error) {
	var a v1alpha1.Agent
	if err := r.Objects.Get(ctx, client.ObjectKey{Namespace: w.Namespace, Name: w.Spec.Agent}, &a); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	var all []string
	for _, one := range a.Spec.People {
		if !slices.Contains(one.May, v1alpha1.RightInstruct) {
			continue
		}
		var p v1alpha1.Person
		err := r.Objects.Get(ctx, client.ObjectKey{Namespace: w.Namespace, Name: one.Name}, &p)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read person %s: %w", one.Name, err)
		}
		if err == nil && p.Spec.Identities.Matrix != "" {
			all = append(all, p.Spec.Identities.Matrix)
		}
	}
	return all, nil
}
