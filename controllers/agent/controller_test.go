package agent

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/agent/children"
	"nisse.io/nisse/controllers/controllertest"
	"nisse.io/nisse/test/apitest"
)

func TestMain(m *testing.M) { apitest.Main(m) }

var settings = children.Settings{Image: "nisse-agent:1", BrokerURL: "http://broker", GatewayURL: "http://gateway", SystemNamespace: "nisse-system"}

type bench struct {
	*controllertest.World
	r      *Reconciler
	writes *recorded
}

// recorded wraps a client and counts what is written through it.
type recorded struct {
	client.Client
	n int
}

func (r *recorded) Apply(ctx context.Context, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	r.n++
	return r.Client.Apply(ctx, o, opts...)
}

func (r *recorded) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	r.n++
	return r.Client.Delete(ctx, o, opts...)
}

func (r *recorded) Status() client.SubResourceWriter {
	return recordedStatus{r.Client.Status(), r}
}

type recordedStatus struct {
	client.SubResourceWriter
	r *recorded
}

func (s recordedStatus) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	s.r.n++
	return s.SubResourceWriter.Patch(ctx, o, p, opts...)
}

func newBench(t *testing.T, change func(*v1alpha1.Agent)) *bench {
	t.Helper()
	b := &bench{World: controllertest.New(t, change)}
	b.restart()
	return b
}

// restart gives the bench a manager that remembers nothing.
func (b *bench) restart() {
	b.writes = &recorded{Client: b.Admin}
	b.r = &Reconciler{Client: b.writes, Live: b.Admin, Settings: settings, Events: b.Events, Log: b.Log}
}

func (b *bench) pass() reconcile.Result {
	b.T.Helper()
	result, err := b.r.Reconcile(b.T.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(b.Agent)})
	if err != nil {
		b.T.Fatal(err)
	}
	b.Read(b.Agent)
	b.Holds(b.Agent, b.Agent.Status.ObservedGeneration, b.Agent.Status.Conditions)
	return result
}

// condition compares one condition's status and reason.
func (b *bench) condition(conditionType string, status metav1.ConditionStatus, reason string) {
	b.T.Helper()
	c := meta.FindStatusCondition(b.Agent.Status.Conditions, conditionType)
	if c == nil {
		b.T.Errorf("%s is missing", conditionType)
	} else if c.Status != status || c.Reason != reason {
		b.T.Errorf("%s is %s (%s: %s), want %s (%s)", conditionType, c.Status, c.Reason, c.Message, status, reason)
	}
}

func (b *bench) objects() map[string]client.Object {
	b.T.Helper()
	all := map[string]client.Object{"ServiceAccount": &corev1.ServiceAccount{}, "ConfigMap": &corev1.ConfigMap{}, "NetworkPolicy": &networkingv1.NetworkPolicy{},
		"PersistentVolumeClaim": &corev1.PersistentVolumeClaim{}, "StatefulSet": &appsv1.StatefulSet{}}
	for kind, o := range all {
		name := "agent-ops"
		if kind == "PersistentVolumeClaim" {
			name = "state-agent-ops-0"
		}
		if err := b.Admin.Get(b.T.Context(), client.ObjectKey{Namespace: b.NS, Name: name}, o); err != nil {
			b.T.Fatal(err)
		}
	}
	return all
}

func (b *bench) set() *appsv1.StatefulSet {
	b.T.Helper()
	return b.objects()["StatefulSet"].(*appsv1.StatefulSet)
}

