package person

import (
	"context"
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/condition"
	"nisse.io/nisse/test/apitest"
)

func TestMain(m *testing.M) { apitest.Main(m) }

func TestIdentities(t *testing.T) {
	_, admin := apitest.Start(t)
	ns := apitest.Namespace(t, admin)
	r := &Reconciler{Client: admin}
	create := func(name string, ids v1alpha1.Identities) *v1alpha1.Person {
		t.Helper()
		p := &v1alpha1.Person{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: v1alpha1.PersonSpec{Identities: ids}}
		if err := admin.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	check := func(p *v1alpha1.Person, status metav1.ConditionStatus, reason, message string) {
		t.Helper()
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(p)}); err != nil {
			t.Fatal(err)
		}
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
			t.Fatal(err)
		}
		for _, v := range condition.Violations(p.Generation, p.Status.ObservedGeneration, p.Status.Conditions) {
			t.Errorf("%s: %s", p.Name, v)
		}
		c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
		if c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, message) {
			t.Errorf("%s: %+v, want %s (%s) %q", p.Name, c, status, reason, message)
		}
		version := p.ResourceVersion
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(p)}); err != nil {
			t.Fatal(err)
		}
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil || p.ResourceVersion != version {
			t.Errorf("%s was written again at rest (%v)", p.Name, err)
		}
	}

	lucas := create("lucas", v1alpha1.Identities{Matrix: "@lucas:example.org", Kubernetes: []string{"lucas"}})
	check(lucas, metav1.ConditionTrue, v1alpha1.ReasonIdentitiesUnique, "")
	twin := create("twin", v1alpha1.Identities{Matrix: "@lucas:example.org", Kubernetes: []string{"twin"}})
	other := create("other", v1alpha1.Identities{Kubernetes: []string{"lucas", "other"}})
	check(lucas, metav1.ConditionFalse, v1alpha1.ReasonIdentityShared, "lucas is claimed by other too; matrix:@lucas:example.org is claimed by twin too")
	check(twin, metav1.ConditionFalse, v1alpha1.ReasonIdentityShared, "claimed by lucas")
	check(other, metav1.ConditionFalse, v1alpha1.ReasonIdentityShared, "lucas is claimed by lucas too")
	if err := admin.Delete(t.Context(), twin); err != nil {
		t.Fatal(err)
	}
	other.Spec.Identities.Kubernetes = []string{"other"}
	if err := admin.Update(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	check(lucas, metav1.ConditionTrue, v1alpha1.ReasonIdentitiesUnique, "")
	check(other, metav1.ConditionTrue, v1alpha1.ReasonIdentitiesUnique, "")

	// A namesake in another namespace is another person.
	elsewhere := &v1alpha1.Person{ObjectMeta: metav1.ObjectMeta{Namespace: apitest.Namespace(t, admin), Name: "lucas"}, Spec: *lucas.Spec.DeepCopy()}
	if err := admin.Create(t.Context(), elsewhere); err != nil {
		t.Fatal(err)
	}
	check(lucas, metav1.ConditionTrue, v1alpha1.ReasonIdentitiesUnique, "")
	check(elsewhere, metav1.ConditionTrue, v1alpha1.ReasonIdentitiesUnique, "")

	gone := &v1alpha1.Person{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "gone"}}
	if result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(gone)}); err != nil || result.RequeueAfter != 0 {
		t.Errorf("got %+v, %v", result, err)
	}
}

var errAway = errors.New("the API server is away")

type away struct{ client.Client }

func (away) List(context.Context, client.ObjectList, ...client.ListOption) error { return errAway }

func TestWhatCannotBeReadIsTriedAgain(t *testing.T) {
	_, admin := apitest.Start(t)
	p := &v1alpha1.Person{ObjectMeta: metav1.ObjectMeta{Namespace: apitest.Namespace(t, admin), Name: "lucas"},
		Spec: v1alpha1.PersonSpec{Identities: v1alpha1.Identities{Matrix: "@lucas:example.org"}}}
	if err := admin.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if _, err := (&Reconciler{Client: away{admin}}).Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(p)}); !errors.Is(err, errAway) {
		t.Errorf("got %v, want a retry", err)
	}
}
