// Package admission attacks the admission policies on a real API server: every actor has every right that RBAC can give, so what
// is refused here is refused by the policies and the kinds alone.
package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/config/admission"
	"nisse.io/nisse/internal/names"
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

var (
	base *rest.Config
	sch  = runtime.NewScheme()
)

func TestMain(m *testing.M) {
	if err := api.AddToScheme(sch); err != nil {
		panic(err)
	}
	if err := scheme.AddToScheme(sch); err != nil {
		panic(err)
	}
	env := &envtest.Environment{Scheme: sch, CRDDirectoryPaths: []string{"../../config/crd/bases"}, ErrorIfCRDPathMissing: true}
	cfg, err := env.Start()
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

// as returns a client that the API server authenticates as user, with every right.
func as(user string) client.Client {
	cfg := rest.CopyConfig(base)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters", "system:authenticated"}}
	return must(client.New(cfg, client.Options{Scheme: sch}))
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

// Every way of making each object, by everybody.
func TestCreate(t *testing.T) {
	everybody := []string{manager, broker, gateway, agent, lucas, mallory, "matrix:" + alice, "system:node:n", "system:serviceaccount:kube-system:namespace-controller"}
	for _, c := range []struct {
		name string
		make func(name string) client.Object
		may  []string
	}{
		{"gate", func(n string) client.Object { return gate(n) }, []string{manager}},
		{"plan", func(n string) client.Object { return plan(n) }, []string{broker}},
		{"job", func(n string) client.Object { return job(n) }, []string{broker}},
		{"item from a room", func(n string) client.Object { return workItem(n, api.SourceMatrix) }, []string{gateway}},
		{"item by hand", func(n string) client.Object { return workItem(n, api.SourceKubernetes) },
			[]string{manager, broker, agent, lucas, mallory, "matrix:" + alice, "system:node:n", "system:serviceaccount:kube-system:namespace-controller"}},
		{"approval as lucas", func(n string) client.Object { return approval(n, lucas, api.ChannelKubernetes) }, []string{lucas}},
		{"approval as alice of Matrix", func(n string) client.Object { return approval(n, "matrix:"+alice, api.ChannelMatrix) }, []string{gateway}},
		{"approval as alice, by kubectl", func(n string) client.Object { return approval(n, "matrix:"+alice, api.ChannelKubernetes) }, nil},
		{"approval as lucas, by Matrix", func(n string) client.Object { return approval(n, lucas, api.ChannelMatrix) }, nil},
		{"approval as bob, event of alice", func(n string) client.Object { return approval(n, "matrix:@bob:example.org", api.ChannelMatrix) }, nil},
		{"approval as the agent", func(n string) client.Object { return approval(n, agent, api.ChannelKubernetes) }, nil},
		{"approval as the gateway", func(n string) client.Object { return approval(n, gateway, api.ChannelKubernetes) }, nil},
		{"approval as the manager", func(n string) client.Object { return approval(n, manager, api.ChannelKubernetes) }, nil},
		{"approval as a node", func(n string) client.Object { return approval(n, "system:node:n", api.ChannelKubernetes) }, nil},
	} {
		for i, who := range everybody {
			t.Run(c.name+" by "+who, func(t *testing.T) {
				want := false
				for _, m := range c.may {
					want = want || m == who
				}
				name := fmt.Sprintf("%s-%d", strings.Trim(strings.NewReplacer(" ", "-", ",", "").Replace(strings.ToLower(c.name)), "-"), i)
				for how, do := range creates(who, c.make, name) {
					if err := do(); (err == nil) != want {
						t.Errorf("%s: allowed is %v, want %v: %v", how, err == nil, want, err)
					} else if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
						t.Errorf("%s: refused for another reason: %v", how, err)
					}
				}
			})
		}
	}
}

func creates(who string, mk func(string) client.Object, name string) map[string]func() error {
	ctx, c := context.Background(), as(who)
	return map[string]func() error{
		"create":  func() error { return c.Create(ctx, mk(name+"-c")) },
		"dry run": func() error { return c.Create(ctx, mk(name+"-d"), client.DryRunAll) },
		"server-side apply": func() error {
			o := mk(name + "-a")
			u := must(runtime.DefaultUnstructuredConverter.ToUnstructured(o))
			gvk := must(c.GroupVersionKindFor(o))
			u["apiVersion"], u["kind"] = gvk.GroupVersion().String(), gvk.Kind
			delete(u, "status")
			if m, ok := u["metadata"].(map[string]any); ok {
				delete(m, "creationTimestamp")
			}
			return c.Patch(ctx, &unstructured.Unstructured{Object: u}, client.RawPatch(types.ApplyPatchType, must(json.Marshal(u))), client.FieldOwner("test"), client.ForceOwnership)
		},
	}
}

// Whoever sees an event in a room knows the names that it will get. None of them can be taken before the gateway gets there: it would
// find its work done, and the person's words or decision would be lost.
func TestNamesOfChatEventsAreTheGateways(t *testing.T) {
	event := "$seen-by-all"
	item, decision := names.WorkItem(time.Now(), "!r:x", event), names.Approval("!r:x", event)
	for _, who := range []string{manager, broker, agent, lucas, mallory} {
		for how, do := range creates(who, func(string) client.Object { return workItem(item, api.SourceKubernetes) }, "") {
			if err := do(); !apierrors.IsForbidden(err) {
				t.Errorf("%s took the item's name by %s: %v", who, how, err)
			}
		}
		for how, do := range creates(who, func(string) client.Object { return approval(decision, who, api.ChannelKubernetes) }, "") {
			if err := do(); !apierrors.IsForbidden(err) {
				t.Errorf("%s took the decision's name by %s: %v", who, how, err)
			}
		}
	}
	generated := workItem("", api.SourceKubernetes)
	generated.GenerateName = "wi-"
	ctx := context.Background()
	for who, o := range map[string]client.Object{
		"the gateway's item": workItem(item, api.SourceMatrix), "the gateway's decision": approval(decision, "matrix:"+alice, api.ChannelMatrix), "a generated name": generated,
	} {
		c := as(gateway)
		if o == client.Object(generated) {
			c = as(lucas)
		}
		if err := c.Create(ctx, o); err != nil {
			t.Errorf("%s: %v", who, err)
		}
	}
}

// What was decided never changes, by whatever verb and whoever asks.
func TestSpecsNeverChange(t *testing.T) {
	ctx := context.Background()
	objects := map[string]struct {
		maker string
		o     client.Object
		path  string
		value any
	}{
		"gate digest":      {manager, gate("fix-gate"), "digest", "sha256:" + strings.Repeat("1", 64)},
		"gate approvers":   {manager, gate("fix-gate2"), "approvers", []string{"mallory"}},
		"plan steps":       {broker, plan("fix-plan"), "steps", []any{}},
		"job args":         {broker, job("fix-job"), "args", `{"path":"/etc/passwd"}`},
		"approval":         {lucas, approval("fix-approval", lucas, api.ChannelKubernetes), "decision", "Reject"},
		"item agent":       {lucas, workItem("fix-item", api.SourceKubernetes), "agent", "other"},
		"item title":       {lucas, workItem("fix-item2", api.SourceKubernetes), "title", "other"},
		"item request":     {lucas, workItem("fix-item3", api.SourceKubernetes), "request", "other"},
		"item correlation": {lucas, workItem("fix-item4", api.SourceKubernetes), "correlationID", "other"},
	}
	for name, c := range objects {
		if err := as(c.maker).Create(ctx, c.o); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, who := range []string{manager, broker, gateway, agent, lucas, mallory} {
			for _, how := range []string{"merge patch", "JSON patch", "update", "server-side apply"} {
				t.Run(name+" by "+who+" "+how, func(t *testing.T) {
					cl := as(who)
					err := change(ctx, cl, c.o, how, c.path, c.value)
					if err == nil {
						t.Fatal("the spec changed")
					}
					if !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
						t.Fatalf("refused for another reason: %v", err)
					}
				})
			}
		}
	}
}

