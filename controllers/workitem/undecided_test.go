package workitem

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/controllertest"
)

// What people asked for, and what is missing, is heeded at once, though the agent has not chosen what to work on.
func TestBeforeTheAgentHasChosen(t *testing.T) {
	for _, tc := range []struct {
		name    string
		item    func(*v1alpha1.WorkItem)
		state   v1alpha1.WorkItemState
		waiting string
		reason  string
	}{
		{"stopped", func(w *v1alpha1.WorkItem) { w.Spec.Stop = &v1alpha1.StopRequest{ID: "s1", By: "lucas"} }, v1alpha1.WorkItemAwaitingInput, "lucas", v1alpha1.ReasonProgressing},
		{"to close", func(w *v1alpha1.WorkItem) { w.Spec.Close = true }, v1alpha1.WorkItemClosed, "", v1alpha1.ReasonProgressing},
		{"for an agent that does not exist", func(w *v1alpha1.WorkItem) { w.Spec.Agent = "nobody" }, v1alpha1.WorkItemOpen, "nobody", v1alpha1.ReasonAgentNotFound},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, nil)
			b.Status(b.Agent, func() { b.Agent.Status.ActiveWorkItem = "" })
			b.Item = controllertest.NewItem(b.Agent, "wi-2")
			tc.item(b.Item)
			b.Create(b.Item)
			b.pass()
			b.state(tc.state, tc.waiting)
			status := metav1.ConditionTrue
			if tc.reason != v1alpha1.ReasonProgressing {
				status = metav1.ConditionFalse
			}
			b.ready(status, tc.reason, status == metav1.ConditionFalse)
		})
	}
}

// An item that has begun is never undecided: one that its agent turned from waits again.
func TestAgentTurnsToNothing(t *testing.T) {
	b := newBench(t, nil)
	b.Status(b.Agent, func() { b.Agent.Status.ActiveWorkItem = "" })
	b.pass()
	b.state(v1alpha1.WorkItemOpen, "ops")
}

// The gate of a stop that was answered is no plan's, though it is still open for a moment.
func TestOpenQuestionIsNoPlan(t *testing.T) {
	b := newBench(t, nil)
	b.stop("s1")
	b.HaltGate(v1alpha1.GateHaltRef{Stop: "s1"}, b.now)
	b.Status(b.Item, func() { b.Item.Status.AnsweredStop = "s1" })
	b.pass()
	b.state(v1alpha1.WorkItemWorking, "ops")
}
