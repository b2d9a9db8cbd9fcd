package workitem

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/condition"
	"nisse.io/nisse/controllers/controllertest"
	"nisse.io/nisse/controllers/gate/opening"
	"nisse.io/nisse/internal/names"
	"nisse.io/nisse/test/apitest"
)

func TestMain(m *testing.M) { apitest.Main(m) }

// guard answers as the admission probe would.
type guard struct{ err error }

func (g *guard) Enforced(context.Context, string) error { return g.err }

type bench struct {
	*controllertest.World
	r      *Reconciler
	guard  *guard
	now    time.Time
	second *v1alpha1.Plan
}

func newBench(t *testing.T, change func(*v1alpha1.Agent)) *bench {
	t.Helper()
	b := &bench{World: controllertest.New(t, change), guard: &guard{}, now: time.Now().UTC()}
	b.r = &Reconciler{Client: b.Admin, Live: b.Admin, Guard: b.guard, Events: b.Events, Log: b.Log, Now: func() time.Time { return b.now }}
	return b
}

func (b *bench) try(w *v1alpha1.WorkItem) (reconcile.Result, error) {
	b.T.Helper()
	result, err := b.r.Reconcile(b.T.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w)})
	b.Read(w)
	b.Holds(w, w.Status.ObservedGeneration, w.Status.Conditions)
	return result, err
}

// pass runs one pass over the item, and one more that must write nothing.
func (b *bench) pass() reconcile.Result {
	b.T.Helper()
	return b.passOver(b.Item)
}

func (b *bench) passOver(w *v1alpha1.WorkItem) reconcile.Result {
	b.T.Helper()
	result, err := b.try(w)
	if err != nil {
		b.T.Fatal(err)
	}
	version := w.ResourceVersion
	if _, err := b.try(w); err != nil {
		b.T.Fatal(err)
	}
	if w.ResourceVersion != version {
		b.T.Errorf("%s was written again at rest", w.Name)
	}
	return result
}

func (b *bench) state(want v1alpha1.WorkItemState, waitingFor string) {
	b.T.Helper()
	if b.Item.Status.State != want || b.Item.Status.WaitingFor != waitingFor {
		b.T.Errorf("%s, waiting for %q; want %s, %q", b.Item.Status.State, b.Item.Status.WaitingFor, want, waitingFor)
	}
}

func (b *bench) ready(status metav1.ConditionStatus, reason string, stalled bool) {
	b.T.Helper()
	c := meta.FindStatusCondition(b.Item.Status.Conditions, v1alpha1.ConditionReady)
	if c == nil || c.Status != status || c.Reason != reason {
		b.T.Errorf("Ready is %+v, want %s (%s)", c, status, reason)
	}
	if got := meta.IsStatusConditionTrue(b.Item.Status.Conditions, v1alpha1.ConditionStalled); got != stalled {
		b.T.Errorf("stalled: %t, want %t", got, stalled)
	}
}

func (b *bench) stop(id string) {
	b.T.Helper()
	b.Update(b.Item, func() { b.Item.Spec.Stop = &v1alpha1.StopRequest{ID: id, By: "lucas"} })
}

func (b *bench) halt(id string) {
	b.T.Helper()
	b.Status(b.Item, func() {
		b.runtime().Halt = &v1alpha1.HaltReport{ID: id, Reason: v1alpha1.HaltCallMismatch, Message: "The agent called something else.", Revision: 1, Step: 1, At: metav1.Now()}
	})
}

func (b *bench) runtime() *v1alpha1.WorkItemRuntime {
	if b.Item.Status.Runtime == nil {
		b.Item.Status.Runtime = &v1alpha1.WorkItemRuntime{}
	}
	return b.Item.Status.Runtime
}

func (b *bench) gate(name string) *v1alpha1.Gate {
	b.T.Helper()
	g := &v1alpha1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: name}}
	b.Read(g)
	return g
}

func (b *bench) gates() int {
	b.T.Helper()
	var l v1alpha1.GateList
	if err := b.Admin.List(b.T.Context(), &l, client.InNamespace(b.NS)); err != nil {
		b.T.Fatal(err)
	}
	return len(l.Items)
}

// answer commits a decision as the gate controller does.
func (b *bench) answer(g *v1alpha1.Gate, a v1alpha1.HaltAnswer, text string) {
	b.T.Helper()
	outcome, decision := v1alpha1.GateApproved, v1alpha1.DecisionApprove
	if a == v1alpha1.AnswerAbandon {
		outcome, decision = v1alpha1.GateRejected, v1alpha1.DecisionReject
	}
	b.Status(g, func() {
		g.Status.Outcome = outcome
		g.Status.Decisions = []v1alpha1.GateDecision{{Approval: "apr-1", Person: "lucas", Decision: decision, Answer: a, Text: text, Channel: v1alpha1.ChannelKubernetes, At: metav1.Now()}}
	})
}