func change(ctx context.Context, c client.Client, o client.Object, how, field string, value any) error {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(must(c.GroupVersionKindFor(o)))
	if err := c.Get(ctx, client.ObjectKeyFromObject(o), u); err != nil {
		return fmt.Errorf("get: %w", err)
	}
	switch how {
	case "merge patch":
		return c.Patch(ctx, u, client.RawPatch(types.MergePatchType, must(json.Marshal(map[string]any{"spec": map[string]any{field: value}}))))
	case "JSON patch":
		return c.Patch(ctx, u, client.RawPatch(types.JSONPatchType, must(json.Marshal([]any{map[string]any{"op": "add", "path": "/spec/" + field, "value": value}}))))
	case "update":
		u.Object["spec"].(map[string]any)[field] = must(roundTrip(value))
		return c.Update(ctx, u)
	default:
		a := map[string]any{"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(), "metadata": map[string]any{"name": u.GetName(), "namespace": u.GetNamespace()},
			"spec": map[string]any{}}
		for k, v := range u.Object["spec"].(map[string]any) {
			a["spec"].(map[string]any)[k] = v
		}
		a["spec"].(map[string]any)[field] = value
		return c.Patch(ctx, u, client.RawPatch(types.ApplyPatchType, must(json.Marshal(a))), client.FieldOwner("mallory"), client.ForceOwnership)
	}
}

func roundTrip(v any) (out any, err error) {
	err = json.Unmarshal(must(json.Marshal(v)), &out)
	return out, err
}

