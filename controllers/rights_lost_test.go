package controllers_test

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/names"
)

// Who was asked how stopped work goes on leaves, and another comes. Nobody has to know of the question: the next stop asks the other.
func TestWhoWasAskedLeaves(t *testing.T) {
	h := newHouse(t)
	a := h.agent(nil)
	w := h.state(h.item(a), v1alpha1.WorkItemWorking)
	h.stop(w, "s1")
	asked := h.gate(names.HaltGate(w.Name, "s1", ""), "")
	var now v1alpha1.Agent
	if err := h.admin.Get(t.Context(), client.ObjectKeyFromObject(a), &now); err != nil {
		t.Fatal(err)
	}
	now.Spec.People = []v1alpha1.AgentPerson{{Name: "lucas", May: []v1alpha1.Right{v1alpha1.RightInstruct}}, {Name: "maria", May: []v1alpha1.Right{v1alpha1.RightApprove}}}
	if err := h.admin.Update(t.Context(), &now); err != nil {
		t.Fatal(err)
	}
	h.gate(asked.Name, v1alpha1.GateSuperseded)
	h.stop(w, "s2")
	if g := h.gate(names.HaltGate(w.Name, "s2", ""), ""); len(g.Spec.Approvers) != 1 || g.Spec.Approvers[0] != "maria" {
		t.Errorf("asks %v", g.Spec.Approvers)
	}
}
