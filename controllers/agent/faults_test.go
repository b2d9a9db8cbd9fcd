package agent

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/controllertest"
)

// Whichever call to the API server fails, and whether its answer alone was lost, an agent gets the same objects, and its pod is
// replaced once.
func TestEachCallMayFail(t *testing.T) {
	for _, tc := range []struct {
		name   string
		before func(*bench)
		writes int
	}{
		{"new", func(*bench) {}, 6},
		{"turns to the next item", func(b *bench) {
			b.pass()
			b.Status(b.Item, func() { b.Item.Status.State = v1alpha1.WorkItemClosed })
			b.Create(controllertest.NewItem(b.Agent, "wi-2"))
		}, 1},
		{"replaces its pod", func(b *bench) {
			b.pass()
			b.updated()
			b.Status(b.Item, func() { b.Item.Status.State = v1alpha1.WorkItemAwaitingInput })
			b.pass()
			b.outdated()
		}, 1},
		{"suspended", func(b *bench) {
			b.pass()
			b.Update(b.Agent, func() { b.Agent.Spec.Suspend = true })
		}, 2},
		{"its Secret is missing", func(b *bench) {
			b.Update(b.Agent, func() {
				b.Agent.Spec.Models.Endpoint.Credentials = &v1alpha1.SecretKey{Name: "litellm", Key: "token"}
			})
		}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			controllertest.EachCallFails(t, func(t *testing.T) controllertest.Scene {
				b := newBench(t, nil)
				tc.before(b)
				return controllertest.Scene{World: b.World, Over: []client.Object{b.Agent}, Writes: tc.writes, Controller: func(w *controllertest.Wire) reconcile.Reconciler {
					b.r.Client, b.r.Live = w.Cached, w.Live
					return b.r
				}}
			})
		})
	}
}

// outdated makes the agent's pod as an older template had it than its StatefulSet has.
func (b *bench) outdated() *corev1.Pod {
	b.T.Helper()
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = b.NS, "agent-ops-0"
	pod.Labels = map[string]string{v1alpha1.LabelAgent: "ops", appsv1.ControllerRevisionHashLabelKey: "r1"}
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "agent-ops", UID: b.set().UID, Controller: new(true)}}
	pod.Spec = corev1.PodSpec{Containers: []corev1.Container{{Name: "agentruntime", Image: "nisse-agent:0"}}, TerminationGracePeriodSeconds: new(int64(0))}
	b.Create(pod)
	return pod
}

// updated tells of a newer template as the StatefulSet's controller does.
func (b *bench) updated() {
	b.T.Helper()
	s := b.set()
	b.Status(s, func() {
		s.Status = appsv1.StatefulSetStatus{ObservedGeneration: s.Generation, Replicas: 1, ReadyReplicas: 1, CurrentRevision: "r1", UpdateRevision: "r2"}
	})
}
