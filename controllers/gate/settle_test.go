package gate

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/controllertest"
	"nisse.io/nisse/internal/deed"
	"nisse.io/nisse/internal/names"
)

// job of the bench's item that ended so.
func (b *bench) job(step int32, state v1alpha1.JobState) *v1alpha1.DeviceJob {
	return b.jobOf(v1alpha1.GateRef{Name: "g", UID: "gate-uid"}, step, state)
}

// jobOf a gate.
func (b *bench) jobOf(g v1alpha1.GateRef, step int32, state v1alpha1.JobState) *v1alpha1.DeviceJob {
	id := deed.Approved(g.UID, step, 1)
	j := &v1alpha1.DeviceJob{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: names.Job(id)}, Spec: v1alpha1.DeviceJobSpec{
		Agent: b.Agent.Name, AgentUID: string(b.Agent.UID), WorkItem: v1alpha1.ObjectRef{Name: b.Item.Name, UID: string(b.Item.UID)}, Device: "web1",
		ManifestDigest: "sha256:" + strings.Repeat("0", 64), Capability: "fs.write", Args: "{}", Deed: id, Gate: g, Step: step, Attempt: 1,
		ExpiresAt: metav1.NewTime(b.now.Add(time.Hour)),
	}}
	b.Create(j)
	b.Status(j, func() { j.Status.State = state })
	return j
}

// A person closes a job whose outcome nobody can prove, and the job keeps who, when and why. Other jobs stay what they are.
func TestSettle(t *testing.T) {
	for _, tc := range []struct {
		name     string
		decision v1alpha1.Decision
		answer   v1alpha1.HaltAnswer
		settle   v1alpha1.Settlement
		as       v1alpha1.Settlement
	}{
		{"as succeeded", v1alpha1.DecisionApprove, v1alpha1.AnswerContinue, v1alpha1.SettledSucceeded, v1alpha1.SettledSucceeded},
		{"as failed", v1alpha1.DecisionApprove, v1alpha1.AnswerContinue, v1alpha1.SettledFailed, v1alpha1.SettledFailed},
		{"continue counts it as done", v1alpha1.DecisionApprove, v1alpha1.AnswerContinue, "", v1alpha1.SettledSucceeded},
		{"replan does not say", v1alpha1.DecisionApprove, v1alpha1.AnswerReplan, "", ""},
		{"abandon does not say", v1alpha1.DecisionReject, v1alpha1.AnswerAbandon, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t)
			j, other, done := b.job(1, v1alpha1.JobUnknown), b.job(2, v1alpha1.JobUnknown), b.job(3, v1alpha1.JobSucceeded)
			halt := deed.UnknownHalt(j.Spec.Deed)
			b.Status(b.Item, func() {
				b.Item.Status.Runtime = &v1alpha1.WorkItemRuntime{Halt: &v1alpha1.HaltReport{ID: halt, Reason: v1alpha1.HaltOutcomeUnknown, Message: "m", At: metav1.Now()}}
			})
			g := b.HaltGate(v1alpha1.GateHaltRef{Halt: halt}, b.now)
			b.must(g)
			if b.Read(j); j.Status.Settled != nil {
				t.Fatalf("settled before anybody decided: %+v", j.Status.Settled)
			}
			a := b.Approval(g, "lucas", tc.decision, func(s *v1alpha1.ApprovalSpec) { s.Answer, s.Settle, s.Text = tc.answer, tc.settle, "I looked" })
			b.must(g) // commits
			b.must(g) // as its own event, or a manager that starts again
			b.Read(j)
			want := &v1alpha1.JobSettlement{As: tc.as, Answer: tc.answer, Person: "lucas", Approval: a.Name, Gate: v1alpha1.GateRef{Name: g.Name, UID: string(g.UID)}, Reason: "I looked", At: a.CreationTimestamp}
			if d := cmp.Diff(want, j.Status.Settled); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if j.Status.State != v1alpha1.JobUnknown {
				t.Errorf("state %s", j.Status.State)
			}
			version := j.ResourceVersion
			b.must(g)
			if b.Read(j); j.ResourceVersion != version {
				t.Error("it was written again")
			}
			for _, o := range []*v1alpha1.DeviceJob{other, done} {
				if b.Read(o); o.Status.Settled != nil {
					t.Errorf("%s was settled too", o.Name)
				}
			}
			if n := len(b.Logged("devicejob.settled")); n != 1 {
				t.Errorf("%d lines in the log", n)
			}
		})
	}
}

