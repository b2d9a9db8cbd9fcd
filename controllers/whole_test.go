package controllers_test

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/gate/policy"
	"nisse.io/nisse/controllers/gate/subject"
	"nisse.io/nisse/internal/approval"
	"nisse.io/nisse/internal/names"
	"nisse.io/nisse/test/apitest"
)

const report = `{"content":"41%\n","path":"/srv/nisse/report.txt"}`

// The story from words to the end, with its statement and what it costs.
func TestOneWorkItem(t *testing.T) {
	h := newHouse(t)
	a := h.agent(nil)
	apitest.Wait(t, patience, func(ctx context.Context) error {
		var now v1alpha1.Agent
		if err := h.admin.Get(ctx, client.ObjectKeyFromObject(a), &now); err != nil {
			return err
		}
		if now.Status.ObservedGeneration == 0 {
			return errStill
		}
		return nil
	})
	h.writes.take()

	w := h.state(h.item(a), v1alpha1.WorkItemWorking)
	if w.Status.WaitingFor != a.Name {
		t.Errorf("waiting for %q, want the agent", w.Status.WaitingFor)
	}
	p := h.plan(a, w, 1, report)
	g := h.gate(p.Name, "")
	w = h.state(w, v1alpha1.WorkItemAwaitingApproval)
	if w.Status.WaitingFor != "lucas" || w.Status.Plan == nil || w.Status.Plan.Revision != 1 {
		t.Errorf("status %+v", w.Status)
	}
	h.planState(p, v1alpha1.PlanAwaitingApproval)
	for _, want := range []string{"Plan rev-1 of " + a.Name, `path = "/srv/nisse/report.txt"`, `content = "41%\n"`, "Reply  approve rev-1  ·  reject <why>"} {
		if !strings.Contains(g.Spec.Message, want) {
			t.Errorf("the message lacks %q:\n%s", want, g.Spec.Message)
		}
	}

	said := h.says(g, v1alpha1.DecisionApprove, "", "")
	g = h.gate(p.Name, v1alpha1.GateApproved)
	checkStatement(t, h.key, g, p)
	want := []v1alpha1.GateDecision{{Approval: said.Name, Person: "lucas", Decision: v1alpha1.DecisionApprove, Channel: v1alpha1.ChannelMatrix, At: said.CreationTimestamp}}
	if diff := cmp.Diff(want, g.Status.Decisions); diff != "" {
		t.Errorf("decisions (-want +got):\n%s", diff)
	}
	h.planState(p, v1alpha1.PlanApproved)
	h.state(w, v1alpha1.WorkItemWorking)

	h.finish(w)
	w = h.state(w, v1alpha1.WorkItemClosed)
	if w.Status.Outcome == nil || w.Status.Outcome.Result != v1alpha1.ResultDone || w.Status.Outcome.Summary != "Done." || w.Status.ClosedRevision != 1 {
		t.Errorf("status %+v", w.Status)
	}
	apitest.Wait(t, patience, func(ctx context.Context) error {
		var now v1alpha1.Agent
		if err := h.admin.Get(ctx, client.ObjectKeyFromObject(a), &now); err != nil {
			return err
		}
		if now.Status.ActiveWorkItem != "" {
			return fmt.Errorf("agent still works on %s", now.Status.ActiveWorkItem)
		}
		return nil
	})
	h.story(w, "Approved")

	by := h.writes.take()
	writes, events := total(by)
	t.Logf("the manager's writes for one work item: %d and %d events: %v", writes, events, by)
	if writes > 9 || events > 1 {
		t.Errorf("%d writes and %d events, 9 and 1 at most", writes, events)
	}
}

