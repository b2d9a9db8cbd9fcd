package agent

import (
	"context"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/controllertest"
)

// An agent that is on its way out is left alone with what it has: nothing comes back that its deletion takes away.
func TestAgentOnItsWayOut(t *testing.T) {
	b := newBench(t, nil)
	b.pass()
	b.Terminate(b.Agent)
	s := b.set()
	b.Delete(s)
	b.Status(b.Item, func() { b.Item.Status.State = v1alpha1.WorkItemClosed })
	b.writes.n = 0
	b.pass()
	if b.writes.n != 0 {
		t.Errorf("%d writes", b.writes.n)
	}
	if err := b.Admin.Get(t.Context(), client.ObjectKeyFromObject(s), s); !apierrors.IsNotFound(err) {
		t.Errorf("the StatefulSet came back: %v", err)
	}
}

// An item that is on its way out is worked on no more, though it is still there.
func TestItemOnItsWayOut(t *testing.T) {
	b := newBench(t, nil)
	b.Create(controllertest.NewItem(b.Agent, "wi-2"))
	b.Terminate(b.Item)
	b.pass()
	if b.Agent.Status.ActiveWorkItem != "wi-2" {
		t.Errorf("active %q", b.Agent.Status.ActiveWorkItem)
	}
}

// Whatever of an agent's objects somebody deletes comes back as the agent's.
func TestDeletedChildrenComeBack(t *testing.T) {
	b := newBench(t, nil)
	b.pass()
	before := b.objects()
	for kind, o := range before {
		b.Delete(o)
		if kind == "PersistentVolumeClaim" {
			b.Update(o, func() { o.SetFinalizers(nil) }) // no controller lifts its protection here
		}
	}
	b.writes.n = 0
	b.pass()
	for kind, o := range b.objects() {
		if o.GetUID() == before[kind].GetUID() || (kind != "PersistentVolumeClaim" && !metav1.IsControlledBy(o, b.Agent)) {
			t.Errorf("%s is %+v", kind, o)
		}
	}
	if b.writes.n != len(before) {
		t.Errorf("%d writes for %d objects", b.writes.n, len(before))
	}
	b.condition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonStarting)
}

// The agent is made anew before the garbage collector has seen that the first is gone. What is left of the first is not the second's; as
// soon as it is gone the second has its own.
func TestAgentMadeAnew(t *testing.T) {
	b := newBench(t, nil)
	b.pass()
	left := b.objects()
	b.Delete(b.Agent)
	b.Agent = controllertest.NewAgent(b.NS, "ops")
	b.Create(b.Agent)
	b.pass()
	b.condition(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonForeignObject)
	if b.Agent.Status.ActiveWorkItem != b.Item.Name {
		t.Errorf("active %q: the work of that name goes on", b.Agent.Status.ActiveWorkItem)
	}
	for kind, o := range left {
		if kind != "PersistentVolumeClaim" {
			b.Delete(o)
		}
	}
	b.pass()
	b.condition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonStarting)
	for kind, o := range b.objects() {
		if same := o.GetUID() == left[kind].GetUID(); same != (kind == "PersistentVolumeClaim") {
			t.Errorf("%s is the first agent's: %t", kind, same)
		}
	}
}

// Only a pod of the agent's own StatefulSet is replaced.
func TestForeignPodIsLeftAlone(t *testing.T) {
	b := newBench(t, nil)
	b.pass()
	b.updated()
	b.Status(b.Item, func() { b.Item.Status.State = v1alpha1.WorkItemAwaitingInput })
	pod := b.outdated()
	b.Update(pod, func() { pod.OwnerReferences[0].UID = "of-another-time" })
	b.pass()
	b.Read(pod)
	s := b.set()
	b.Update(pod, func() {
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(s, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
	})
	b.pass()
	if err := b.Admin.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); !apierrors.IsNotFound(err) {
		t.Errorf("an outdated pod of its own is still there: %v", err)
	}
}

// The pod that was looked at is gone when it is to be replaced, and another has its name: that one is not touched, and nothing is told.
func TestOnlyThePodThatWasSeenIsReplaced(t *testing.T) {
	b := newBench(t, nil)
	b.pass()
	b.updated()
	b.Status(b.Item, func() { b.Item.Status.State = v1alpha1.WorkItemAwaitingInput })
	pod := b.outdated()
	b.r.Client = b.Intercepted(interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
		b.Delete(pod)
		pod = b.outdated()
		return c.Delete(ctx, o, opts...)
	}})
	b.pass()
	b.Read(pod)
	if n := len(b.Logged("pod.replaced")); n != 0 || len(b.Heard()) != 0 {
		t.Errorf("%d lines of a replacement that was none", n)
	}
}

// The active item is deleted, and the cache does not know yet: no work is there to be interrupted.
func TestPodIsReplacedWhenItsItemIsGone(t *testing.T) {
	b := newBench(t, nil)
	b.pass()
	b.updated()
	pod := b.outdated()
	b.Delete(b.Item)
	item := b.Item.DeepCopy()
	b.r.Client = b.Intercepted(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
		err := c.List(ctx, l, opts...)
		if items, ok := l.(*v1alpha1.WorkItemList); ok {
			items.Items = append(items.Items, *item)
		}
		return err
	}})
	b.pass()
	if err := b.Admin.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); !apierrors.IsNotFound(err) {
		t.Errorf("it waits for an item that is gone: %v", err)
	}
}
