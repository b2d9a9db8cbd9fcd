package controllers_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/names"
	"nisse.io/nisse/test/apitest"
)

// ready waits until an Agent's condition has a reason.
func (h *house) ready(a *v1alpha1.Agent, conditionType, reason string) {
	h.t.Helper()
	apitest.Wait(h.t, patience, func(ctx context.Context) error {
		var now v1alpha1.Agent
		if err := h.admin.Get(ctx, client.ObjectKeyFromObject(a), &now); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(now.Status.Conditions, conditionType); c == nil || c.Reason != reason {
			return fmt.Errorf("%s of %s is %+v, want reason %s", conditionType, a.Name, c, reason)
		}
		return nil
	})
}

func (h *house) create(o client.Object) {
	h.t.Helper()
	if err := h.admin.Create(h.t.Context(), o); err != nil {
		h.t.Fatal(err)
	}
}

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: agentsNamespace, Name: name}
}

// hindered waits until an item says why nothing comes of it; with an empty reason, until nothing hinders it.
func (h *house) hindered(w *v1alpha1.WorkItem, reason, message string) {
	h.t.Helper()
	apitest.Wait(h.t, patience, func(ctx context.Context) error {
		var now v1alpha1.WorkItem
		if err := h.admin.Get(ctx, client.ObjectKeyFromObject(w), &now); err != nil {
			return err
		}
		want := metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: message}
		if reason == "" {
			want = metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonProgressing}
		}
		c := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionReady)
		if c == nil || c.Status != want.Status || c.Reason != want.Reason || c.Message != want.Message {
			return fmt.Errorf("Ready of %s is %+v, want %+v", w.Name, c, want)
		}
		return nil
	})
}

// What an Agent waits for turns up; nobody has to touch the Agent. What it was asked for says meanwhile why nothing comes of it.
func TestAgentWakesByWhatItNames(t *testing.T) {
	h := newHouse(t)
	a := h.agent(func(a *v1alpha1.Agent) {
		a.Spec.People = append(a.Spec.People, v1alpha1.AgentPerson{Name: "wanda", May: []v1alpha1.Right{v1alpha1.RightInstruct}})
		a.Spec.Devices = append(a.Spec.Devices, "web7")
		a.Spec.Models.Endpoint.Credentials = &v1alpha1.SecretKey{Name: "wanted", Key: "token"}
	})
	h.ready(a, v1alpha1.ConditionStalled, v1alpha1.ReasonPersonNotFound)
	w := h.item(a)
	h.hindered(w, v1alpha1.ReasonPersonNotFound, "Person wanda does not exist.")
	h.create(&v1alpha1.Person{ObjectMeta: named("wanda"), Spec: v1alpha1.PersonSpec{Identities: v1alpha1.Identities{Matrix: "@wanda:example.org"}}})
	h.ready(a, v1alpha1.ConditionStalled, v1alpha1.ReasonDeviceNotFound)
	h.hindered(w, v1alpha1.ReasonDeviceNotFound, "Device web7 does not exist.")
	h.create(&v1alpha1.Device{ObjectMeta: named("web7"), Spec: v1alpha1.DeviceSpec{URL: "https://192.0.2.1:7070",
		PublicKey: "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", RootKey: "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}})
	h.hindered(w, v1alpha1.ReasonSecretNotUsable, "Secret wanted does not exist.")
	// A Secret is not watched, but looked at again by and by, or when the Agent changes.
	h.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: agentsNamespace, Name: "wanted", Labels: map[string]string{v1alpha1.LabelAgentAccess: "true"}},
		StringData: map[string]string{"token": "t"}})
	if err := h.admin.Patch(t.Context(), a.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"prompt":"Be brief."}}`))); err != nil {
		t.Fatal(err)
	}
	h.ready(a, v1alpha1.ConditionReady, v1alpha1.ReasonStarting)
	h.hindered(w, "", "")

	// The StatefulSet's controller and the kubelet do their part.
	set := &appsv1.StatefulSet{ObjectMeta: named("agent-" + a.Name)}
	if err := h.admin.Get(t.Context(), client.ObjectKeyFromObject(set), set); err != nil {
		t.Fatal(err)
	}
	set.Status = appsv1.StatefulSetStatus{ObservedGeneration: set.Generation, Replicas: 1, ReadyReplicas: 1, UpdateRevision: "r1"}
	if err := h.admin.Status().Update(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	h.ready(a, v1alpha1.ConditionReady, v1alpha1.ReasonRunning)

	// The gateway reports.
	var now v1alpha1.Agent
	if err := h.admin.Get(t.Context(), client.ObjectKeyFromObject(a), &now); err != nil {
		t.Fatal(err)
	}
	p := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"conversation":{"connected":true,"reason":"Connected","roomID":"!r:example.org"}}}`))
	if err := h.gateway.Status().Patch(t.Context(), &now, p); err != nil {
		t.Fatal(err)
	}
	h.ready(a, v1alpha1.ConditionConnected, v1alpha1.ReasonConnected)

	// Somebody pulls down a wall; it comes back by itself.
	wall := &networkingv1.NetworkPolicy{ObjectMeta: named("agent-" + a.Name)}
	if err := h.admin.Delete(t.Context(), wall); err != nil {
		t.Fatal(err)
	}
	apitest.Wait(t, patience, func(ctx context.Context) error { return h.admin.Get(ctx, client.ObjectKeyFromObject(wall), wall) })
}

