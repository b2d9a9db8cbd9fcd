package plan

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/condition"
	"nisse.io/nisse/controllers/controllertest"
)

// Whichever call to the API server fails, and whether its answer alone was lost, a plan is asked about once, or says why not.
func TestEachCallMayFail(t *testing.T) {
	// A plan that was never hindered says nothing when it waits, and one that was says that it waits: a fault would be the difference.
	hindered := func(b *bench, p *v1alpha1.Plan) {
		b.Status(p, func() {
			p.Status.State = v1alpha1.PlanNotReady
			condition.Stalled(&p.Status.Conditions, p.Generation, v1alpha1.ReasonSuspended, "Agent ops is suspended; no gate opens meanwhile.")
		})
	}
	for _, tc := range []struct {
		name   string
		steps  []string
		before func(*bench, *v1alpha1.Plan)
		writes int
	}{
		{"asked about", []string{controllertest.Report}, hindered, 2},
		{"not ready", nil, func(*bench, *v1alpha1.Plan) {}, 1},
		{"overtaken by a revision", []string{controllertest.Report}, func(b *bench, _ *v1alpha1.Plan) { b.Plan(2, controllertest.Report) }, 1},
		{"asked about before", []string{controllertest.Report}, func(b *bench, p *v1alpha1.Plan) {
			hindered(b, p)
			b.Gate(p, b.now)
		}, 1},
		{"approved", []string{controllertest.Report}, func(b *bench, p *v1alpha1.Plan) {
			g := b.Gate(p, b.now)
			b.Status(g, func() { g.Status.Outcome = v1alpha1.GateApproved })
		}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			controllertest.EachCallFails(t, func(t *testing.T) controllertest.Scene {
				b := newBench(t, nil)
				p := b.Plan(1, tc.steps...)
				tc.before(b, p)
				return controllertest.Scene{World: b.World, Over: []client.Object{p}, Writes: tc.writes, Controller: func(w *controllertest.Wire) reconcile.Reconciler {
					b.r.Client, b.r.Live = w.Cached, w.Live
					return b.r
				}}
			})
		})
	}
}
