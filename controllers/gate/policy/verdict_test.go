package policy

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"nisse.io/nisse/api/v1alpha1"
)

const (
	approve = v1alpha1.DecisionApprove
	reject  = v1alpha1.DecisionReject
)

// vote by a username, some seconds before the gate lapses.
func vote(name, username string, d v1alpha1.Decision, before time.Duration) v1alpha1.Approval {
	a := approval(name, username)
	a.Spec.Decision, a.CreationTimestamp = d, metav1.NewTime(expiry.Add(-before))
	return *a
}

func answer(a v1alpha1.Approval, with v1alpha1.HaltAnswer) v1alpha1.Approval {
	a.Spec.Answer = with
	return a
}

func refusedBefore(a v1alpha1.Approval) v1alpha1.Approval {
	a.Status.Reason = v1alpha1.ReasonMayNotApprove
	return a
}

func TestDecide(t *testing.T) {
	early, last, late := expiry.Add(-time.Minute), expiry.Add(Grace-time.Nanosecond), expiry.Add(Grace)
	for _, tc := range []struct {
		name      string
		gate      func(*Input)
		approvals []v1alpha1.Approval
		now       time.Time
		outcome   v1alpha1.GateOutcome
		counted   []string
		refused   []string
	}{
		{"nobody said anything", nil, nil, early, "", nil, nil},
		{"one approval", nil, []v1alpha1.Approval{vote("a", "lucas", approve, 60*time.Second)}, early, v1alpha1.GateApproved, []string{"a"}, nil},
		{"one rejection", nil, []v1alpha1.Approval{vote("a", "lucas", reject, 60*time.Second)}, early, v1alpha1.GateRejected, []string{"a"}, nil},
		{"a rejection beats an earlier approval", nil, []v1alpha1.Approval{vote("a", "lucas", approve, 90*time.Second), vote("b", "maria", reject, 60*time.Second)}, early,
			v1alpha1.GateRejected, []string{"b"}, nil},
		{"a person takes an approval back", nil, []v1alpha1.Approval{vote("a", "lucas", approve, 90*time.Second), vote("b", "lucas", reject, 60*time.Second)}, early,
			v1alpha1.GateRejected, []string{"b"}, []string{"a SecondVote"}},
		{"a rejection by nobody beats nothing", nil, []v1alpha1.Approval{vote("a", "lucas", approve, 90*time.Second), vote("b", "mallory", reject, 60*time.Second)}, early,
			v1alpha1.GateApproved, []string{"a"}, []string{"b NotAPerson"}},
		{"the first of two approvals counts", nil, []v1alpha1.Approval{vote("b", "maria", approve, 60*time.Second), vote("a", "lucas", approve, 50*time.Second)}, early,
			v1alpha1.GateApproved, []string{"b"}, nil},
		{"of one second the name decides", nil, []v1alpha1.Approval{vote("b", "maria", approve, 60*time.Second), vote("a", "lucas", approve, 60*time.Second)}, early,
			v1alpha1.GateApproved, []string{"a"}, nil},
		{"a stranger's word is refused and the gate waits", nil, []v1alpha1.Approval{vote("a", "mallory", approve, 60*time.Second)}, early, "", nil, []string{"a NotAPerson"}},
		{"a refusal is told once", nil, []v1alpha1.Approval{refusedBefore(vote("a", "nora", approve, 60*time.Second))}, early, "", nil, nil},
		{"what was refused never counts later", nil, []v1alpha1.Approval{refusedBefore(vote("a", "lucas", approve, 60*time.Second))}, early, "", nil, nil},
		{"no approvers: nobody", func(in *Input) { in.Gate.Spec.Approvers = nil }, []v1alpha1.Approval{vote("a", "lucas", approve, 60*time.Second)}, early, "", nil, []string{"a MayNotApprove"}},

		{"two of two", func(in *Input) { in.Gate.Spec.Required = 2 }, []v1alpha1.Approval{vote("a", "lucas", approve, 60*time.Second), vote("b", "maria", approve, 50*time.Second)}, early,
			v1alpha1.GateApproved, []string{"a", "b"}, nil},
		{"one of two", func(in *Input) { in.Gate.Spec.Required = 2 }, []v1alpha1.Approval{vote("a", "lucas", approve, 60*time.Second)}, early, "", nil, nil},
		{"one person twice is one", func(in *Input) { in.Gate.Spec.Required = 2 }, []v1alpha1.Approval{vote("a", "lucas", approve, 60*time.Second), vote("b", "lucas", approve, 50*time.Second)}, early,
			"", nil, []string{"b SecondVote"}},
		{"required of zero still wants one", func(in *Input) { in.Gate.Spec.Required = 0 }, nil, early, "", nil, nil},
		{"one rejection ends a gate that wants two", func(in *Input) { in.Gate.Spec.Required = 2 }, []v1alpha1.Approval{vote("a", "lucas", reject, 60*time.Second)}, early,
			v1alpha1.GateRejected, []string{"a"}, nil},

		{"time does not act early", nil, nil, expiry, "", nil, nil},
		{"nor within the grace", nil, nil, last, "", nil, nil},
		{"then it lapses", nil, nil, late, v1alpha1.GateExpired, nil, nil},
		{"a rejection before the end, judged after it", nil, []v1alpha1.Approval{vote("a", "lucas", reject, time.Second)}, late.Add(time.Hour), v1alpha1.GateRejected, []string{"a"}, nil},
		{"an approval before the end, judged after it", nil, []v1alpha1.Approval{vote("a", "lucas", approve, time.Second)}, late.Add(time.Hour), v1alpha1.GateApproved, []string{"a"}, nil},
		{"an approval at the end", nil, []v1alpha1.Approval{vote("a", "lucas", approve, 0)}, late, v1alpha1.GateExpired, nil, []string{"a TooLate"}},
		{"one of two when time is over", func(in *Input) { in.Gate.Spec.Required = 2 }, []v1alpha1.Approval{vote("a", "lucas", approve, time.Minute)}, late, v1alpha1.GateExpired, nil, nil},

		{"continue", halt, []v1alpha1.Approval{answer(vote("a", "lucas", approve, time.Minute), v1alpha1.AnswerContinue)}, early, v1alpha1.GateApproved, []string{"a"}, nil},
		{"abandon", halt, []v1alpha1.Approval{answer(vote("a", "lucas", reject, time.Minute), v1alpha1.AnswerAbandon)}, early, v1alpha1.GateRejected, []string{"a"}, nil},
		{"two who want different things decide nothing", func(in *Input) { halt(in); in.Gate.Spec.Required = 2 },
			[]v1alpha1.Approval{answer(vote("a", "lucas", approve, time.Minute), v1alpha1.AnswerContinue), answer(vote("b", "maria", approve, 50*time.Second), v1alpha1.AnswerReplan)},
			early, "", nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := valid()
			if tc.gate != nil {
				tc.gate(&in)
			}
			v := Decide(in.Gate, in.Plan, in.Agent, in.People, tc.approvals, tc.now)
			if v.Outcome != tc.outcome {
				t.Errorf("outcome %q, want %q", v.Outcome, tc.outcome)
			}
			if diff := cmp.Diff(tc.counted, counted(v)); diff != "" {
				t.Errorf("counted (-want +got):\n%s", diff)
			}
			var refused []string
			for _, r := range v.Refused {
				refused = append(refused, r.Approval.Name+" "+r.Reason)
			}
			if diff := cmp.Diff(tc.refused, refused); diff != "" {
				t.Errorf("refused (-want +got):\n%s", diff)
			}
		})
	}
}

