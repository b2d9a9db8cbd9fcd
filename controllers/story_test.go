package controllers_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers"
	"nisse.io/nisse/controllers/agent/children"
	"nisse.io/nisse/controllers/condition"
	"nisse.io/nisse/controllers/controllertest"
	"nisse.io/nisse/internal/approval"
	"nisse.io/nisse/internal/names"
	"nisse.io/nisse/test/apitest"
)

func TestMain(m *testing.M) { apitest.Main(m) }

const (
	agentsNamespace = "nisse"
	systemNamespace = "nisse-system"
	digestOfNothing = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
)

// house is a manager as it is installed: its own user, its own role, the admission policies, a real API server. The test plays
// broker, gateway and people, each as the user it is.
type house struct {
	t       *testing.T
	admin   client.Client
	broker  client.Client
	gateway client.Client
	lucas   client.Client
	key     ed25519.PublicKey
	writes  *counter
	mgr     ctrl.Manager
	// restart ends the manager, as a node does that goes away, and starts the next.
	restart func(whileAway func())
}

var (
	installed sync.Once
	serial    int
)

// newHouse starts a manager. The namespaces are those of the role; each test names its own agent, so that they do not meet.
func newHouse(t *testing.T) *house {
	t.Helper()
	cfg, admin := apitest.Start(t)
	installed.Do(func() {
		for _, ns := range []string{agentsNamespace, systemNamespace} {
			if err := admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
				t.Fatal(err)
			}
		}
		apitest.Install(t, admin, apitest.Path("config", "admission"))
		apitest.Install(t, admin, apitest.Path("config", "rbac", "manager.yaml"))
		sa := func(name string) string { return apitest.ServiceAccount(systemNamespace, name) }
		apitest.Grant(t, admin, agentsNamespace, sa("nisse-broker"), rbacv1.PolicyRule{APIGroups: []string{"nisse.io"}, Resources: []string{"*"}, Verbs: []string{"*"}})
		apitest.Grant(t, admin, agentsNamespace, sa("nisse-gateway"), rbacv1.PolicyRule{APIGroups: []string{"nisse.io"}, Resources: []string{"*"}, Verbs: []string{"*"}})
		apitest.Grant(t, admin, agentsNamespace, "lucas", apitest.Rule("approvals", "create get"), apitest.Rule("workitems", "create get update patch"))
	})
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	h := &house{t: t, admin: admin, key: public, writes: &counter{}, lucas: apitest.As(t, cfg, "lucas"),
		broker:  apitest.As(t, cfg, apitest.ServiceAccount(systemNamespace, "nisse-broker")),
		gateway: apitest.As(t, cfg, apitest.ServiceAccount(systemNamespace, "nisse-gateway"))}
	leave := h.start(cfg, private)
	h.restart = func(whileAway func()) {
		leave()
		whileAway()
		leave = h.start(cfg, private)
	}
	t.Cleanup(func() {
		leave()
		h.invariants()
	})
	return h
}