func checkStatement(t *testing.T, key ed25519.PublicKey, g *v1alpha1.Gate, p *v1alpha1.Plan) {
	t.Helper()
	s, err := approval.Verify(g.Status.Statement, []ed25519.PublicKey{key})
	if err != nil {
		t.Fatal(err)
	}
	want := approval.Statement{V: approval.Version, GateUID: string(g.UID), Digest: g.Spec.Digest, Approvers: []string{"lucas"},
		ExpiresAt: g.Status.DecidedAt.Unix() + int64(g.Spec.WindowSeconds), Calls: []string{subject.Calls(p)[0].Hash()}, Attempts: []int32{1}}
	if diff := cmp.Diff(want, s); diff != "" {
		t.Errorf("statement (-want +got):\n%s", diff)
	}
	digest, err := subject.PlanDigest(p, g.Spec.WindowSeconds)
	if err != nil || digest != g.Spec.Digest {
		t.Errorf("digest %s (%v), want %s", g.Spec.Digest, err, digest)
	}
}

// story waits until the events of an item tell it, in order.
func (h *house) story(w *v1alpha1.WorkItem, want ...string) {
	h.t.Helper()
	apitest.Wait(h.t, patience, func(ctx context.Context) error {
		var all eventsv1.EventList
		if err := h.admin.List(ctx, &all, client.InNamespace(w.Namespace)); err != nil {
			return err
		}
		var got []string
		for _, reason := range want {
			for _, e := range all.Items {
				if e.Regarding.UID == w.UID && e.Reason == reason {
					got = append(got, reason)
					break
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("events (-want +got):\n%s", diff)
		}
		return nil
	})
}

// Cases 1 and 12: rejected, revised; only the later revision counts, and a decision about the earlier one is refused with the reason.
func TestRejectReviseApprove(t *testing.T) {
	h := newHouse(t)
	a := h.agent(nil)
	w := h.state(h.item(a), v1alpha1.WorkItemWorking)
	p1 := h.plan(a, w, 1, report)
	g1 := h.gate(p1.Name, "")
	h.says(g1, v1alpha1.DecisionReject, "", "use /srv/nisse/daily.txt instead")
	g1 = h.gate(p1.Name, v1alpha1.GateRejected)
	if g1.Status.Statement != "" || g1.Status.Decisions[0].Text != "use /srv/nisse/daily.txt instead" {
		t.Errorf("status %+v", g1.Status)
	}
	h.planState(p1, v1alpha1.PlanRejected)
	h.state(w, v1alpha1.WorkItemWorking)

	p2 := h.plan(a, w, 2, `{"content":"41%\n","path":"/srv/nisse/daily.txt"}`)
	h.gate(p2.Name, "")
	late := h.refused(h.says(g1, v1alpha1.DecisionApprove, "", ""), v1alpha1.ReasonGateDecided)
	if !strings.Contains(late.Status.Message, "rev-1 was rejected by lucas") {
		t.Errorf("message %q", late.Status.Message)
	}
	g2 := h.gate(p2.Name, "")
	if g2.Spec.Digest == g1.Spec.Digest {
		t.Error("two plans have one digest")
	}
	// rev-1's digest at rev-2's gate: a decision about other steps.
	mixed := g2.DeepCopy()
	mixed.Spec.Digest = g1.Spec.Digest
	h.refused(h.says(mixed, v1alpha1.DecisionApprove, "", ""), v1alpha1.ReasonDigestMismatch)
	h.says(g2, v1alpha1.DecisionApprove, "", "")
	checkStatement(t, h.key, h.gate(p2.Name, v1alpha1.GateApproved), p2)
	h.gate(p1.Name, v1alpha1.GateRejected)
}

// Case 1: a later revision while the earlier one waits. One gate waits at a time.
func TestLaterRevisionSupersedes(t *testing.T) {
	h := newHouse(t)
	a := h.agent(nil)
	w := h.state(h.item(a), v1alpha1.WorkItemWorking)
	g1 := h.gate(h.plan(a, w, 1, report, report).Name, "")
	p2 := h.plan(a, w, 2, report)
	g1 = h.gate(g1.Name, v1alpha1.GateSuperseded)
	if !strings.Contains(g1.Status.Message, "rev-1 was replaced by rev-2") {
		t.Errorf("message %q", g1.Status.Message)
	}
	h.gate(p2.Name, "")
	h.refused(h.says(g1, v1alpha1.DecisionApprove, "", ""), v1alpha1.ReasonGateDecided)
	h.state(w, v1alpha1.WorkItemAwaitingApproval)
	if now := h.state(w, v1alpha1.WorkItemAwaitingApproval); now.Status.Plan.Revision != 2 {
		t.Errorf("plan %+v", now.Status.Plan)
	}
}

// Case 2: no steps is not ready, and is shown to nobody.
func TestEmptyPlanIsNotReady(t *testing.T) {
	h := newHouse(t)
	a := h.agent(nil)
	w := h.state(h.item(a), v1alpha1.WorkItemWorking)
	p := h.planState(h.plan(a, w, 1), v1alpha1.PlanNotReady)
	if c := p.Status.Conditions[0]; c.Reason != v1alpha1.ReasonPlanNotReady || !strings.Contains(c.Message, "no steps") {
		t.Errorf("conditions %+v", p.Status.Conditions)
	}
	apitest.Wait(t, patience, func(ctx context.Context) error {
		var now v1alpha1.WorkItem
		if err := h.admin.Get(ctx, client.ObjectKeyFromObject(w), &now); err != nil {
			return err
		}
		if len(now.Status.Conditions) == 0 || now.Status.Conditions[0].Reason != v1alpha1.ReasonPlanNotReady || now.Status.State != v1alpha1.WorkItemWorking {
			return fmt.Errorf("status %+v", now.Status)
		}
		return nil
	})
	if err := h.admin.Get(t.Context(), client.ObjectKey{Namespace: w.Namespace, Name: p.Name}, &v1alpha1.Gate{}); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("a gate for a plan without steps: %v", err)
	}
	// The agent can mend it.
	h.gate(h.plan(a, w, 2, report).Name, "")
	h.state(w, v1alpha1.WorkItemAwaitingApproval)
}

// A stop at any time: the plan's gate is dropped, a person answers, and what was answered is recorded in one write.
func TestStopAndContinue(t *testing.T) {
	h := newHouse(t)
	a := h.agent(nil)
	w := h.state(h.item(a), v1alpha1.WorkItemWorking)
	p := h.plan(a, w, 1, report)
	h.gate(p.Name, "")
	h.stop(w, "s1")
	h.gate(p.Name, v1alpha1.GateSuperseded)
	w = h.state(w, v1alpha1.WorkItemAwaitingInput)
	if w.Status.WaitingFor != "lucas" {
		t.Errorf("waiting for %q", w.Status.WaitingFor)
	}
	g := h.gate(names.HaltGate(w.Name, "s1", ""), "")
	if g.Spec.Kind != v1alpha1.GateHalt || !strings.Contains(g.Spec.Message, "Stopped by") {
		t.Errorf("gate %+v", g.Spec)
	}
	h.refused(h.says(g, v1alpha1.DecisionApprove, "", ""), v1alpha1.ReasonAnswerMissing)
	h.says(g, v1alpha1.DecisionApprove, v1alpha1.AnswerContinue, "")
	w = h.state(w, v1alpha1.WorkItemWorking)
	if w.Status.AnsweredStop != "s1" || w.Status.ClosedRevision != 0 || w.Stopped() {
		t.Errorf("status %+v", w.Status)
	}
	if g := h.gate(g.Name, v1alpha1.GateApproved); g.Status.Statement != "" {
		t.Error("a halt gate has a statement")
	}
	// Another stop is another question.
	h.stop(w, "s2")
	h.state(w, v1alpha1.WorkItemAwaitingInput)
	h.gate(names.HaltGate(w.Name, "s2", ""), "")
}

func (h *house) stop(w *v1alpha1.WorkItem, id string) {
	h.t.Helper()
	p := fmt.Sprintf(`{"spec":{"stop":{"id":%q,"by":"lucas"}}}`, id)
	if err := h.lucas.Patch(h.t.Context(), w.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(p))); err != nil {
		h.t.Fatal(err)
	}
}

