package opening

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/pass"
	"nisse.io/nisse/internal/crashpoint"
)

// Create makes the gate, or returns the one that was made before: by this manager before it crashed, by the last leader, or by a
// pass whose write the cache does not show yet. Its name comes from its subject, so there is never a second one. Only a gate about
// the very same subject counts; another is a namesake, and nothing is asked in its name.
func Create(ctx context.Context, c client.Writer, live client.Reader, g *v1alpha1.Gate) (made *v1alpha1.Gate, created bool, err error) {
	crashpoint.Hit("manager.gate.before")
	made = g.DeepCopy()
	err = c.Create(ctx, made)
	if err == nil {
		crashpoint.Hit("manager.gate.after")
		return made, true, nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return nil, false, fmt.Errorf("open gate %s: %w", g.Name, err)
	}
	if err := live.Get(ctx, client.ObjectKeyFromObject(g), made); err != nil {
		return nil, false, fmt.Errorf("read gate %s: %w", g.Name, err)
	}
	if !Same(made, g.Spec.Subject, g.Spec.WorkItem) {
		return nil, false, pass.Stalled(v1alpha1.ReasonForeignGate, "Gate %s is about something else; delete it.", g.Name)
	}
	return made, false, nil
}

// Alone tells whether no other gate of the item waits for a person. What was asked before is superseded by the gate's own
// controller, whose write starts the next pass: a person never has two questions about one piece of work.
func Alone(ctx context.Context, live client.Reader, item *v1alpha1.WorkItem, name string) (bool, error) {
	var gates v1alpha1.GateList
	if err := live.List(ctx, &gates, client.InNamespace(item.Namespace), client.MatchingFields{v1alpha1.FieldWorkItem: item.Name}); err != nil {
		return false, fmt.Errorf("list the gates of %s: %w", item.Name, err)
	}
	for i := range gates.Items {
		if other := &gates.Items[i]; other.Name != name && other.Open() && other.Spec.WorkItem.UID == string(item.UID) {
			return false, nil
		}
	}
	return true, nil
}

// Same tells whether a gate is about this subject of this work item.
func Same(g *v1alpha1.Gate, s v1alpha1.GateSubject, item v1alpha1.ObjectRef) bool {
	return g.Spec.Subject == s && g.Spec.WorkItem == item
}
