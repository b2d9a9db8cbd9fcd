package gate

import (
	"strings"
	"testing"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/controllertest"
	"nisse.io/nisse/controllers/gate/opening"
)

// A question that nobody whom it asks may answer any more does not hold the work for a year: it ends, and another stop asks those who may.
func TestThoseWhoWereAskedLoseTheRight(t *testing.T) {
	both := []v1alpha1.Right{v1alpha1.RightInstruct, v1alpha1.RightApprove}
	none := []v1alpha1.Right{v1alpha1.RightInstruct}
	for name, tc := range map[string]struct {
		kind         v1alpha1.GateKind
		lucas, maria []v1alpha1.Right
		outcome      v1alpha1.GateOutcome
	}{
		"another has it":            {v1alpha1.GateHalt, none, both, v1alpha1.GateSuperseded},
		"another has it as well":    {v1alpha1.GateHalt, both, both, ""},
		"nobody has it":             {v1alpha1.GateHalt, none, none, ""},
		"a plan, which ends itself": {v1alpha1.GatePlan, none, both, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			var g *v1alpha1.Gate
			if tc.kind == v1alpha1.GatePlan {
				g = b.Gate(b.Plan(1, controllertest.Report), b.now)
			} else {
				b.Update(b.Item, func() { b.Item.Spec.Stop = &v1alpha1.StopRequest{ID: "s1", By: "lucas"} })
				made, err := opening.Halt(b.Item, b.Agent, v1alpha1.GateHaltRef{Stop: "s1"}, b.now)
				if err != nil {
					t.Fatal(err)
				}
				g = made
				b.Create(g)
			}
			b.must(g)
			b.outcome(g, "")
			b.Update(b.Agent, func() { b.Agent.Spec.People[0].May, b.Agent.Spec.People[1].May = tc.lucas, tc.maria })
			b.must(g)
			b.outcome(g, tc.outcome)
			if says := strings.Contains(g.Status.Message, "say stop again, and maria can answer."); says != (tc.outcome != "") {
				t.Errorf("message %q", g.Status.Message)
			}
		})
	}
}
