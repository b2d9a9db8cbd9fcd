package gate

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/condition"
	"nisse.io/nisse/controllers/gate/policy"
	"nisse.io/nisse/controllers/gate/render"
	"nisse.io/nisse/controllers/pass"
	"nisse.io/nisse/internal/telemetry"
)

// maxMessage of characters in a status; the API takes a few more.
const maxMessage = 1000

// refuse writes into an Approval why it does not count, once.
func (r *Reconciler) refuse(ctx context.Context, g *v1alpha1.Gate, refusal policy.Refusal) error {
	after := refusal.Approval.DeepCopy()
	st := v1alpha1.ApprovalStatus{ObservedGeneration: after.Generation, Reason: refusal.Reason, Message: render.Cut(refusal.Message, maxMessage)}
	condition.Stalled(&st.Conditions, after.Generation, st.Reason, st.Message)
	after.Status = st
	if _, err := pass.WriteStatus(ctx, r.Client, refusal.Approval, after); err != nil {
		return client.IgnoreNotFound(err)
	}
	// A late refusal has read the gate alone. For a log line the cache is good enough, and without the item its name.
	task := g.Spec.WorkItem.Name
	var item v1alpha1.WorkItem
	if r.Client.Get(ctx, client.ObjectKey{Namespace: g.Namespace, Name: task}, &item) == nil {
		task = item.Correlation()
	}
	refusals.WithLabelValues(refusal.Reason).Inc()
	telemetry.Changed(ctx, r.Log, "approval.refused", telemetry.Event{Agent: g.Spec.Agent, TaskID: task, Cause: after.Name},
		slog.String("gate", g.Name), slog.String("reason", refusal.Reason), slog.String("approver", after.Spec.Approver))
	return nil
}

// refuseLate tells everybody who decided a gate that had been decided. It goes by the cache: an Approval that the cache does not
// show yet will start another pass.
func (r *Reconciler) refuseLate(ctx context.Context, g *v1alpha1.Gate) error {
	var list v1alpha1.ApprovalList
	if err := r.Client.List(ctx, &list, client.InNamespace(g.Namespace), client.MatchingFields{v1alpha1.FieldGate: g.Name}); err != nil {
		return fmt.Errorf("list the approvals of gate %s: %w", g.Name, err)
	}
	for i := range list.Items {
		a := &list.Items[i]
		if a.Status.Reason != "" || slices.ContainsFunc(g.Status.Decisions, func(d v1alpha1.GateDecision) bool { return d.Approval == a.Name }) {
			continue
		}
		if settles, err := r.settleOver(ctx, g, a); err != nil {
			return err
		} else if settles {
			continue
		}
		// The same gate or a namesake of it: the first two checks say which, in the words people read.
		_, reason, message := policy.Judge(policy.Input{Gate: g, Approval: a})
		if err := r.refuse(ctx, g, policy.Refusal{Approval: a, Reason: reason, Message: message}); err != nil {
			return err
		}
	}
	return nil
}
