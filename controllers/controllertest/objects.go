// Package controllertest makes the objects that controllers' tests are about, and plays those who write them: each valid, each with
// one thing spoiled by the test.
package controllertest

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/condition"
	"nisse.io/nisse/controllers/gate/opening"
	"nisse.io/nisse/internal/names"
	"nisse.io/nisse/internal/telemetry"
	"nisse.io/nisse/test/apitest"
)

// Digest that satisfies every pattern.
const Digest = "sha256:0000000000000000000000000000000000000000000000000000000000000000"

// Report are arguments of an ordinary step.
const Report = `{"content":"41%\n","path":"/srv/nisse/report.txt"}`

// World is a namespace with people, a device, an agent and a work item that it works on.
type World struct {
	T      testing.TB
	Admin  client.Client
	NS     string
	Agent  *v1alpha1.Agent
	Item   *v1alpha1.WorkItem
	Events *events.FakeRecorder
	Log    *slog.Logger
	LogTo  *strings.Builder
	config *rest.Config
	serial int
}

// New makes a World; change may spoil the agent before it is created.
func New(t testing.TB, change func(*v1alpha1.Agent)) *World {
	t.Helper()
	config, admin := apitest.Start(t)
	w := &World{T: t, Admin: admin, NS: apitest.Namespace(t, admin), Events: events.NewFakeRecorder(100), LogTo: &strings.Builder{}, config: config}
	w.Log = telemetry.New(io.Writer(w.LogTo), "manager", slog.LevelInfo)
	for _, name := range []string{"lucas", "maria"} {
		w.Create(&v1alpha1.Person{ObjectMeta: w.meta(name), Spec: v1alpha1.PersonSpec{
			Identities: v1alpha1.Identities{Matrix: "@" + name + ":example.org", Kubernetes: []string{name}}}})
	}
	for _, o := range Device(w.NS) {
		w.Create(o)
	}
	w.Agent = NewAgent(w.NS, "ops")
	if change != nil {
		change(w.Agent)
	}
	w.Create(w.Agent)
	w.Item = NewItem(w.Agent, "wi-1")
	w.Create(w.Item)
	w.Status(w.Agent, func() { w.Agent.Status.ActiveWorkItem = w.Item.Name })
	w.Status(w.Item, func() { w.Item.Status.State = v1alpha1.WorkItemWorking })
	return w
}

func (w *World) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: w.NS, Name: name}
}

// NewAgent that violates nothing.
func NewAgent(namespace, name string) *v1alpha1.Agent {
	return &v1alpha1.Agent{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1alpha1.AgentSpec{
		Workflow: v1alpha1.WorkflowOperations,
		People: []v1alpha1.AgentPerson{{Name: "lucas", May: []v1alpha1.Right{v1alpha1.RightInstruct, v1alpha1.RightApprove}},
			{Name: "maria", May: []v1alpha1.Right{v1alpha1.RightInstruct}}},
		Conversation: v1alpha1.Conversation{Matrix: v1alpha1.MatrixConversation{UserID: "@nisse-" + name + ":example.org", Room: "#" + name + ":example.org"}},
		Models: v1alpha1.Models{Endpoint: v1alpha1.ModelEndpoint{URL: "http://192.0.2.7:4000/v1", Protocol: v1alpha1.ProtocolOpenAI},
			Roles: map[string]v1alpha1.ModelRole{"executor": {Model: "scripted"}}},
		Tools:   v1alpha1.Tools{Allow: []string{"fs.read", "fs.write", "submit_plan", "ask_human"}},
		Devices: []string{"web1"},
	}}
}

// NewItem of an agent.
func NewItem(a *v1alpha1.Agent, name string) *v1alpha1.WorkItem {
	return &v1alpha1.WorkItem{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: name}, Spec: v1alpha1.WorkItemSpec{Agent: a.Name,
		Title: "Write the disk usage into /srv/nisse/report.txt", Request: "Please.", Source: v1alpha1.Source{Kind: v1alpha1.SourceKubernetes}}}
}

// NewPlan of an item; each of args is one step.
func NewPlan(a *v1alpha1.Agent, item *v1alpha1.WorkItem, revision int32, args ...string) *v1alpha1.Plan {
	p := &v1alpha1.Plan{ObjectMeta: metav1.ObjectMeta{Namespace: item.Namespace, Name: names.Plan(item.Name, revision)}, Spec: v1alpha1.PlanSpec{
		Agent: a.Name, AgentUID: string(a.UID), WorkItem: v1alpha1.ObjectRef{Name: item.Name, UID: string(item.UID)}, Revision: revision,
		CallID: fmt.Sprintf("call-%d", revision), ToolSchemaDigest: Digest, Body: "It is asked for.", Steps: []v1alpha1.PlanStep{}}}
	for _, s := range args {
		p.Spec.Steps = append(p.Spec.Steps, v1alpha1.PlanStep{Device: "web1", Capability: "fs.write", Args: s, ManifestDigest: ManifestDigest})
	}
	return p
}