func (h *house) halt(w *v1alpha1.WorkItem, id string) {
	h.t.Helper()
	h.reports(w, func(r *v1alpha1.WorkItemRuntime) {
		r.Halt = &v1alpha1.HaltReport{ID: id, Reason: v1alpha1.HaltCallMismatch, Revision: 1, Step: 1, At: metav1.Now(),
			Message: "Step 1 wants path = \"/srv/nisse/report.txt\", the agent called path = \"/srv/nisse/report.tx\"."}
	})
}

func TestHaltAndReplan(t *testing.T) {
	h := newHouse(t)
	a := h.agent(nil)
	w := h.state(h.item(a), v1alpha1.WorkItemWorking)
	p := h.plan(a, w, 1, report)
	h.says(h.gate(p.Name, ""), v1alpha1.DecisionApprove, "", "")
	h.gate(p.Name, v1alpha1.GateApproved)
	h.state(w, v1alpha1.WorkItemWorking)
	h.halt(w, "h1")
	g := h.gate(names.HaltGate(w.Name, "", "h1"), "")
	if !strings.Contains(g.Spec.Message, "Stopped by the broker at step 1 of rev-1:") || !strings.Contains(g.Spec.Message, `"/srv/nisse/report.tx"`) {
		t.Errorf("message:\n%s", g.Spec.Message)
	}
	h.state(w, v1alpha1.WorkItemAwaitingInput) // the gate is there first, while the item still says Working
	h.says(g, v1alpha1.DecisionApprove, v1alpha1.AnswerReplan, "write it elsewhere")
	w = h.state(w, v1alpha1.WorkItemWorking)
	if w.Status.AnsweredHalt != "h1" || w.Status.ClosedRevision != 1 {
		t.Errorf("status %+v", w.Status)
	}
	// A plan made before the answer and seen after it is closed too; the next revision is asked about.
	h.gate(h.plan(a, w, 2, report).Name, "")
	h.gate(p.Name, v1alpha1.GateApproved)
}