func counted(v Verdict) []string {
	var names []string
	for _, d := range v.Decisions {
		names = append(names, d.Approval)
	}
	return names
}

func TestDecisionRecordsWhatWasSaid(t *testing.T) {
	in := valid()
	a := vote("a", "lucas", reject, time.Minute)
	a.Spec.Text = "use /srv/nisse/daily.txt instead"
	v := Decide(in.Gate, in.Plan, in.Agent, in.People, []v1alpha1.Approval{a}, expiry.Add(-time.Second))
	want := []v1alpha1.GateDecision{{Approval: "a", Person: "lucas", Decision: reject, Text: "use /srv/nisse/daily.txt instead",
		Channel: v1alpha1.ChannelKubernetes, At: metav1.NewTime(expiry.Add(-time.Minute))}}
	if diff := cmp.Diff(want, v.Decisions); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Any crowd, in any order: who may not decide has no influence; an approval needs enough different approvers and no rejection.
func TestDecideProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := valid()
		in.Gate.Spec.Required = rapid.Int32Range(1, 3).Draw(t, "required")
		var all []v1alpha1.Approval
		voters, rejected := map[string]bool{}, false
		for i := range rapid.IntRange(0, 8).Draw(t, "n") {
			who := rapid.SampledFrom([]string{"lucas", "maria", "nora", "otto", "mallory"}).Draw(t, "who")
			d := rapid.SampledFrom([]v1alpha1.Decision{approve, reject}).Draw(t, "decision")
			before := time.Duration(rapid.IntRange(-2, 3).Draw(t, "before")) * time.Second
			all = append(all, vote(fmt.Sprint("a", i), who, d, before))
			if (who == "lucas" || who == "maria") && before > 0 {
				rejected = rejected || d == reject
				voters[who] = true
			}
		}
		now := expiry.Add(time.Duration(rapid.IntRange(-3, 3).Draw(t, "now")) * time.Second)
		v := Decide(in.Gate, in.Plan, in.Agent, in.People, all, now)
		switch {
		case rejected && v.Outcome != v1alpha1.GateRejected:
			t.Fatalf("a valid rejection, yet %q", v.Outcome)
		case !rejected && len(voters) >= int(in.Gate.Spec.Required) && v.Outcome != v1alpha1.GateApproved:
			t.Fatalf("%d approvers of %d, yet %q", len(voters), in.Gate.Spec.Required, v.Outcome)
		case !rejected && len(voters) < int(in.Gate.Spec.Required) && v.Outcome == v1alpha1.GateApproved:
			t.Fatalf("approved by %d of %d", len(voters), in.Gate.Spec.Required)
		}
		shuffled := rapid.Permutation(all).Draw(t, "order")
		again := Decide(in.Gate, in.Plan, in.Agent, in.People, shuffled, now)
		if again.Outcome != v.Outcome || !slices.Equal(counted(again), counted(v)) {
			t.Fatalf("order matters: %q %v, then %q %v", v.Outcome, counted(v), again.Outcome, counted(again))
		}
	})
}
