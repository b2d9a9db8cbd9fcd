package gate

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nisse.io/nisse/api/v1alpha1"
)

// +kubebuilder:rbac:groups=nisse.io,resources=gates;approvals;plans;workitems;agents;people,verbs=list;watch
// +kubebuilder:rbac:groups=nisse.io,resources=gates;plans;workitems;agents,verbs=get
// +kubebuilder:rbac:groups=nisse.io,resources=gates/status;approvals/status;devicejobs/status,verbs=patch
// +kubebuilder:rbac:groups=nisse.io,resources=devicejobs,verbs=list
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Setup adds the controller to the manager. A gate is looked at when it, one of its Approvals, its work item or a plan of that
// item changes; an agent or a person is read when it is judged.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	if err := r.Metrics.Register(newOpenGates(r.Client, r.Now)); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).Named("gate").
		For(&v1alpha1.Gate{}).
		Watches(&v1alpha1.Approval{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
			return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: o.GetNamespace(), Name: o.(*v1alpha1.Approval).Spec.Gate.Name}}}
		})).
		Watches(&v1alpha1.WorkItem{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			return r.openOf(ctx, o.GetNamespace(), o.GetName())
		})).
		Watches(&v1alpha1.Plan{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			return r.openOf(ctx, o.GetNamespace(), o.(*v1alpha1.Plan).Spec.WorkItem.Name)
		})).
		Complete(r)
}

// openOf lists the open gates of a work item.
func (r *Reconciler) openOf(ctx context.Context, namespace, item string) []reconcile.Request {
	var list v1alpha1.GateList
	if err := r.Client.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{v1alpha1.FieldWorkItem: item}); err != nil {
		return nil // the cache is shutting down
	}
	var all []reconcile.Request
	for i := range list.Items {
		if list.Items[i].Open() {
			all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return all
}
