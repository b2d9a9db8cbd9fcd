package apitest

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Namespace made for this test.
func Namespace(t testing.TB, admin client.Client) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := admin.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	return ns.Name
}

// Config with which username talks to the API server. It may do nothing until somebody grants it.
func Config(cfg *rest.Config, username string, groups ...string) *rest.Config {
	c := rest.CopyConfig(cfg)
	c.Impersonate = rest.ImpersonationConfig{UserName: username, Groups: append([]string{"system:authenticated"}, groups...)}
	return c
}

// As returns a client of username.
func As(t testing.TB, cfg *rest.Config, username string, groups ...string) client.Client {
	t.Helper()
	return Client(t, Config(cfg, username, groups...))
}

// ServiceAccount is the username of a ServiceAccount.
func ServiceAccount(namespace, name string) string {
	return "system:serviceaccount:" + namespace + ":" + name
}

// Grant lets username do what rules say in namespace.
func Grant(t testing.TB, admin client.Client, namespace, username string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: namespace, GenerateName: "grant-"}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: rules}
	if err := admin.Create(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{ObjectMeta: meta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: username}}}
	if err := admin.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
}

// Rule allows verbs on resources of Nisse's group; a resource may name its subresource (gates/status).
func Rule(resources, verbs string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{"nisse.io"}, Resources: strings.Fields(resources), Verbs: strings.Fields(verbs)}
}
