package gate

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/controllertest"
	"nisse.io/nisse/controllers/gate/policy"
)

// lagging is a cache that has not heard of some Approvals and plans yet.
type lagging struct {
	client.Client
	hidden []string
}

func (l lagging) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := l.Client.List(ctx, list, opts...); err != nil {
		return err
	}
	switch list := list.(type) {
	case *v1alpha1.ApprovalList:
		list.Items = slices.DeleteFunc(list.Items, func(a v1alpha1.Approval) bool { return slices.Contains(l.hidden, a.Name) })
	case *v1alpha1.PlanList:
		list.Items = slices.DeleteFunc(list.Items, func(p v1alpha1.Plan) bool { return slices.Contains(l.hidden, p.Name) })
	}
	return nil
}

// What the cache does not show yet may end a gate and never approves it: no other knowledge of the pass need be as young.
func TestCacheThatLags(t *testing.T) {
	for _, tc := range []struct {
		name    string
		before  func(*bench, *v1alpha1.Gate) (hidden []string)
		outcome v1alpha1.GateOutcome
		// then is the outcome when the cache has heard of everything.
		then v1alpha1.GateOutcome
	}{
		{"an approval waits for its news", func(b *bench, g *v1alpha1.Gate) []string {
			return []string{b.Approval(g, "lucas", v1alpha1.DecisionApprove, nil).Name}
		}, "", v1alpha1.GateApproved},
		{"beside one that does not count", func(b *bench, g *v1alpha1.Gate) []string {
			b.Approval(g, "mallory", v1alpha1.DecisionApprove, nil)
			return []string{b.Approval(g, "lucas", v1alpha1.DecisionApprove, nil).Name}
		}, "", v1alpha1.GateApproved},
		{"but one that is known decides", func(b *bench, g *v1alpha1.Gate) []string {
			b.Approval(g, "lucas", v1alpha1.DecisionApprove, nil)
			return []string{b.Approval(g, "maria", v1alpha1.DecisionApprove, nil).Name}
		}, v1alpha1.GateApproved, v1alpha1.GateApproved},
		{"and is not overtaken by time", func(b *bench, g *v1alpha1.Gate) []string {
			b.now = g.Spec.ExpiresAt.Add(policy.Grace)
			return []string{b.Approval(g, "lucas", v1alpha1.DecisionApprove, nil).Name}
		}, "", v1alpha1.GateApproved},
		{"a rejection is heard at once", func(b *bench, g *v1alpha1.Gate) []string {
			b.Approval(g, "lucas", v1alpha1.DecisionApprove, nil)
			return []string{b.Approval(g, "lucas", v1alpha1.DecisionReject, nil).Name}
		}, v1alpha1.GateRejected, v1alpha1.GateRejected},
		{"even when time is up", func(b *bench, g *v1alpha1.Gate) []string {
			b.now = g.Spec.ExpiresAt.Add(policy.Grace)
			return []string{b.Approval(g, "lucas", v1alpha1.DecisionReject, nil).Name}
		}, v1alpha1.GateRejected, v1alpha1.GateRejected},
		{"a later revision", func(b *bench, g *v1alpha1.Gate) []string {
			b.Approval(g, "lucas", v1alpha1.DecisionApprove, nil)
			return []string{b.Plan(2, controllertest.Report).Name}
		}, v1alpha1.GateSuperseded, v1alpha1.GateSuperseded},
		{"a later one than that which is known", func(b *bench, g *v1alpha1.Gate) []string {
			b.Approval(g, "lucas", v1alpha1.DecisionApprove, nil)
			b.Plan(2, controllertest.Report)
			return []string{b.Plan(3, controllertest.Report).Name}
		}, v1alpha1.GateSuperseded, v1alpha1.GateSuperseded},
		{"the plan itself is read live", func(_ *bench, g *v1alpha1.Gate) []string { return []string{g.Spec.Subject.Name} }, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t)
			g := b.Gate(b.Plan(1, controllertest.Report), b.now)
			b.r.Client = lagging{b.Admin, tc.before(b, g)}
			if r := b.must(g); tc.outcome == "" && r.RequeueAfter <= 0 {
				t.Error("it is not looked at again")
			}
			b.outcome(g, tc.outcome)
			b.r.Client = b.Admin
			b.must(g)
			b.outcome(g, tc.then)
		})
	}
}

func TestTheLatestRevisionIsNamed(t *testing.T) {
	b := newBench(t)
	g := b.Gate(b.Plan(1, controllertest.Report), b.now)
	gone := b.Plan(2, controllertest.Report)
	b.Plan(3, controllertest.Report)
	b.r.Client = lagging{b.Admin, []string{b.Plan(4, controllertest.Report).Name}}
	// A gap, which nobody leaves but an admin: what the cache knows beyond it still counts, and so does what comes after.
	if err := b.Admin.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	b.must(g)
	b.outcome(g, v1alpha1.GateSuperseded)
	if !strings.Contains(g.Status.Message, "replaced by rev-3") && !strings.Contains(g.Status.Message, "replaced by rev-4") {
		t.Errorf("message %q", g.Status.Message)
	}
}

