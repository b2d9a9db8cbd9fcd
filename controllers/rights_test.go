package controllers_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/test/apitest"
)

// What a stolen manager could try. Its role and the admission policies are those that are installed.
func TestRightsOfTheManager(t *testing.T) {
	h := newHouse(t)
	cfg, admin := apitest.Start(t)
	manager := apitest.As(t, cfg, apitest.ServiceAccount(systemNamespace, "nisse-manager"))
	a := h.agent(nil)
	w := h.state(h.item(a), v1alpha1.WorkItemWorking)
	p := h.plan(a, w, 1, report)
	g := h.gate(p.Name, "")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: agentsNamespace, Name: "model-" + a.Name}, StringData: map[string]string{"token": "t"}}
	keys := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: "keys-" + a.Name}, StringData: map[string]string{"key.pem": "k"}}
	for _, s := range []*corev1.Secret{secret, keys} {
		if err := admin.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	meta := func(ns string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, GenerateName: "x-"} }
	container := []corev1.Container{{Name: "c", Image: "i"}}
	merge := func(o client.Object, patch string) error {
		return manager.Patch(t.Context(), o.DeepCopyObject().(client.Object), client.RawPatch("application/merge-patch+json", []byte(patch)))
	}
	for _, tc := range []struct {
		name string
		try  func() error
		may  bool
	}{
		{"read a Secret that an Agent names", func() error { return manager.Get(t.Context(), client.ObjectKeyFromObject(secret), &corev1.Secret{}) }, true},
		{"list Secrets", func() error {
			return manager.List(t.Context(), &corev1.SecretList{}, client.InNamespace(agentsNamespace))
		}, false},
		{"read keys of the system", func() error { return manager.Get(t.Context(), client.ObjectKeyFromObject(keys), &corev1.Secret{}) }, false},
		{"write a Secret", func() error { return merge(secret, `{"stringData":{"token":"u"}}`) }, false},
		{"make a pod", func() error {
			return manager.Create(t.Context(), &corev1.Pod{ObjectMeta: meta(agentsNamespace), Spec: corev1.PodSpec{Containers: container}})
		}, false},
		{"make a pod beside the keys", func() error {
			return manager.Create(t.Context(), &corev1.Pod{ObjectMeta: meta(systemNamespace), Spec: corev1.PodSpec{Containers: container}})
		}, false},
		{"make a workload beside the keys", func() error {
			labels := map[string]string{"a": "b"}
			return manager.Create(t.Context(), &appsv1.StatefulSet{ObjectMeta: meta(systemNamespace), Spec: appsv1.StatefulSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: container}}}})
		}, false},
		{"give itself rights", func() error {
			return manager.Create(t.Context(), &rbacv1.Role{ObjectMeta: meta(agentsNamespace), Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"create"}}}})
		}, false},
		{"read another namespace", func() error { return manager.List(t.Context(), &v1alpha1.AgentList{}, client.InNamespace("default")) }, false},
		{"approve as a person", func() error {
			return manager.Create(t.Context(), &v1alpha1.Approval{ObjectMeta: meta(agentsNamespace), Spec: v1alpha1.ApprovalSpec{Gate: v1alpha1.GateRef{Name: g.Name, UID: string(g.UID)},
				Digest: g.Spec.Digest, Decision: v1alpha1.DecisionApprove, Approver: "lucas", Channel: v1alpha1.Channel{Kind: v1alpha1.ChannelKubernetes}}})
		}, false},
		{"approve as itself", func() error {
			return manager.Create(t.Context(), &v1alpha1.Approval{ObjectMeta: meta(agentsNamespace), Spec: v1alpha1.ApprovalSpec{Gate: v1alpha1.GateRef{Name: g.Name, UID: string(g.UID)},
				Digest: g.Spec.Digest, Decision: v1alpha1.DecisionApprove, Approver: apitest.ServiceAccount(systemNamespace, "nisse-manager"), Channel: v1alpha1.Channel{Kind: v1alpha1.ChannelKubernetes}}})
		}, false},
		{"submit a plan", func() error { return manager.Create(t.Context(), newPlan(a, w, 2, report)) }, false},
		{"change an Agent", func() error { return merge(a, `{"spec":{"prompt":"obey me"}}`) }, false},
		{"change a work item", func() error { return merge(w, `{"spec":{"close":true}}`) }, false},
		{"change a gate", func() error { return merge(g, `{"spec":{"required":8}}`) }, false},
		{"delete a gate", func() error { return manager.Delete(t.Context(), g.DeepCopy()) }, false},
		{"delete a Person", func() error {
			return manager.Delete(t.Context(), &v1alpha1.Person{ObjectMeta: metav1.ObjectMeta{Namespace: agentsNamespace, Name: "lucas"}})
		}, false},
		{"make a device's job", func() error {
			return manager.Create(t.Context(), &v1alpha1.DeviceJob{ObjectMeta: meta(agentsNamespace)})
		}, false},
		{"keep what it has of an audit", func() error {
			return manager.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: "audit." + a.Name + ".web1"}})
		}, true},
		{"write another ConfigMap beside the keys", func() error {
			return manager.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: meta(systemNamespace)})
		}, false},
		{"take away what is kept of an audit", func() error {
			return manager.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: "audit." + a.Name + ".web1"}})
		}, false},
		{"report in the broker's name", func() error {
			return manager.Status().Patch(t.Context(), w.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"status":{"runtime":{"question":{"id":"q","text":"?"}}}}`)))
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := tc.try()
			switch {
			case tc.may && err != nil:
				t.Error(err)
			case !tc.may && !apierrors.IsForbidden(err):
				t.Errorf("got %v, want it forbidden", err)
			}
		})
	}
	// Nothing of it left a trace.
	if now := h.gate(g.Name, ""); now.Spec.Required != 1 || !strings.HasPrefix(now.Spec.Digest, "sha256:") {
		t.Errorf("gate %+v", now.Spec)
	}
}

func TestManagerNeedsANamespace(t *testing.T) {
	cfg, _ := apitest.Start(t)
	if _, err := newManager(t, cfg, nil); err == nil || !strings.Contains(err.Error(), "no namespace") {
		t.Errorf("got %v", err)
	}
}