func (h *house) start(cfg *rest.Config, key ed25519.PrivateKey) (leave func()) {
	h.t.Helper()
	mine := apitest.Config(cfg, apitest.ServiceAccount(systemNamespace, "nisse-manager"))
	mine.Wrap(h.writes.wrap)
	mgr, err := newManagerWith(h.t, mine, []string{agentsNamespace}, key)
	if err != nil {
		h.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	h.mgr = mgr
	return func() {
		stop()
		if err := <-done; err != nil {
			h.t.Error("manager:", err)
		}
	}
}

func newManager(t *testing.T, cfg *rest.Config, namespaces []string) (ctrl.Manager, error) {
	return newManagerWith(t, cfg, namespaces, nil)
}

func newManagerWith(t *testing.T, cfg *rest.Config, namespaces []string, key ed25519.PrivateKey) (ctrl.Manager, error) {
	return controllers.New(t.Context(), cfg, controllers.Process{Namespaces: namespaces, SystemNamespace: systemNamespace, MetricsAddress: "0", Shared: true},
		controllers.Options{Log: slog.New(slog.DiscardHandler), Now: time.Now, Metrics: prometheus.NewRegistry(),
			Sign:     func(s approval.Statement) (string, error) { return s.Sign(key) },
			Settings: children.Settings{Image: "nisse-agent:test", BrokerURL: "http://broker", GatewayURL: "http://gateway", SystemNamespace: systemNamespace}})
}

// invariants checks the conditions of everything in the namespace.
func (h *house) invariants() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var people v1alpha1.PersonList
	var agents v1alpha1.AgentList
	var items v1alpha1.WorkItemList
	var plans v1alpha1.PlanList
	var gates v1alpha1.GateList
	for _, l := range []client.ObjectList{&people, &agents, &items, &plans, &gates} {
		if err := h.admin.List(ctx, l, client.InNamespace(agentsNamespace)); err != nil {
			h.t.Fatal(err)
		}
	}
	check := func(o client.Object, observed int64, all []metav1.Condition) {
		for _, v := range condition.Violations(o.GetGeneration(), observed, all) {
			h.t.Errorf("%T %s: %s", o, o.GetName(), v)
		}
	}
	for i := range people.Items {
		check(&people.Items[i], people.Items[i].Status.ObservedGeneration, people.Items[i].Status.Conditions)
	}
	for i := range agents.Items {
		check(&agents.Items[i], agents.Items[i].Status.ObservedGeneration, agents.Items[i].Status.Conditions)
	}
	for i := range items.Items {
		check(&items.Items[i], items.Items[i].Status.ObservedGeneration, items.Items[i].Status.Conditions)
	}
	for i := range plans.Items {
		check(&plans.Items[i], plans.Items[i].Status.ObservedGeneration, plans.Items[i].Status.Conditions)
	}
	for i := range gates.Items {
		check(&gates.Items[i], gates.Items[i].Status.ObservedGeneration, gates.Items[i].Status.Conditions)
	}
}

// counter counts the manager's writes by method and resource. A write that lost its race is counted as such: it changed nothing.
type counter struct {
	mu sync.Mutex
	by map[string]int
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (c *counter) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(r)
		if err != nil || r.Method == http.MethodGet || strings.Contains(r.URL.RawQuery, "dryRun") {
			return resp, err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.by == nil {
			c.by = map[string]int{}
		}
		what := r.Method + " " + resource(r.URL.Path)
		if resp.StatusCode >= 300 {
			what = fmt.Sprintf("%s (%d)", what, resp.StatusCode)
		}
		c.by[what]++
		return resp, err
	})
}

// resource of a path, with its subresource.
func resource(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	i := slices.Index(parts, "namespaces") + 2
	if i >= len(parts) {
		return path
	}
	if r := parts[i]; len(parts) > i+2 {
		return r + "/" + parts[i+2]
	} else {
		return r
	}
}

func (c *counter) take() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := maps.Clone(c.by)
	c.by = nil
	return taken
}

// total counts what was written for the work item. What was refused (a conflict) wrote nothing, and the agent's own objects settle at
// a time of their own.
func total(by map[string]int) (writes, events int) {
	for what, n := range by {
		switch {
		case strings.HasSuffix(what, ")"):
		case strings.HasSuffix(what, " persistentvolumeclaims"), strings.HasSuffix(what, " statefulsets"), strings.HasSuffix(what, " serviceaccounts"),
			strings.HasSuffix(what, " configmaps"), strings.HasSuffix(what, " networkpolicies"):
		case strings.HasSuffix(what, " events"):
			events += n
		default:
			writes += n
		}
	}
	return writes, events
}

