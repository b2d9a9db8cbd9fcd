package broker

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/broker/devices"
	"nisse.io/nisse/broker/judge"
	"nisse.io/nisse/device"
	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/device/wire/chain"
	"nisse.io/nisse/internal/approval"
	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/names"
	"nisse.io/nisse/test/apitest"
	"nisse.io/nisse/test/faultydevice"
	"nisse.io/nisse/test/signed"
)

func TestMain(m *testing.M) { apitest.Main(m) }

// rig is a broker at a real API server, with a pod that speaks to it, one device, and the test as manager and people.
type rig struct {
	t        *testing.T
	cfg      *rest.Config
	api      client.Client
	kube     kubernetes.Interface
	ns       string
	approver ed25519.PrivateKey
	request  ed25519.PrivateKey
	// rootKey of the device, and what it allows as the cluster keeps it.
	rootKey  ed25519.PrivateKey
	manifest *v1alpha1.DeviceManifest
	// device that does what the test wants; nil where the real one serves.
	device *faultydevice.Device
	// root is the directory that the device allows; /srv in arguments stands for it.
	root string
	// target is the device as the broker reaches it.
	target devices.Target
	broker *Broker
	events *events
	fence  *fence
	url    string
	token  string
	agent  *v1alpha1.Agent
	item   *v1alpha1.WorkItem
}

type events struct {
	mu  sync.Mutex
	all []string
}

func (e *events) Eventf(_ runtime.Object, _ runtime.Object, _, reason, _, _ string, _ ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, reason)
}

type fence struct {
	mu   sync.Mutex
	lost error
}

func (f *fence) Held(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lost
}

func (f *fence) lose() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lost = errors.New("another broker leads")
}

// options change a rig before its broker starts.
type options struct {
	agent func(*v1alpha1.Agent)
	// cached replaces the broker's cache.
	cached func(client.Reader) client.Reader
	// faults asks for the device of package faultydevice instead of the real one.
	faults bool
	// bare: the device holds no manifest yet.
	bare bool
}

func newRig(t *testing.T, o options) *rig {
	t.Helper()
	cfg, admin := apitest.Start(t)
	kube, err := kubernetes.NewForConfig(cfg)
	must(t, err)
	r := &rig{t: t, cfg: cfg, api: admin, kube: kube, ns: apitest.Namespace(t, admin), events: &events{}, fence: &fence{}}
	r.approver, r.request = newKey(t), newKey(t)
	if o.faults {
		r.root = "/srv"
		r.device = faultydevice.New(t, "web1", public(r.request), public(r.approver))
		r.target, r.rootKey = devices.Target{Name: "web1", URL: r.device.URL, Key: public(r.device.Key)}, r.device.Root
		r.manifest, err = signed.Object(r.ns, r.device.Manifest, r.device.Envelope)
		must(t, err)
	} else {
		r.realDevice(o.bare)
	}
	r.create(&v1alpha1.Device{ObjectMeta: r.meta("web1"), Spec: v1alpha1.DeviceSpec{URL: r.target.URL, PublicKey: dsse.EncodeKey(r.target.Key), RootKey: dsse.EncodeKey(public(r.rootKey))}})
	r.create(r.manifest)
	r.agent = &v1alpha1.Agent{ObjectMeta: r.meta("ops"), Spec: v1alpha1.AgentSpec{
		Workflow:     v1alpha1.WorkflowOperations,
		People:       []v1alpha1.AgentPerson{{Name: "lucas", May: []v1alpha1.Right{v1alpha1.RightInstruct, v1alpha1.RightApprove}}},
		Conversation: v1alpha1.Conversation{Matrix: v1alpha1.MatrixConversation{UserID: "@ops:example.org", Room: "#ops:example.org"}},
		Models:       v1alpha1.Models{Endpoint: v1alpha1.ModelEndpoint{URL: "http://127.0.0.1:4000/v1", Protocol: v1alpha1.ProtocolOpenAI}, Roles: map[string]v1alpha1.ModelRole{"executor": {Model: "m"}}},
		Tools:        v1alpha1.Tools{Allow: []string{"fs.read", "fs.write", "exec", "submit_plan", "ask_human"}},
		Devices:      []string{"web1"},
	}}
	if o.agent != nil {
		o.agent(r.agent)
	}
	r.create(r.agent)
	r.item = r.newItem("wi-1")
	r.activate("wi-1")
	r.token = r.podToken()
	r.broker, r.url = r.start(o)
	return r
}

