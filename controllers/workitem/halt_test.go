package workitem

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/admission"
	"nisse.io/nisse/controllers/controllertest"
	"nisse.io/nisse/controllers/gate/opening"
	"nisse.io/nisse/internal/names"
	"nisse.io/nisse/test/apitest"
)

// All of an answer is one write: what is answered, what is closed, and where the item goes.
func TestAnswers(t *testing.T) {
	for _, tc := range []struct {
		answer v1alpha1.HaltAnswer
		state  v1alpha1.WorkItemState
		closed int32
	}{
		{v1alpha1.AnswerContinue, v1alpha1.WorkItemWorking, 0},
		{v1alpha1.AnswerReplan, v1alpha1.WorkItemWorking, 2},
		{v1alpha1.AnswerAbandon, v1alpha1.WorkItemClosed, 2},
	} {
		t.Run(string(tc.answer), func(t *testing.T) {
			b := newBench(t, nil)
			for revision := range int32(2) {
				g := b.Gate(b.Plan(revision+1, controllertest.Report), b.now)
				b.Status(g, func() { g.Status.Outcome = v1alpha1.GateApproved })
			}
			b.stop("s1")
			b.halt("h1")
			b.pass()
			g := b.gate(names.HaltGate("wi-1", "s1", "h1"))
			if g.Spec.Rule != opening.RuleHalt || *g.Spec.Halt != (v1alpha1.GateHaltRef{Stop: "s1", Halt: "h1"}) || g.Spec.Subject.UID != string(b.Item.UID) {
				t.Errorf("gate %+v", g.Spec)
			}
			for _, part := range []string{"Stopped by lucas.", "The agent called something else.", "Reply  continue  ·  replan <advice>  ·  abandon"} {
				if !strings.Contains(g.Spec.Message, part) {
					t.Errorf("the message lacks %q:\n%s", part, g.Spec.Message)
				}
			}
			b.answer(g, tc.answer, "")
			before := b.Item.ResourceVersion
			if _, err := b.try(b.Item); err != nil {
				t.Fatal(err)
			}
			st := b.Item.Status
			if st.State != tc.state || st.AnsweredStop != "s1" || st.AnsweredHalt != "h1" || st.ClosedRevision != tc.closed || b.Item.ResourceVersion == before {
				t.Errorf("status %+v", st)
			}
			b.pass()
		})
	}
}

// An answer is to the question that was asked. What came after it is asked anew.
func TestAnswerToAnEarlierQuestion(t *testing.T) {
	b := newBench(t, nil)
	b.stop("s1")
	b.pass()
	first := b.gate(names.HaltGate("wi-1", "s1", ""))
	b.answer(first, v1alpha1.AnswerContinue, "")
	b.stop("s2")
	b.pass()
	b.state(v1alpha1.WorkItemAwaitingInput, "lucas")
	if b.Item.Status.AnsweredStop != "" {
		t.Errorf("s2 is answered by the answer to %q", b.Item.Status.AnsweredStop)
	}
	b.gate(names.HaltGate("wi-1", "s2", ""))
}

// A stop under an ID that was used before is not answered by what people said then: it holds, and says what to do.
func TestStopUnderAnOldID(t *testing.T) {
	b := newBench(t, nil)
	ask := func(id string) *v1alpha1.Gate {
		b.stop(id)
		b.pass()
		g := b.gate(names.HaltGate("wi-1", id, ""))
		b.answer(g, v1alpha1.AnswerContinue, "")
		return g
	}
	first := ask("s1")
	b.pass()
	b.state(v1alpha1.WorkItemWorking, "ops")
	apitest.Wait(t, time.Minute, func(context.Context) error { // creation times have seconds
		if !time.Now().Truncate(time.Second).After(first.CreationTimestamp.Time) {
			return errors.New("the same second")
		}
		return nil
	})
	ask("s2")
	b.pass()
	b.stop("s1")
	b.pass()
	if b.Item.Status.AnsweredStop != "s2" || !b.Item.Stopped() {
		t.Errorf("answered stop is %q", b.Item.Status.AnsweredStop)
	}
	b.ready(metav1.ConditionFalse, v1alpha1.ReasonStopReused, true)
	ask("s3")
	b.pass()
	b.state(v1alpha1.WorkItemWorking, "ops")
}