func TestAgentGetsItsObjects(t *testing.T) {
	b := newBench(t, nil)
	b.pass()
	b.condition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonStarting)
	b.condition(v1alpha1.ConditionConnected, metav1.ConditionUnknown, v1alpha1.ReasonConversationUnknown)
	for kind, o := range b.objects() {
		if o.GetLabels()[v1alpha1.LabelAgent] != "ops" {
			t.Errorf("%s bears labels %v", kind, o.GetLabels())
		}
		owner := metav1.GetControllerOf(o)
		if kind == "PersistentVolumeClaim" {
			if owner != nil {
				t.Error("the volume would go with the Agent")
			}
			continue
		}
		if owner == nil || owner.UID != b.Agent.UID || owner.BlockOwnerDeletion != nil {
			t.Errorf("%s has owner %+v", kind, owner)
		}
	}
	b.Status(b.set(), func() {})
	s := b.set()
	b.Status(s, func() {
		s.Status = appsv1.StatefulSetStatus{ObservedGeneration: s.Generation, Replicas: 1, ReadyReplicas: 1, UpdateRevision: "r1"}
	})
	b.pass()
	b.condition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonRunning)
}

// Case 31: the API server fills in what the manager has no opinion on; the second pass writes nothing, and the first pass of the next
// manager changes nothing.
func TestSecondPassWritesNothing(t *testing.T) {
	b := newBench(t, nil)
	b.pass()
	before := b.objects()
	b.writes.n = 0
	b.pass()
	b.pass()
	if b.writes.n != 0 {
		t.Errorf("%d writes at rest", b.writes.n)
	}
	b.restart()
	b.pass()
	for kind, o := range b.objects() {
		if kind == "PersistentVolumeClaim" {
			// The API server stores a claim anew at every apply, though nothing of it differs.
			o.SetResourceVersion(before[kind].GetResourceVersion())
		}
		if diff := cmp.Diff(before[kind], o, cmp.Comparer(func(a, b metav1.ManagedFieldsEntry) bool { return a.Manager == b.Manager }),
			cmp.Comparer(func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })); diff != "" {
			t.Errorf("%s was changed by a manager that only started (-was +is):\n%s", kind, diff)
		}
	}
	b.writes.n = 0
	b.pass()
	if b.writes.n != 0 {
		t.Errorf("%d writes at rest after a restart", b.writes.n)
	}
}

// Somebody edits what is the agent's: it comes back. What the manager has no opinion on stays.
func TestDriftIsMended(t *testing.T) {
	b := newBench(t, nil)
	b.pass()
	n := b.objects()["NetworkPolicy"].(*networkingv1.NetworkPolicy)
	want := n.DeepCopy()
	b.Update(n, func() {
		n.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		n.Annotations = map[string]string{"example.org/note": "kept"}
	})
	c := b.objects()["ConfigMap"].(*corev1.ConfigMap)
	config := c.Data["config.json"]
	b.Update(c, func() { c.Data["config.json"] = "{}" })
	s := b.set()
	b.Update(s, func() { s.Spec.Template.Spec.Containers[0].Image = "evil" })
	b.pass()
	b.Read(n)
	if diff := cmp.Diff(want.Spec, n.Spec); diff != "" || n.Annotations["example.org/note"] != "kept" {
		t.Errorf("the walls did not come back, or a note was lost (-want +got):\n%s", diff)
	}
	b.Read(c)
	if c.Data["config.json"] != config {
		t.Errorf("configuration %q", c.Data["config.json"])
	}
	if image := b.set().Spec.Template.Spec.Containers[0].Image; image != "nisse-agent:1" {
		t.Errorf("image %q", image)
	}
}

// The volume of an Agent that was deleted is found again by its successor.
func TestStateOutlivesTheAgent(t *testing.T) {
	b := newBench(t, nil)
	b.pass()
	volume := b.objects()["PersistentVolumeClaim"]
	if err := b.Admin.Delete(t.Context(), b.Agent); err != nil {
		t.Fatal(err)
	}
	// No garbage collector runs here.
	for kind, o := range b.objects() {
		if kind != "PersistentVolumeClaim" {
			if err := b.Admin.Delete(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.Agent = controllertest.NewAgent(b.NS, "ops")
	b.Create(b.Agent)
	b.pass()
	b.condition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonStarting)
	if now := b.objects()["PersistentVolumeClaim"]; now.GetUID() != volume.GetUID() {
		t.Error("another volume")
	}
}

func secret(ns string, labels map[string]string, data map[string]string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "litellm", Labels: labels}, StringData: data}
}