// agentOf makes a Person and an Agent of his, with a device, and waits until the agent has its objects.
func (h *house) agent(change func(*v1alpha1.Agent)) *v1alpha1.Agent {
	h.t.Helper()
	serial++
	name := fmt.Sprintf("ops%d", serial)
	for _, o := range append(controllertest.Device(agentsNamespace),
		&v1alpha1.Person{ObjectMeta: metav1.ObjectMeta{Namespace: agentsNamespace, Name: "lucas"},
			Spec: v1alpha1.PersonSpec{Identities: v1alpha1.Identities{Matrix: "@lucas:example.org", Kubernetes: []string{"lucas"}}}}) {
		if err := h.admin.Create(h.t.Context(), o); err != nil && !apierrors.IsAlreadyExists(err) {
			h.t.Fatal(err)
		}
	}
	a := &v1alpha1.Agent{ObjectMeta: metav1.ObjectMeta{Namespace: agentsNamespace, Name: name}, Spec: v1alpha1.AgentSpec{
		Workflow:     v1alpha1.WorkflowOperations,
		People:       []v1alpha1.AgentPerson{{Name: "lucas", May: []v1alpha1.Right{v1alpha1.RightInstruct, v1alpha1.RightApprove}}},
		Conversation: v1alpha1.Conversation{Matrix: v1alpha1.MatrixConversation{UserID: "@nisse-" + name + ":example.org", Room: "#" + name + ":example.org"}},
		Models: v1alpha1.Models{Endpoint: v1alpha1.ModelEndpoint{URL: "http://192.0.2.7:4000/v1", Protocol: v1alpha1.ProtocolOpenAI},
			Roles: map[string]v1alpha1.ModelRole{"executor": {Model: "scripted"}}},
		Tools:   v1alpha1.Tools{Allow: []string{"fs.read", "fs.write", "submit_plan", "ask_human"}},
		Devices: []string{"web1"},
	}}
	if change != nil {
		change(a)
	}
	if err := h.admin.Create(h.t.Context(), a); err != nil {
		h.t.Fatal(err)
	}
	return a
}

var items int

// item makes a work item as the gateway does.
func (h *house) item(a *v1alpha1.Agent) *v1alpha1.WorkItem {
	h.t.Helper()
	items++
	event := v1alpha1.MatrixEvent{Room: "!r:example.org", EventID: fmt.Sprintf("$e%d", items), Sender: "@lucas:example.org"}
	w := &v1alpha1.WorkItem{ObjectMeta: metav1.ObjectMeta{Namespace: agentsNamespace, Name: names.WorkItem(time.Now(), event.Room, event.EventID)},
		Spec: v1alpha1.WorkItemSpec{Agent: a.Name, Title: "Write the disk usage into /srv/nisse/report.txt", Source: v1alpha1.Source{Kind: v1alpha1.SourceMatrix, Matrix: &event}}}
	if err := h.gateway.Create(h.t.Context(), w); err != nil {
		h.t.Fatal(err)
	}
	return w
}

// plan submits a revision as the broker does.
func (h *house) plan(a *v1alpha1.Agent, w *v1alpha1.WorkItem, revision int32, args ...string) *v1alpha1.Plan {
	h.t.Helper()
	p := newPlan(a, w, revision, args...)
	if err := h.broker.Create(h.t.Context(), p); err != nil {
		h.t.Fatal(err)
	}
	return p
}

func newPlan(a *v1alpha1.Agent, w *v1alpha1.WorkItem, revision int32, args ...string) *v1alpha1.Plan {
	p := &v1alpha1.Plan{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: names.Plan(w.Name, revision)}, Spec: v1alpha1.PlanSpec{
		Agent: a.Name, AgentUID: string(a.UID), WorkItem: v1alpha1.ObjectRef{Name: w.Name, UID: string(w.UID)}, Revision: revision,
		CallID: fmt.Sprintf("call-%d", revision), ToolSchemaDigest: digestOfNothing, Body: "It is asked for.", Steps: []v1alpha1.PlanStep{}}}
	for _, s := range args {
		p.Spec.Steps = append(p.Spec.Steps, v1alpha1.PlanStep{Device: "web1", Capability: "fs.write", Args: s, ManifestDigest: controllertest.ManifestDigest})
	}
	return p
}

// says makes an Approval as the gateway does for lucas.
func (h *house) says(g *v1alpha1.Gate, d v1alpha1.Decision, answer v1alpha1.HaltAnswer, text string) *v1alpha1.Approval {
	h.t.Helper()
	items++
	event := v1alpha1.MatrixEvent{Room: "!r:example.org", EventID: fmt.Sprintf("$e%d", items), Sender: "@lucas:example.org"}
	a := &v1alpha1.Approval{ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: names.Approval(event.Room, event.EventID)}, Spec: v1alpha1.ApprovalSpec{
		Gate: v1alpha1.GateRef{Name: g.Name, UID: string(g.UID)}, Digest: g.Spec.Digest, Decision: d, Answer: answer, Text: text,
		Approver: "matrix:@lucas:example.org", Channel: v1alpha1.Channel{Kind: v1alpha1.ChannelMatrix, Evidence: v1alpha1.EvidenceTyped, Matrix: &event}}}
	if err := h.gateway.Create(h.t.Context(), a); err != nil {
		h.t.Fatal(err)
	}
	return a
}

