package workitem

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/controllertest"
	"nisse.io/nisse/internal/names"
)

// Each step of an item is one line, under its correlation ID, with where it came from and what moved it.
func TestStepsAreLogged(t *testing.T) {
	b := newBench(t, nil)
	b.Status(b.Item, func() { b.Item.Status.State = v1alpha1.WorkItemClosed })
	b.Item = controllertest.NewItem(b.Agent, "wi-2")
	b.Item.Spec.CorrelationID = "req-7"
	b.Create(b.Item)
	b.pass()
	b.Status(b.Agent, func() { b.Agent.Status.ActiveWorkItem = "wi-2" })
	b.pass()
	b.Plan(1, controllertest.Report)
	b.pass()
	b.Update(b.Item, func() { b.Item.Spec.Close = true })
	b.pass()
	line := func(from, to v1alpha1.WorkItemState, cause string) map[string]any {
		return map[string]any{"agent": "ops", "task_id": "req-7", "cause": cause, "work_item": "wi-2", "from": string(from), "to": string(to)}
	}
	closed := line(v1alpha1.WorkItemAwaitingApproval, v1alpha1.WorkItemClosed, "wi-2-rev-1")
	closed["result"] = "Closed"
	for event, want := range map[string][]map[string]any{
		"work_item.queued": {line("", v1alpha1.WorkItemOpen, "ops")},
		"work_item.moved":  {line(v1alpha1.WorkItemOpen, v1alpha1.WorkItemWorking, "ops"), line(v1alpha1.WorkItemWorking, v1alpha1.WorkItemAwaitingApproval, "wi-2-rev-1")},
		"work_item.closed": {closed},
	} {
		if diff := cmp.Diff(want, b.Logged(event)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", event, diff)
		}
	}
	if diff := cmp.Diff([]string{"Normal Queued Queued behind wi-1."}, b.Heard()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// A question about what holds an item is one line and one warning, with what it is about.
func TestQuestionsAreTold(t *testing.T) {
	b := newBench(t, nil)
	b.stop("s1")
	b.halt("h1")
	b.pass()
	g := b.gate(names.HaltGate("wi-1", "s1", "h1"))
	want := []map[string]any{{"agent": "ops", "task_id": "wi-1", "cause": "s1h1", "gate": g.Name, "gate_uid": string(g.UID), "digest": g.Spec.Digest}}
	if diff := cmp.Diff(want, b.Logged("gate.opened")); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"Warning Halted Nothing runs until lucas says continue, replan or abandon: the broker halted the work."}, b.Heard()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// An agent of a workflow that this version does not know: the item stays where it is and says so.
func TestUnknownWorkflow(t *testing.T) {
	b := newBench(t, nil)
	b.r.Client = b.Intercepted(interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		err := c.Get(ctx, k, o, opts...)
		if a, agent := o.(*v1alpha1.Agent); agent {
			a.Spec.Workflow = "Research"
		}
		return err
	}})
	b.stop("s1")
	b.pass()
	b.state(v1alpha1.WorkItemWorking, "ops")
	b.ready(metav1.ConditionFalse, v1alpha1.ReasonWorkflowUnknown, true)
	if n := b.gates(); n != 0 {
		t.Errorf("%d gates", n)
	}
}

// The first pass that breaks says that it is tried again; a later one leaves what the last good one said.
func TestBrokenPassIsTold(t *testing.T) {
	b := newBench(t, nil)
	broken := partly{b.Admin, func(o any) bool { _, is := o.(*v1alpha1.PlanList); return is }}
	b.r.Client = broken
	if _, err := b.try(b.Item); !errors.Is(err, errAway) {
		t.Fatalf("got %v, want a retry", err)
	}
	b.ready(metav1.ConditionUnknown, v1alpha1.ReasonRetrying, false)
	if b.Item.Status.ObservedGeneration != 0 {
		t.Errorf("observed generation %d", b.Item.Status.ObservedGeneration)
	}
	b.r.Client = b.Admin
	b.pass()
	b.ready(metav1.ConditionTrue, v1alpha1.ReasonProgressing, false)
	observed := b.Item.Status.ObservedGeneration
	b.r.Client = broken
	b.stop("s1")
	if _, err := b.try(b.Item); !errors.Is(err, errAway) {
		t.Fatalf("got %v, want a retry", err)
	}
	b.ready(metav1.ConditionTrue, v1alpha1.ReasonProgressing, false)
	if b.Item.Status.ObservedGeneration != observed {
		t.Errorf("observed generation %d, which no pass has seen through", b.Item.Status.ObservedGeneration)
	}
}

// A list of names that does not fit is cut where it fits.
func TestManyApproversFit(t *testing.T) {
	b := newBench(t, func(a *v1alpha1.Agent) {
		for i := range 30 {
			a.Spec.People = append(a.Spec.People, v1alpha1.AgentPerson{Name: string(rune('a'+i%26)) + strings.Repeat("x", 40+i/26), May: []v1alpha1.Right{v1alpha1.RightApprove}})
		}
	})
	b.Gate(b.Plan(1, controllertest.Report), b.now)
	b.pass()
	if w := b.Item.Status.WaitingFor; len(w) != maxWaitingFor || !strings.HasPrefix(w, "lucas, a") || !strings.HasSuffix(w, "...") {
		t.Errorf("%d bytes: %s", len(w), w)
	}
}