func TestStalls(t *testing.T) {
	access := map[string]string{v1alpha1.LabelAgentAccess: "true"}
	withSecret := func(a *v1alpha1.Agent) {
		a.Spec.Models.Endpoint.Credentials = &v1alpha1.SecretKey{Name: "litellm", Key: "token"}
	}
	for _, tc := range []struct {
		name    string
		change  func(*v1alpha1.Agent)
		before  func(*bench)
		reason  string
		message string
		mend    func(*bench)
		recheck bool
	}{
		{"a Person who does not exist", func(a *v1alpha1.Agent) { a.Spec.People[0].Name = "nora" }, nil, v1alpha1.ReasonPersonNotFound, "Person nora does not exist.", func(b *bench) {
			b.Create(&v1alpha1.Person{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: "nora"}, Spec: v1alpha1.PersonSpec{Identities: v1alpha1.Identities{Matrix: "@nora:example.org"}}})
		}, false},
		{"a Device that does not exist", func(a *v1alpha1.Agent) { a.Spec.Devices = []string{"web1", "web9"} }, nil, v1alpha1.ReasonDeviceNotFound, "Device web9 does not exist.", func(b *bench) {
			b.Update(b.Agent, func() { b.Agent.Spec.Devices = []string{"web1"} })
		}, false},
		{"a Secret that does not exist", withSecret, nil, v1alpha1.ReasonSecretNotUsable, "Secret litellm does not exist.", func(b *bench) {
			b.Create(secret(b.NS, access, map[string]string{"token": "t"}))
		}, true},
		{"a Secret without the key", withSecret, func(b *bench) { b.Create(secret(b.NS, access, map[string]string{"other": "t"})) }, v1alpha1.ReasonSecretNotUsable, "no key token", func(b *bench) {
			s := secret(b.NS, nil, nil)
			b.Update(s, func() { s.StringData = map[string]string{"token": "t"} })
		}, true},
		{"a Secret that is not given to agents", withSecret, func(b *bench) { b.Create(secret(b.NS, nil, map[string]string{"token": "t"})) }, v1alpha1.ReasonSecretNotUsable, "lacks the label", func(b *bench) {
			s := secret(b.NS, nil, nil)
			b.Update(s, func() { s.Labels = access })
		}, true},
		{"a label that says no", withSecret, func(b *bench) {
			b.Create(secret(b.NS, map[string]string{v1alpha1.LabelAgentAccess: "false"}, map[string]string{"token": "t"}))
		}, v1alpha1.ReasonSecretNotUsable, "lacks the label", func(b *bench) {
			s := secret(b.NS, nil, nil)
			b.Update(s, func() { s.Labels = access })
		}, true},
		{"an address that is none", func(a *v1alpha1.Agent) { a.Spec.Models.Endpoint.URL = "http://999.999.999.999/v1" }, nil, v1alpha1.ReasonEndpointInvalid, "cidr is required", func(b *bench) {
			b.Update(b.Agent, func() { b.Agent.Spec.Models.Endpoint.URL = "http://192.0.2.9/v1" })
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, tc.change)
			if tc.before != nil {
				tc.before(b)
			}
			result := b.pass()
			b.condition(v1alpha1.ConditionStalled, metav1.ConditionTrue, tc.reason)
			if c := meta.FindStatusCondition(b.Agent.Status.Conditions, v1alpha1.ConditionReady); !strings.Contains(c.Message, tc.message) {
				t.Errorf("message %q, want %q", c.Message, tc.message)
			}
			if (result.RequeueAfter > 0) != tc.recheck {
				t.Errorf("looked at again after %s", result.RequeueAfter)
			}
			if err := b.Admin.Get(t.Context(), client.ObjectKey{Namespace: b.NS, Name: "agent-ops"}, &appsv1.StatefulSet{}); !apierrors.IsNotFound(err) {
				t.Errorf("a pod for an agent that cannot work: %v", err)
			}
			b.writes.n = 0
			b.pass()
			if b.writes.n != 0 {
				t.Errorf("%d writes while stalled", b.writes.n)
			}
			tc.mend(b)
			b.pass()
			b.condition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonStarting)
			if b.Agent.Status.ActiveWorkItem != b.Item.Name {
				t.Errorf("active %q", b.Agent.Status.ActiveWorkItem)
			}
		})
	}
}