// realDevice is nisse-device's own server in this process. It holds its manifest already, unless it is bare.
func (r *rig) realDevice(bare bool) {
	r.t.Helper()
	r.root, r.rootKey = r.t.TempDir(), newKey(r.t)
	text := fmt.Sprintf(`
v: 1
device: web1
privilege: User
keys: {request: [%q], approval: [%q]}
paths:
  fs.read: [{glob: "%[3]s/**", approval: None}]
  fs.write: [{glob: "%[3]s/**", approval: Required}]
commands:
- {argv: [/usr/bin/df, -h], approval: None}
limits: {writeBytes: 65536, outputBytes: 4194304, timeoutSeconds: 60}`, dsse.EncodeKey(public(r.request)), dsse.EncodeKey(public(r.approver)), r.root)
	r.manifest, _ = signed.Manifest(r.t, r.rootKey, r.ns, text)
	key := newKey(r.t)
	d, h, err := device.New(context.WithoutCancel(r.t.Context()), device.Options{Dir: r.t.TempDir(), Device: "web1", RootKey: public(r.rootKey), Key: key})
	must(r.t, err)
	if !bare {
		_, err = d.Install(r.t.Context(), r.manifest.Spec.Signature)
		must(r.t, err)
	}
	srv := httptest.NewServer(h)
	r.t.Cleanup(func() {
		srv.Close()
		if err := d.Close(); err != nil {
			r.t.Error(err)
		}
	})
	r.target = devices.Target{Name: "web1", URL: srv.URL, Key: public(key)}
}

// sign the manifest anew after a change.
func (r *rig) sign(change func(*v1alpha1.DeviceManifestSpec)) {
	r.t.Helper()
	r.spec(r.manifest, func() {
		change(&r.manifest.Spec)
		signed.Again(r.t, r.rootKey, r.manifest)
	})
}

// runs are the rows of what ran at the device, in order: with an approval, or all.
func (r *rig) runs(approved bool) []chain.Row {
	r.t.Helper()
	q := wire.Query{Device: "web1", Path: "/v1/audit?after=0", At: time.Now().Unix(), ExpiresAt: time.Now().Add(time.Minute).Unix(), Nonce: "n"}
	header, err := wire.SignQuery(r.request, q)
	must(r.t, err)
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.target.URL+q.Path, nil)
	must(r.t, err)
	req.Header.Set(wire.QueryHeader, header)
	res, err := http.DefaultClient.Do(req)
	must(r.t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	must(r.t, err)
	page, err := wire.OpenAuditPage(body, r.target.Key, q)
	must(r.t, err)
	var ran []chain.Row
	for _, text := range page.Rows {
		row, err := chain.Decode(text)
		must(r.t, err)
		if row.Kind == chain.Intent && (row.Gate != "" || !approved) {
			ran = append(ran, row)
		}
	}
	return ran
}

