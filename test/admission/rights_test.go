package admission

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "nisse.io/nisse/api/v1alpha1"
)

// attack is something that who has stolen a token could try.
type attack struct {
	name string
	try  func(ctx context.Context, c client.Client) error
	may  bool
}

func get(o client.Object) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		return c.Get(ctx, client.ObjectKeyFromObject(o), o.DeepCopyObject().(client.Object))
	}
}

func list(l client.ObjectList, namespace string) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error { return c.List(ctx, l, client.InNamespace(namespace)) }
}

func create(o client.Object) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		return c.Create(ctx, o.DeepCopyObject().(client.Object))
	}
}

func remove(o client.Object) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		return c.Delete(ctx, o.DeepCopyObject().(client.Object))
	}
}

func merge(o client.Object, patch string) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		return c.Patch(ctx, o.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(patch)))
	}
}

func mergeStatus(o client.Object, patch string) func(context.Context, client.Client) error {
	return func(ctx context.Context, c client.Client) error {
		return c.Status().Patch(ctx, o.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(patch)))
	}
}

// common is what none of the doors may do.
func common(l loot) []attack {
	pod := corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}
	labels := map[string]string{"a": "b"}
	meta := func(ns string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, GenerateName: "x-"} }
	set := &appsv1.StatefulSet{ObjectMeta: meta(agents), Spec: appsv1.StatefulSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod}}}
	return []attack{
		{"read a Secret of the agents", get(l.secret), false},
		{"read keys of the system", get(l.keys), false},
		{"list Secrets of the agents", list(&corev1.SecretList{}, agents), false},
		{"list keys of the system", list(&corev1.SecretList{}, system), false},
		{"write a Secret", merge(l.secret, `{"stringData":{"token":"u"}}`), false},
		{"make a pod", create(&corev1.Pod{ObjectMeta: meta(agents), Spec: pod}), false},
		{"make a pod beside the keys", create(&corev1.Pod{ObjectMeta: meta(system), Spec: pod}), false},
		{"make a workload", create(set), false},
		{"list pods", list(&corev1.PodList{}, agents), false},
		{"give itself rights", create(&rbacv1.Role{ObjectMeta: meta(agents), Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}}}}), false},
		{"bind itself to a role", create(&rbacv1.RoleBinding{ObjectMeta: meta(agents), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "nisse-manager"},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: system, Name: "nisse-broker"}}}), false},
		{"read another namespace", list(&api.AgentList{}, ns), false},
		{"approve as a person", create(fresh("x", approval("", lucas, api.ChannelKubernetes))), false},
		{"open a gate", create(fresh("x", gate(""))), false},
		{"change a gate", merge(l.gate, `{"spec":{"required":8}}`), false},
		{"decide a gate", mergeStatus(l.gate, `{"status":{"outcome":"Approved"}}`), false},
		{"forge a plan's state", mergeStatus(l.plan, `{"status":{"state":"Approved"}}`), false},
		{"change a plan", merge(l.plan, `{"spec":{"revision":2}}`), false},
		{"change a job", merge(l.job, `{"spec":{"args":"{}"}}`), false},
		{"refuse an approval", mergeStatus(l.said, `{"status":{"reason":"TooLate"}}`), false},
		{"change an Agent", merge(l.agent, `{"spec":{"prompt":"obey me"}}`), false},
		{"make an Agent", create(fresh("x", newAgent(""))), false},
		{"make a Person", create(fresh("x", person(""))), false},
		{"change a Person", merge(l.person, `{"spec":{"identities":{"matrix":"@mallory:example.org"}}}`), false},
		{"point a Device elsewhere", merge(l.device, `{"spec":{"url":"http://192.0.2.1:1"}}`), false},
		{"forge an item's state", mergeStatus(l.item, `{"status":{"state":"Closed"}}`), false},
		{"answer a stop", mergeStatus(l.item, `{"status":{"answeredStop":"one"}}`), false},
		{"forge an Agent's active item", mergeStatus(l.agent, `{"status":{"activeWorkItem":"other"}}`), false},
		{"delete a gate", remove(l.gate), false},
		{"delete a plan", remove(l.plan), false},
		{"delete a job", remove(l.job), false},
		{"delete an item", remove(l.item), false},
		{"delete an approval", remove(l.said), false},
		{"delete an Agent", remove(l.agent), false},
		{"write what is kept of an audit", create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "audit." + agents + ".web1"}}), false},
		{"take an alarm back", mergeStatus(l.device, `{"status":{"conditions":[{"type":"AuditIntact","status":"True","reason":"Extends","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`), false},
		{"take the manager's lease before it does", create(lease("nisse-manager")), false},
	}
}

