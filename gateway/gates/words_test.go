package gates

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nisse.io/nisse/api/v1alpha1"
)

func TestEnded(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 11, 30, 14, 3, 0, 0, time.Local))
	zone := at.Format("MST")
	by := func(d v1alpha1.Decision, a v1alpha1.HaltAnswer, people ...string) []v1alpha1.GateDecision {
		var out []v1alpha1.GateDecision
		for _, p := range people {
			out = append(out, v1alpha1.GateDecision{Person: p, Decision: d, Answer: a})
		}
		return out
	}
	for name, tc := range map[string]struct {
		kind   v1alpha1.GateKind
		status v1alpha1.GateStatus
		want   string
	}{
		"approved": {
			v1alpha1.GatePlan, v1alpha1.GateStatus{Outcome: v1alpha1.GateApproved, Decisions: by(v1alpha1.DecisionApprove, "", "lucas")},
			"✓ rev-2 approved by lucas, 14:03 " + zone + ".",
		},
		"approved by two": {
			v1alpha1.GatePlan, v1alpha1.GateStatus{Outcome: v1alpha1.GateApproved, Decisions: by(v1alpha1.DecisionApprove, "", "lucas", "vera")},
			"✓ rev-2 approved by lucas and vera, 14:03 " + zone + ".",
		},
		"rejected": {
			v1alpha1.GatePlan, v1alpha1.GateStatus{Outcome: v1alpha1.GateRejected, Decisions: by(v1alpha1.DecisionReject, "", "lucas")},
			"✗ rev-2 rejected by lucas, 14:03 " + zone + "; nothing was run.",
		},
		"rejected with a reason": {
			v1alpha1.GatePlan, v1alpha1.GateStatus{Outcome: v1alpha1.GateRejected, Decisions: []v1alpha1.GateDecision{
				{Person: "lucas", Decision: v1alpha1.DecisionReject, Text: "use `daily.txt`\nplease"}}},
			"✗ rev-2 rejected by lucas, 14:03 " + zone + "; nothing was run. In lucas's words: \"use `daily.txt`\\nplease\"",
		},
		"replan": {
			v1alpha1.GateHalt, v1alpha1.GateStatus{Outcome: v1alpha1.GateApproved, Decisions: []v1alpha1.GateDecision{
				{Person: "lucas", Decision: v1alpha1.DecisionApprove, Answer: v1alpha1.AnswerReplan, Text: "use web2"}}},
			"✓ replanned by lucas, 14:03 " + zone + ". In lucas's words: \"use web2\"",
		},
		"nobody answered a stop": {v1alpha1.GateHalt, v1alpha1.GateStatus{Outcome: v1alpha1.GateExpired},
			"✗ Nobody answered until 14:03 " + zone + ". The work is still stopped: type `stop` to be asked again."},
		"expired": {v1alpha1.GatePlan, v1alpha1.GateStatus{Outcome: v1alpha1.GateExpired}, "✗ rev-2 expired at 14:03 " + zone + "; nothing was run."},
		"replaced, as the manager says": {
			v1alpha1.GatePlan, v1alpha1.GateStatus{Outcome: v1alpha1.GateSuperseded, Message: "rev-2 was replaced by rev-3; nothing of rev-2 was run."},
			"✗ rev-2 was replaced by rev-3; nothing of rev-2 was run.",
		},
		"replaced, without a word": {v1alpha1.GatePlan, v1alpha1.GateStatus{Outcome: v1alpha1.GateSuperseded}, "✗ rev-2 was replaced at 14:03 " + zone + "; nothing was run."},
		"continue": {
			v1alpha1.GateHalt, v1alpha1.GateStatus{Outcome: v1alpha1.GateApproved, Decisions: by(v1alpha1.DecisionApprove, v1alpha1.AnswerContinue, "lucas")},
			"✓ continued by lucas, 14:03 " + zone + ".",
		},
		"settled": {
			v1alpha1.GateHalt, v1alpha1.GateStatus{Outcome: v1alpha1.GateApproved, Decisions: []v1alpha1.GateDecision{
				{Person: "lucas", Decision: v1alpha1.DecisionApprove, Answer: v1alpha1.AnswerContinue, Settle: v1alpha1.SettledFailed}}},
			"✓ continued by lucas, 14:03 " + zone + "; the step is settled as Failed.",
		},
		"abandon": {
			v1alpha1.GateHalt, v1alpha1.GateStatus{Outcome: v1alpha1.GateRejected, Decisions: by(v1alpha1.DecisionReject, v1alpha1.AnswerAbandon, "lucas")},
			"✗ abandoned by lucas, 14:03 " + zone + "; the work is closed.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.status.DecidedAt = &at
			g := &v1alpha1.Gate{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at}, Spec: v1alpha1.GateSpec{Kind: tc.kind, Revision: 2}, Status: tc.status}
			if got := Ended(g); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// Who decides what is over is told how it ended, in words that cannot be read as the answer to theirs.
func TestBefore(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 11, 30, 14, 3, 0, 0, time.Local))
	when := at.Format("15:04 MST")
	by := []v1alpha1.GateDecision{{Person: "lucas"}}
	for name, tc := range map[string]struct {
		status v1alpha1.GateStatus
		want   string
	}{
		"approved": {v1alpha1.GateStatus{Outcome: v1alpha1.GateApproved, Decisions: by}, "rev-2 was approved by lucas at " + when + " already; this second message changed nothing."},
		"rejected": {v1alpha1.GateStatus{Outcome: v1alpha1.GateRejected, Decisions: by}, "rev-2 was rejected by lucas at " + when + " already; this second message changed nothing."},
		"expired":  {v1alpha1.GateStatus{Outcome: v1alpha1.GateExpired}, "rev-2 expired at " + when + "; it cannot be decided any more, and nothing was run."},
		"replaced": {v1alpha1.GateStatus{Outcome: v1alpha1.GateSuperseded, Message: "rev-2 was replaced by rev-3."}, "rev-2 was replaced by rev-3."},
	} {
		t.Run(name, func(t *testing.T) {
			tc.status.DecidedAt = &at
			g := &v1alpha1.Gate{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at}, Spec: v1alpha1.GateSpec{Kind: v1alpha1.GatePlan, Revision: 2}, Status: tc.status}
			if got := Before(g); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

func TestBecame(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 11, 30, 14, 3, 0, 0, time.Local))
	when := at.Format("15:04 MST")
	for name, tc := range map[string]struct {
		kind   v1alpha1.GateKind
		status v1alpha1.GateStatus
		want   string
	}{
		"approved": {v1alpha1.GatePlan, v1alpha1.GateStatus{Outcome: v1alpha1.GateApproved, Decisions: []v1alpha1.GateDecision{{Person: "vera"}}}, "vera approved at " + when},
		"rejected": {v1alpha1.GatePlan, v1alpha1.GateStatus{Outcome: v1alpha1.GateRejected, Decisions: []v1alpha1.GateDecision{{Person: "vera"}}}, "vera rejected at " + when},
		"expired":  {v1alpha1.GatePlan, v1alpha1.GateStatus{Outcome: v1alpha1.GateExpired}, "expired at " + when},
		"replaced": {v1alpha1.GatePlan, v1alpha1.GateStatus{Outcome: v1alpha1.GateSuperseded, Message: "rev-2 was replaced by rev-3 at 14:01 UTC; nothing of rev-2 was run."},
			"was replaced by rev-3 at 14:01 UTC"},
		"dropped": {v1alpha1.GatePlan, v1alpha1.GateStatus{Outcome: v1alpha1.GateSuperseded, Message: "rev-2 was dropped at 23:35 UTC: the work was stopped. Nothing was run."},
			"was dropped at 23:35 UTC"},
		"a stop, dropped": {v1alpha1.GateHalt, v1alpha1.GateStatus{Outcome: v1alpha1.GateSuperseded, Message: "The question was dropped at 23:35 UTC: it has been answered."},
			"was dropped at 23:35 UTC"},
		"without a word": {v1alpha1.GatePlan, v1alpha1.GateStatus{Outcome: v1alpha1.GateSuperseded}, "was replaced at " + when},
		"answered": {v1alpha1.GateHalt, v1alpha1.GateStatus{Outcome: v1alpha1.GateApproved, Decisions: []v1alpha1.GateDecision{{Person: "vera", Answer: v1alpha1.AnswerReplan}}},
			"vera answered with `replan` at " + when},
	} {
		t.Run(name, func(t *testing.T) {
			tc.status.DecidedAt = &at
			g := &v1alpha1.Gate{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at}, Spec: v1alpha1.GateSpec{Kind: tc.kind, Revision: 2}, Status: tc.status}
			if got := Became(g); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}
