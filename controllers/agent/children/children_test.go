package children

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/doors"
)

var update = flag.Bool("update", false, "write the golden files")

var settings = Settings{Image: "registry.example/nisse-agent@sha256:abc", BrokerURL: "http://nisse-broker.nisse-system.svc:8080",
	GatewayURL: "http://nisse-gateway.nisse-system.svc:8080", SystemNamespace: "nisse-system"}

func i32(n int32) *int32 { return &n }

func quantity(s string) *resource.Quantity {
	q := resource.MustParse(s)
	return &q
}

// small is the least an Agent says, full the most.
func small() *v1alpha1.Agent {
	return &v1alpha1.Agent{ObjectMeta: metav1.ObjectMeta{Namespace: "nisse", Name: "ops", UID: types.UID("uid-1")}, Spec: v1alpha1.AgentSpec{
		Workflow: v1alpha1.WorkflowOperations,
		Models: v1alpha1.Models{Endpoint: v1alpha1.ModelEndpoint{URL: "http://192.0.2.7:4000/v1", Protocol: v1alpha1.ProtocolOpenAI},
			Roles: map[string]v1alpha1.ModelRole{"executor": {Model: "qwen3-32b"}}},
	}}
}

func full() *v1alpha1.Agent {
	a := small()
	a.Spec.Models.Endpoint = v1alpha1.ModelEndpoint{URL: "https://litellm.ai/v1", CIDR: "10.96.4.1/12", Protocol: v1alpha1.ProtocolOpenAI, Credentials: &v1alpha1.SecretKey{Name: "litellm-ops", Key: "key"}}
	a.Spec.Models.Roles["executor"] = v1alpha1.ModelRole{Model: "qwen3-32b", TemperatureMilli: i32(200), MaxTokens: i32(4096), TimeoutSeconds: i32(300)}
	a.Spec.Prompt = "Speak <plainly> & \"briefly\"."
	a.Spec.Limits = &v1alpha1.Limits{ToolCallsPerTurn: i32(40)}
	a.Spec.Runtime = &v1alpha1.Runtime{MemoryLimit: quantity("48Mi"), Storage: &v1alpha1.Storage{Size: quantity("5Gi"), ClassName: "fast"}}
	a.Spec.Egress = []v1alpha1.EgressRule{{To: "192.0.2.0/24", Ports: []int32{443, 8443}, Reason: "package mirror"}}
	a.Spec.Suspend = true
	return a
}

// An image behind a login is pulled with the installation's Secrets; saying nothing leaves the choice to the cluster.
func TestPull(t *testing.T) {
	for name, tc := range map[string]struct {
		policy  corev1.PullPolicy
		secrets []string
	}{
		"nothing said": {},
		"policy":       {policy: corev1.PullAlways},
		"two secrets":  {policy: corev1.PullIfNotPresent, secrets: []string{"registry", "mirror"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := settings
			s.PullPolicy, s.PullSecrets = tc.policy, tc.secrets
			config, err := ConfigMap(small(), s)
			if err != nil {
				t.Fatal(err)
			}
			pod := StatefulSet(small(), s, config).Spec.Template.Spec
			var secrets []string
			for _, ref := range pod.ImagePullSecrets {
				secrets = append(secrets, *ref.Name)
			}
			if diff := cmp.Diff(tc.secrets, secrets); diff != "" {
				t.Error(diff)
			}
			var policy corev1.PullPolicy
			if p := pod.Containers[0].ImagePullPolicy; p != nil {
				policy = *p
			}
			if policy != tc.policy {
				t.Errorf("pull policy %q, want %q", policy, tc.policy)
			}
		})
	}
}

