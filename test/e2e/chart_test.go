package e2e

import (
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"nisse.io/nisse/test/apitest"
)

// valid is the least that a chart needs to be told.
var valid = []string{"--set", "matrix.homeserverURL=https://matrix.example.org", "--set", "matrix.approvalsUser=@gates:example.org"}

func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "helm", args...).CombinedOutput()
	return string(out), err
}

func TestChartLints(t *testing.T) {
	if out, err := helm(t, append([]string{"lint", "--strict", apitest.Path("charts", "nisse")}, valid...)...); err != nil {
		t.Error(out)
	}
}

// Names that YAML would read as something else, or that are as long or short as Helm allows.
func TestChartRendersUnderAwkwardNames(t *testing.T) {
	for _, release := range []string{"nisse", "n", "y", "no", "null", "true", "1e3", "0x1f", "1-2-3", "a.b", strings.Repeat("x", 53)} {
		t.Run(release, func(t *testing.T) {
			out, err := helm(t, append([]string{"template", release, apitest.Path("charts", "nisse"), "--namespace", "on"}, valid...)...)
			if err != nil {
				t.Fatal(out)
			}
			kinds := map[string]int{}
			for _, o := range objects(t, out) {
				kinds[o.GetKind()]++
				// Everything refers to itself by strings, and to nothing outside of the release's and the agents' namespaces.
				if ns := o.GetNamespace(); ns != "" && ns != "on" && ns != "nisse" {
					t.Errorf("%s %s is in namespace %q", o.GetKind(), o.GetName(), ns)
				}
				if err := labelsAreStrings(o); err != nil {
					t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
				}
			}
			if kinds["CustomResourceDefinition"] != 9 || kinds["Deployment"] != 2 || kinds["StatefulSet"] != 1 || kinds["ValidatingAdmissionPolicy"] == 0 {
				t.Errorf("rendered %v", kinds)
			}
		})
	}
}

func labelsAreStrings(o unstructured.Unstructured) error {
	for _, path := range [][]string{{"metadata", "labels"}, {"spec", "selector", "matchLabels"}, {"spec", "template", "metadata", "labels"}} {
		if _, _, err := unstructured.NestedStringMap(o.Object, path...); err != nil {
			return err
		}
	}
	return nil
}

// The keep annotation is what stands between an uninstall and every object of every person.
func TestChartKeepsKindsUnlessToldOtherwise(t *testing.T) {
	const keep = "helm.sh/resource-policy"
	for name, test := range map[string]struct {
		set  string
		want map[string]int
	}{
		"by default":       {"crds.keep=true", map[string]int{"keep": 9}},
		"not kept":         {"crds.keep=false", map[string]int{"": 9}},
		"not installed":    {"crds.install=false", map[string]int{}},
		"of another chart": {"agents.namespace=others", map[string]int{"keep": 9}},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := helm(t, append([]string{"template", "nisse", apitest.Path("charts", "nisse"), "--namespace", "nisse-system", "--set", test.set}, valid...)...)
			if err != nil {
				t.Fatal(out)
			}
			got := map[string]int{}
			for _, o := range objects(t, out) {
				if o.GetKind() == "CustomResourceDefinition" {
					got[o.GetAnnotations()[keep]]++
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("annotations of the CRDs (-want +got):\n%s", diff)
			}
		})
	}
}

// A value that changes nothing would be a promise that is not kept.
func TestChartValuesHaveEffect(t *testing.T) {
	for name, test := range map[string]struct {
		set  string
		kind string
		says string
	}{
		"the agents' pull policy":    {"agentImage.pullPolicy=Always", "Deployment", "--agent-image-pull-policy=Always"},
		"a pull secret":              {"imagePullSecrets[0].name=reg", "StatefulSet", `"imagePullSecrets":[{"name":"reg"}]`},
		"the agents' pull secret":    {"imagePullSecrets[1].name=mirror,imagePullSecrets[0].name=reg", "Deployment", `"--agent-image-pull-secret=reg","--agent-image-pull-secret=mirror"`},
		"the homeserver's name":      {"matrix.serverName=example.net", "StatefulSet", "--server-name=example.net"},
		"where the manager runs":     {"manager.nodeSelector.disk=fast", "Deployment", `"nodeSelector":{"disk":"fast"}`},
		"where the keys are made":    {"manager.nodeSelector.disk=fast", "Job", `"nodeSelector":{"disk":"fast"}`},
		"what the gateway tolerates": {"gateway.tolerations[0].operator=Exists", "StatefulSet", `"tolerations":[{"operator":"Exists"}]`},
		"what the broker is beside":  {"broker.affinity.podAffinity.x=y", "Deployment", `"affinity":{"podAffinity":{"x":"y"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := helm(t, append([]string{"template", "nisse", apitest.Path("charts", "nisse"), "--namespace", "nisse-system", "--set", test.set}, valid...)...)
			if err != nil {
				t.Fatal(out)
			}
			for _, o := range objects(t, out) {
				b, err := o.MarshalJSON()
				if err != nil {
					t.Fatal(err)
				}
				if o.GetKind() == test.kind && strings.Contains(string(b), test.says) {
					return
				}
			}
			t.Errorf("no %s has %s", test.kind, test.says)
		})
	}
}

// What cannot work is refused before anything is installed, in words that name the value.
func TestChartRefusesWrongValues(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		says string
	}{
		"no homeserver":           {[]string{"--set", "matrix.approvalsUser=@gates:example.org"}, "homeserverURL"},
		"no approvals account":    {[]string{"--set", "matrix.homeserverURL=https://matrix.example.org"}, "approvalsUser"},
		"a homeserver without //": {append(valid, "--set", "matrix.homeserverURL=matrix.example.org"), "homeserverURL"},
		"an account without :":    {append(valid, "--set", "matrix.approvalsUser=gates"), "approvalsUser"},
		"a misspelled value":      {append(valid, "--set", "matrix.homeserver=x"), "homeserver"},
		"a level nobody knows":    {append(valid, "--set", "broker.logLevel=loud"), "logLevel"},
		"no replicas":             {append(valid, "--set", "manager.replicas=0"), "replicas"},
		"half a digest":           {append(valid, "--set", "image.digest=sha256:abc"), "digest"},
		"agents beside the keys":  {append(valid, "--set", "agents.namespace=nisse-system"), "keys live there"},
		"a policy nobody knows":   {append(valid, "--set", "agentImage.pullPolicy=Sometimes"), "pullPolicy"},
		"tolerations of no list":  {append(valid, "--set", "broker.tolerations=all"), "tolerations"},
		"a pull secret with more": {append(valid, "--set", "imagePullSecrets[0].name=reg,imagePullSecrets[0].namespace=other"), "namespace"},
		"a namespace of capitals": {append(valid, "--set", "agents.namespace=Agents"), "namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := helm(t, append([]string{"template", "nisse", apitest.Path("charts", "nisse"), "--namespace", "nisse-system"}, test.args...)...)
			if err == nil {
				t.Fatal("it was accepted")
			}
			if !strings.Contains(out, test.says) {
				t.Errorf("the refusal does not say %q:\n%s", test.says, out)
			}
		})
	}
}

func objects(t *testing.T, text string) []unstructured.Unstructured {
	t.Helper()
	var all []unstructured.Unstructured
	d := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		var o unstructured.Unstructured
		if err := d.Decode(&o.Object); err != nil {
			if errors.Is(err, io.EOF) {
				return all
			}
			t.Fatalf("the chart renders what is no YAML: %v", err)
		}
		if len(o.Object) != 0 {
			all = append(all, o)
		}
	}
}