// start a broker on the rig's objects. It ends with the test.
func (r *rig) start(o options) (*Broker, string) {
	r.t.Helper()
	c, err := cache.New(r.cfg, cache.Options{Scheme: apitest.Scheme(), DefaultNamespaces: map[string]cache.Config{r.ns: {}}})
	must(r.t, err)
	var cached client.Reader = c
	if o.cached != nil {
		cached = o.cached(c)
	}
	reg := prometheus.NewRegistry()
	b := New(Config{Namespace: r.ns, RequestKey: r.request, ApprovalKeys: []ed25519.PublicKey{public(r.approver)}, Log: slog.New(slog.DiscardHandler), Version: "test"},
		World{Live: apitest.Client(r.t, r.cfg), Cached: cached, Kube: r.kube, Fence: r.fence, Events: r.events, Metrics: reg})
	must(r.t, b.Watch(r.t.Context(), c))
	go func() { _ = c.Start(r.t.Context()) }() // ends with the test
	if !c.WaitForCacheSync(r.t.Context()) {
		r.t.Fatal("the cache did not sync")
	}
	srv := httptest.NewServer(b.Handler())
	r.t.Cleanup(srv.Close)
	r.t.Cleanup(srv.CloseClientConnections)
	return b, srv.URL
}

func (r *rig) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: r.ns, Name: name}
}

func (r *rig) create(o client.Object) {
	r.t.Helper()
	must(r.t, r.api.Create(r.t.Context(), o))
}

func (r *rig) newItem(name string) *v1alpha1.WorkItem {
	r.t.Helper()
	it := &v1alpha1.WorkItem{ObjectMeta: r.meta(name), Spec: v1alpha1.WorkItemSpec{Agent: "ops", Title: "write a file", Request: "please write", Source: v1alpha1.Source{Kind: v1alpha1.SourceKubernetes}}}
	r.create(it)
	it.Status.State = v1alpha1.WorkItemWorking
	must(r.t, r.api.Status().Update(r.t.Context(), it))
	return it
}

func (r *rig) activate(item string) {
	r.t.Helper()
	r.status(r.agent, func() { r.agent.Status.ActiveWorkItem = item })
}

// status changes an object's status, read anew.
func (r *rig) status(o client.Object, change func()) {
	r.t.Helper()
	apitest.Wait(r.t, time.Minute, func(ctx context.Context) error {
		if err := r.api.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		change()
		return r.api.Status().Update(ctx, o)
	})
}

// spec changes an object's spec, read anew.
func (r *rig) spec(o client.Object, change func()) {
	r.t.Helper()
	apitest.Wait(r.t, time.Minute, func(ctx context.Context) error {
		if err := r.api.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		change()
		return r.api.Update(ctx, o)
	})
}

func (r *rig) podToken() string {
	r.t.Helper()
	sa := &corev1.ServiceAccount{ObjectMeta: r.meta("agent-ops")}
	if err := r.api.Create(r.t.Context(), sa); err != nil && !apierrors.IsAlreadyExists(err) {
		r.t.Fatal(err)
	}
	p := &corev1.Pod{ObjectMeta: r.meta("agent-ops-0"), Spec: corev1.PodSpec{ServiceAccountName: "agent-ops", Containers: []corev1.Container{{Name: "agentruntime", Image: "nisse-agent"}}}}
	r.create(p)
	tr := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{doors.AudienceBroker},
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: p.Name, UID: p.UID}}}
	tr, err := r.kube.CoreV1().ServiceAccounts(r.ns).CreateToken(r.t.Context(), "agent-ops", tr, metav1.CreateOptions{})
	must(r.t, err)
	return tr.Status.Token
}

type bearer string

func (b bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(req)
}

// session of the agent's pod at the broker's tools.
func (r *rig) session() *sdk.ClientSession { return r.sessionAt(r.url) }

func (r *rig) sessionAt(url string) *sdk.ClientSession {
	r.t.Helper()
	c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	s, err := c.Connect(r.t.Context(), &sdk.StreamableClientTransport{Endpoint: url + "/mcp", HTTPClient: &http.Client{Transport: bearer(r.token)}, DisableStandaloneSSE: true, MaxRetries: -1}, nil)
	must(r.t, err)
	r.t.Cleanup(func() { _ = s.Close() }) // the broker may be gone before
	return s
}

