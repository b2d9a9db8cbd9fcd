package person

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/controllertest"
)

// A Person who is on the way out is left alone, and claims the names until gone: a name must not pass to another while two have it.
func TestPersonOnTheWayOut(t *testing.T) {
	w := controllertest.New(t, nil)
	lucas := &v1alpha1.Person{ObjectMeta: metav1.ObjectMeta{Namespace: w.NS, Name: "lucas"}}
	w.Terminate(lucas)
	twin := &v1alpha1.Person{ObjectMeta: metav1.ObjectMeta{Namespace: w.NS, Name: "twin"}, Spec: v1alpha1.PersonSpec{Identities: v1alpha1.Identities{Matrix: "@lucas:example.org"}}}
	w.Create(twin)
	wire := w.Wire()
	r := &Reconciler{Client: wire.Cached}
	pass := func(p *v1alpha1.Person, reason string) {
		t.Helper()
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(p)}); err != nil {
			t.Fatal(err)
		}
		w.Read(p)
		var got string
		if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady); c != nil {
			got = c.Reason
		}
		if got != reason {
			t.Errorf("%s is told %q, want %q", p.Name, got, reason)
		}
	}
	pass(lucas, "")
	if n := wire.Writes(); n != 0 {
		t.Errorf("%d writes", n)
	}
	pass(twin, v1alpha1.ReasonIdentityShared)
	w.Update(lucas, func() { lucas.Finalizers = nil })
	pass(twin, v1alpha1.ReasonIdentitiesUnique)
}
