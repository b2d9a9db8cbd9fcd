package plan

import (
	"context"
	"errors"
	"fmt"
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
	"nisse.io/nisse/controllers/admission"
	"nisse.io/nisse/controllers/controllertest"
	"nisse.io/nisse/controllers/gate/opening"
	"nisse.io/nisse/controllers/gate/subject"
	"nisse.io/nisse/internal/clock"
	"nisse.io/nisse/test/apitest"
)

func TestMain(m *testing.M) { apitest.Main(m) }

// guard answers as the admission probe would.
type guard struct{ err error }

func (g *guard) Enforced(context.Context, string) error { return g.err }

type bench struct {
	*controllertest.World
	r     *Reconciler
	guard *guard
	now   time.Time
}

func newBench(t *testing.T, change func(*v1alpha1.Agent)) *bench {
	t.Helper()
	b := &bench{World: controllertest.New(t, change), guard: &guard{}, now: time.Now().UTC()}
	b.r = &Reconciler{Client: b.Admin, Live: b.Admin, Guard: b.guard, Log: b.Log, Now: func() time.Time { return b.now }}
	return b
}

func (b *bench) try(p *v1alpha1.Plan) (reconcile.Result, error) {
	b.T.Helper()
	result, err := b.r.Reconcile(b.T.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(p)})
	b.Read(p)
	b.Holds(p, p.Status.ObservedGeneration, p.Status.Conditions)
	return result, err
}

func (b *bench) pass(p *v1alpha1.Plan) reconcile.Result {
	b.T.Helper()
	result, err := b.try(p)
	if err != nil {
		b.T.Fatal(err)
	}
	return result
}

func (b *bench) state(p *v1alpha1.Plan, state v1alpha1.PlanState, reason string) {
	b.T.Helper()
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case p.Status.State != state:
		b.T.Errorf("state %q (%v), want %q", p.Status.State, p.Status.Conditions, state)
	case reason == "" && (c == nil || c.Status != metav1.ConditionUnknown || c.Reason != string(v1alpha1.PlanAwaitingApproval) || c.LastTransitionTime.Unix() != 0):
		b.T.Errorf("Ready is not what every plan begins with: %+v", c)
	case reason != "" && (c == nil || c.Reason != reason):
		b.T.Errorf("Ready is %+v, want reason %s", c, reason)
	case reason != "" && p.Status.ObservedGeneration != p.Generation:
		b.T.Errorf("observed %d of %d", p.Status.ObservedGeneration, p.Generation)
	}
}

func (b *bench) gates() []v1alpha1.Gate {
	b.T.Helper()
	var l v1alpha1.GateList
	if err := b.Admin.List(b.T.Context(), &l, client.InNamespace(b.NS)); err != nil {
		b.T.Fatal(err)
	}
	return l.Items
}

