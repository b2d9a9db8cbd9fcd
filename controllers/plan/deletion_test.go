package plan

import (
	"testing"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/controllertest"
)

// A plan that is on its way out is not asked about, and its status is left alone.
func TestPlanOnItsWayOut(t *testing.T) {
	b := newBench(t, nil)
	for revision, steps := range [][]string{{controllertest.Report}, nil} {
		p := b.Plan(int32(revision+1), steps...)
		b.Terminate(p)
		w := b.Wire()
		b.r.Client, b.r.Live = w.Cached, w.Live
		b.pass(p)
		if n := w.Writes(); n != 0 {
			t.Errorf("%d writes", n)
		}
	}
}

// An item that is on its way out has ended: nobody is asked about its plans any more.
func TestItemOnItsWayOut(t *testing.T) {
	b := newBench(t, nil)
	p := b.Plan(1, controllertest.Report)
	b.Terminate(b.Item)
	b.pass(p)
	b.state(p, v1alpha1.PlanSuperseded, "Superseded")
	if n := len(b.gates()); n != 0 {
		t.Errorf("%d gates", n)
	}
}

// A gate that somebody deletes while it waits is opened anew: the plan still waits, and what was said about the first gate does not
// count for the second. One that is on its way out is waited for.
func TestGateDeletedWhileItWaits(t *testing.T) {
	b := newBench(t, nil)
	p := b.Plan(1, controllertest.Report)
	b.pass(p)
	first := b.gates()[0]
	b.Terminate(&first)
	b.pass(p)
	b.state(p, v1alpha1.PlanAwaitingApproval, "")
	if all := b.gates(); len(all) != 1 || all[0].UID != first.UID {
		t.Fatalf("gates %+v", all)
	}
	b.Update(&first, func() { first.Finalizers = nil })
	b.pass(p)
	b.pass(p)
	if all := b.gates(); len(all) != 1 || all[0].UID == first.UID || !all[0].Open() {
		t.Errorf("gates %+v", all)
	}
	if n := len(b.Logged("gate.opened")); n != 2 {
		t.Errorf("%d gates in the log", n)
	}
}

// The agent is deleted and made anew before its plan was shown: the new one has not submitted it.
func TestAgentMadeAnew(t *testing.T) {
	b := newBench(t, nil)
	p := b.Plan(1, controllertest.Report)
	b.Delete(b.Agent)
	b.pass(p)
	b.state(p, v1alpha1.PlanNotReady, v1alpha1.ReasonAgentNotFound)
	b.Agent = controllertest.NewAgent(b.NS, "ops")
	b.Create(b.Agent)
	b.pass(p)
	b.state(p, v1alpha1.PlanNotReady, v1alpha1.ReasonPlanNotReady)
	second := b.Plan(2, controllertest.Report)
	b.pass(second)
	b.state(second, v1alpha1.PlanAwaitingApproval, "")
	b.pass(p)
	b.state(p, v1alpha1.PlanSuperseded, "Superseded")
	if all := b.gates(); len(all) != 1 || all[0].Spec.Revision != 2 {
		t.Errorf("gates %+v", all)
	}
}