// call a tool; id and item are left out when empty.
func (r *rig) call(s *sdk.ClientSession, id, tool, args string) (doors.ToolResult, error) {
	return r.callFor(s, "", id, tool, args)
}

func (r *rig) callFor(s *sdk.ClientSession, item, id, tool, args string) (doors.ToolResult, error) {
	p := callParams(id, tool, strings.ReplaceAll(args, "/srv/", r.root+"/"))
	if item != "" {
		p.Meta[doors.MetaWorkItem] = item
	}
	res, err := s.CallTool(r.t.Context(), p)
	if err != nil {
		return doors.ToolResult{}, err
	}
	var out doors.ToolResult
	text := res.Content[0].(*sdk.TextContent).Text
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		return out, fmt.Errorf("text content %q: %w", text, err)
	}
	structured, err := json.Marshal(res.StructuredContent)
	if err != nil {
		return out, err
	}
	var again doors.ToolResult
	if err := json.Unmarshal(structured, &again); err != nil || again.Status != out.Status {
		return out, fmt.Errorf("structured content %s differs from text %s", structured, text)
	}
	if want := out.Status == doors.Refused || out.Status == doors.Failed; res.IsError != want {
		return out, fmt.Errorf("isError is %v for %s", res.IsError, out.Status)
	}
	return out, nil
}

func callParams(id, tool, args string) *sdk.CallToolParams {
	p := &sdk.CallToolParams{Meta: sdk.Meta{}, Name: tool, Arguments: json.RawMessage(args)}
	if id != "" {
		p.Meta[doors.MetaCallID] = id
	}
	return p
}

// do makes a call that the broker has to answer.
func (r *rig) do(id, tool, args string) doors.ToolResult {
	r.t.Helper()
	res, err := r.call(r.session(), id, tool, args)
	must(r.t, err)
	return res
}

func writeArgs(name, content string) string {
	return fmt.Sprintf(`{"device":"web1","path":"/srv/%s","content":%q}`, name, content)
}

func planArgs(names ...string) string {
	steps := make([]any, len(names))
	for i, n := range names {
		steps[i] = map[string]any{"device": "web1", "capability": "fs.write", "args": map[string]any{"path": "/srv/" + n, "content": "x"}}
	}
	b, _ := json.Marshal(map[string]any{"reason": "as asked", "steps": steps}) // maps and strings
	return string(b)
}

// submit a plan that must be stored.
func (r *rig) submit(id string, files ...string) *v1alpha1.Plan {
	r.t.Helper()
	res := r.do(id, "submit_plan", planArgs(files...))
	if res.Status != doors.Pending || res.Gate == "" {
		r.t.Fatalf("submit_plan: %+v", res)
	}
	p := &v1alpha1.Plan{}
	must(r.t, r.api.Get(r.t.Context(), client.ObjectKey{Namespace: r.ns, Name: res.Gate}, p))
	return p
}

// asked is the plan of a call that a person is to be asked about.
func (r *rig) asked(res doors.ToolResult) *v1alpha1.Plan {
	r.t.Helper()
	r.want(res, doors.Pending, "AwaitingApproval")
	p := &v1alpha1.Plan{}
	must(r.t, r.api.Get(r.t.Context(), client.ObjectKey{Namespace: r.ns, Name: res.Gate}, p))
	if !p.Spec.Call || len(p.Spec.Steps) != 1 {
		r.t.Fatalf("asked about %+v", p.Spec)
	}
	return p
}