// Each part of a status has one writer.
func TestStatusWriters(t *testing.T) {
	ctx := context.Background()
	now := time.Now().UTC().Format(time.RFC3339)
	device := &api.Device{ObjectMeta: meta("st-device"), Spec: api.DeviceSpec{URL: "http://127.0.0.1:1", PublicKey: strings.Repeat("A", 43) + "=", ManifestDigest: digest}}
	ag := &api.Agent{ObjectMeta: meta("st-agent"), Spec: api.AgentSpec{Workflow: api.WorkflowOperations, People: []api.AgentPerson{{Name: "lucas", May: []api.Right{api.RightApprove}}},
		Conversation: api.Conversation{Matrix: api.MatrixConversation{UserID: "@ops:x", Room: "#ops:x"}}, Tools: api.Tools{Allow: []string{"fs.read"}},
		Models: api.Models{Endpoint: api.ModelEndpoint{URL: "http://127.0.0.1:1/v1", Protocol: api.ProtocolOpenAI}, Roles: map[string]api.ModelRole{"executor": {Model: "m"}}}}}
	person := &api.Person{ObjectMeta: meta("st-person"), Spec: api.PersonSpec{Identities: api.Identities{Matrix: alice}}}
	all := []string{manager, broker, gateway, agent, lucas, mallory}
	for i, c := range []struct {
		name   string
		maker  string
		o      client.Object
		status map[string]any
		may    []string
	}{
		{"gate outcome", manager, gate("st-gate"), map[string]any{"outcome": "Approved"}, []string{manager}},
		{"gate statement", manager, gate("st-gate2"), map[string]any{"outcome": "Approved", "statement": "x"}, []string{manager}},
		{"plan state", broker, plan("st-plan"), map[string]any{"state": "Approved"}, []string{manager}},
		{"approval reason", lucas, approval("st-approval", lucas, api.ChannelKubernetes), map[string]any{"reason": "x"}, []string{manager}},
		{"person", lucas, person, map[string]any{"observedGeneration": 1}, []string{manager}},
		{"job state", broker, job("st-job"), map[string]any{"state": "Succeeded"}, []string{broker}},
		{"device", lucas, device, map[string]any{"observedGeneration": 1}, []string{broker}},
		{"agent active item", lucas, ag, map[string]any{"activeWorkItem": "w"}, []string{manager}},
		{"agent conversation", lucas, ag, map[string]any{"conversation": map[string]any{"connected": true, "reason": "Connected"}}, []string{gateway}},
		{"item state", lucas, workItem("st-item", api.SourceKubernetes), map[string]any{"state": "Working"}, []string{manager}},
		{"item answered halt", lucas, workItem("st-item2", api.SourceKubernetes), map[string]any{"answeredHalt": "x"}, []string{manager}},
		{"item closed revision", lucas, workItem("st-item3", api.SourceKubernetes), map[string]any{"closedRevision": 1}, []string{manager}},
		{"item finished", lucas, workItem("st-item4", api.SourceKubernetes), map[string]any{"runtime": map[string]any{"finished": map[string]any{"summary": "s", "at": now}}}, []string{broker}},
		{"item answered question", lucas, workItem("st-item5", api.SourceKubernetes), map[string]any{"conversation": map[string]any{"answeredQuestion": "q"}}, []string{gateway}},
		{"item all at once", lucas, workItem("st-item6", api.SourceKubernetes), map[string]any{"state": "Working", "runtime": map[string]any{"finished": map[string]any{"summary": "s", "at": now}}}, nil},
	} {
		c.o.SetResourceVersion("")
		if err := as(c.maker).Create(ctx, c.o); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatalf("%s: %v", c.name, err)
		}
		for _, who := range all {
			t.Run(c.name+" by "+who, func(t *testing.T) {
				want := false
				for _, m := range c.may {
					want = want || m == who
				}
				cl, u := as(who), &unstructured.Unstructured{}
				u.SetGroupVersionKind(must(cl.GroupVersionKindFor(c.o)))
				key := client.ObjectKeyFromObject(c.o)
				gvk := u.GroupVersionKind()
				body := must(json.Marshal(map[string]any{"status": c.status}))
				for how, do := range map[string]func() error{
					"merge patch": func() error {
						if err := cl.Get(ctx, key, u); err != nil {
							return err
						}
						return cl.Status().Patch(ctx, u, client.RawPatch(types.MergePatchType, body), client.DryRunAll)
					},
					"server-side apply": func() error {
						a := map[string]any{"apiVersion": gvk.GroupVersion().String(), "kind": gvk.Kind, "metadata": map[string]any{"name": key.Name, "namespace": ns}, "status": c.status}
						o := &unstructured.Unstructured{Object: a}
						return cl.Status().Patch(ctx, o, client.RawPatch(types.ApplyPatchType, must(json.Marshal(a))), client.FieldOwner(fmt.Sprint("f", i)), client.ForceOwnership, client.DryRunAll)
					},
					"update": func() error {
						if err := cl.Get(ctx, key, u); err != nil {
							return err
						}
						for k, v := range c.status {
							if err := unstructured.SetNestedField(u.Object, must(roundTrip(v)), "status", k); err != nil {
								return err
							}
						}
						return cl.Status().Update(ctx, u, client.DryRunAll)
					},
				} {
					if err := do(); (err == nil) != want {
						t.Errorf("%s: allowed is %v, want %v: %v", how, err == nil, want, err)
					} else if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
						t.Errorf("%s: refused for another reason: %v", how, err)
					}
				}
				// The way round by the main resource writes no status at all.
				if err := cl.Get(ctx, key, u); err != nil {
					t.Fatal(err)
				}
				before := fmt.Sprint(u.Object["status"])
				_ = cl.Patch(ctx, u, client.RawPatch(types.MergePatchType, body))
				if err := cl.Get(ctx, key, u); err != nil || fmt.Sprint(u.Object["status"]) != before {
					t.Errorf("status written through the main resource: %v, %v", u.Object["status"], err)
				}
			})
		}
	}
}

