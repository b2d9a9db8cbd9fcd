package workitem

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/controllertest"
	"nisse.io/nisse/internal/names"
)

// An item that is on its way out moves no more, and nobody is asked about it.
func TestItemOnItsWayOut(t *testing.T) {
	for name, before := range map[string]func(*bench){
		"stopped":  func(b *bench) { b.stop("s1") },
		"to close": func(b *bench) { b.Update(b.Item, func() { b.Item.Spec.Close = true }) },
		"a plan":   func(b *bench) { b.Plan(1, controllertest.Report) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			before(b)
			b.Terminate(b.Item)
			w := b.Wire()
			b.r.Client, b.r.Live = w.Cached, w.Live
			b.pass()
			if n := w.Writes(); n != 0 {
				t.Errorf("%d writes", n)
			}
			if b.Item.Status.State != v1alpha1.WorkItemWorking {
				t.Errorf("state %s", b.Item.Status.State)
			}
		})
	}
}

// What an item waits for is deleted: it goes on from what is left.
func TestWhatItWaitsForIsDeleted(t *testing.T) {
	b := newBench(t, nil)
	p := b.Plan(1, controllertest.Report)
	g := b.Gate(p, b.now)
	b.pass()
	b.state(v1alpha1.WorkItemAwaitingApproval, "lucas")
	b.Delete(p)
	b.pass()
	b.state(v1alpha1.WorkItemAwaitingApproval, "lucas") // as long as the gate asks
	b.Status(g, func() { g.Status.Outcome = v1alpha1.GateSuperseded })
	b.pass()
	b.state(v1alpha1.WorkItemWorking, "ops")

	b.stop("s1")
	b.pass()
	asked := b.gate(names.HaltGate("wi-1", "s1", ""))
	b.Delete(asked)
	b.pass()
	b.state(v1alpha1.WorkItemAwaitingInput, "lucas")
	again := b.gate(asked.Name)
	if again.UID == asked.UID || !again.Open() {
		t.Errorf("gate %+v", again)
	}
	b.answer(again, v1alpha1.AnswerContinue, "")
	b.pass()
	b.state(v1alpha1.WorkItemWorking, "ops")
	// An answer that was taken in stays taken in, though its gate goes.
	b.Delete(again)
	b.pass()
	b.state(v1alpha1.WorkItemWorking, "ops")
	b.ready(metav1.ConditionTrue, v1alpha1.ReasonProgressing, false)
}

// The agent is deleted and made anew while a stop waits for its answer. The question was about the first agent, and its gate drops
// it; the item says what to do.
func TestAgentMadeAnewWhileHeld(t *testing.T) {
	b := newBench(t, nil)
	b.stop("s1")
	b.pass()
	b.Delete(b.Agent)
	b.pass()
	b.ready(metav1.ConditionFalse, v1alpha1.ReasonAgentNotFound, true)
	b.Agent = controllertest.NewAgent(b.NS, "ops")
	b.Create(b.Agent)
	g := b.gate(names.HaltGate("wi-1", "s1", ""))
	b.Status(g, func() { g.Status.Outcome = v1alpha1.GateSuperseded })
	b.pass()
	b.ready(metav1.ConditionFalse, v1alpha1.ReasonQuestionEnded, true)
	b.stop("s2")
	b.pass()
	b.ready(metav1.ConditionTrue, v1alpha1.ReasonProgressing, false)
	if next := b.gate(names.HaltGate("wi-1", "s2", "")); next.Spec.Digest == g.Spec.Digest {
		t.Error("the next question is about the first agent too")
	}
}