const patience = 30 * time.Second

// state waits until an item is in a state.
func (h *house) state(w *v1alpha1.WorkItem, want v1alpha1.WorkItemState) *v1alpha1.WorkItem {
	h.t.Helper()
	var now v1alpha1.WorkItem
	apitest.Wait(h.t, patience, func(ctx context.Context) error {
		if err := h.admin.Get(ctx, client.ObjectKeyFromObject(w), &now); err != nil {
			return err
		}
		if now.Status.State != want {
			return fmt.Errorf("%s is %q (%v), want %s", w.Name, now.Status.State, now.Status.Conditions, want)
		}
		return nil
	})
	return &now
}

// gate waits until a gate has an outcome; "" means open.
func (h *house) gate(name string, want v1alpha1.GateOutcome) *v1alpha1.Gate {
	h.t.Helper()
	var g v1alpha1.Gate
	apitest.Wait(h.t, patience, func(ctx context.Context) error {
		if err := h.admin.Get(ctx, client.ObjectKey{Namespace: agentsNamespace, Name: name}, &g); err != nil {
			return err
		}
		if g.Status.Outcome != want {
			return fmt.Errorf("gate %s has outcome %q (%s), want %q", name, g.Status.Outcome, g.Status.Message, want)
		}
		return nil
	})
	return &g
}

func (h *house) planState(p *v1alpha1.Plan, want v1alpha1.PlanState) *v1alpha1.Plan {
	h.t.Helper()
	var now v1alpha1.Plan
	apitest.Wait(h.t, patience, func(ctx context.Context) error {
		if err := h.admin.Get(ctx, client.ObjectKeyFromObject(p), &now); err != nil {
			return err
		}
		if now.Status.State != want {
			return fmt.Errorf("plan %s is %q (%v), want %s", p.Name, now.Status.State, now.Status.Conditions, want)
		}
		return nil
	})
	return &now
}

// refused waits until an Approval is refused.
func (h *house) refused(a *v1alpha1.Approval, reason string) *v1alpha1.Approval {
	h.t.Helper()
	var now v1alpha1.Approval
	apitest.Wait(h.t, patience, func(ctx context.Context) error {
		if err := h.admin.Get(ctx, client.ObjectKeyFromObject(a), &now); err != nil {
			return err
		}
		if now.Status.Reason != reason {
			return fmt.Errorf("approval %s is refused for %q (%s), want %q", a.Name, now.Status.Reason, now.Status.Message, reason)
		}
		return nil
	})
	return &now
}

// reports patches what the broker reports of an item.
func (h *house) reports(w *v1alpha1.WorkItem, change func(*v1alpha1.WorkItemRuntime)) {
	h.t.Helper()
	h.patchStatus(h.broker, w, func(st *v1alpha1.WorkItemStatus) {
		if st.Runtime == nil {
			st.Runtime = &v1alpha1.WorkItemRuntime{}
		}
		change(st.Runtime)
	})
}

func (h *house) patchStatus(as client.Client, w *v1alpha1.WorkItem, change func(*v1alpha1.WorkItemStatus)) {
	h.t.Helper()
	apitest.Wait(h.t, patience, func(ctx context.Context) error {
		var now v1alpha1.WorkItem
		if err := h.admin.Get(ctx, client.ObjectKeyFromObject(w), &now); err != nil {
			return err
		}
		before := now.DeepCopy()
		change(&now.Status)
		return as.Status().Patch(ctx, &now, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	})
}

func (h *house) finish(w *v1alpha1.WorkItem) {
	h.t.Helper()
	h.reports(w, func(r *v1alpha1.WorkItemRuntime) {
		r.Finished = &v1alpha1.FinishReport{Summary: "Done.", At: metav1.Now()}
	})
}

var errStill = errors.New("not yet")