// Two Persons claim one name: both are told, and so is everybody when it ends.
func TestPeopleWakeEachOther(t *testing.T) {
	h := newHouse(t)
	person := func(name string) *v1alpha1.Person {
		p := &v1alpha1.Person{ObjectMeta: named(name), Spec: v1alpha1.PersonSpec{Identities: v1alpha1.Identities{Matrix: "@shared:example.org"}}}
		h.create(p)
		return p
	}
	reason := func(p *v1alpha1.Person, want string) {
		t.Helper()
		apitest.Wait(t, patience, func(ctx context.Context) error {
			var now v1alpha1.Person
			if err := h.admin.Get(ctx, client.ObjectKeyFromObject(p), &now); err != nil {
				return err
			}
			if c := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionReady); c == nil || c.Reason != want {
				return fmt.Errorf("Ready of %s is %+v, want %s", p.Name, c, want)
			}
			return nil
		})
	}
	a := person("anna")
	reason(a, v1alpha1.ReasonIdentitiesUnique)
	b := person("bert")
	reason(a, v1alpha1.ReasonIdentityShared)
	reason(b, v1alpha1.ReasonIdentityShared)
	if err := h.admin.Delete(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	reason(a, v1alpha1.ReasonIdentitiesUnique)
}

// Case 7: decided while no manager was there; the next one counts it once.
func TestDecidedWhileAway(t *testing.T) {
	h := newHouse(t)
	a := h.agent(nil)
	w := h.state(h.item(a), v1alpha1.WorkItemWorking)
	p := h.plan(a, w, 1, report)
	g := h.gate(p.Name, "")
	h.state(w, v1alpha1.WorkItemAwaitingApproval)
	var said, late *v1alpha1.Approval
	h.restart(func() {
		said = h.says(g, v1alpha1.DecisionApprove, "", "")
		// Approvals of one second are told apart by their names, which come from hashes; the later one here must be the later one.
		apitest.Wait(t, patience, func(context.Context) error {
			if time.Since(said.CreationTimestamp.Time) < 1500*time.Millisecond {
				return errStill
			}
			return nil
		})
		late = h.says(g, v1alpha1.DecisionApprove, "", "")
	})
	g = h.gate(p.Name, v1alpha1.GateApproved)
	checkStatement(t, h.key, g, p)
	if len(g.Status.Decisions) != 1 || g.Status.Decisions[0].Approval != said.Name {
		t.Errorf("decisions %+v", g.Status.Decisions)
	}
	h.refused(late, v1alpha1.ReasonSecondVote)
	h.state(w, v1alpha1.WorkItemWorking)
	h.planState(p, v1alpha1.PlanApproved)
}

