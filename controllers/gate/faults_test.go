package gate

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/controllertest"
	"nisse.io/nisse/controllers/gate/policy"
)

// Whichever call to the API server fails, and whether its answer alone was lost, a gate is decided as it would have been, once.
func TestEachCallMayFail(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before func(*bench, *v1alpha1.Gate)
		writes int
	}{
		{"approved", func(b *bench, g *v1alpha1.Gate) { b.Approval(g, "lucas", v1alpha1.DecisionApprove, nil) }, 1},
		{"rejected", func(b *bench, g *v1alpha1.Gate) { b.Approval(g, "lucas", v1alpha1.DecisionReject, nil) }, 1},
		{"refused", func(b *bench, g *v1alpha1.Gate) {
			b.Approval(g, "mallory", v1alpha1.DecisionApprove, nil)
			b.Approval(g, "maria", v1alpha1.DecisionReject, nil)
		}, 2},
		{"lapsed", func(b *bench, g *v1alpha1.Gate) { b.now = g.Spec.ExpiresAt.Add(policy.Grace) }, 1},
		{"superseded", func(b *bench, g *v1alpha1.Gate) {
			b.Approval(g, "lucas", v1alpha1.DecisionApprove, nil)
			b.Plan(2, controllertest.Report)
		}, 2},
		{"decided before", func(b *bench, g *v1alpha1.Gate) {
			b.Status(g, func() { g.Status.Outcome = v1alpha1.GateSuperseded })
			b.Approval(g, "lucas", v1alpha1.DecisionApprove, nil)
		}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			controllertest.EachCallFails(t, func(t *testing.T) controllertest.Scene {
				b := newBench(t)
				g := b.Gate(b.Plan(1, controllertest.Report), b.now)
				tc.before(b, g)
				return controllertest.Scene{World: b.World, Over: []client.Object{g}, Writes: tc.writes, Controller: func(w *controllertest.Wire) reconcile.Reconciler {
					b.r.Client, b.r.Live = w.Cached, w.Live
					return b.r
				}}
			})
		})
	}
}