// Intercepted is the administrator's client, with calls that funcs change.
func (w *World) Intercepted(funcs interceptor.Funcs) client.Client {
	w.T.Helper()
	c, err := client.NewWithWatch(w.config, client.Options{Scheme: apitest.Scheme()})
	if err != nil {
		w.T.Fatal(err)
	}
	return interceptor.NewClient(c, funcs)
}

// Create an object.
func (w *World) Create(o client.Object) {
	w.T.Helper()
	if err := w.Admin.Create(w.T.Context(), o); err != nil {
		w.T.Fatal(err)
	}
}

// Read an object anew.
func (w *World) Read(o client.Object) {
	w.T.Helper()
	if err := w.Admin.Get(w.T.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		w.T.Fatal(err)
	}
}

// Status changes an object's status.
func (w *World) Status(o client.Object, change func()) {
	w.T.Helper()
	w.Read(o)
	change()
	if err := w.Admin.Status().Update(w.T.Context(), o); err != nil {
		w.T.Fatal(err)
	}
}

// Delete an object.
func (w *World) Delete(o client.Object) {
	w.T.Helper()
	if err := w.Admin.Delete(w.T.Context(), o); err != nil {
		w.T.Fatal(err)
	}
}

// Terminate deletes an object that somebody else's finalizer holds: it is on its way out and still there.
func (w *World) Terminate(o client.Object) {
	w.T.Helper()
	w.Update(o, func() { o.SetFinalizers(append(o.GetFinalizers(), "example.org/hold")) })
	w.Delete(o)
	w.Read(o)
}

// Update changes an object's spec.
func (w *World) Update(o client.Object, change func()) {
	w.T.Helper()
	w.Read(o)
	change()
	if err := w.Admin.Update(w.T.Context(), o); err != nil {
		w.T.Fatal(err)
	}
}

// Plan submits a revision.
func (w *World) Plan(revision int32, args ...string) *v1alpha1.Plan {
	w.T.Helper()
	p := NewPlan(w.Agent, w.Item, revision, args...)
	w.Create(p)
	return p
}

// Gate opens the gate of a plan.
func (w *World) Gate(p *v1alpha1.Plan, now time.Time) *v1alpha1.Gate {
	w.T.Helper()
	w.Read(w.Item)
	g, err := opening.Plan(p, w.Item, w.Agent, Rules(len(p.Spec.Steps)), now)
	if err != nil {
		w.T.Fatal(err)
	}
	w.Create(g)
	return g
}

// HaltGate opens the gate of what holds the item.
func (w *World) HaltGate(held v1alpha1.GateHaltRef, now time.Time) *v1alpha1.Gate {
	w.T.Helper()
	w.Read(w.Item)
	g, err := opening.Halt(w.Item, w.Agent, held, now)
	if err != nil {
		w.T.Fatal(err)
	}
	w.Create(g)
	return g
}

// Approval of a gate by a username; change may spoil it before it is created.
func (w *World) Approval(g *v1alpha1.Gate, user string, d v1alpha1.Decision, change func(*v1alpha1.ApprovalSpec)) *v1alpha1.Approval {
	w.T.Helper()
	w.serial++
	a := &v1alpha1.Approval{ObjectMeta: w.meta(fmt.Sprintf("apr-%d", w.serial)), Spec: v1alpha1.ApprovalSpec{Gate: v1alpha1.GateRef{Name: g.Name, UID: string(g.UID)},
		Digest: g.Spec.Digest, Decision: d, Approver: user, Channel: v1alpha1.Channel{Kind: v1alpha1.ChannelKubernetes}}}
	if change != nil {
		change(&a.Spec)
	}
	w.Create(a)
	return a
}

// Holds checks the condition invariants of an object that was read after a pass.
func (w *World) Holds(o client.Object, observed int64, all []metav1.Condition) {
	w.T.Helper()
	switch o.(type) {
	case *v1alpha1.Gate, *v1alpha1.Plan: // their schema begins with Ready
		if len(all) == 0 {
			w.T.Errorf("%s has no conditions", o.GetName())
		}
	}
	for _, v := range condition.Violations(o.GetGeneration(), observed, all) {
		w.T.Errorf("%s: %s", o.GetName(), v)
	}
}
