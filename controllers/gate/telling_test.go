package gate

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/controllertest"
	"nisse.io/nisse/controllers/gate/policy"
)

// One commit is told alike in the status, in the log and on the work item, under the correlation ID of the item and with its cause.
func TestOneOutcomeIsToldEverywhere(t *testing.T) {
	for _, tc := range []struct {
		name    string
		halt    bool
		before  func(*bench, *v1alpha1.Gate)
		outcome v1alpha1.GateOutcome
		task    string
		cause   string
		by      []any
		// event is its type and reason; empty for none.
		event   string
		message string
	}{
		{"approved", false, func(b *bench, g *v1alpha1.Gate) { b.Approval(g, "lucas", v1alpha1.DecisionApprove, nil) },
			v1alpha1.GateApproved, "req-7", "apr-1", []any{"lucas"}, "Normal Approved", "rev-1 was approved by lucas at "},
		{"rejected", false, func(b *bench, g *v1alpha1.Gate) {
			b.Approval(g, "lucas", v1alpha1.DecisionReject, func(s *v1alpha1.ApprovalSpec) { s.Text = "use daily.txt" })
		}, v1alpha1.GateRejected, "req-7", "apr-1", []any{"lucas"}, "Normal Rejected", `: "use daily.txt".`},
		{"lapsed", false, func(b *bench, g *v1alpha1.Gate) { b.now = g.Spec.ExpiresAt.Add(policy.Grace) },
			v1alpha1.GateExpired, "req-7", "time", nil, "Warning Expired", "; nothing of rev-1 was run."},
		{"a question lapsed", true, func(b *bench, g *v1alpha1.Gate) { b.now = g.Spec.ExpiresAt.Add(policy.Grace) },
			v1alpha1.GateExpired, "req-7", "time", nil, "Warning Expired", "; nothing of the question was run."},
		{"replaced", false, func(b *bench, _ *v1alpha1.Gate) { b.Plan(2, controllertest.Report) },
			v1alpha1.GateSuperseded, "req-7", "wi-1-rev-1", nil, "Normal Superseded", "rev-1 was replaced by rev-2 at "},
		{"its item is gone", false, func(b *bench, _ *v1alpha1.Gate) { b.Delete(b.Item) },
			v1alpha1.GateSuperseded, "wi-1", "wi-1-rev-1", nil, "", "its work item is gone"},
		{"answered", true, func(b *bench, g *v1alpha1.Gate) {
			b.Approval(g, "lucas", v1alpha1.DecisionReject, with(v1alpha1.AnswerAbandon))
		}, v1alpha1.GateRejected, "req-7", "apr-1", []any{"lucas"}, "Normal Answered", "The question was answered with abandon by lucas at "},
		{"dropped", true, func(b *bench, _ *v1alpha1.Gate) { b.Status(b.Item, func() { b.Item.Status.AnsweredStop = "s1" }) },
			v1alpha1.GateSuperseded, "req-7", "wi-1", nil, "Normal Superseded", "it has been answered"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t)
			state := b.Item.Status
			b.Delete(b.Item)
			b.Item = controllertest.NewItem(b.Agent, "wi-1")
			b.Item.Spec.CorrelationID = "req-7"
			b.Create(b.Item)
			b.Status(b.Item, func() { b.Item.Status.State = state.State })
			var g *v1alpha1.Gate
			if tc.halt {
				b.Update(b.Item, func() { b.Item.Spec.Stop = &v1alpha1.StopRequest{ID: "s1"} })
				g = b.HaltGate(v1alpha1.GateHaltRef{Stop: "s1"}, b.now)
			} else {
				g = b.Gate(b.Plan(1, controllertest.Report), b.now)
			}
			tc.before(b, g)
			b.must(g)
			b.outcome(g, tc.outcome)
			if !strings.Contains(g.Status.Message, tc.message) {
				t.Errorf("message %q, want %q", g.Status.Message, tc.message)
			}
			ready := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionReady)
			if ready.Status != metav1.ConditionTrue || ready.Reason != string(tc.outcome) || ready.Message != g.Status.Message || g.Status.ObservedGeneration != g.Generation {
				t.Errorf("Ready is %+v at generation %d", ready, g.Status.ObservedGeneration)
			}
			got := b.Logged("gate." + strings.ToLower(string(tc.outcome)))
			want := map[string]any{"agent": "ops", "task_id": tc.task, "cause": tc.cause, "gate": g.Name, "gate_uid": string(g.UID), "digest": g.Spec.Digest, "by": any(tc.by)}
			if tc.by == nil {
				want["by"] = nil
			}
			if diff := cmp.Diff([]map[string]any{want}, got); diff != "" {
				t.Errorf("log (-want +got):\n%s", diff)
			}
			var events []string
			if tc.event != "" {
				events = []string{tc.event + " " + g.Status.Message}
			}
			if diff := cmp.Diff(events, b.Heard()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}