// What is judged at once beside what waits for its news.
func TestJudged(t *testing.T) {
	expires := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	approval := func(d v1alpha1.Decision, made time.Time) v1alpha1.Approval {
		return v1alpha1.Approval{ObjectMeta: metav1.ObjectMeta{UID: "it", CreationTimestamp: metav1.NewTime(made)}, Spec: v1alpha1.ApprovalSpec{Decision: d}}
	}
	for _, tc := range []struct {
		name     string
		known    []types.UID
		approval v1alpha1.Approval
		early    bool
	}{
		{"an approval that is known", []types.UID{"other", "it"}, approval(v1alpha1.DecisionApprove, expires.Add(-time.Second)), false},
		{"one that is not", []types.UID{"other"}, approval(v1alpha1.DecisionApprove, expires.Add(-time.Second)), true},
		{"a rejection that is not", nil, approval(v1alpha1.DecisionReject, expires.Add(-time.Second)), false},
		{"an approval made when time was up", nil, approval(v1alpha1.DecisionApprove, expires), false},
		{"and after", nil, approval(v1alpha1.DecisionApprove, expires.Add(time.Hour)), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now, early := judged(tc.known, []v1alpha1.Approval{tc.approval}, expires)
			if early != tc.early || (len(now) == 1) == early {
				t.Errorf("%d judged, early %t", len(now), early)
			}
		})
	}
}

// counting counts the lists that an API server was asked for.
type counting struct {
	client.Reader
	lists *atomic.Int32
}

func (c counting) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	c.lists.Add(1)
	return c.Reader.List(ctx, l, opts...)
}

// A gate that nobody has answered costs no list until its time is up: then an answer that the cache lacks must be looked for.
func TestListsAreForDecisions(t *testing.T) {
	b := newBench(t)
	var lists atomic.Int32
	b.r.Live = counting{b.Admin, &lists}
	g := b.Gate(b.Plan(1, controllertest.Report), b.now)
	b.must(g)
	if n := lists.Load(); n != 0 {
		t.Errorf("%d lists for nothing", n)
	}
	b.now = g.Spec.ExpiresAt.Add(policy.Grace)
	b.must(g)
	b.outcome(g, v1alpha1.GateExpired)
	if n := lists.Load(); n != 2 {
		t.Errorf("%d lists before an expiry, want people and Approvals", n)
	}
}

// slow lets time pass while the API server is asked.
type slow struct {
	client.Reader
	pass func()
}

func (s slow) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	err := s.Reader.List(ctx, l, opts...)
	if _, ok := l.(*v1alpha1.ApprovalList); ok {
		s.pass()
	}
	return err
}

// The list is as old as its question: an answer given in time may have been stored while the API server took its own.
func TestSlowListExpiresNothing(t *testing.T) {
	b := newBench(t)
	g := b.Gate(b.Plan(1, controllertest.Report), b.now)
	b.Approval(g, "mallory", v1alpha1.DecisionApprove, nil) // so that there is something to list
	b.now = g.Spec.ExpiresAt.Add(-time.Millisecond)
	b.r.Live = slow{b.Admin, func() { b.now = g.Spec.ExpiresAt.Add(time.Hour) }}
	if r := b.must(g); r.RequeueAfter <= 0 || r.RequeueAfter > time.Second {
		t.Errorf("looked at again after %s", r.RequeueAfter)
	}
	b.outcome(g, "")
	b.must(g)
	b.outcome(g, v1alpha1.GateExpired)
}

// A gate that was deleted and made anew under its name is not decided by what was meant for the first.
func TestNamesakeOfTheCachedGate(t *testing.T) {
	b := newBench(t)
	p := b.Plan(1, controllertest.Report)
	old := b.Gate(p, b.now)
	if err := b.Admin.Delete(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	g := b.Gate(p, b.now)
	b.Approval(g, "lucas", v1alpha1.DecisionApprove, nil)
	b.r.Client = remembering{b.Admin, old}
	b.must(g)
	b.outcome(g, "")
	b.r.Client = b.Admin
	b.must(g)
	b.outcome(g, v1alpha1.GateApproved)
}

// remembering is a cache that still shows a gate as it was.
type remembering struct {
	client.Client
	gate *v1alpha1.Gate
}

func (r remembering) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if g, ok := o.(*v1alpha1.Gate); ok {
		r.gate.DeepCopyInto(g)
		g.DeletionTimestamp = nil
		return nil
	}
	return r.Client.Get(ctx, key, o, opts...)
}