// A smaller volume is refused by the API server; the agent says so and asks no more.
func TestRefusedChildStalls(t *testing.T) {
	b := newBench(t, nil)
	b.pass()
	v := b.objects()["PersistentVolumeClaim"].(*corev1.PersistentVolumeClaim)
	b.Status(v, func() {
		v.Status.Phase, v.Status.Capacity = corev1.ClaimBound, corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	})
	b.Update(b.Agent, func() {
		small := resource.MustParse("10Mi")
		b.Agent.Spec.Runtime = &v1alpha1.Runtime{Storage: &v1alpha1.Storage{Size: &small}}
	})
	b.pass()
	b.condition(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonChildRefused)
}

func TestSuspend(t *testing.T) {
	b := newBench(t, nil)
	b.pass()
	b.Update(b.Agent, func() { b.Agent.Spec.Suspend = true })
	b.pass()
	b.condition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonSuspended)
	if n := *b.set().Spec.Replicas; n != 0 {
		t.Errorf("%d replicas", n)
	}
	// What the pod would need is not asked for while there is none.
	b.Update(b.Agent, func() { b.Agent.Spec.People[0].Name = "nora" })
	b.pass()
	b.condition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonSuspended)
	b.Update(b.Agent, func() { b.Agent.Spec.Suspend, b.Agent.Spec.People[0].Name = false, "lucas" })
	b.pass()
	if n := *b.set().Spec.Replicas; n != 1 {
		t.Errorf("%d replicas", n)
	}
}

func TestConnected(t *testing.T) {
	b := newBench(t, nil)
	for _, tc := range []struct {
		reported v1alpha1.ConversationStatus
		status   metav1.ConditionStatus
		reason   string
	}{
		{v1alpha1.ConversationStatus{Connected: true, Reason: "Connected"}, metav1.ConditionTrue, v1alpha1.ReasonConnected},
		{v1alpha1.ConversationStatus{Reason: "RoomNotFound", Message: "no room #ops"}, metav1.ConditionFalse, v1alpha1.ReasonRoomNotFound},
		{v1alpha1.ConversationStatus{Reason: "LoginFailed"}, metav1.ConditionFalse, v1alpha1.ReasonLoginFailed},
		{v1alpha1.ConversationStatus{Reason: "HomeserverUnreachable"}, metav1.ConditionFalse, v1alpha1.ReasonHomeserverUnreachable},
		{v1alpha1.ConversationStatus{Reason: "RoomEncrypted"}, metav1.ConditionFalse, v1alpha1.ReasonRoomEncrypted},
		{v1alpha1.ConversationStatus{Reason: "RoomShared"}, metav1.ConditionFalse, v1alpha1.ReasonRoomShared},
	} {
		b.Status(b.Agent, func() { b.Agent.Status.Conversation = &tc.reported })
		b.pass()
		b.condition(v1alpha1.ConditionConnected, tc.status, tc.reason)
		if diff := cmp.Diff(&tc.reported, b.Agent.Status.Conversation); diff != "" {
			t.Errorf("the manager changed the gateway's part (-was +is):\n%s", diff)
		}
	}
}