func TestHaltAndAbandon(t *testing.T) {
	h := newHouse(t)
	a := h.agent(nil)
	w := h.state(h.item(a), v1alpha1.WorkItemWorking)
	h.halt(w, "h1")
	g := h.gate(names.HaltGate(w.Name, "", "h1"), "")
	// A stop on top of the halt is one question about both.
	h.stop(w, "s1")
	h.gate(g.Name, v1alpha1.GateSuperseded)
	g = h.gate(names.HaltGate(w.Name, "s1", "h1"), "")
	// The agent's "finished" does not get past a person.
	h.finish(w)
	h.says(g, v1alpha1.DecisionReject, v1alpha1.AnswerAbandon, "never mind")
	w = h.state(w, v1alpha1.WorkItemClosed)
	if w.Status.Outcome.Result != v1alpha1.ResultAbandoned || w.Status.Outcome.Summary != "never mind" || w.Status.AnsweredHalt != "h1" || w.Status.AnsweredStop != "s1" {
		t.Errorf("status %+v", w.Status)
	}
}

// A second request while one is active is queued, and taken up when the first is over.
func TestQueue(t *testing.T) {
	h := newHouse(t)
	a := h.agent(nil)
	first := h.state(h.item(a), v1alpha1.WorkItemWorking)
	second := h.state(h.item(a), v1alpha1.WorkItemOpen)
	if second.Status.WaitingFor != first.Name {
		t.Errorf("waiting for %q, want %s", second.Status.WaitingFor, first.Name)
	}
	h.story(second, "Queued")
	if err := h.lucas.Patch(t.Context(), first.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"close":true}}`))); err != nil {
		t.Fatal(err)
	}
	if now := h.state(first, v1alpha1.WorkItemClosed); now.Status.Outcome.Result != v1alpha1.ResultClosed {
		t.Errorf("outcome %+v", now.Status.Outcome)
	}
	h.state(second, v1alpha1.WorkItemWorking)
}

func TestQuestionAndAnswer(t *testing.T) {
	h := newHouse(t)
	a := h.agent(nil)
	w := h.state(h.item(a), v1alpha1.WorkItemWorking)
	h.reports(w, func(r *v1alpha1.WorkItemRuntime) { r.Question = &v1alpha1.Question{ID: "q1", Text: "Which disk?"} })
	h.state(w, v1alpha1.WorkItemAwaitingInput)
	h.patchStatus(h.gateway, w, func(st *v1alpha1.WorkItemStatus) {
		st.Conversation = &v1alpha1.WorkItemConversation{AnsweredQuestion: "q1"}
	})
	h.state(w, v1alpha1.WorkItemWorking)
}

// Case 8 and bad input: nobody may approve, so no gate opens, and the item says so.
func TestNobodyMayApprove(t *testing.T) {
	h := newHouse(t)
	a := h.agent(func(a *v1alpha1.Agent) { a.Spec.People[0].May = []v1alpha1.Right{v1alpha1.RightInstruct} })
	w := h.state(h.item(a), v1alpha1.WorkItemWorking)
	h.planState(h.plan(a, w, 1, report), v1alpha1.PlanNotReady)
	apitest.Wait(t, patience, func(ctx context.Context) error {
		var now v1alpha1.WorkItem
		if err := h.admin.Get(ctx, client.ObjectKeyFromObject(w), &now); err != nil {
			return err
		}
		for _, c := range now.Status.Conditions {
			if c.Type == v1alpha1.ConditionStalled && c.Reason == v1alpha1.ReasonNoApprovers {
				return nil
			}
		}
		return fmt.Errorf("conditions %+v", now.Status.Conditions)
	})
	// Giving somebody the right mends it.
	var now v1alpha1.Agent
	if err := h.admin.Get(t.Context(), client.ObjectKeyFromObject(a), &now); err != nil {
		t.Fatal(err)
	}
	now.Spec.People[0].May = []v1alpha1.Right{v1alpha1.RightInstruct, v1alpha1.RightApprove}
	if err := h.admin.Update(t.Context(), &now); err != nil {
		t.Fatal(err)
	}
	h.gate(names.Plan(w.Name, 1), "")
	h.state(w, v1alpha1.WorkItemAwaitingApproval)
}

// A gate that nobody answers lapses on its own, and the work goes on without it.
func TestExpiry(t *testing.T) {
	h := newHouse(t)
	ten := int32(10)
	a := h.agent(func(a *v1alpha1.Agent) { a.Spec.Limits = &v1alpha1.Limits{ApprovalSeconds: &ten} })
	w := h.state(h.item(a), v1alpha1.WorkItemWorking)
	p := h.plan(a, w, 1, report)
	h.gate(p.Name, "")
	g := h.gate(p.Name, v1alpha1.GateExpired)
	if g.Status.DecidedAt.Time.Before(g.Spec.ExpiresAt.Add(policy.Grace)) || g.Status.Statement != "" {
		t.Errorf("status %+v, expiry %s", g.Status, g.Spec.ExpiresAt)
	}
	h.planState(p, v1alpha1.PlanExpired)
	h.state(w, v1alpha1.WorkItemWorking)
	late := h.refused(h.says(g, v1alpha1.DecisionApprove, "", ""), v1alpha1.ReasonGateDecided)
	if !strings.Contains(late.Status.Message, "Nobody answered until") {
		t.Errorf("message %q", late.Status.Message)
	}
}

// Case 31 and the seventh rule: at rest nothing is written.
func TestAtRestNothingIsWritten(t *testing.T) {
	h := newHouse(t)
	a := h.agent(nil)
	w := h.state(h.item(a), v1alpha1.WorkItemWorking)
	h.gate(h.plan(a, w, 1, report).Name, "")
	h.state(w, v1alpha1.WorkItemAwaitingApproval)
	quiet := time.Now()
	apitest.Wait(t, patience, func(context.Context) error {
		if by := h.writes.take(); len(by) > 0 {
			quiet = time.Now()
			return fmt.Errorf("still writing: %v", by)
		}
		if time.Since(quiet) < 3*time.Second {
			return errStill
		}
		return nil
	})
	// Everything is touched without a change that matters, and still nothing is written.
	for _, o := range []client.Object{a, w} {
		p := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"example.org/touched":"yes"}}}`))
		if err := h.admin.Patch(t.Context(), o, p); err != nil {
			t.Fatal(err)
		}
	}
	until := time.Now().Add(3 * time.Second)
	apitest.Wait(t, patience, func(context.Context) error {
		if time.Now().Before(until) {
			return errStill
		}
		return nil
	})
	if by := h.writes.take(); len(by) > 0 {
		t.Errorf("written at rest: %v", by)
	}
}