func TestGateOfAPlan(t *testing.T) {
	b := newBench(t, func(a *v1alpha1.Agent) {
		a.Spec.People[1].May = []v1alpha1.Right{v1alpha1.RightApprove}
		a.Spec.Limits = &v1alpha1.Limits{ApprovalSeconds: new(int32(600))}
	})
	p := b.Plan(1, controllertest.Report)
	b.pass(p)
	b.state(p, v1alpha1.PlanAwaitingApproval, "")
	all := b.gates()
	if len(all) != 1 {
		t.Fatalf("%d gates", len(all))
	}
	g := all[0]
	digest, err := subject.PlanDigest(p, opening.WindowSeconds)
	if err != nil {
		t.Fatal(err)
	}
	want := v1alpha1.GateSpec{Agent: "ops", WorkItem: v1alpha1.ObjectRef{Name: "wi-1", UID: string(b.Item.UID)}, Kind: v1alpha1.GatePlan,
		Subject: v1alpha1.GateSubject{Kind: v1alpha1.SubjectPlan, Name: p.Name, UID: string(p.UID)}, Revision: 1, Rule: "web1 requires an approval for fs.write", Digest: digest,
		Tier: v1alpha1.TierStandard, Title: b.Item.Spec.Title, Message: g.Spec.Message, Approvers: []string{"lucas", "maria"}, Required: 1,
		ExpiresAt: metav1.NewTime(b.now.Add(10 * time.Minute).Truncate(time.Second).Local()), WindowSeconds: 3600}
	if diff := cmp.Diff(want, g.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if g.Name != "wi-1-rev-1" || g.Labels[v1alpha1.LabelAgent] != "ops" || g.Labels[v1alpha1.LabelWorkItem] != "wi-1" {
		t.Errorf("metadata %+v", g.ObjectMeta)
	}
	if o := g.OwnerReferences; len(o) != 1 || o[0].UID != b.Item.UID || o[0].BlockOwnerDeletion != nil {
		t.Errorf("owners %+v", g.OwnerReferences)
	}
	if !strings.Contains(g.Spec.Message, " until "+clock.Tell(g.Spec.ExpiresAt.UTC(), b.now)) {
		t.Errorf("the message names another time than the spec:\n%s", g.Spec.Message)
	}
	told := []map[string]any{{"agent": "ops", "task_id": "wi-1", "cause": p.Name, "gate": g.Name, "gate_uid": string(g.UID), "digest": digest}}
	if diff := cmp.Diff(told, b.Logged("gate.opened")); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	version := p.ResourceVersion
	b.pass(p)
	if p.ResourceVersion != version {
		t.Error("written again at rest")
	}
}

// The plan shows what became of its gate, and then stands still.
func TestPlanFollowsItsGate(t *testing.T) {
	for outcome, state := range map[v1alpha1.GateOutcome]v1alpha1.PlanState{v1alpha1.GateApproved: v1alpha1.PlanApproved, v1alpha1.GateRejected: v1alpha1.PlanRejected,
		v1alpha1.GateExpired: v1alpha1.PlanExpired, v1alpha1.GateSuperseded: v1alpha1.PlanSuperseded} {
		t.Run(string(outcome), func(t *testing.T) {
			b := newBench(t, nil)
			p := b.Plan(1, controllertest.Report)
			g := b.Gate(p, b.now)
			b.pass(p)
			b.state(p, v1alpha1.PlanAwaitingApproval, "")
			b.Status(g, func() { g.Status.Outcome = outcome })
			b.pass(p)
			b.state(p, state, string(state))
			if err := b.Admin.Delete(t.Context(), g); err != nil {
				t.Fatal(err)
			}
			b.pass(p)
			b.state(p, state, string(state))
			if n := len(b.gates()); n != 0 {
				t.Errorf("a decided plan was asked about again: %d gates", n)
			}
		})
	}
}

func TestNoGateOpens(t *testing.T) {
	for _, tc := range []struct {
		name    string
		agent   func(*v1alpha1.Agent)
		before  func(*bench)
		plan    func(*v1alpha1.Plan)
		state   v1alpha1.PlanState
		reason  string
		message string
	}{
		{name: "case 2: no steps", plan: func(p *v1alpha1.Plan) { p.Spec.Steps = []v1alpha1.PlanStep{} }, state: v1alpha1.PlanNotReady, reason: v1alpha1.ReasonPlanNotReady, message: "it has no steps"},
		{name: "arguments that are no JSON", plan: func(p *v1alpha1.Plan) { p.Spec.Steps[0].Args = "{]" }, state: v1alpha1.PlanNotReady, reason: v1alpha1.ReasonPlanNotReady, message: "arguments of step 1"},
		{name: "arguments not canonical", plan: func(p *v1alpha1.Plan) { p.Spec.Steps[0].Args = `{"path": "/srv"}` }, state: v1alpha1.PlanNotReady, reason: v1alpha1.ReasonPlanNotReady, message: "not in canonical form"},
		{name: "duplicate keys", plan: func(p *v1alpha1.Plan) { p.Spec.Steps[0].Args = `{"path":"/a","path":"/b"}` }, state: v1alpha1.PlanNotReady, reason: v1alpha1.ReasonPlanNotReady, message: "duplicate key"},
		{name: "a float", plan: func(p *v1alpha1.Plan) { p.Spec.Steps[0].Args = `{"n":1.5}` }, state: v1alpha1.PlanNotReady, reason: v1alpha1.ReasonPlanNotReady, message: "float"},
		{name: "an array", plan: func(p *v1alpha1.Plan) { p.Spec.Steps[0].Args = `["/a"]` }, state: v1alpha1.PlanNotReady, reason: v1alpha1.ReasonPlanNotReady, message: "must be an object"},
		{name: "beyond the cap", plan: func(p *v1alpha1.Plan) { p.Spec.Steps[0].Args = `{"content":"` + strings.Repeat("x", 16300) + `"}` }, state: v1alpha1.PlanNotReady, reason: v1alpha1.ReasonPlanNotReady, message: "bytes, 16384 at most"},
		{name: "too long when shown", plan: func(p *v1alpha1.Plan) {
			p.Spec.Steps[0].Args = `{"content":"` + strings.Repeat("\x7f", 15000) + `","path":"/srv/a"}`
		}, state: v1alpha1.PlanNotReady, reason: v1alpha1.ReasonPlanNotReady, message: "too long to be shown"},
		{name: "of an agent of another time", plan: func(p *v1alpha1.Plan) { p.Spec.AgentUID = "before" }, state: v1alpha1.PlanNotReady, reason: v1alpha1.ReasonPlanNotReady, message: "another agent"},
		{name: "of another agent", plan: func(p *v1alpha1.Plan) { p.Spec.Agent = "eve" }, state: v1alpha1.PlanNotReady, reason: v1alpha1.ReasonPlanNotReady, message: "another agent"},
		{name: "named otherwise", plan: func(p *v1alpha1.Plan) { p.Name = "wi-1-rev-7" }, state: v1alpha1.PlanNotReady, reason: v1alpha1.ReasonPlanNotReady, message: "must be called wi-1-rev-1"},
		{name: "of an item of another time", plan: func(p *v1alpha1.Plan) { p.Spec.WorkItem.UID = "before" }, state: v1alpha1.PlanSuperseded, reason: "Superseded"},
		{name: "of an item that is gone", plan: func(p *v1alpha1.Plan) { p.Spec.WorkItem.Name = "wi-9" }, state: v1alpha1.PlanSuperseded, reason: "Superseded"},
		{name: "the item is closed", before: func(b *bench) { b.Status(b.Item, func() { b.Item.Status.State = v1alpha1.WorkItemClosed }) }, state: v1alpha1.PlanSuperseded, reason: "Superseded"},
		{name: "the item is asked to end", before: func(b *bench) { b.Update(b.Item, func() { b.Item.Spec.Close = true }) }, state: v1alpha1.PlanSuperseded, reason: "Superseded"},
		{name: "closed by a replan", before: func(b *bench) { b.Status(b.Item, func() { b.Item.Status.ClosedRevision = 1 }) }, state: v1alpha1.PlanSuperseded, reason: "Superseded"},
		{name: "a later revision is there", before: func(b *bench) { b.Plan(2, controllertest.Report) }, state: v1alpha1.PlanSuperseded, reason: "Superseded"},
		{name: "a later revision was there and was deleted", before: func(b *bench) {
			b.Status(b.Item, func() { b.Item.Status.Plan = &v1alpha1.PlanRef{Name: "wi-1-rev-2", Revision: 2} })
		}, state: v1alpha1.PlanSuperseded, reason: "Superseded"},
		{name: "stopped: the answer comes first", before: func(b *bench) { b.Update(b.Item, func() { b.Item.Spec.Stop = &v1alpha1.StopRequest{ID: "s1"} }) }, state: v1alpha1.PlanAwaitingApproval},
		{name: "another gate of the item waits", before: func(b *bench) {
			b.Update(b.Item, func() { b.Item.Spec.Stop = &v1alpha1.StopRequest{ID: "s1"} })
			b.HaltGate(v1alpha1.GateHaltRef{Stop: "s1"}, b.now)
			b.Status(b.Item, func() { b.Item.Status.AnsweredStop = "s1" })
		}, state: v1alpha1.PlanAwaitingApproval},
		{name: "written by what the device allowed before", plan: func(p *v1alpha1.Plan) { p.Spec.Steps[0].ManifestDigest = controllertest.Digest }, state: v1alpha1.PlanNotReady, reason: v1alpha1.ReasonPlanNotReady, message: "what web1 allows has changed since step 1"},
		{name: "a step that is not allowed", plan: func(p *v1alpha1.Plan) { p.Spec.Steps[0].Args = `{"content":"","path":"/etc/passwd"}` }, state: v1alpha1.PlanNotReady, reason: v1alpha1.ReasonPlanNotReady, message: "does not allow this"},
		{name: "a device that is gone", before: func(b *bench) {
			for _, o := range controllertest.Device(b.NS) {
				if err := b.Admin.Delete(b.T.Context(), o); err != nil {
					b.T.Fatal(err)
				}
			}
		}, state: v1alpha1.PlanNotReady, reason: v1alpha1.ReasonPlanNotReady, message: "does not exist"},
		{name: "the manifest was changed", before: func(b *bench) {
			m := controllertest.Device(b.NS)[1].(*v1alpha1.DeviceManifest)
			b.Update(m, func() { m.Spec.Limits.WriteBytes++ })
		}, state: v1alpha1.PlanNotReady, reason: v1alpha1.ReasonPlanNotReady, message: "changed after it was signed"},
		{name: "the device was revoked", before: func(b *bench) {
			d := controllertest.Device(b.NS)[0].(*v1alpha1.Device)
			b.Update(d, func() { d.Spec.RevokedEpoch = 1<<53 - 1 })
		}, state: v1alpha1.PlanNotReady, reason: v1alpha1.ReasonPlanNotReady, message: "was revoked"},
		{name: "an agent of another privilege", agent: func(a *v1alpha1.Agent) { a.Spec.Privilege = v1alpha1.PrivilegeElevated }, state: v1alpha1.PlanNotReady, reason: v1alpha1.ReasonPlanNotReady, message: "web1-elevated does not exist"},
		{name: "suspended", agent: func(a *v1alpha1.Agent) { a.Spec.Suspend = true }, state: v1alpha1.PlanNotReady, reason: v1alpha1.ReasonSuspended, message: "suspended"},
		{name: "case 8: nobody may approve", agent: func(a *v1alpha1.Agent) { a.Spec.People[0].May = []v1alpha1.Right{v1alpha1.RightInstruct} }, state: v1alpha1.PlanNotReady, reason: v1alpha1.ReasonNoApprovers, message: "give one of its people the right"},
		{name: "the agent is gone", before: func(b *bench) {
			if err := b.Admin.Delete(b.T.Context(), b.Agent); err != nil {
				b.T.Fatal(err)
			}
		}, state: v1alpha1.PlanNotReady, reason: v1alpha1.ReasonAgentNotFound, message: "Agent ops does not exist."},
		{name: "forged approvals are let through", before: func(b *bench) { b.guard.err = fmt.Errorf("%w: install config/admission", admission.ErrMissing) },
			state: v1alpha1.PlanNotReady, reason: v1alpha1.ReasonAdmissionMissing, message: "install config/admission"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, tc.agent)
			if tc.before != nil {
				tc.before(b)
			}
			p := controllertest.NewPlan(b.Agent, b.Item, 1, controllertest.Report)
			if tc.plan != nil {
				tc.plan(p)
			}
			b.Create(p)
			before := len(b.gates())
			b.pass(p)
			b.state(p, tc.state, tc.reason)
			if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady); tc.message != "" && !strings.Contains(c.Message, tc.message) {
				t.Errorf("message %q, want %q", c.Message, tc.message)
			}
			if n := len(b.gates()) - before; n != 0 {
				t.Errorf("%d gates opened", n)
			}
			version := p.ResourceVersion
			b.pass(p)
			if p.ResourceVersion != version {
				t.Error("written again at rest")
			}
		})
	}
}

