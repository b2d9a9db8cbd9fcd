package agent

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/controllertest"
)

// What the manager changes for an agent is one line each, under the correlation ID of its active item; what it leaves as it is is none.
func TestChangesAreLogged(t *testing.T) {
	b := newBench(t, nil)
	b.Status(b.Item, func() { b.Item.Status.State = v1alpha1.WorkItemClosed })
	for i, correlation := range []string{"req-2", "req-3"} {
		next := controllertest.NewItem(b.Agent, fmt.Sprintf("wi-%d", i+2))
		next.Spec.CorrelationID = correlation
		b.Create(next)
	}
	b.pass()
	b.pass()
	want := []map[string]any{{"agent": "ops", "task_id": "req-2", "cause": "wi-1"}}
	if diff := cmp.Diff(want, b.Logged("agent.activated")); diff != "" {
		t.Errorf("agent.activated (-want +got):\n%s", diff)
	}
	applied := func(kind, name string) map[string]any {
		return map[string]any{"agent": "ops", "task_id": "req-2", "cause": "generation 1", "kind": kind, "name": name}
	}
	// In this order: a pod without its walls, or a StatefulSet without its volume, must not be.
	want = []map[string]any{applied("ServiceAccount", "agent-ops"), applied("ConfigMap", "agent-ops"), applied("NetworkPolicy", "agent-ops"),
		applied("PersistentVolumeClaim", "state-agent-ops-0"), applied("StatefulSet", "agent-ops")}
	if diff := cmp.Diff(want, b.Logged("child.applied")); diff != "" {
		t.Errorf("child.applied (-want +got):\n%s", diff)
	}
	c := b.objects()["ConfigMap"].(*corev1.ConfigMap)
	b.Update(c, func() { c.Data["config.json"] = "{}" })
	n := b.objects()["NetworkPolicy"]
	b.Update(n, func() { n.SetAnnotations(map[string]string{"example.org/note": "nothing of the manager's"}) })
	b.pass()
	want = append(want, applied("ConfigMap", "agent-ops"))
	if diff := cmp.Diff(want, b.Logged("child.applied")); diff != "" {
		t.Errorf("after a change of two, one of which mattered (-want +got):\n%s", diff)
	}
}

// A pod that is replaced is told once, with what replaces it.
func TestReplacementIsTold(t *testing.T) {
	b := newBench(t, nil)
	b.pass()
	b.updated()
	b.Status(b.Item, func() { b.Item.Status.State = v1alpha1.WorkItemAwaitingInput })
	pod := b.outdated()
	b.pass()
	b.pass()
	want := []map[string]any{{"agent": "ops", "task_id": "wi-1", "cause": "r2", "pod": pod.Name, "pod_uid": string(pod.UID)}}
	if diff := cmp.Diff(want, b.Logged("pod.replaced")); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"Normal Updated Pod agent-ops-0 is replaced by its newer template."}, b.Heard()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// The first pass that breaks says that it is tried again; a later one leaves what the last good one said.
func TestBrokenPassIsTold(t *testing.T) {
	b := newBench(t, nil)
	broken := b.Intercepted(interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if _, person := o.(*v1alpha1.Person); person {
			return controllertest.ErrAway
		}
		return c.Get(ctx, k, o, opts...)
	}})
	try := func() {
		t.Helper()
		b.r.Client = broken
		if _, err := b.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(b.Agent)}); !errors.Is(err, controllertest.ErrAway) {
			t.Fatalf("got %v, want a retry", err)
		}
		b.Read(b.Agent)
		b.Holds(b.Agent, b.Agent.Status.ObservedGeneration, b.Agent.Status.Conditions)
	}
	try()
	b.condition(v1alpha1.ConditionReady, metav1.ConditionUnknown, v1alpha1.ReasonRetrying)
	if b.Agent.Status.ObservedGeneration != 0 {
		t.Errorf("observed generation %d", b.Agent.Status.ObservedGeneration)
	}
	b.r.Client = b.writes
	b.pass()
	b.condition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonStarting)
	b.Update(b.Agent, func() { b.Agent.Spec.Prompt = "Be brief." })
	try()
	b.condition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonStarting)
	if b.Agent.Status.ObservedGeneration == b.Agent.Generation {
		t.Errorf("observed generation %d, which no pass has seen through", b.Agent.Status.ObservedGeneration)
	}
}

// The gateway writes its part between the manager's read and its write. Nothing is lost, and the loser is quiet.
func TestTwoWritersOnOneStatus(t *testing.T) {
	b := newBench(t, nil)
	once := false
	b.r.Client = b.Intercepted(interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
		if !once {
			once = true
			a := b.Agent.DeepCopy()
			b.Status(a, func() { a.Status.Conversation = &v1alpha1.ConversationStatus{Connected: true, Reason: "Connected"} })
		}
		return c.SubResource(sub).Patch(ctx, o, p, opts...)
	}})
	result, err := b.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(b.Agent)})
	if err != nil || result.RequeueAfter == 0 {
		t.Errorf("got %+v, %v; want a quiet second look", result, err)
	}
	b.Read(b.Agent)
	if c := meta.FindStatusCondition(b.Agent.Status.Conditions, v1alpha1.ConditionReady); c != nil {
		t.Errorf("written from an old object: %+v", c)
	}
	b.pass()
	b.condition(v1alpha1.ConditionConnected, metav1.ConditionTrue, v1alpha1.ReasonConnected)
	b.condition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonStarting)
}