// gate is opened as the manager does.
func (r *rig) gate(p *v1alpha1.Plan) *v1alpha1.Gate {
	r.t.Helper()
	digest, err := judge.PlanDigest(r.agent, r.item, p, 600)
	must(r.t, err)
	g := &v1alpha1.Gate{ObjectMeta: r.meta(names.PlanGate(p.Name)), Spec: v1alpha1.GateSpec{
		Agent: "ops", WorkItem: p.Spec.WorkItem, Kind: v1alpha1.GatePlan, Subject: v1alpha1.GateSubject{Kind: v1alpha1.SubjectPlan, Name: p.Name, UID: string(p.UID)},
		Revision: p.Spec.Revision, Rule: "test", Digest: digest, Tier: v1alpha1.TierStandard, Title: "t", Message: "m", Approvers: []string{"lucas"}, Required: 1,
		ExpiresAt: metav1.NewTime(time.Now().Add(time.Hour)), WindowSeconds: 600}}
	if p.Spec.Call {
		g.Spec.Kind = v1alpha1.GateCall
	}
	g.Labels = map[string]string{v1alpha1.LabelAgent: "ops", v1alpha1.LabelWorkItem: r.item.Name}
	r.create(g)
	return g
}

// approve as the manager does when a person did.
func (r *rig) approve(p *v1alpha1.Plan) *v1alpha1.Gate {
	r.t.Helper()
	g := r.gate(p)
	r.outcome(g, v1alpha1.GateApproved, r.statement(g, p, r.approver))
	return g
}

func (r *rig) statement(g *v1alpha1.Gate, p *v1alpha1.Plan, key ed25519.PrivateKey) string {
	r.t.Helper()
	s := approval.Statement{GateUID: string(g.UID), Digest: g.Spec.Digest, Approvers: []string{"lucas"}, ExpiresAt: time.Now().Add(10 * time.Minute).Unix()}
	for _, step := range p.Spec.Steps {
		s.Calls, s.Attempts = append(s.Calls, judge.StepCall(step).Hash()), append(s.Attempts, 1)
		if s.Resolved = append(s.Resolved, ""); step.Resolved != nil {
			s.Resolved[len(s.Resolved)-1] = step.Resolved.SHA256
		}
	}
	env, err := s.Sign(key)
	must(r.t, err)
	return env
}

func (r *rig) outcome(g *v1alpha1.Gate, o v1alpha1.GateOutcome, statement string) {
	r.t.Helper()
	r.status(g, func() {
		now := metav1.Now()
		g.Status.Outcome, g.Status.Statement, g.Status.DecidedAt = o, statement, &now
		g.Status.Decisions = []v1alpha1.GateDecision{{Approval: "a", Person: "lucas", Decision: v1alpha1.DecisionApprove, Channel: v1alpha1.ChannelKubernetes, At: now}}
		if o == v1alpha1.GateRejected {
			g.Status.Decisions[0].Decision, g.Status.Decisions[0].Text = v1alpha1.DecisionReject, "use daily.txt"
		}
	})
}

func (r *rig) jobs() []v1alpha1.DeviceJob {
	r.t.Helper()
	var l v1alpha1.DeviceJobList
	must(r.t, r.api.List(r.t.Context(), &l, client.InNamespace(r.ns)))
	return l.Items
}

func (r *rig) itemNow() *v1alpha1.WorkItem {
	r.t.Helper()
	it := &v1alpha1.WorkItem{}
	must(r.t, r.api.Get(r.t.Context(), client.ObjectKeyFromObject(r.item), it))
	return it
}

func (r *rig) want(got doors.ToolResult, status, reason string) {
	r.t.Helper()
	if got.Status != status || got.Reason != reason {
		r.t.Fatalf("got %s %q (%s), want %s %q", got.Status, got.Reason, got.Message, status, reason)
	}
}

func (r *rig) ran(n int) {
	r.t.Helper()
	var got int
	if r.device != nil {
		got = r.device.Approved()
	} else {
		got = len(r.runs(true))
	}
	if got != n {
		r.t.Fatalf("%d approved deeds ran, want %d", got, n)
	}
}

func newKey(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	_, k, err := ed25519.GenerateKey(nil)
	must(t, err)
	return k
}

func public(k ed25519.PrivateKey) ed25519.PublicKey { return k.Public().(ed25519.PublicKey) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
