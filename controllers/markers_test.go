package controllers_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"nisse.io/nisse/controllers"
	"nisse.io/nisse/test/apitest"
)

var marker = regexp.MustCompile(`(?m)^// \+kubebuilder:rbac:groups=(\S+?),resources=(\S+?),verbs=(\S+)$`)

// The manager's role in the agents' namespace gives what a controller claims beside its code, and nothing else.
func TestTheRoleIsWhatTheControllersClaim(t *testing.T) {
	claimed := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range marker.FindAllStringSubmatch(string(text), -1) {
			add(claimed, strings.Split(strings.Trim(m[1], `"`), ";"), strings.Split(m[2], ";"), strings.Split(m[3], ";"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	given := map[string]bool{}
	for _, r := range role(t, agentsNamespace, "nisse-manager").Rules {
		add(given, r.APIGroups, r.Resources, r.Verbs)
	}
	if len(given) == 0 {
		t.Fatal("the role gives nothing")
	}
	if diff := cmp.Diff(claimed, given); diff != "" {
		t.Errorf("rights (-claimed by markers +given by config/rbac/manager.yaml):\n%s", diff)
	}
}

// In its own namespace the manager has its Lease and, held by admission to names of that kind, what it keeps of devices' audits; and nothing else.
func TestLeaseAndAuditsAreAllInTheSystemNamespace(t *testing.T) {
	given := map[string]bool{}
	for _, r := range role(t, systemNamespace, "nisse-manager").Rules {
		add(given, r.APIGroups, r.Resources, r.Verbs)
		if !slices.Contains(r.Verbs, "create") && !slices.Equal(r.ResourceNames, []string{controllers.Lease}) {
			t.Errorf("%v on %v of any name", r.Verbs, r.Resources)
		}
	}
	want := map[string]bool{"create leases.coordination.k8s.io": true, "get leases.coordination.k8s.io": true, "update leases.coordination.k8s.io": true,
		"get configmaps.": true, "create configmaps.": true, "patch configmaps.": true}
	if diff := cmp.Diff(want, given); diff != "" {
		t.Errorf("rights (-want +given by config/rbac/manager.yaml):\n%s", diff)
	}
}

func add(all map[string]bool, groups, resources, verbs []string) {
	for _, g := range groups {
		for _, r := range resources {
			for _, v := range verbs {
				all[v+" "+r+"."+g] = true
			}
		}
	}
}

func role(t *testing.T, namespace, name string) rbacv1.Role {
	t.Helper()
	f, err := os.Open(apitest.Path("config", "rbac", "manager.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for d := yaml.NewYAMLOrJSONDecoder(f, 4096); ; {
		var r rbacv1.Role
		if err := d.Decode(&r); err != nil {
			t.Fatalf("no Role %s/%s in %s: %v", namespace, name, f.Name(), err)
		}
		if r.Kind == "Role" && r.Namespace == namespace && r.Name == name {
			return r
		}
	}
}
