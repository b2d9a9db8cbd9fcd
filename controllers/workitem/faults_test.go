package workitem

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/controllertest"
)

// Whichever call to the API server fails, and whether its answer alone was lost, an item gets where it would have got, and people are
// asked once.
func TestEachCallMayFail(t *testing.T) {
	answered := func(b *bench, a v1alpha1.HaltAnswer) {
		b.Plan(1, controllertest.Report)
		b.stop("s1")
		b.answer(b.HaltGate(v1alpha1.GateHaltRef{Stop: "s1"}, b.now), a, "")
	}
	for _, tc := range []struct {
		name   string
		before func(*bench)
		writes int
	}{
		{"a plan waits", func(b *bench) { b.Gate(b.Plan(1, controllertest.Report), b.now) }, 1},
		{"stopped", func(b *bench) { b.stop("s1") }, 2},
		{"replanned", func(b *bench) { answered(b, v1alpha1.AnswerReplan) }, 1},
		{"abandoned", func(b *bench) { answered(b, v1alpha1.AnswerAbandon) }, 1},
		{"finished", func(b *bench) {
			b.Status(b.Item, func() { b.runtime().Finished = &v1alpha1.FinishReport{Summary: "Done.", At: metav1.Now()} })
		}, 1},
		{"queued", func(b *bench) { b.Status(b.Agent, func() { b.Agent.Status.ActiveWorkItem = "wi-0" }) }, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			controllertest.EachCallFails(t, func(t *testing.T) controllertest.Scene {
				b := newBench(t, nil)
				tc.before(b)
				return controllertest.Scene{World: b.World, Over: []client.Object{b.Item}, Writes: tc.writes, Controller: func(w *controllertest.Wire) reconcile.Reconciler {
					b.r.Client, b.r.Live = w.Cached, w.Live
					return b.r
				}}
			})
		})
	}
}