// A settlement by somebody who may not counts for nothing.
func TestSettleByAnother(t *testing.T) {
	b := newBench(t)
	j := b.job(1, v1alpha1.JobUnknown)
	halt := deed.UnknownHalt(j.Spec.Deed)
	b.Status(b.Item, func() {
		b.Item.Status.Runtime = &v1alpha1.WorkItemRuntime{Halt: &v1alpha1.HaltReport{ID: halt, Reason: v1alpha1.HaltOutcomeUnknown, Message: "m", At: metav1.Now()}}
	})
	g := b.HaltGate(v1alpha1.GateHaltRef{Halt: halt}, b.now)
	a := b.Approval(g, "mallory", v1alpha1.DecisionApprove, func(s *v1alpha1.ApprovalSpec) { s.Answer, s.Settle = v1alpha1.AnswerContinue, v1alpha1.SettledFailed })
	b.must(g)
	b.must(g)
	b.refused(a, v1alpha1.ReasonNotAPerson)
	if b.Read(j); j.Status.Settled != nil {
		t.Errorf("settled: %+v", j.Status.Settled)
	}
}

// A job whose work ended before anybody said how it did is settled by telling the gate that let it run, and in no other way.
func TestSettleWhenTheWorkIsOver(t *testing.T) {
	for _, tc := range []struct {
		name    string
		by      string
		change  func(*v1alpha1.ApprovalSpec)
		working bool // the work is not over
		state   v1alpha1.JobState
		reason  string // empty: it counts
	}{
		{name: "by who may approve", by: "lucas"},
		{name: "by somebody who is nobody", by: "mallory", reason: v1alpha1.ReasonNotAPerson},
		{name: "about another gate", by: "lucas", change: func(s *v1alpha1.ApprovalSpec) { s.Gate.UID = "another" }, reason: v1alpha1.ReasonOtherGate},
		{name: "about other steps", by: "lucas", change: func(s *v1alpha1.ApprovalSpec) { s.Digest = "sha256:" + strings.Repeat("f", 64) }, reason: v1alpha1.ReasonDigestMismatch},
		{name: "without saying how it ended", by: "lucas", change: func(s *v1alpha1.ApprovalSpec) { s.Settle = "" }, reason: v1alpha1.ReasonGateDecided},
		{name: "while the halt asks", by: "lucas", working: true, reason: v1alpha1.ReasonGateDecided},
		{name: "what is proven", by: "lucas", state: v1alpha1.JobFailed, reason: v1alpha1.ReasonGateDecided},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.state == "" {
				tc.state = v1alpha1.JobUnknown
			}
			b := newBench(t)
			g := b.Gate(b.Plan(1, controllertest.Report), b.now)
			b.Approval(g, "lucas", v1alpha1.DecisionApprove, nil)
			b.must(g)
			b.outcome(g, v1alpha1.GateApproved)
			j := b.jobOf(v1alpha1.GateRef{Name: g.Name, UID: string(g.UID)}, 1, tc.state)
			other := b.job(2, v1alpha1.JobUnknown)
			b.Update(b.Item, func() { b.Item.Spec.Close = !tc.working })
			b.must(g)
			if b.Read(j); j.Status.Settled != nil {
				t.Fatalf("settled before anybody said anything: %+v", j.Status.Settled)
			}
			a := b.Approval(g, tc.by, v1alpha1.DecisionApprove, func(s *v1alpha1.ApprovalSpec) {
				s.Answer, s.Settle, s.Text = v1alpha1.AnswerContinue, v1alpha1.SettledFailed, "I looked"
				if tc.change != nil {
					tc.change(s)
				}
			})
			writes := countWrites(b)
			b.must(g)
			once := *writes
			b.must(g)
			b.refused(a, tc.reason)
			if once != 1 || *writes != 1 {
				t.Errorf("%d writes, then %d", once, *writes-once)
			}
			var want *v1alpha1.JobSettlement
			if tc.reason == "" {
				want = &v1alpha1.JobSettlement{As: v1alpha1.SettledFailed, Answer: v1alpha1.AnswerContinue, Person: "lucas", Approval: a.Name,
					Gate: v1alpha1.GateRef{Name: g.Name, UID: string(g.UID)}, Reason: "I looked", At: a.CreationTimestamp}
			}
			if b.Read(j); cmp.Diff(want, j.Status.Settled) != "" {
				t.Errorf("(-want +got):\n%s", cmp.Diff(want, j.Status.Settled))
			}
			if b.Read(other); other.Status.Settled != nil {
				t.Errorf("another gate's job was settled too: %+v", other.Status.Settled)
			}
			// Said once more, it changes nothing, and is told so.
			late := b.Approval(g, "lucas", v1alpha1.DecisionApprove, func(s *v1alpha1.ApprovalSpec) {
				s.Answer, s.Settle = v1alpha1.AnswerContinue, v1alpha1.SettledSucceeded
			})
			if tc.reason != "" {
				return
			}
			b.must(g)
			b.refused(late, v1alpha1.ReasonGateDecided)
			if b.Read(j); j.Status.Settled.As != v1alpha1.SettledFailed {
				t.Errorf("settled twice: %+v", j.Status.Settled)
			}
		})
	}
}