// A gate that lapsed or was dropped answers nothing and is not asked twice. The item says so: whoever waits for a question would wait
// for good.
func TestQuestionThatEndedUnanswered(t *testing.T) {
	for _, o := range []v1alpha1.GateOutcome{v1alpha1.GateExpired, v1alpha1.GateSuperseded} {
		t.Run(string(o), func(t *testing.T) {
			b := newBench(t, nil)
			b.stop("s1")
			b.pass()
			g := b.gate(names.HaltGate("wi-1", "s1", ""))
			b.Status(g, func() { g.Status.Outcome = o })
			b.pass()
			b.state(v1alpha1.WorkItemAwaitingInput, "lucas")
			b.ready(metav1.ConditionFalse, v1alpha1.ReasonQuestionEnded, true)
			if n := b.gates(); n != 1 {
				t.Errorf("%d gates", n)
			}
			b.stop("s2")
			b.pass()
			b.ready(metav1.ConditionTrue, v1alpha1.ReasonProgressing, false)
			b.answer(b.gate(names.HaltGate("wi-1", "s2", "")), v1alpha1.AnswerContinue, "")
			b.pass()
			b.state(v1alpha1.WorkItemWorking, "ops")
		})
	}
}

// A stop that is changed and changed back before anybody answered: its question was dropped in between.
func TestStopThatComesBackUnanswered(t *testing.T) {
	b := newBench(t, nil)
	for _, id := range []string{"s1", "s2"} {
		b.stop(id)
		b.pass()
		g := b.gate(names.HaltGate("wi-1", id, ""))
		b.Status(g, func() { g.Status.Outcome = v1alpha1.GateSuperseded })
	}
	b.stop("s1")
	b.pass()
	b.ready(metav1.ConditionFalse, v1alpha1.ReasonQuestionEnded, true)
	b.Update(b.Item, func() { b.Item.Spec.Close = true })
	b.pass()
	b.state(v1alpha1.WorkItemClosed, "")
	b.ready(metav1.ConditionTrue, v1alpha1.ReasonProgressing, false)
}

// A gate of the wanted name that asks about something else is not taken for the question, whether the cache shows it or not.
func TestForeignHaltGate(t *testing.T) {
	name := names.HaltGate("wi-1", "s1", "")
	for what, foreign := range map[string]func(*bench) *v1alpha1.Gate{
		"of an earlier item of that name": func(b *bench) *v1alpha1.Gate {
			earlier := b.Item.DeepCopy()
			earlier.UID = "of another time"
			g := b.halting(earlier, "s1")
			g.OwnerReferences = nil
			return g
		},
		"of another stop": func(b *bench) *v1alpha1.Gate { return b.halting(b.Item, "s0") },
	} {
		t.Run(what, func(t *testing.T) {
			b := newBench(t, nil)
			b.stop("s1")
			g := foreign(b)
			g.Name = name
			b.Create(g)
			b.Status(g, func() {
				g.Status.Outcome = v1alpha1.GateApproved
				g.Status.Decisions = []v1alpha1.GateDecision{{Approval: "apr-1", Person: "lucas", Decision: v1alpha1.DecisionApprove, Answer: v1alpha1.AnswerContinue,
					Channel: v1alpha1.ChannelKubernetes, At: metav1.Now()}}
			})
			b.pass()
			b.state(v1alpha1.WorkItemAwaitingInput, "lucas")
			b.ready(metav1.ConditionFalse, v1alpha1.ReasonForeignGate, true)
			if b.Item.Status.AnsweredStop != "" {
				t.Errorf("%q is answered by a gate about something else", b.Item.Status.AnsweredStop)
			}
			if err := b.Admin.Delete(t.Context(), g); err != nil {
				t.Fatal(err)
			}
			b.pass()
			b.ready(metav1.ConditionTrue, v1alpha1.ReasonProgressing, false)
			if now := b.gate(name); now.UID == g.UID || now.Spec.WorkItem.UID != string(b.Item.UID) {
				t.Errorf("gate %+v", now.Spec)
			}
		})
	}
}