func TestOutcomeIsFinal(t *testing.T) {
	ctx, c := context.Background(), as(manager)
	g := gate("final")
	if err := c.Create(ctx, g); err != nil {
		t.Fatal(err)
	}
	g.Status.Outcome = api.GateExpired
	if err := c.Status().Update(ctx, g); err != nil {
		t.Fatal(err)
	}
	for name, set := range map[string]func(*api.Gate){
		"approved later": func(g *api.Gate) { g.Status.Outcome = api.GateApproved },
		"reopened":       func(g *api.Gate) { g.Status.Outcome = "" },
		"statement only": func(g *api.Gate) { g.Status.Statement = "x" },
	} {
		t.Run(name, func(t *testing.T) {
			o := g.DeepCopy()
			set(o)
			if err := c.Status().Update(ctx, o); !apierrors.IsInvalid(err) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A stop holds until a person answers it: it cannot be taken back, nor replaced by one that was answered.
func TestStopIsNotTakenBack(t *testing.T) {
	ctx := context.Background()
	w := workItem("stop", api.SourceKubernetes)
	if err := as(lucas).Create(ctx, w); err != nil {
		t.Fatal(err)
	}
	w.Spec.Stop = &api.StopRequest{ID: "one"}
	if err := as(lucas).Update(ctx, w); err != nil {
		t.Fatal(err)
	}
	w.Status.AnsweredStop = "one"
	if err := as(manager).Status().Update(ctx, w); err != nil {
		t.Fatal(err)
	}
	w.Spec.Stop = &api.StopRequest{ID: "two"}
	if err := as(gateway).Update(ctx, w); err != nil {
		t.Fatal(err)
	}
	for name, stop := range map[string]*api.StopRequest{"removed": nil, "answered one": {ID: "one"}} {
		t.Run(name, func(t *testing.T) {
			o := w.DeepCopy()
			o.Spec.Stop = stop
			if err := as(mallory).Update(ctx, o); !apierrors.IsInvalid(err) {
				t.Errorf("got %v", err)
			}
		})
	}
	for _, who := range []string{manager, broker} {
		o := w.DeepCopy()
		o.Spec.Stop = &api.StopRequest{ID: "three"}
		if err := as(who).Update(ctx, o); !apierrors.IsForbidden(err) {
			t.Errorf("%s changed the stop: %v", who, err)
		}
	}
}

// What must go on working: storage migration (an update that changes nothing), garbage collection's patches, deletion.
func TestHousekeepingPasses(t *testing.T) {
	ctx := context.Background()
	migrator := as("system:serviceaccount:kube-system:storage-version-migrator-controller")
	collector := as("system:serviceaccount:kube-system:generic-garbage-collector")
	for maker, o := range map[string]client.Object{manager: gate("hk-gate"), broker: plan("hk-plan"), lucas: approval("hk-approval", lucas, api.ChannelKubernetes)} {
		if err := as(maker).Create(ctx, o); err != nil {
			t.Fatal(err)
		}
		if err := migrator.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
		if err := migrator.Update(ctx, o); err != nil {
			t.Errorf("%T: an update without a change was refused: %v", o, err)
		}
		patch := []byte(`{"metadata":{"ownerReferences":null,"finalizers":null}}`)
		if err := collector.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch)); err != nil {
			t.Errorf("%T: the garbage collector's patch was refused: %v", o, err)
		}
		if err := collector.Delete(ctx, o); err != nil {
			t.Errorf("%T: deletion was refused: %v", o, err)
		}
		if err := collector.Get(ctx, client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
			t.Errorf("%T: still there: %v", o, err)
		}
	}
}
