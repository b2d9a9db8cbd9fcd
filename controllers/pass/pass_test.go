package pass_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/condition"
	"nisse.io/nisse/controllers/pass"
	"nisse.io/nisse/test/apitest"
)

func TestMain(m *testing.M) { apitest.Main(m) }

func TestResult(t *testing.T) {
	resource := schema.GroupResource{Group: "nisse.io", Resource: "gates"}
	broken := errors.New("connection refused")
	for _, tc := range []struct {
		name  string
		err   error
		want  reconcile.Result
		retry bool
		final bool
	}{
		{"done", nil, reconcile.Result{}, false, true},
		{"waits", pass.Later(time.Minute), reconcile.Result{RequeueAfter: time.Minute}, false, true},
		{"waits for a moment that has passed", pass.Later(-time.Minute), reconcile.Result{RequeueAfter: time.Millisecond}, false, true},
		{"waits, wrapped", fmt.Errorf("gate: %w", pass.Later(time.Minute)), reconcile.Result{RequeueAfter: time.Minute}, false, true},
		{"stalled", pass.Stalled("PersonNotFound", "Person %s does not exist", "lucas"), reconcile.Result{}, false, true},
		{"stalled on what sends no event", &pass.Stall{Reason: "SecretNotUsable", Recheck: time.Minute}, reconcile.Result{RequeueAfter: time.Minute}, false, true},
		{"conflict", fmt.Errorf("status: %w", apierrors.NewConflict(resource, "g", broken)), reconcile.Result{RequeueAfter: 50 * time.Millisecond}, false, false},
		{"made by another", apierrors.NewAlreadyExists(resource, "g"), reconcile.Result{RequeueAfter: 50 * time.Millisecond}, false, false},
		{"broken", broken, reconcile.Result{}, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := pass.Result(tc.err)
			if got != tc.want || (err != nil) != tc.retry {
				t.Errorf("got %+v, %v; want %+v, retry %t", got, err, tc.want, tc.retry)
			}
			if pass.Final(tc.err) != tc.final {
				t.Errorf("final: %t, want %t", pass.Final(tc.err), tc.final)
			}
		})
	}
}

func TestWriteStatus(t *testing.T) {
	_, admin := apitest.Start(t)
	p := &v1alpha1.Person{ObjectMeta: metav1.ObjectMeta{Namespace: apitest.Namespace(t, admin), Name: "lucas"},
		Spec: v1alpha1.PersonSpec{Identities: v1alpha1.Identities{Matrix: "@lucas:example.org"}}}
	if err := admin.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	old := p.DeepCopy()

	if changed, err := pass.WriteStatus(t.Context(), admin, p, p.DeepCopy()); err != nil || changed {
		t.Fatalf("nothing to write: %t, %v", changed, err)
	}

	after := p.DeepCopy()
	condition.Ready(&after.Status.Conditions, 1, metav1.ConditionTrue, "IdentitiesUnique", "")
	if changed, err := pass.WriteStatus(t.Context(), admin, p, after); err != nil || !changed {
		t.Fatalf("first write: %t, %v", changed, err)
	}

	stale := old.DeepCopy()
	condition.Ready(&stale.Status.Conditions, 1, metav1.ConditionFalse, "IdentityShared", "")
	if _, err := pass.WriteStatus(t.Context(), admin, old, stale); !apierrors.IsConflict(err) {
		t.Fatalf("a write from an old object: %v, want a conflict", err)
	}

	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
		t.Fatal(err)
	}
	if len(p.Status.Conditions) != 1 || p.Status.Conditions[0].Status != metav1.ConditionTrue {
		t.Errorf("status %+v", p.Status)
	}
}