// Everything an agent has, as people would read it.
func TestChildren(t *testing.T) {
	for name, a := range map[string]*v1alpha1.Agent{"small": small(), "full": full()} {
		t.Run(name, func(t *testing.T) {
			config, err := ConfigMap(a, settings)
			if err != nil {
				t.Fatal(err)
			}
			e, err := ModelEndpoint(a.Spec.Models.Endpoint)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			for _, c := range []any{ServiceAccount(a), config, NetworkPolicy(a, settings, e), PersistentVolumeClaim(a), StatefulSet(a, settings, config)} {
				y, err := yaml.Marshal(c)
				if err != nil {
					t.Fatal(err)
				}
				b.WriteString("---\n" + string(y))
			}
			path := filepath.Join("testdata", name+".yaml")
			if *update {
				if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), b.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestRuntimeConfig(t *testing.T) {
	for _, tc := range []struct {
		name  string
		agent *v1alpha1.Agent
		want  doors.RuntimeConfig
	}{
		{"small", small(), doors.RuntimeConfig{Agent: "ops", AgentUID: "uid-1", BrokerURL: settings.BrokerURL, GatewayURL: settings.GatewayURL,
			Model: doors.Model{URL: "http://192.0.2.7:4000/v1", Model: "qwen3-32b", TimeoutSeconds: 120}, ToolCallsPerTurn: 12}},
		{"full", full(), doors.RuntimeConfig{Agent: "ops", AgentUID: "uid-1", BrokerURL: settings.BrokerURL, GatewayURL: settings.GatewayURL, Prompt: "Speak <plainly> & \"briefly\".",
			Model: doors.Model{URL: "https://litellm.ai/v1", Model: "qwen3-32b", TemperatureMilli: i32(200), MaxTokens: i32(4096), TimeoutSeconds: 300}, ToolCallsPerTurn: 40}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			config, err := ConfigMap(tc.agent, settings)
			if err != nil {
				t.Fatal(err)
			}
			var got doors.RuntimeConfig
			if err := json.Unmarshal([]byte(config.Data[ConfigKey]), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Another configuration must make another pod template; the same must not.
func TestTemplateFollowsTheConfiguration(t *testing.T) {
	digest := func(a *v1alpha1.Agent) string {
		config, err := ConfigMap(a, settings)
		if err != nil {
			t.Fatal(err)
		}
		return StatefulSet(a, settings, config).Spec.Template.Annotations[AnnotationConfig]
	}
	base := digest(small())
	if digest(small()) != base {
		t.Error("the same Agent gives two templates")
	}
	other := small()
	other.Spec.Prompt = "Be brief."
	if digest(other) == base {
		t.Error("another prompt gives the same template")
	}
	people := small()
	people.Spec.People = []v1alpha1.AgentPerson{{Name: "lucas"}}
	if digest(people) != base {
		t.Error("people do not concern the pod, yet its template changed")
	}
}

func TestModelEndpoint(t *testing.T) {
	for _, tc := range []struct {
		name     string
		in       v1alpha1.ModelEndpoint
		want     string
		port     int32
		mustFail string
	}{
		{"address and port", v1alpha1.ModelEndpoint{URL: "http://192.0.2.7:4000/v1"}, "192.0.2.7/32", 4000, ""},
		{"http without port", v1alpha1.ModelEndpoint{URL: "http://192.0.2.7/v1"}, "192.0.2.7/32", 80, ""},
		{"https without port", v1alpha1.ModelEndpoint{URL: "https://192.0.2.7"}, "192.0.2.7/32", 443, ""},
		{"IPv6", v1alpha1.ModelEndpoint{URL: "http://[2001:db8::7]:4000/v1"}, "2001:db8::7/128", 4000, ""},
		{"name with range", v1alpha1.ModelEndpoint{URL: "http://litellm.ai:4000/v1", CIDR: "10.96.0.0/12"}, "10.96.0.0/12", 4000, ""},
		{"a range with host bits", v1alpha1.ModelEndpoint{URL: "http://litellm.ai:4000/v1", CIDR: "10.100.1.2/12"}, "10.96.0.0/12", 4000, ""},
		{"the range wins over the address", v1alpha1.ModelEndpoint{URL: "http://192.0.2.7:4000", CIDR: "192.0.2.0/24"}, "192.0.2.0/24", 4000, ""},
		{"name without range", v1alpha1.ModelEndpoint{URL: "http://litellm.ai:4000/v1"}, "", 0, "cidr is required"},
		{"not an address", v1alpha1.ModelEndpoint{URL: "http://999.1.1.1/v1"}, "", 0, "cidr is required"},
		{"bad range", v1alpha1.ModelEndpoint{URL: "http://litellm.ai", CIDR: "10.0.0.0/99"}, "", 0, "cidr"},
		{"other scheme", v1alpha1.ModelEndpoint{URL: "ftp://192.0.2.7"}, "", 0, "want http"},
		{"no host", v1alpha1.ModelEndpoint{URL: "http:///v1"}, "", 0, "a host"},
		{"port zero", v1alpha1.ModelEndpoint{URL: "http://192.0.2.7:0"}, "", 0, "port"},
		{"port too large", v1alpha1.ModelEndpoint{URL: "http://192.0.2.7:65536"}, "", 0, "port"},
		{"not a URL", v1alpha1.ModelEndpoint{URL: "http://192.0.2.7:x y"}, "", 0, "url"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := ModelEndpoint(tc.in)
			if tc.mustFail != "" {
				if err == nil || !strings.Contains(err.Error(), tc.mustFail) {
					t.Errorf("got %+v, %v; want an error with %q", got, err, tc.mustFail)
				}
				return
			}
			if err != nil || got.CIDR.String() != tc.want || got.Port != tc.port {
				t.Errorf("got %s:%d, %v; want %s:%d", got.CIDR, got.Port, err, tc.want, tc.port)
			}
		})
	}
}

// The walls, said once more in words of their own: whatever else changes in the golden files, these may not.
func TestWalls(t *testing.T) {
	for name, a := range map[string]*v1alpha1.Agent{"small": small(), "full": full()} {
		t.Run(name, func(t *testing.T) {
			config, err := ConfigMap(a, settings)
			if err != nil {
				t.Fatal(err)
			}
			set := StatefulSet(a, settings, config)
			p := set.Spec.Template.Spec
			c := p.Containers[0]
			for what, ok := range map[string]bool{
				"one container":                  len(p.Containers) == 1 && len(p.InitContainers) == 0,
				"no API token":                   !*p.AutomountServiceAccountToken && !*ServiceAccount(a).AutomountServiceAccountToken,
				"no service links":               !*p.EnableServiceLinks,
				"not root":                       *p.SecurityContext.RunAsNonRoot && *p.SecurityContext.RunAsUser == 65532,
				"seccomp":                        *p.SecurityContext.SeccompProfile.Type == "RuntimeDefault",
				"no escalation":                  !*c.SecurityContext.AllowPrivilegeEscalation && !*c.SecurityContext.Privileged,
				"read-only root":                 *c.SecurityContext.ReadOnlyRootFilesystem,
				"no capabilities":                len(c.SecurityContext.Capabilities.Drop) == 1 && c.SecurityContext.Capabilities.Drop[0] == "ALL" && len(c.SecurityContext.Capabilities.Add) == 0,
				"nothing of the host":            p.HostNetwork == nil && p.HostPID == nil && p.HostIPC == nil,
				"no environment from elsewhere":  len(c.Env) == 0 && len(c.EnvFrom) == 0,
				"at most one pod":                *set.Spec.Replicas <= 1,
				"updates wait for the manager":   *set.Spec.UpdateStrategy.Type == "OnDelete",
				"the volume outlives the agent":  len(PersistentVolumeClaim(a).OwnerReferences) == 0 && len(set.Spec.VolumeClaimTemplates) == 0,
				"the request is below the limit": c.Resources.Requests.Memory().Cmp(*c.Resources.Limits.Memory()) <= 0,
			} {
				if !ok {
					t.Errorf("missing: %s", what)
				}
			}
			for _, v := range p.Volumes {
				if v.HostPath != nil {
					t.Errorf("volume %s is of the host", *v.Name)
				}
				if v.Projected != nil {
					for _, s := range v.Projected.Sources {
						if s.ServiceAccountToken == nil || (*s.ServiceAccountToken.Audience != doors.AudienceBroker && *s.ServiceAccountToken.Audience != doors.AudienceGateway) {
							t.Errorf("a projected source that is no door's token: %+v", s)
						}
					}
				}
			}
			e, err := ModelEndpoint(a.Spec.Models.Endpoint)
			if err != nil {
				t.Fatal(err)
			}
			n := NetworkPolicy(a, settings, e)
			if len(n.Spec.Ingress) != 0 || len(n.Spec.PolicyTypes) != 2 {
				t.Errorf("something may come in: %+v", n.Spec)
			}
			if want := 4 + len(a.Spec.Egress); len(n.Spec.Egress) != want {
				t.Errorf("%d ways out, want %d", len(n.Spec.Egress), want)
			}
			for _, rule := range n.Spec.Egress {
				if len(rule.To) != 1 || len(rule.Ports) == 0 {
					t.Errorf("an open rule: %+v", rule)
				}
			}
		})
	}
}