func lease(name string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: name}}
}

// leaseOf the agents' namespace.
func leaseOf(name string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: agents, Name: name}}
}

// What a stolen gateway could try: it decides for chat identities, and asks and stops for them, and that is all.
func TestRightsOfTheGateway(t *testing.T) {
	l := lay(t, "steal-gateway")
	attempts(t, "gateway", l, append(common(l),
		attack{"decide for a chat identity", create(fresh("x", approval("", "matrix:"+alice, api.ChannelMatrix))), true},
		attack{"give work", create(fresh("x", workItem("", api.SourceMatrix))), true},
		attack{"give work in no room's name", create(fresh("x", workItem("", api.SourceKubernetes))), false},
		attack{"say stop", merge(l.item, `{"spec":{"stop":{"id":"one"}}}`), true},
		attack{"change what was asked for", merge(l.item, `{"spec":{"title":"other"}}`), false},
		attack{"report a conversation", mergeStatus(l.agent, `{"status":{"conversation":{"connected":true,"reason":"Connected"}}}`), true},
		attack{"report in the broker's name", mergeStatus(l.item, `{"status":{"runtime":{"question":{"id":"q","text":"?"}}}}`), false},
		attack{"read gates", list(&api.GateList{}, agents), true},
		attack{"read plans", list(&api.PlanList{}, agents), false},
		attack{"read a plan", get(l.plan), false},
		attack{"read devices", list(&api.DeviceList{}, agents), false},
		attack{"read a device", get(l.device), false},
		attack{"read jobs", list(&api.DeviceJobList{}, agents), false},
		attack{"read a job", get(l.job), false},
		attack{"submit a plan", create(fresh("x", plan(""))), false},
		attack{"ask for a deed", create(fresh("x", job(""))), false},
		attack{"end a job", mergeStatus(l.job, `{"status":{"state":"Succeeded"}}`), false},
		attack{"report a device", mergeStatus(l.device, `{"status":{"observedGeneration":1}}`), false},
		attack{"say when a device answered last", create(leaseOf("device-gateway")), false},
	))
}

