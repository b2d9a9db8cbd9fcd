// Package admission attacks the admission policies on a real API server: every actor has every right that RBAC can give, so what
// is refused here is refused by the policies and the kinds alone. What the installed roles refuse beside them is attacked with real
// tokens.
package admission

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/config/admission"
	"nisse.io/nisse/test/apitest"
)

const (
	ns      = "default"
	manager = "system:serviceaccount:nisse-system:nisse-manager"
	broker  = "system:serviceaccount:nisse-system:nisse-broker"
	gateway = "system:serviceaccount:nisse-system:nisse-gateway"
	agent   = "system:serviceaccount:default:agent-ops"
	lucas   = "lucas@example.org"
	mallory = "mallory@example.org"
	digest  = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
	alice   = "@alice:example.org"
)

// actors of every attack on an object that exists.
var actors = []string{manager, broker, gateway, agent, lucas, mallory}

var (
	base *rest.Config
	sch  = runtime.NewScheme()
)

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	if err := api.AddToScheme(sch); err != nil {
		panic(err)
	}
	if err := scheme.AddToScheme(sch); err != nil {
		panic(err)
	}
	env := &envtest.Environment{Scheme: sch, CRDDirectoryPaths: []string{"../../config/crd/bases"}, ErrorIfCRDPathMissing: true}
	cfg, err := apitest.Boot(env)
	if err != nil {
		fmt.Fprintln(os.Stderr, "API server did not start; run `make test`, which provides it:", err)
		os.Exit(1)
	}
	base = cfg
	code := 1
	if err := installPolicies(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	if err := env.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

func installPolicies() error {
	ctx, c := context.Background(), must(client.New(base, client.Options{Scheme: sch}))
	d := yaml.NewYAMLOrJSONDecoder(strings.NewReader(string(admission.YAML)), 4096)
	for {
		var u unstructured.Unstructured
		if err := d.Decode(&u.Object); err != nil {
			break
		}
		if err := c.Create(ctx, &u); err != nil {
			return fmt.Errorf("install %s: %w", u.GetName(), err)
		}
	}
	// Policies act a moment after they are created: wait until each is seen to act.
	probes := []func() error{
		func() error { return dry(ctx, as(mallory), gate("probe")) },
		func() error { return dry(ctx, as(mallory), approval("probe", lucas, api.ChannelKubernetes)) },
		func() error { return dry(ctx, as(gateway), workItem("probe", api.SourceKubernetes)) },
		func() error {
			return dry(ctx, as(broker), &coordinationv1.Lease{ObjectMeta: meta("probe")})
		},
		func() error {
			return dry(ctx, as(mallory), workItem("wi-"+strings.Repeat("0", 26), api.SourceKubernetes))
		},
	}
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		for _, p := range probes {
			if p() == nil {
				return false, nil
			}
		}
		return true, nil
	})
}

func dry(ctx context.Context, c client.Client, o client.Object) error {
	return c.Create(ctx, o, client.DryRunAll)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

var clients = map[string]client.Client{}

// as returns a client that the API server authenticates as user, with every right.
func as(user string) client.Client {
	if clients[user] == nil {
		cfg := rest.CopyConfig(base)
		cfg.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters", "system:authenticated"}}
		clients[user] = must(client.New(cfg, client.Options{Scheme: sch}))
	}
	return clients[user]
}

func meta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }

func workItem(name string, kind api.SourceKind) *api.WorkItem {
	w := &api.WorkItem{ObjectMeta: meta(name), Spec: api.WorkItemSpec{Agent: "ops", Title: "t", Request: "r", Source: api.Source{Kind: kind}}}
	if kind == api.SourceMatrix {
		w.Spec.Source.Matrix = &api.MatrixEvent{Room: "!r:x", EventID: "$e", Sender: alice}
	}
	return w
}

