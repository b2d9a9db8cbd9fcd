package gate

import (
	"strings"
	"testing"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/controllertest"
)

// A gate that is on its way out decides nothing and tells nobody anything, open or decided.
func TestGateOnItsWayOut(t *testing.T) {
	for name, outcome := range map[string]v1alpha1.GateOutcome{"open": "", "decided": v1alpha1.GateSuperseded} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			g := b.Gate(b.Plan(1, controllertest.Report), b.now)
			a := b.Approval(g, "lucas", v1alpha1.DecisionApprove, nil)
			b.Status(g, func() { g.Status.Outcome = outcome })
			b.Terminate(g)
			w := b.Wire()
			b.r.Client, b.r.Live = w.Cached, w.Live
			if r := b.must(g); r.RequeueAfter != 0 {
				t.Errorf("looked at again after %s", r.RequeueAfter)
			}
			b.outcome(g, outcome)
			b.refused(a, "")
			if n := w.Writes(); n != 0 {
				t.Errorf("%d writes", n)
			}
		})
	}
}

// What a gate is about goes while the gate waits: an item that is on its way out has ended, though it is still there.
func TestItemOnItsWayOut(t *testing.T) {
	b := newBench(t)
	g := b.Gate(b.Plan(1, controllertest.Report), b.now)
	a := b.Approval(g, "lucas", v1alpha1.DecisionApprove, nil)
	b.Terminate(b.Item)
	b.must(g)
	b.outcome(g, v1alpha1.GateSuperseded)
	if !strings.Contains(g.Status.Message, "the work has ended") {
		t.Errorf("message %q", g.Status.Message)
	}
	b.must(g)
	b.refused(a, v1alpha1.ReasonGateDecided)
}

// An item that was made anew under its name is another item, whatever its plans are called.
func TestItemMadeAnew(t *testing.T) {
	b := newBench(t)
	g := b.Gate(b.Plan(1, controllertest.Report), b.now)
	b.Approval(g, "lucas", v1alpha1.DecisionApprove, nil)
	b.Delete(b.Item)
	b.Create(controllertest.NewItem(b.Agent, b.Item.Name))
	b.must(g)
	b.outcome(g, v1alpha1.GateSuperseded)
	if !strings.Contains(g.Status.Message, "its work item is gone") {
		t.Errorf("message %q", g.Status.Message)
	}
}

// A word that is withdrawn before it is judged was not said.
func TestWithdrawnApproval(t *testing.T) {
	b := newBench(t)
	g := b.Gate(b.Plan(1, controllertest.Report), b.now)
	b.Delete(b.Approval(g, "lucas", v1alpha1.DecisionReject, nil))
	b.must(g)
	b.outcome(g, "")
	// And one that was judged stays, though its object goes.
	a := b.Approval(g, "lucas", v1alpha1.DecisionApprove, nil)
	b.must(g)
	b.Delete(a)
	b.must(g)
	b.outcome(g, v1alpha1.GateApproved)
}

// While the agent is gone nobody can answer what holds its work; the question waits for an agent of that name.
func TestQuestionWithoutAgent(t *testing.T) {
	b := newBench(t)
	b.Update(b.Item, func() { b.Item.Spec.Stop = &v1alpha1.StopRequest{ID: "s1"} })
	g := b.HaltGate(v1alpha1.GateHaltRef{Stop: "s1"}, b.now)
	b.Delete(b.Agent)
	a := b.Approval(g, "lucas", v1alpha1.DecisionApprove, with(v1alpha1.AnswerContinue))
	b.must(g)
	b.outcome(g, "")
	b.refused(a, v1alpha1.ReasonMayNotApprove)
}