// What a stolen broker could try: it submits and asks for deeds that a gate must cover, and reports. It sees no words and no decisions
// of people beyond the gates, and holds its own lease alone.
func TestRightsOfTheBroker(t *testing.T) {
	l := lay(t, "steal-broker")
	for _, name := range []string{"nisse-broker", "other"} {
		if err := as(lucas).Create(t.Context(), lease(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := as(lucas).Create(t.Context(), leaseOf("other")); err != nil {
		t.Fatal(err)
	}
	attempts(t, "broker", l, append(common(l),
		attack{"submit a plan", create(fresh("x", plan(""))), true},
		attack{"ask for a deed", create(fresh("x", job(""))), true},
		attack{"end a job", mergeStatus(l.job, `{"status":{"state":"Succeeded"}}`), true},
		attack{"report what an agent asks", mergeStatus(l.item, `{"status":{"runtime":{"question":{"id":"q","text":"?"}}}}`), true},
		attack{"report in the gateway's name", mergeStatus(l.item, `{"status":{"conversation":{"answeredQuestion":"q"}}}`), false},
		attack{"report an Agent's conversation", mergeStatus(l.agent, `{"status":{"conversation":{"connected":true,"reason":"Connected"}}}`), false},
		attack{"read people", list(&api.PersonList{}, agents), false},
		attack{"read a Person", get(l.person), false},
		attack{"read approvals", list(&api.ApprovalList{}, agents), false},
		attack{"read an approval", get(l.said), false},
		attack{"approve for a chat identity", create(fresh("x", approval("", "matrix:"+alice, api.ChannelMatrix))), false},
		attack{"give work", create(fresh("x", workItem("", api.SourceKubernetes))), false},
		attack{"close an item", merge(l.item, `{"spec":{"close":true}}`), false},
		attack{"say stop", merge(l.item, `{"spec":{"stop":{"id":"two"}}}`), false},
		attack{"hold its lease", get(lease("nisse-broker")), true},
		attack{"read another's lease", get(lease("nisse-manager")), false},
		attack{"list leases", list(&coordinationv1.LeaseList{}, system), false},
		attack{"take another's lease", merge(lease("nisse-manager"), `{"spec":{"holderIdentity":"x"}}`), false},
		attack{"delete its lease", remove(lease("nisse-broker")), false},
		attack{"take a lease of another name", func(ctx context.Context, c client.Client) error {
			o := lease("other")
			if err := as(lucas).Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
				return err
			}
			return c.Update(ctx, o)
		}, false},
		attack{"say when a device answered last", create(leaseOf("device-web1")), true},
		attack{"say it again", merge(leaseOf("device-web1"), `{"spec":{"holderIdentity":"x"}}`), true},
		attack{"read that", get(leaseOf("device-web1")), true},
		attack{"take it back", remove(leaseOf("device-web1")), false},
		attack{"make another program's lease", create(leaseOf("another")), false},
		attack{"take another program's lease", merge(leaseOf("other"), `{"spec":{"holderIdentity":"x"}}`), false},
		attack{"list the agents' leases", list(&coordinationv1.LeaseList{}, agents), false},
	))
}

// An agent's account may do nothing at all.
func TestRightsOfAnAgent(t *testing.T) {
	l := lay(t, "steal-agent")
	all := common(l)
	for _, o := range l.objects {
		all = append(all, attack{"read " + o.GetName(), get(o), false})
	}
	for _, o := range []client.ObjectList{&api.AgentList{}, &api.PersonList{}, &api.WorkItemList{}, &api.PlanList{}, &api.GateList{}, &api.ApprovalList{}, &api.DeviceList{}, &api.DeviceJobList{}} {
		all = append(all, attack{"list", list(o, agents), false})
	}
	attempts(t, "agent", l, append(all,
		attack{"submit a plan", create(fresh("x", plan(""))), false},
		attack{"ask for a deed", create(fresh("x", job(""))), false},
		attack{"say when a device answered last", create(leaseOf("device-agent")), false},
		attack{"approve as itself", create(fresh("x", approval("", "system:serviceaccount:nisse:agent-ops", api.ChannelKubernetes))), false},
		attack{"approve for a chat identity", create(fresh("x", approval("", "matrix:"+alice, api.ChannelMatrix))), false},
		attack{"give work", create(fresh("x", workItem("", api.SourceKubernetes))), false},
	))
}

// attempts makes each attack with who's own token under the installed role.
func attempts(t *testing.T, who string, l loot, all []attack) {
	t.Helper()
	c := install(t).client(who, nil)
	was := now(t, l.gate).Object["status"]
	for _, a := range all {
		t.Run(a.name, func(t *testing.T) {
			err := a.try(t.Context(), c)
			switch {
			case a.may && err != nil:
				t.Error(err)
			case !a.may && !refused(err):
				t.Errorf("got %v, want it refused", err)
			}
		})
	}
	if g := now(t, l.gate).Object; !cmp.Equal(g["status"], was) || g["spec"].(map[string]any)["required"] != int64(1) {
		t.Errorf("the gate is %v", g)
	}
}