func TestStates(t *testing.T) {
	for _, tc := range []struct {
		name    string
		before  func(*bench)
		state   v1alpha1.WorkItemState
		waiting string
		told    []string
	}{
		{"it works", func(*bench) {}, v1alpha1.WorkItemWorking, "ops", nil},
		{"a plan that has no gate yet", func(b *bench) { b.Plan(1, controllertest.Report) }, v1alpha1.WorkItemAwaitingApproval, "lucas", nil},
		{"a plan whose gate is open", func(b *bench) { b.Gate(b.Plan(1, controllertest.Report), b.now) }, v1alpha1.WorkItemAwaitingApproval, "lucas", nil},
		{"an approved plan", func(b *bench) {
			g := b.Gate(b.Plan(1, controllertest.Report), b.now)
			b.Status(g, func() { g.Status.Outcome = v1alpha1.GateApproved })
		}, v1alpha1.WorkItemWorking, "ops", nil},
		{"a rejected plan", func(b *bench) {
			g := b.Gate(b.Plan(1, controllertest.Report), b.now)
			b.Status(g, func() { g.Status.Outcome = v1alpha1.GateRejected })
		}, v1alpha1.WorkItemWorking, "ops", nil},
		{"the earlier gate is not dropped yet", func(b *bench) {
			b.Gate(b.Plan(1, controllertest.Report), b.now)
			p := b.Plan(2)
			b.Status(p, func() { p.Status.State = v1alpha1.PlanNotReady })
		}, v1alpha1.WorkItemAwaitingApproval, "lucas", nil},
		{"a question", func(b *bench) {
			b.Status(b.Item, func() { b.runtime().Question = &v1alpha1.Question{ID: "q1", Text: "Which?"} })
		}, v1alpha1.WorkItemAwaitingInput, "lucas, maria", nil},
		{"an answered question", func(b *bench) {
			b.Status(b.Item, func() {
				b.Item.Status.State = v1alpha1.WorkItemAwaitingInput
				b.runtime().Question = &v1alpha1.Question{ID: "q1", Text: "Which?"}
				b.Item.Status.Conversation = &v1alpha1.WorkItemConversation{AnsweredQuestion: "q1"}
			})
		}, v1alpha1.WorkItemWorking, "ops", nil},
		{"a second question", func(b *bench) {
			b.Status(b.Item, func() {
				b.runtime().Question = &v1alpha1.Question{ID: "q2", Text: "And which?"}
				b.Item.Status.Conversation = &v1alpha1.WorkItemConversation{AnsweredQuestion: "q1"}
			})
		}, v1alpha1.WorkItemAwaitingInput, "lucas, maria", nil},
		{"a question beside an open gate", func(b *bench) {
			b.Gate(b.Plan(1, controllertest.Report), b.now)
			b.Status(b.Item, func() { b.runtime().Question = &v1alpha1.Question{ID: "q1", Text: "Which?"} })
		}, v1alpha1.WorkItemAwaitingApproval, "lucas", nil},
		{"a stop", func(b *bench) { b.stop("s1") }, v1alpha1.WorkItemAwaitingInput, "lucas", []string{"Halted"}},
		{"a halt", func(b *bench) { b.halt("h1") }, v1alpha1.WorkItemAwaitingInput, "lucas", []string{"Halted"}},
		{"finished while stopped", func(b *bench) {
			b.stop("s1")
			b.Status(b.Item, func() { b.runtime().Finished = &v1alpha1.FinishReport{Summary: "Done.", At: metav1.Now()} })
		}, v1alpha1.WorkItemAwaitingInput, "lucas", []string{"Halted"}},
		{"finished", func(b *bench) {
			b.Status(b.Item, func() { b.runtime().Finished = &v1alpha1.FinishReport{Summary: "Done.", At: metav1.Now()} })
		}, v1alpha1.WorkItemClosed, "", nil},
		{"asked to end", func(b *bench) { b.Update(b.Item, func() { b.Item.Spec.Close = true }) }, v1alpha1.WorkItemClosed, "", nil},
		{"asked to end while stopped", func(b *bench) {
			b.stop("s1")
			b.Update(b.Item, func() { b.Item.Spec.Close = true })
		}, v1alpha1.WorkItemClosed, "", nil},
		{"the agent turned to another", func(b *bench) { b.Status(b.Agent, func() { b.Agent.Status.ActiveWorkItem = "wi-0" }) }, v1alpha1.WorkItemOpen, "wi-0", []string{"Queued"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, nil)
			tc.before(b)
			b.pass()
			b.state(tc.state, tc.waiting)
			b.ready(metav1.ConditionTrue, v1alpha1.ReasonProgressing, false)
			if b.Item.Status.ObservedGeneration != b.Item.Generation {
				t.Errorf("observed %d of %d", b.Item.Status.ObservedGeneration, b.Item.Generation)
			}
			if diff := cmp.Diff(tc.told, b.Told()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// An agent that cannot use its model says so, and people read it on the item until the model answers again, or the item is over.
func TestModelUnusable(t *testing.T) {
	b := newBench(t, nil)
	b.Status(b.Item, func() {
		b.runtime().Trouble = &v1alpha1.TroubleReport{Reason: v1alpha1.TroubleModelUnusable, Message: "the model at x answers 404 Not Found", At: metav1.Now()}
	})
	b.pass()
	b.state(v1alpha1.WorkItemWorking, "the model of ops")
	b.ready(metav1.ConditionFalse, v1alpha1.ReasonModelUnusable, false)
	if c := meta.FindStatusCondition(b.Item.Status.Conditions, v1alpha1.ConditionReady); !strings.Contains(c.Message, "the model at x answers 404 Not Found") || !strings.Contains(c.Message, "spec.models of Agent ops") {
		t.Errorf("message %q", c.Message)
	}
	// A person is waited for, whatever the model does.
	b.stop("s1")
	b.pass()
	b.state(v1alpha1.WorkItemAwaitingInput, "lucas")
	b.ready(metav1.ConditionFalse, v1alpha1.ReasonModelUnusable, false)
	b.answer(b.gate(names.HaltGate("wi-1", "s1", "")), v1alpha1.AnswerContinue, "")
	b.pass()
	b.state(v1alpha1.WorkItemWorking, "the model of ops")

	b.Status(b.Item, func() { b.Item.Status.Runtime.Trouble = nil })
	b.pass()
	b.state(v1alpha1.WorkItemWorking, "ops")
	b.ready(metav1.ConditionTrue, v1alpha1.ReasonProgressing, false)

	b.Status(b.Item, func() {
		b.Item.Status.Runtime.Trouble = &v1alpha1.TroubleReport{Reason: v1alpha1.TroubleModelUnusable, At: metav1.Now()}
	})
	b.Update(b.Item, func() { b.Item.Spec.Close = true })
	b.pass()
	b.state(v1alpha1.WorkItemClosed, "")
	b.ready(metav1.ConditionTrue, v1alpha1.ReasonProgressing, false)
}

// A new item gets its first state when the agent has chosen, in one write.
func TestNewItem(t *testing.T) {
	b := newBench(t, nil)
	b.Status(b.Agent, func() { b.Agent.Status.ActiveWorkItem = "" })
	w := controllertest.NewItem(b.Agent, "wi-2")
	b.Create(w)
	version := w.ResourceVersion
	b.passOver(w)
	if w.ResourceVersion != version {
		t.Errorf("written before the agent chose: %+v", w.Status)
	}
	b.Status(b.Agent, func() { b.Agent.Status.ActiveWorkItem = "wi-1" })
	b.passOver(w)
	if w.Status.State != v1alpha1.WorkItemOpen || w.Status.WaitingFor != "wi-1" {
		t.Errorf("status %+v", w.Status)
	}
	b.Status(b.Agent, func() { b.Agent.Status.ActiveWorkItem = "wi-2" })
	b.passOver(w)
	if w.Status.State != v1alpha1.WorkItemWorking {
		t.Errorf("status %+v", w.Status)
	}
}

func TestAgentIsGone(t *testing.T) {
	b := newBench(t, nil)
	if err := b.Admin.Delete(t.Context(), b.Agent); err != nil {
		t.Fatal(err)
	}
	b.pass()
	b.state(v1alpha1.WorkItemOpen, "ops")
	b.ready(metav1.ConditionFalse, v1alpha1.ReasonAgentNotFound, true)
	b.Update(b.Item, func() { b.Item.Spec.Close = true })
	b.pass()
	b.state(v1alpha1.WorkItemClosed, "")
	b.ready(metav1.ConditionTrue, v1alpha1.ReasonProgressing, false)
}

func TestOutcomes(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before func(*bench)
		want   v1alpha1.Outcome
	}{
		{"done", func(b *bench) {
			b.Status(b.Item, func() { b.runtime().Finished = &v1alpha1.FinishReport{Summary: "It is written.", At: metav1.Now()} })
		}, v1alpha1.Outcome{Result: v1alpha1.ResultDone, Summary: "It is written."}},
		{"closed", func(b *bench) { b.Update(b.Item, func() { b.Item.Spec.Close = true }) }, v1alpha1.Outcome{Result: v1alpha1.ResultClosed}},
		{"closed, and finished too", func(b *bench) {
			b.Status(b.Item, func() { b.runtime().Finished = &v1alpha1.FinishReport{Summary: "It is written.", At: metav1.Now()} })
			b.Update(b.Item, func() { b.Item.Spec.Close = true })
		}, v1alpha1.Outcome{Result: v1alpha1.ResultClosed}},
		{"abandoned", func(b *bench) {
			b.stop("s1")
			b.pass()
			b.answer(b.gate(names.HaltGate("wi-1", "s1", "")), v1alpha1.AnswerAbandon, "never mind")
		}, v1alpha1.Outcome{Result: v1alpha1.ResultAbandoned, Summary: "never mind"}},
		{"done, says the agent, and what was approved did not run", func(b *bench) {
			g := b.Gate(b.second, b.now)
			b.Status(g, func() {
				g.Status.Outcome, g.Status.Statement = v1alpha1.GateApproved, "{}"
				g.Status.Decisions = []v1alpha1.GateDecision{{Approval: "apr-1", Person: "lucas", Decision: v1alpha1.DecisionApprove, Channel: v1alpha1.ChannelKubernetes, At: metav1.Now()}}
			})
			b.Status(b.Item, func() { b.runtime().Finished = &v1alpha1.FinishReport{Summary: "It is written.", At: metav1.Now()} })
		}, v1alpha1.Outcome{Result: v1alpha1.ResultDone, Summary: "It is written.", Steps: "0/1", Undone: "Of rev-2, which was approved, step 1 was not run."}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, nil)
			b.Plan(1, controllertest.Report)
			b.second = b.Plan(2, controllertest.Report)
			tc.before(b)
			b.pass()
			b.state(v1alpha1.WorkItemClosed, "")
			tc.want.At = metav1.NewTime(b.now.Truncate(time.Second).Local())
			if diff := cmp.Diff(&tc.want, b.Item.Status.Outcome); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
			if b.Item.Status.ClosedRevision != 2 {
				t.Errorf("closed up to rev-%d; nothing of an ended item may run", b.Item.Status.ClosedRevision)
			}
			if !strings.Contains(b.LogTo.String(), `"event":"work_item.closed"`) || !strings.Contains(b.LogTo.String(), `"result":"`+string(tc.want.Result)+`"`) {
				t.Errorf("log %s", b.LogTo)
			}
			// Closed for good, whatever is reported afterwards.
			was := b.Item.Status.DeepCopy()
			b.Status(b.Item, func() { b.runtime().Question = &v1alpha1.Question{ID: "q", Text: "?"} })
			b.pass()
			if diff := cmp.Diff(was.Outcome, b.Item.Status.Outcome); diff != "" || b.Item.Status.State != v1alpha1.WorkItemClosed {
				t.Errorf("a closed item moved (-was +is):\n%s", diff)
			}
			// A link that is added later is observed.
			b.Update(b.Item, func() { b.Item.Spec.ExternalRecord = "https://tickets.example/1" })
			b.pass()
			if b.Item.Status.ObservedGeneration != b.Item.Generation {
				t.Errorf("observed %d of %d", b.Item.Status.ObservedGeneration, b.Item.Generation)
			}
		})
	}
}

// Why a plan was not shown is told on the item, where people look.
func TestHinderedByPlan(t *testing.T) {
	for _, tc := range []struct {
		reason  string
		stalled bool
		want    bool
		// besides is what is told of an agent that cannot use its model either.
		besides string
	}{
		{v1alpha1.ReasonPlanNotReady, true, false, v1alpha1.ReasonModelUnusable}, // the agent can mend that
		{v1alpha1.ReasonNoApprovers, true, true, v1alpha1.ReasonNoApprovers},
		{v1alpha1.ReasonAdmissionMissing, false, false, v1alpha1.ReasonModelUnusable},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			b := newBench(t, nil)
			p := b.Plan(1)
			b.Status(p, func() {
				p.Status.State = v1alpha1.PlanNotReady
				types := []string{v1alpha1.ConditionReady}
				if tc.stalled {
					types = append(types, v1alpha1.ConditionStalled)
				}
				for _, ct := range types {
					status := metav1.ConditionFalse
					if ct == v1alpha1.ConditionStalled {
						status = metav1.ConditionTrue
					}
					meta.SetStatusCondition(&p.Status.Conditions, metav1.Condition{Type: ct, Status: status, Reason: tc.reason, Message: "why", ObservedGeneration: 1})
				}
			})
			b.pass()
			b.state(v1alpha1.WorkItemWorking, "ops")
			b.ready(metav1.ConditionFalse, tc.reason, tc.want)
			b.Status(b.Item, func() {
				b.runtime().Trouble = &v1alpha1.TroubleReport{Reason: v1alpha1.TroubleModelUnusable, At: metav1.Now()}
			})
			b.pass()
			b.ready(metav1.ConditionFalse, tc.besides, tc.want)
			b.Status(b.Item, func() { b.Item.Status.Runtime.Trouble = nil })
			// A later plan, or an answer that closes it, clears it.
			b.Status(b.Item, func() { b.Item.Status.ClosedRevision = 1 })
			b.pass()
			b.ready(metav1.ConditionTrue, v1alpha1.ReasonProgressing, false)
		})
	}
}