// What hindered the gate is mended; the gate opens.
func TestGateOpensOnceMended(t *testing.T) {
	b := newBench(t, nil)
	p := b.Plan(1, controllertest.Report)
	b.guard.err = fmt.Errorf("%w: install config/admission", admission.ErrMissing)
	if r := b.pass(p); r.RequeueAfter != admission.Retry() {
		t.Errorf("looked at again after %s", r.RequeueAfter)
	}
	b.guard.err = nil
	b.Update(b.Item, func() { b.Item.Spec.Stop = &v1alpha1.StopRequest{ID: "s1"} })
	b.pass(p)
	if n := len(b.gates()); n != 0 {
		t.Errorf("%d gates while stopped", n)
	}
	b.Status(b.Item, func() { b.Item.Status.AnsweredStop = "s1" })
	b.pass(p)
	b.state(p, v1alpha1.PlanAwaitingApproval, "AwaitingApproval") // it was NotReady, and is no more
	if n := len(b.gates()); n != 1 {
		t.Errorf("%d gates", n)
	}
}

var errAway = errors.New("the API server is away")

// away fails every live read.
type away struct{ client.Reader }

func (away) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errAway
}

// What cannot be read opens nothing and is tried again; that much is told.
func TestNothingOpensBlindly(t *testing.T) {
	for name, spoil := range map[string]func(*bench){
		"the API server is away":  func(b *bench) { b.r.Live = away{b.Admin} },
		"the probe has no answer": func(b *bench) { b.guard.err = errAway },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			p := b.Plan(1, controllertest.Report)
			spoil(b)
			if _, err := b.try(p); !errors.Is(err, errAway) {
				t.Fatalf("got %v, want a retry", err)
			}
			if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady); c == nil || c.Status != metav1.ConditionUnknown || c.Reason != v1alpha1.ReasonRetrying || p.Status.ObservedGeneration != 0 || p.Status.State != v1alpha1.PlanAwaitingApproval {
				t.Errorf("status %+v", p.Status)
			}
			if n := len(b.gates()); n != 0 {
				t.Errorf("%d gates", n)
			}
			b.r.Live, b.guard.err = b.Admin, nil
			b.pass(p)
			b.state(p, v1alpha1.PlanAwaitingApproval, "AwaitingApproval")
		})
	}
}

