package workitem

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nisse.io/nisse/api/v1alpha1"
)

// +kubebuilder:rbac:groups=nisse.io,resources=workitems;plans;gates;agents,verbs=list;watch
// +kubebuilder:rbac:groups=nisse.io,resources=gates,verbs=get
// +kubebuilder:rbac:groups=nisse.io,resources=gates;approvals,verbs=create
// +kubebuilder:rbac:groups=nisse.io,resources=workitems/status,verbs=patch

// Setup adds the controller to the manager. An item is looked at when it, one of its plans or gates, or its agent changes.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("workitem").
		For(&v1alpha1.WorkItem{}).
		Watches(&v1alpha1.Plan{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
			return one(o.GetNamespace(), o.(*v1alpha1.Plan).Spec.WorkItem.Name)
		})).
		Watches(&v1alpha1.Gate{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
			return one(o.GetNamespace(), o.(*v1alpha1.Gate).Spec.WorkItem.Name)
		})).
		Watches(&v1alpha1.Agent{}, handler.EnqueueRequestsFromMapFunc(r.openOf)).
		Complete(r)
}

func one(namespace, name string) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: namespace, Name: name}}}
}

// openOf lists the items of an agent that are not closed.
func (r *Reconciler) openOf(ctx context.Context, agent client.Object) []reconcile.Request {
	var list v1alpha1.WorkItemList
	if err := r.Client.List(ctx, &list, client.InNamespace(agent.GetNamespace()), client.MatchingFields{v1alpha1.FieldAgent: agent.GetName()}); err != nil {
		return nil // the cache is shutting down
	}
	var all []reconcile.Request
	for i := range list.Items {
		if list.Items[i].Status.State != v1alpha1.WorkItemClosed {
			all = append(all, one(agent.GetNamespace(), list.Items[i].Name)...)
		}
	}
	return all
}