// Plans and gates of a namesake that lived before are not this item's.
func TestNamesakesObjectsDoNotCount(t *testing.T) {
	b := newBench(t, nil)
	p := controllertest.NewPlan(b.Agent, b.Item, 3, controllertest.Report)
	p.Spec.WorkItem.UID = "of another time"
	b.Create(p)
	old := b.Item.DeepCopy()
	old.UID = "of another time"
	g, err := opening.Plan(p, old, b.Agent, controllertest.Rules(1), b.now)
	if err != nil {
		t.Fatal(err)
	}
	g.OwnerReferences = nil
	b.Create(g)
	b.pass()
	b.state(v1alpha1.WorkItemWorking, "ops")
	if b.Item.Status.Plan != nil {
		t.Errorf("plan %+v", b.Item.Status.Plan)
	}
}

// Whatever keeps an agent from working is on every item it was given, until it is mended; a closed item has nothing to wait for.
func TestAgentCannotWork(t *testing.T) {
	b := newBench(t, nil)
	queued := controllertest.NewItem(b.Agent, "wi-2")
	b.Create(queued)
	closed := controllertest.NewItem(b.Agent, "wi-3")
	b.Create(closed)
	b.Update(closed, func() { closed.Spec.Close = true })
	for _, reason := range []string{v1alpha1.ReasonPersonNotFound, v1alpha1.ReasonDeviceNotFound, v1alpha1.ReasonSecretNotUsable, v1alpha1.ReasonEndpointInvalid} {
		b.Status(b.Agent, func() {
			condition.Stalled(&b.Agent.Status.Conditions, b.Agent.Generation, reason, reason+" it is.")
		})
		for _, w := range []*v1alpha1.WorkItem{b.Item, queued} {
			b.passOver(w)
			c := meta.FindStatusCondition(w.Status.Conditions, v1alpha1.ConditionReady)
			if c.Status != metav1.ConditionFalse || c.Reason != reason || c.Message != reason+" it is." {
				t.Errorf("Ready of %s is %+v, want %s", w.Name, c, reason)
			}
		}
		b.ready(metav1.ConditionFalse, reason, true)
		b.state(v1alpha1.WorkItemWorking, "ops")
		b.passOver(closed)
		if !meta.IsStatusConditionTrue(closed.Status.Conditions, v1alpha1.ConditionReady) {
			t.Errorf("%+v on a closed item", closed.Status.Conditions)
		}
	}
	b.Status(b.Agent, func() {
		condition.Ready(&b.Agent.Status.Conditions, b.Agent.Generation, metav1.ConditionFalse, v1alpha1.ReasonStarting, "The pod is not ready yet.")
	})
	b.pass()
	b.ready(metav1.ConditionTrue, v1alpha1.ReasonProgressing, false)
}

// A plan that is deleted brings back none that it replaced.
func TestThePlanNeverGoesBack(t *testing.T) {
	b := newBench(t, nil)
	b.Plan(1, controllertest.Report)
	second := b.Plan(2, controllertest.Report)
	b.pass()
	if err := b.Admin.Delete(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	b.pass()
	if p := b.Item.Status.Plan; p == nil || p.Revision != 2 {
		t.Errorf("plan %+v", p)
	}
}
