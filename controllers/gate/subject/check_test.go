package subject

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/canonical"
)

// sized makes a plan whose canonical form has so many bytes.
func sized(t *testing.T, bytes int) *v1alpha1.Plan {
	t.Helper()
	p := plan(1)
	p.Spec.Body = "x"
	b, err := canonical.Marshal(p.Spec)
	if err != nil {
		t.Fatal(err)
	}
	p.Spec.Body += strings.Repeat("x", bytes-len(b))
	return p
}

// Whatever of a plan is not as it must be, nobody is asked about it: the manager signs, and so it looks itself.
func TestCheckRefuses(t *testing.T) {
	steps := func(n int) []v1alpha1.PlanStep {
		all := make([]v1alpha1.PlanStep, n)
		for i := range all {
			all[i] = v1alpha1.PlanStep{Device: "web1", Capability: "fs.read", Args: fmt.Sprintf(`{"path":"/srv/%d"}`, i), ManifestDigest: zero}
		}
		return all
	}
	for _, tc := range []struct {
		name  string
		spoil func(*v1alpha1.Plan, *v1alpha1.WorkItem, *v1alpha1.Agent)
		want  string
	}{
		{"of another item", func(p *v1alpha1.Plan, _ *v1alpha1.WorkItem, _ *v1alpha1.Agent) { p.Spec.WorkItem.Name = "wi-2" }, "another work item (wi-2, UID item-1)"},
		{"of an earlier item of that name", func(p *v1alpha1.Plan, _ *v1alpha1.WorkItem, _ *v1alpha1.Agent) { p.Spec.WorkItem.UID = "item-0" }, "another work item (wi-1, UID item-0)"},
		{"by another agent", func(p *v1alpha1.Plan, _ *v1alpha1.WorkItem, _ *v1alpha1.Agent) { p.Spec.Agent = "eve" }, "another agent (eve, UID agent-1)"},
		{"by an earlier agent of that name", func(p *v1alpha1.Plan, _ *v1alpha1.WorkItem, _ *v1alpha1.Agent) { p.Spec.AgentUID = "agent-0" }, "another agent (ops, UID agent-0)"},
		{"by an agent that does not have the item", func(_ *v1alpha1.Plan, w *v1alpha1.WorkItem, _ *v1alpha1.Agent) { w.Spec.Agent = "dev" }, "another agent"},
		{"named as another revision", func(p *v1alpha1.Plan, _ *v1alpha1.WorkItem, _ *v1alpha1.Agent) { p.Name = "wi-1-rev-2" }, "rev-1 must be called wi-1-rev-1"},
		{"without steps", func(p *v1alpha1.Plan, _ *v1alpha1.WorkItem, _ *v1alpha1.Agent) { p.Spec.Steps = nil }, "it has no steps"},
		{"with as many steps as may be", func(p *v1alpha1.Plan, _ *v1alpha1.WorkItem, _ *v1alpha1.Agent) {
			p.Spec.Steps = steps(v1alpha1.PlanMaxSteps)
		}, ""},
		{"with one more", func(p *v1alpha1.Plan, _ *v1alpha1.WorkItem, _ *v1alpha1.Agent) {
			p.Spec.Steps = steps(v1alpha1.PlanMaxSteps + 1)
		}, "it has 51 steps, 50 at most"},
		{"with the last step spoiled", func(p *v1alpha1.Plan, _ *v1alpha1.WorkItem, _ *v1alpha1.Agent) { p.Spec.Steps[1].Args = "{]" }, "arguments of step 2"},
		{"with arguments in another form", func(p *v1alpha1.Plan, _ *v1alpha1.WorkItem, _ *v1alpha1.Agent) { p.Spec.Steps[1].Args = `{ "argv":[]}` }, "arguments of step 2 are not in canonical form"},
		{"with a program that nobody knows", func(p *v1alpha1.Plan, _ *v1alpha1.WorkItem, _ *v1alpha1.Agent) { p.Spec.Steps[1].Resolved = nil }, "step 2 does not say which program it runs"},
		{"with a program where none runs", func(p *v1alpha1.Plan, _ *v1alpha1.WorkItem, _ *v1alpha1.Agent) {
			p.Spec.Steps[0].Resolved = p.Spec.Steps[1].Resolved
		}, "step 1 says which program it runs, and fs.write runs none of the agent's choice"},
		{"with a program somewhere", func(p *v1alpha1.Plan, _ *v1alpha1.WorkItem, _ *v1alpha1.Agent) {
			p.Spec.Steps[1].Resolved.Executable = "df"
		}, "step 2 does not say properly"},
		{"with a program by a detour", func(p *v1alpha1.Plan, _ *v1alpha1.WorkItem, _ *v1alpha1.Agent) {
			p.Spec.Steps[1].Resolved.Executable = "/usr/../bin/df"
		}, "step 2 does not say properly"},
		{"with half a hash", func(p *v1alpha1.Plan, _ *v1alpha1.WorkItem, _ *v1alpha1.Agent) {
			p.Spec.Steps[1].Resolved.SHA256 = hash[:32]
		}, "step 2 does not say properly"},
		{"with a hash in capitals", func(p *v1alpha1.Plan, _ *v1alpha1.WorkItem, _ *v1alpha1.Agent) {
			p.Spec.Steps[1].Resolved.SHA256 = strings.ToUpper(hash)
		}, "step 2 does not say properly"},
		{"run as nobody named", func(p *v1alpha1.Plan, _ *v1alpha1.WorkItem, _ *v1alpha1.Agent) { p.Spec.Steps[1].Resolved.User = "" }, "step 2 does not say properly"},
		{"as long as may be", func(p *v1alpha1.Plan, _ *v1alpha1.WorkItem, _ *v1alpha1.Agent) { *p = *sized(t, v1alpha1.PlanMaxBytes) }, ""},
		{"one byte longer", func(p *v1alpha1.Plan, _ *v1alpha1.WorkItem, _ *v1alpha1.Agent) {
			*p = *sized(t, v1alpha1.PlanMaxBytes+1)
		}, "it has 16385 bytes, 16384 at most"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, w, a := plan(1), item(), agent()
			tc.spoil(p, w, a)
			err := Check(p, w, a)
			switch {
			case tc.want == "" && err != nil:
				t.Error(err)
			case tc.want != "" && (!errors.Is(err, ErrNotReady) || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// Why a question is dropped is told with what it was about and when.
func TestSupersededSaysWhy(t *testing.T) {
	opened := time.Date(2026, 11, 30, 14, 0, 0, 0, time.UTC)
	planGate := v1alpha1.GateSpec{Kind: v1alpha1.GatePlan, WorkItem: v1alpha1.ObjectRef{Name: "wi-1", UID: "item-1"}, Revision: 2}
	haltGate := v1alpha1.GateSpec{Kind: v1alpha1.GateHalt, WorkItem: planGate.WorkItem, Halt: &v1alpha1.GateHaltRef{Stop: "s1"}}
	stopped := func(w *v1alpha1.WorkItem) { w.Spec.Stop = &v1alpha1.StopRequest{ID: "s1"} }
	for _, tc := range []struct {
		name   string
		gate   v1alpha1.GateSpec
		change func(*v1alpha1.WorkItem)
		plans  []int32
		after  time.Duration
		want   string
	}{
		{"it stands", planGate, func(*v1alpha1.WorkItem) {}, []int32{1, 2}, time.Minute, ""},
		{"the item is another", planGate, func(w *v1alpha1.WorkItem) { w.UID = "item-2" }, []int32{2}, time.Minute, "rev-2 was dropped at 14:01 UTC: its work item is gone. Nothing was run."},
		{"the work has ended", planGate, func(w *v1alpha1.WorkItem) { w.Spec.Close = true }, []int32{2}, time.Minute, "rev-2 was dropped at 14:01 UTC: the work has ended. Nothing more runs for it."},
		{"the next day", planGate, func(w *v1alpha1.WorkItem) { w.Spec.Close = true }, []int32{2}, 24 * time.Hour, "rev-2 was dropped at 14:00 UTC on 1 December: the work has ended. Nothing more runs for it."},
		{"no plan is left", planGate, func(*v1alpha1.WorkItem) {}, nil, time.Minute, "rev-2 was dropped at 14:01 UTC: the plan is gone. Nothing was run."},
		{"an earlier plan is left", planGate, func(*v1alpha1.WorkItem) {}, []int32{1}, time.Minute, "rev-2 was dropped at 14:01 UTC: the plan is gone. Nothing was run."},
		{"a later plan", planGate, func(*v1alpha1.WorkItem) {}, []int32{2, 4, 3}, time.Minute, "rev-2 was replaced by rev-4 at 14:01 UTC; nothing of rev-2 was run."},
		{"a later plan that is gone", planGate, func(w *v1alpha1.WorkItem) { w.Status.Plan = &v1alpha1.PlanRef{Revision: 3} }, []int32{2}, time.Minute,
			"rev-2 was replaced by rev-3 at 14:01 UTC; nothing of rev-2 was run."},
		{"its own plan is noted", planGate, func(w *v1alpha1.WorkItem) { w.Status.Plan = &v1alpha1.PlanRef{Revision: 2} }, []int32{2}, time.Minute, ""},
		{"closed by an answer", planGate, func(w *v1alpha1.WorkItem) { w.Status.ClosedRevision = 2 }, []int32{2}, time.Minute,
			"rev-2 was dropped at 14:01 UTC: a person wants another plan. Nothing was run."},
		{"an earlier one was closed", planGate, func(w *v1alpha1.WorkItem) { w.Status.ClosedRevision = 1 }, []int32{2}, time.Minute, ""},
		{"a stop", planGate, stopped, []int32{2}, time.Minute, "rev-2 was dropped at 14:01 UTC: the work was stopped. Nothing was run; the plan can be submitted again afterwards."},
		{"the question stands", haltGate, stopped, []int32{7}, time.Minute, ""},
		{"it has been answered", haltGate, func(w *v1alpha1.WorkItem) { stopped(w); w.Status.AnsweredStop = "s1" }, nil, time.Minute,
			"The question was dropped at 14:01 UTC: it has been answered."},
		{"another stop", haltGate, func(w *v1alpha1.WorkItem) { w.Spec.Stop = &v1alpha1.StopRequest{ID: "s2"} }, nil, time.Minute,
			"The question was replaced at 14:01 UTC: the work was stopped or halted anew, and that is asked about now."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := item()
			tc.change(w)
			var plans []v1alpha1.Plan
			for _, r := range tc.plans {
				p := plan(r)
				p.Spec.WorkItem.UID = string(w.UID)
				plans = append(plans, *p)
			}
			g := &v1alpha1.Gate{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(opened)}, Spec: tc.gate}
			if got := Superseded(g, w, plans, opened.Add(tc.after)); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
	g := &v1alpha1.Gate{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(opened)}, Spec: haltGate}
	if got, want := Superseded(g, nil, nil, opened), "The question was dropped at 14:00 UTC: its work item is gone. Nothing was run."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