// Case 19: a newer template waits until the work waits. The pod is deleted once, by its UID.
func TestUpdateAtASafePoint(t *testing.T) {
	b := newBench(t, nil)
	b.pass()
	b.updated()
	pod := b.outdated()

	b.pass()
	b.condition(v1alpha1.ConditionUpdatePending, metav1.ConditionTrue, v1alpha1.ReasonWorkInProgress)
	b.condition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonRunning)
	b.Read(pod)

	b.Status(b.Item, func() { b.Item.Status.State = v1alpha1.WorkItemAwaitingApproval })
	b.pass()
	if err := b.Admin.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); !apierrors.IsNotFound(err) {
		t.Errorf("the pod is still there: %v", err)
	}
	if c := meta.FindStatusCondition(b.Agent.Status.Conditions, v1alpha1.ConditionUpdatePending); c != nil {
		t.Errorf("still pending: %+v", c)
	}
	if diff := cmp.Diff([]string{"Updated"}, b.Told()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestActiveWorkItem(t *testing.T) {
	b := newBench(t, nil)
	second := controllertest.NewItem(b.Agent, "wi-2")
	b.Create(second)
	b.pass()
	if b.Agent.Status.ActiveWorkItem != "wi-1" {
		t.Errorf("active %q", b.Agent.Status.ActiveWorkItem)
	}
	b.Status(b.Item, func() { b.Item.Status.State = v1alpha1.WorkItemClosed })
	b.pass()
	if b.Agent.Status.ActiveWorkItem != "wi-2" {
		t.Errorf("active %q", b.Agent.Status.ActiveWorkItem)
	}
	if err := b.Admin.Delete(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	b.pass()
	if b.Agent.Status.ActiveWorkItem != "" {
		t.Errorf("active %q", b.Agent.Status.ActiveWorkItem)
	}
}

// Why a pod does not start is told where people look first.
func TestStuckPodIsExplained(t *testing.T) {
	b := newBench(t, nil)
	b.pass()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: "agent-ops-0", Labels: map[string]string{v1alpha1.LabelAgent: "ops"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "agentruntime", Image: "no-such"}}}}
	b.Create(pod)
	b.Status(pod, func() {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "agentruntime", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}}}
	})
	b.pass()
	if c := meta.FindStatusCondition(b.Agent.Status.Conditions, v1alpha1.ConditionReady); !strings.Contains(c.Message, "ErrImagePull") {
		t.Errorf("message %q", c.Message)
	}
}

// Case 28: the cache shows nothing of what was made. Five passes make each object once.
func TestLaggingCacheMakesEachObjectOnce(t *testing.T) {
	b := newBench(t, nil)
	b.r.Client = &blind{recorded: b.writes}
	for range 5 {
		b.pass()
	}
	if b.writes.n > 6 {
		t.Errorf("%d writes: five objects and one status are enough", b.writes.n)
	}
	b.objects()
	var sets appsv1.StatefulSetList
	if err := b.Admin.List(t.Context(), &sets, client.InNamespace(b.NS)); err != nil || len(sets.Items) != 1 {
		t.Errorf("%d StatefulSets (%v)", len(sets.Items), err)
	}
}

// blind is a cache that has none of the agent's objects yet.
type blind struct{ *recorded }

func (b *blind) Get(ctx context.Context, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if strings.Contains(k.Name, "agent-ops") {
		return apierrors.NewNotFound(corev1.Resource("any"), k.Name)
	}
	return b.recorded.Get(ctx, k, o, opts...)
}

// Logs tell an item's story under its correlation ID, which need not be its name.
func TestLogsBearTheCorrelationID(t *testing.T) {
	b := newBench(t, nil)
	b.Status(b.Item, func() { b.Item.Status.State = v1alpha1.WorkItemClosed })
	next := controllertest.NewItem(b.Agent, "wi-2")
	next.Spec.CorrelationID = "req-7"
	b.Create(next)
	b.pass()
	for _, event := range []string{"agent.activated", "child.applied"} {
		for line := range strings.Lines(b.LogTo.String()) {
			if strings.Contains(line, `"event":"`+event+`"`) && !strings.Contains(line, `"task_id":"req-7"`) {
				t.Errorf("log %s", line)
			}
		}
		if !strings.Contains(b.LogTo.String(), `"event":"`+event+`"`) {
			t.Errorf("%s is not in the log:\n%s", event, b.LogTo)
		}
	}
}
