package controllers_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/names"
	"nisse.io/nisse/test/apitest"
)

// anew deletes an object and waits until another has its name.
func (h *house) anew(o client.Object) {
	h.t.Helper()
	h.read(o)
	was := o.GetUID()
	if err := h.admin.Delete(h.t.Context(), o); err != nil {
		h.t.Fatal(err)
	}
	if len(o.GetFinalizers()) > 0 { // those of Kubernetes' own kinds, whose controllers do not run here
		if err := h.admin.Patch(h.t.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
			h.t.Fatal(err)
		}
	}
	apitest.Wait(h.t, patience, func(ctx context.Context) error {
		if err := h.admin.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		if o.GetUID() == was {
			return errors.New("it is still there")
		}
		return nil
	})
}

func (h *house) read(o client.Object) {
	h.t.Helper()
	if err := h.admin.Get(h.t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		h.t.Fatal(err)
	}
}

// Whatever of an agent's objects is deleted comes back at once; nobody has to touch the Agent.
func TestDeletedObjectsComeBack(t *testing.T) {
	h := newHouse(t)
	a := h.agent(nil)
	h.ready(a, v1alpha1.ConditionReady, v1alpha1.ReasonStarting)
	name := "agent-" + a.Name
	for _, o := range []client.Object{&corev1.ServiceAccount{ObjectMeta: named(name)}, &corev1.ConfigMap{ObjectMeta: named(name)}, &networkingv1.NetworkPolicy{ObjectMeta: named(name)},
		&corev1.PersistentVolumeClaim{ObjectMeta: named("state-" + name + "-0")}, &appsv1.StatefulSet{ObjectMeta: named(name)}} {
		t.Logf("%T", o)
		h.anew(o)
	}
}

// Why a pod does not start is told as soon as the kubelet says it.
func TestPodWakesItsAgent(t *testing.T) {
	h := newHouse(t)
	a := h.agent(nil)
	h.ready(a, v1alpha1.ConditionReady, v1alpha1.ReasonStarting)
	pod := &corev1.Pod{ObjectMeta: named("agent-" + a.Name + "-0"), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "agentruntime", Image: "no-such"}}}}
	pod.Labels = map[string]string{v1alpha1.LabelAgent: a.Name}
	h.create(pod)
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "agentruntime", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}}}
	if err := h.admin.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	apitest.Wait(t, patience, func(ctx context.Context) error {
		var now v1alpha1.Agent
		if err := h.admin.Get(ctx, client.ObjectKeyFromObject(a), &now); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionReady); c == nil || !strings.Contains(c.Message, "ErrImagePull") {
			return fmt.Errorf("Ready is %+v", c)
		}
		return nil
	})
}

// A question that somebody deletes while it waits is asked anew, of a plan and of a stop; what was said about the first counts for
// neither.
func TestDeletedGateIsOpenedAnew(t *testing.T) {
	h := newHouse(t)
	a := h.agent(nil)
	w := h.state(h.item(a), v1alpha1.WorkItemWorking)
	p := h.plan(a, w, 1, report)
	g := h.gate(p.Name, "")
	h.state(w, v1alpha1.WorkItemAwaitingApproval)
	first := g.DeepCopy()
	h.anew(g)
	h.refused(h.says(first, v1alpha1.DecisionApprove, "", ""), v1alpha1.ReasonOtherGate)
	h.gate(p.Name, "")

	h.stop(w, "s1")
	h.state(w, v1alpha1.WorkItemAwaitingInput)
	asked := h.gate(names.HaltGate(w.Name, "s1", ""), "")
	h.anew(asked)
	h.says(asked, v1alpha1.DecisionApprove, v1alpha1.AnswerContinue, "")
	h.gate(asked.Name, v1alpha1.GateApproved)
	h.state(w, v1alpha1.WorkItemWorking)
}

// An agent that waits for its turn behind nobody: the active item is deleted while a question about it waits, and comes back under its
// name. The new one begins at the beginning.
func TestItemMadeAnew(t *testing.T) {
	h := newHouse(t)
	a := h.agent(nil)
	w := h.state(h.item(a), v1alpha1.WorkItemWorking)
	g := h.gate(h.plan(a, w, 1, report).Name, "")
	h.state(w, v1alpha1.WorkItemAwaitingApproval)
	if err := h.admin.Delete(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	again := &v1alpha1.WorkItem{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}, Spec: w.Spec}
	if err := h.gateway.Create(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	h.gate(g.Name, v1alpha1.GateSuperseded)
	again = h.state(again, v1alpha1.WorkItemWorking)
	if again.Status.Plan != nil || again.UID == w.UID {
		t.Errorf("it has %+v of the first", again.Status.Plan)
	}
}

// The agent is deleted and made anew while a stop waits for its answer. The answer is to a question about the first agent: it is refused,
// the item says that nobody is asked any more, and another stop asks about the agent that is there.
func TestAgentMadeAnewWhileStopped(t *testing.T) {
	h := newHouse(t)
	a := h.agent(nil)
	w := h.state(h.item(a), v1alpha1.WorkItemWorking)
	h.stop(w, "s1")
	g := h.gate(names.HaltGate(w.Name, "s1", ""), "")
	if err := h.admin.Delete(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	h.hindered(w, v1alpha1.ReasonAgentNotFound, "Agent "+a.Name+" does not exist.")
	h.create(&v1alpha1.Agent{ObjectMeta: named(a.Name), Spec: a.Spec})
	h.refused(h.says(g, v1alpha1.DecisionApprove, v1alpha1.AnswerContinue, ""), v1alpha1.ReasonGateDecided)
	h.gate(g.Name, v1alpha1.GateSuperseded)
	h.hindered(w, v1alpha1.ReasonQuestionEnded,
		"Gate "+g.Name+" asked how it goes on and ended before anybody answered; nothing runs. Stop again, with another ID, to be asked anew, or close the item.")
	h.stop(w, "s2")
	h.says(h.gate(names.HaltGate(w.Name, "s2", ""), ""), v1alpha1.DecisionApprove, v1alpha1.AnswerContinue, "")
	h.state(w, v1alpha1.WorkItemWorking)
}