// Everything happens while no manager is there. The next one finds its way from the objects alone.
func TestMuchHappensWhileAway(t *testing.T) {
	h := newHouse(t)
	ten := int32(10)
	a := h.agent(func(a *v1alpha1.Agent) { a.Spec.Limits = &v1alpha1.Limits{ApprovalSeconds: &ten} })
	lapses := h.state(h.item(a), v1alpha1.WorkItemWorking)
	g := h.gate(h.plan(a, lapses, 1, report).Name, "")
	b := h.agent(nil)
	stopped := h.state(h.item(b), v1alpha1.WorkItemWorking)
	dropped := h.gate(h.plan(b, stopped, 1, report).Name, "")
	h.state(stopped, v1alpha1.WorkItemAwaitingApproval)
	var queued *v1alpha1.WorkItem
	h.restart(func() {
		h.stop(stopped, "s1")
		queued = h.item(b)
		apitest.Wait(t, patience, func(context.Context) error {
			if time.Now().Before(g.Spec.ExpiresAt.Add(2 * time.Second)) {
				return errStill
			}
			return nil
		})
	})
	h.gate(g.Name, v1alpha1.GateExpired)
	h.state(lapses, v1alpha1.WorkItemWorking)
	h.gate(dropped.Name, v1alpha1.GateSuperseded)
	h.state(stopped, v1alpha1.WorkItemAwaitingInput)
	h.state(queued, v1alpha1.WorkItemOpen)
	h.says(h.gate(names.HaltGate(stopped.Name, "s1", ""), ""), v1alpha1.DecisionReject, v1alpha1.AnswerAbandon, "")
	h.state(stopped, v1alpha1.WorkItemClosed)
	h.state(queued, v1alpha1.WorkItemWorking)
}

// Case 32: what is not an agent's costs no memory, and Secrets are in no cache at all.
func TestForeignObjectsAreNotCached(t *testing.T) {
	h := newHouse(t)
	a := h.agent(nil)
	h.ready(a, v1alpha1.ConditionReady, v1alpha1.ReasonStarting)
	for i := range 20 {
		name := fmt.Sprintf("foreign-%s-%d", a.Name, i)
		h.create(&corev1.Pod{ObjectMeta: named(name), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}})
		h.create(&corev1.ConfigMap{ObjectMeta: named(name)})
		h.create(&corev1.Secret{ObjectMeta: named(name)})
	}
	marker := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: agentsNamespace, Name: "marker-" + a.Name, Labels: map[string]string{v1alpha1.LabelAgent: a.Name}}}
	h.create(marker)
	apitest.Wait(t, patience, func(ctx context.Context) error {
		return h.mgr.GetCache().Get(ctx, client.ObjectKeyFromObject(marker), marker)
	})
	if len(marker.ManagedFields) != 0 {
		t.Error("the cache keeps who wrote which field")
	}
	for _, list := range []client.ObjectList{&corev1.PodList{}, &corev1.ConfigMapList{}} {
		if err := h.mgr.GetCache().List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		all, err := meta.ExtractList(list)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range all {
			if c := o.(client.Object); c.GetLabels()[v1alpha1.LabelAgent] == "" {
				t.Errorf("%T %s is cached", o, c.GetName())
			}
		}
	}
	// The role would not even let the manager fill such a cache; the client reads live and succeeds.
	secret := &corev1.Secret{ObjectMeta: named(fmt.Sprintf("foreign-%s-1", a.Name))}
	if err := h.mgr.GetClient().Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
		t.Error(err)
	}
}

// Deleting a work item leaves nothing that waits: its agent turns to the next.
func TestDeletedItem(t *testing.T) {
	h := newHouse(t)
	a := h.agent(nil)
	w := h.state(h.item(a), v1alpha1.WorkItemWorking)
	g := h.gate(h.plan(a, w, 1, report).Name, "")
	next := h.state(h.item(a), v1alpha1.WorkItemOpen)
	if err := h.admin.Delete(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	h.state(next, v1alpha1.WorkItemWorking)
	// No garbage collector runs here; in a cluster the gate would be gone. Until then it asks about nothing.
	g = h.gate(g.Name, v1alpha1.GateSuperseded)
	h.refused(h.says(g, v1alpha1.DecisionApprove, "", ""), v1alpha1.ReasonGateDecided)
	if err := h.admin.Get(t.Context(), client.ObjectKeyFromObject(w), w); !apierrors.IsNotFound(err) {
		t.Errorf("a finalizer holds the item: %v", err)
	}
}