func plan(name string) *api.Plan {
	return &api.Plan{ObjectMeta: meta(name), Spec: api.PlanSpec{Agent: "ops", AgentUID: "a", WorkItem: api.ObjectRef{Name: "w", UID: "w"}, Revision: 1, CallID: "c",
		ToolSchemaDigest: digest, Steps: []api.PlanStep{{Device: "d", Capability: "fs.write", Args: "{}", ManifestDigest: digest}}}}
}

func gate(name string) *api.Gate {
	return &api.Gate{ObjectMeta: meta(name), Spec: api.GateSpec{Agent: "ops", WorkItem: api.ObjectRef{Name: "w", UID: "w"}, Kind: api.GatePlan, Revision: 1,
		Subject: api.GateSubject{Kind: api.SubjectPlan, Name: "p", UID: "p"}, Rule: "r", Digest: digest, Tier: api.TierStandard, Title: "t", Message: "m",
		Required: 1, Approvers: []string{"lucas"}, ExpiresAt: metav1.NewTime(time.Now().Add(time.Hour)), WindowSeconds: 60}}
}

func job(name string) *api.DeviceJob {
	return &api.DeviceJob{ObjectMeta: meta(name), Spec: api.DeviceJobSpec{Agent: "ops", AgentUID: "a", WorkItem: api.ObjectRef{Name: "w", UID: "w"}, Device: "d",
		ManifestDigest: digest, Capability: "fs.write", Args: "{}", Deed: digest[7:], Gate: api.GateRef{Name: "g", UID: "g"}, Step: 1, Attempt: 1,
		ExpiresAt: metav1.NewTime(time.Now().Add(time.Hour))}}
}

func approval(name, approver string, kind api.ChannelKind) *api.Approval {
	a := &api.Approval{ObjectMeta: meta(name), Spec: api.ApprovalSpec{Gate: api.GateRef{Name: "g", UID: "g"}, Digest: digest, Decision: api.DecisionApprove,
		Approver: approver, Channel: api.Channel{Kind: kind}}}
	if kind == api.ChannelMatrix {
		a.Spec.Channel.Evidence = api.EvidenceTyped
		a.Spec.Channel.Matrix = &api.MatrixEvent{Room: "!r:x", EventID: "$e", Sender: alice}
	}
	return a
}

func device(name string) *api.Device {
	return &api.Device{ObjectMeta: meta(name), Spec: api.DeviceSpec{URL: "http://127.0.0.1:1", PublicKey: strings.Repeat("A", 43) + "=", RootKey: strings.Repeat("A", 43) + "="}}
}

// deviceManifest of a device of that name.
func deviceManifest(device string) *api.DeviceManifest {
	key := []string{strings.Repeat("A", 43) + "="}
	return &api.DeviceManifest{ObjectMeta: meta(device + "-user"), Spec: api.DeviceManifestSpec{Device: device, Privilege: api.PrivilegeUser, ExpiresAt: "2027-01-01T00:00:00Z",
		Keys: api.ManifestKeys{Request: key, Approval: key}, Limits: api.ManifestLimits{WriteBytes: 1, OutputBytes: 1, TimeoutSeconds: 1}}}
}

func person(name string) *api.Person {
	return &api.Person{ObjectMeta: meta(name), Spec: api.PersonSpec{Identities: api.Identities{Matrix: alice}}}
}

func newAgent(name string) *api.Agent {
	return &api.Agent{ObjectMeta: meta(name), Spec: api.AgentSpec{Workflow: api.WorkflowOperations, People: []api.AgentPerson{{Name: "lucas", May: []api.Right{api.RightApprove}}},
		Conversation: api.Conversation{Matrix: api.MatrixConversation{UserID: "@ops:x", Room: "#ops:x"}}, Tools: api.Tools{Allow: []string{"fs.read"}},
		Models: api.Models{Endpoint: api.ModelEndpoint{URL: "http://127.0.0.1:1/v1", Protocol: api.ProtocolOpenAI}, Roles: map[string]api.ModelRole{"executor": {Model: "m"}}}}}
}
