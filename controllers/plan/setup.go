package plan

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nisse.io/nisse/api/v1alpha1"
)

// +kubebuilder:rbac:groups=nisse.io,resources=plans;gates;workitems;agents,verbs=list;watch
// +kubebuilder:rbac:groups=nisse.io,resources=gates;workitems;agents;devices;devicemanifests,verbs=get
// +kubebuilder:rbac:groups=nisse.io,resources=gates;approvals,verbs=create
// +kubebuilder:rbac:groups=nisse.io,resources=plans/status,verbs=patch

// Setup adds the controller to the manager. A plan is looked at when it, a gate of its item, the item or the agent changes.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("plan").
		For(&v1alpha1.Plan{}).
		Watches(&v1alpha1.Gate{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			return r.undecidedOf(ctx, o.GetNamespace(), o.(*v1alpha1.Gate).Spec.WorkItem.Name)
		})).
		Watches(&v1alpha1.WorkItem{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			return r.undecidedOf(ctx, o.GetNamespace(), o.GetName())
		})).
		Watches(&v1alpha1.Agent{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			// Only the active item can have a plan that waits for the agent's people, or for the agent to be resumed.
			return r.undecidedOf(ctx, o.GetNamespace(), o.(*v1alpha1.Agent).Status.ActiveWorkItem)
		})).
		Complete(r)
}

// undecidedOf lists the plans of a work item that may still change.
func (r *Reconciler) undecidedOf(ctx context.Context, namespace, item string) []reconcile.Request {
	if item == "" {
		return nil
	}
	var list v1alpha1.PlanList
	if err := r.Client.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{v1alpha1.FieldWorkItem: item}); err != nil {
		return nil // the cache is shutting down
	}
	var all []reconcile.Request
	for i := range list.Items {
		if p := &list.Items[i]; !final(p.Status.State) {
			all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(p)})
		}
	}
	return all
}
