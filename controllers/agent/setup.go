package agent

import (
	"context"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nisse.io/nisse/api/v1alpha1"
)

// +kubebuilder:rbac:groups=nisse.io,resources=agents;workitems;people;devices,verbs=list;watch
// +kubebuilder:rbac:groups=nisse.io,resources=workitems,verbs=get
// +kubebuilder:rbac:groups=nisse.io,resources=agents/status,verbs=patch
// +kubebuilder:rbac:groups=apps,resources=statefulsets,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=networking.k8s.io,resources=networkpolicies,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=serviceaccounts;configmaps;persistentvolumeclaims,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch;delete
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get

// Setup adds the controller to the manager. An Agent is looked at when it, its objects, its items, or what it names changes.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	labelled := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		return one(o.GetNamespace(), o.GetLabels()[v1alpha1.LabelAgent])
	})
	return ctrl.NewControllerManagedBy(mgr).Named("agent").
		For(&v1alpha1.Agent{}).
		Watches(&v1alpha1.WorkItem{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
			return one(o.GetNamespace(), o.(*v1alpha1.WorkItem).Spec.Agent)
		})).
		Watches(&v1alpha1.Person{}, r.naming(func(a *v1alpha1.Agent, name string) bool {
			return slices.ContainsFunc(a.Spec.People, func(p v1alpha1.AgentPerson) bool { return p.Name == name })
		})).
		Watches(&v1alpha1.Device{}, r.naming(func(a *v1alpha1.Agent, name string) bool { return slices.Contains(a.Spec.Devices, name) })).
		Watches(&appsv1.StatefulSet{}, labelled).
		Watches(&corev1.Pod{}, labelled).
		Watches(&corev1.ServiceAccount{}, labelled).
		Watches(&corev1.ConfigMap{}, labelled).
		Watches(&corev1.PersistentVolumeClaim{}, labelled).
		Watches(&networkingv1.NetworkPolicy{}, labelled).
		Complete(r)
}

func one(namespace, agent string) []reconcile.Request {
	if agent == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: namespace, Name: agent}}}
}

// naming enqueues the Agents that name an object.
func (r *Reconciler) naming(names func(*v1alpha1.Agent, string) bool) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		var list v1alpha1.AgentList
		if err := r.Client.List(ctx, &list, client.InNamespace(o.GetNamespace())); err != nil {
			return nil // the cache is shutting down
		}
		var all []reconcile.Request
		for i := range list.Items {
			if names(&list.Items[i], o.GetName()) {
				all = append(all, one(o.GetNamespace(), list.Items[i].Name)...)
			}
		}
		return all
	})
}
