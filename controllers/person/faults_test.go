package person

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/controllertest"
)

// Whichever call to the API server fails, and whether its answer alone was lost, everybody is told whose name is whose.
func TestEachCallMayFail(t *testing.T) {
	controllertest.EachCallFails(t, func(t *testing.T) controllertest.Scene {
		w := controllertest.New(t, nil)
		var all []client.Object
		for name, matrix := range map[string]string{"lucas": "@lucas:example.org", "twin": "@lucas:example.org", "maria": "@maria:example.org"} {
			p := &v1alpha1.Person{ObjectMeta: metav1.ObjectMeta{Namespace: w.NS, Name: name}, Spec: v1alpha1.PersonSpec{Identities: v1alpha1.Identities{Matrix: matrix}}}
			if name == "twin" {
				w.Create(p)
			}
			all = append(all, p)
		}
		return controllertest.Scene{World: w, Over: all, Writes: 3, Controller: func(w *controllertest.Wire) reconcile.Reconciler { return &Reconciler{Client: w.Cached} }}
	})
}