// halting builds a gate about a stop.
func (b *bench) halting(item *v1alpha1.WorkItem, stop string) *v1alpha1.Gate {
	b.T.Helper()
	g, err := opening.Halt(item, b.Agent, v1alpha1.GateHaltRef{Stop: stop}, b.now)
	if err != nil {
		b.T.Fatal(err)
	}
	return g
}

// An answer that this version does not know decides nothing, and the item says so.
func TestUnknownAnswer(t *testing.T) {
	b := newBench(t, nil)
	b.stop("s1")
	b.pass()
	b.answer(b.gate(names.HaltGate("wi-1", "s1", "")), "", "")
	b.pass()
	b.ready(metav1.ConditionFalse, v1alpha1.ReasonAnswerUnknown, true)
	if !b.Item.Stopped() {
		t.Errorf("status %+v", b.Item.Status)
	}
}

func TestNoHaltGateOpens(t *testing.T) {
	for _, tc := range []struct {
		name    string
		agent   func(*v1alpha1.Agent)
		before  func(*bench)
		reason  string
		stalled bool
		again   time.Duration
		mend    func(*bench)
	}{
		{name: "nobody may approve", agent: func(a *v1alpha1.Agent) { a.Spec.People[0].May = []v1alpha1.Right{v1alpha1.RightInstruct} }, reason: v1alpha1.ReasonNoApprovers, stalled: true,
			mend: func(b *bench) {
				b.Update(b.Agent, func() { b.Agent.Spec.People[0].May = []v1alpha1.Right{v1alpha1.RightApprove} })
			}},
		{name: "suspended", agent: func(a *v1alpha1.Agent) { a.Spec.Suspend = true }, reason: v1alpha1.ReasonSuspended, stalled: true,
			mend: func(b *bench) { b.Update(b.Agent, func() { b.Agent.Spec.Suspend = false }) }},
		{name: "forged approvals are let through", before: func(b *bench) { b.guard.err = fmt.Errorf("%w: install config/admission", admission.ErrMissing) },
			reason: v1alpha1.ReasonAdmissionMissing, again: admission.Retry(), mend: func(b *bench) { b.guard.err = nil }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, tc.agent)
			if tc.before != nil {
				tc.before(b)
			}
			b.stop("s1")
			if r := b.pass(); r.RequeueAfter != tc.again {
				t.Errorf("looked at again after %s", r.RequeueAfter)
			}
			if b.Item.Status.State != v1alpha1.WorkItemAwaitingInput {
				t.Errorf("state %s: it is held, asked or not", b.Item.Status.State)
			}
			b.ready(metav1.ConditionFalse, tc.reason, tc.stalled)
			if n := b.gates(); n != 0 {
				t.Errorf("%d gates", n)
			}
			tc.mend(b)
			b.pass()
			b.ready(metav1.ConditionTrue, v1alpha1.ReasonProgressing, false)
			b.gate(names.HaltGate("wi-1", "s1", ""))
		})
	}
}

// One question at a time: the plan's gate is dropped first.
func TestHaltGateWaitsForThePlansGate(t *testing.T) {
	b := newBench(t, nil)
	g := b.Gate(b.Plan(1, controllertest.Report), b.now)
	b.stop("s1")
	b.pass()
	b.state(v1alpha1.WorkItemAwaitingInput, "lucas")
	if n := b.gates(); n != 1 {
		t.Errorf("%d gates", n)
	}
	b.Status(g, func() { g.Status.Outcome = v1alpha1.GateSuperseded })
	b.pass()
	b.gate(names.HaltGate("wi-1", "s1", ""))
}