// Case 28: the cache does not show the gate that was just opened. Five passes open one.
func TestLaggingCacheOpensOneGate(t *testing.T) {
	b := newBench(t, nil)
	lag := apitest.Lagging(b.Admin)
	b.r.Client = lag
	p := b.Plan(1, controllertest.Report)
	for range 5 {
		b.pass(p)
		b.state(p, v1alpha1.PlanAwaitingApproval, "")
		b.now = b.now.Add(time.Second) // another expiry would be another gate, if anybody made it
	}
	if lag.Created() != 1 || len(b.gates()) != 1 {
		t.Errorf("%d created, %d there", lag.Created(), len(b.gates()))
	}
	if n := len(b.Logged("gate.opened")); n != 1 {
		t.Errorf("%d gates in the log", n)
	}
	lag.CatchUp()
	b.pass(p)
	b.state(p, v1alpha1.PlanAwaitingApproval, "")
}

// A gate of that name about something else is not taken for the plan's, whether the cache shows it or not.
func TestForeignGateIsNotFollowed(t *testing.T) {
	for _, hidden := range []bool{false, true} {
		t.Run(fmt.Sprint("hidden ", hidden), func(t *testing.T) {
			b := newBench(t, nil)
			old := b.Plan(1, controllertest.Report)
			g := b.Gate(old, b.now)
			b.Status(g, func() { g.Status.Outcome = v1alpha1.GateApproved })
			if err := b.Admin.Delete(t.Context(), old); err != nil {
				t.Fatal(err)
			}
			p := b.Plan(1, `{"content":"","path":"/srv/b"}`)
			if hidden {
				b.r.Client = hiding{b.Admin}
			}
			b.pass(p)
			b.state(p, v1alpha1.PlanNotReady, v1alpha1.ReasonForeignGate)
		})
	}
}

// hiding shows no gates.
type hiding struct{ client.Client }

func (h hiding) Get(ctx context.Context, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if _, gate := o.(*v1alpha1.Gate); gate {
		k.Name = "not-shown"
	}
	return h.Client.Get(ctx, k, o, opts...)
}
