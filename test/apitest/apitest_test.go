package apitest_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/test/apitest"
)

func TestMain(m *testing.M) { apitest.Main(m) }

func TestUserMayDoWhatIsGrantedAlone(t *testing.T) {
	cfg, admin := apitest.Start(t)
	ns := apitest.Namespace(t, admin)
	person := &v1alpha1.Person{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "lucas"},
		Spec: v1alpha1.PersonSpec{Identities: v1alpha1.Identities{Matrix: "@lucas:example.org"}}}
	if err := admin.Create(t.Context(), person); err != nil {
		t.Fatal(err)
	}
	lucas := apitest.As(t, cfg, "lucas")
	if err := lucas.Get(t.Context(), client.ObjectKeyFromObject(person), person); !apierrors.IsForbidden(err) {
		t.Fatalf("read without a grant: %v", err)
	}
	apitest.Grant(t, admin, ns, "lucas", apitest.Rule("people", "get"))
	apitest.Wait(t, time.Minute, func(ctx context.Context) error {
		return lucas.Get(ctx, client.ObjectKeyFromObject(person), person)
	})
	if err := lucas.Delete(t.Context(), person); !apierrors.IsForbidden(err) {
		t.Fatalf("delete without a grant: %v", err)
	}
}

func TestInstallReadsEveryDocument(t *testing.T) {
	_, admin := apitest.Start(t)
	ns := apitest.Namespace(t, admin)
	dir := t.TempDir()
	doc := func(name string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + ", namespace: " + ns + "}\n"
	}
	for file, text := range map[string]string{"a.yaml": doc("one") + "---\n" + doc("two"), "b.yaml": doc("three")} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	apitest.Install(t, admin, dir)
	var list corev1.ConfigMapList
	if err := admin.List(t.Context(), &list, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 3 {
		t.Errorf("%d ConfigMaps, want 3", len(list.Items))
	}
}
