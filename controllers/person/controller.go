// Package person watches over identities: a name that two Persons claim is nobody's, and both are told so.
package person

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/condition"
	"nisse.io/nisse/controllers/pass"
	"nisse.io/nisse/controllers/person/identity"
	"nisse.io/nisse/internal/sanitize"
)

// Reconciler says on each Person whether its identities are its own. Nobody decides by that status: gates are judged by the
// identities themselves.
type Reconciler struct {
	Client client.Client
}

// Reconcile one Person.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (reconcile.Result, error) {
	var p v1alpha1.Person
	if err := r.Client.Get(ctx, req.NamespacedName, &p); err != nil {
		return pass.Result(client.IgnoreNotFound(err))
	}
	if !p.DeletionTimestamp.IsZero() {
		return pass.Result(nil)
	}
	var all v1alpha1.PersonList
	if err := r.Client.List(ctx, &all, client.InNamespace(req.Namespace)); err != nil {
		return pass.Result(fmt.Errorf("list people: %w", err))
	}
	after := p.DeepCopy()
	settle(after, identity.Shared(all.Items, &p))
	_, err := pass.WriteStatus(ctx, r.Client, &p, after)
	return pass.Result(client.IgnoreNotFound(err))
}

func settle(p *v1alpha1.Person, shared []identity.Claim) {
	p.Status.ObservedGeneration = p.Generation
	if len(shared) == 0 {
		condition.Ready(&p.Status.Conditions, p.Generation, metav1.ConditionTrue, v1alpha1.ReasonIdentitiesUnique, "")
		return
	}
	var claims []string
	for _, c := range shared {
		claims = append(claims, fmt.Sprintf("%s is claimed by %s too", sanitize.Line(c.Name, 128), strings.Join(c.By, ", ")))
	}
	condition.Stalled(&p.Status.Conditions, p.Generation, v1alpha1.ReasonIdentityShared, strings.Join(claims, "; ")+". Until only one Person claims a name, it is nobody's.")
}

// +kubebuilder:rbac:groups=nisse.io,resources=people,verbs=list;watch
// +kubebuilder:rbac:groups=nisse.io,resources=people/status,verbs=patch

// Setup adds the controller to the manager. A change of one Person may free or take a name of any other.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("person").
		Watches(&v1alpha1.Person{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			var all v1alpha1.PersonList
			if err := r.Client.List(ctx, &all, client.InNamespace(o.GetNamespace())); err != nil {
				return nil // the cache is shutting down
			}
			requests := make([]reconcile.Request, len(all.Items))
			for i := range all.Items {
				requests[i] = reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])}
			}
			return requests
		})).
		Complete(r)
}
