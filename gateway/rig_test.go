package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"maunium.net/go/mautrix/id"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/gateway"
	"nisse.io/nisse/gateway/matrix"
	"nisse.io/nisse/gateway/store"
	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/internal/testrig"
	"nisse.io/nisse/internal/testrig/homeserver"
	"nisse.io/nisse/internal/testrig/person"
	"nisse.io/nisse/test/apitest"
)

const (
	password = "correct horse battery"
	patience = 60 * time.Second
)

func TestMain(m *testing.M) {
	testrig.Abreast(4)
	apitest.Main(home{m})
}

// home ends the shared homeserver when the tests have ended.
type home struct{ m *testing.M }

func (h home) Run() int { return homeserver.Main(h.m) }

// rigs counts those of the test process, for names that no other has at the homeserver that they share.
var rigs atomic.Int64

// rig is people, an agent without a pod, and the gateway between them, at a homeserver and an API server that the rigs of the package
// share. The test plays the manager and the pod.
type rig struct {
	t  *testing.T
	hs *homeserver.Server
	// suffix of its accounts and of its room at the homeserver.
	suffix string
	base   string // what the gateway takes for the homeserver
	admin  client.Client
	cfg    *rest.Config
	ns     string
	dir    string
	store  *store.Store   // of the gateway that runs
	lucas  *person.Person // instructs and approves
	anna   *person.Person // instructs
	eve    *person.Person // a stranger
	ops    id.UserID
	gates  id.UserID
	room   id.RoomID

	away  atomic.Bool // the API server does not answer the gateway
	blind blindfold   // the gateway's cache learns of no work items
	halt  func()      // stops the gateway
	// stored counts the messages that the gateway has taken in, by its log.
	stored atomic.Int64
	door   string
	client *http.Client
}

func newRig(t *testing.T) *rig {
	t.Helper()
	cfg, admin := apitest.Start(t)
	r := &rig{t: t, hs: homeserver.Shared(t), suffix: fmt.Sprint("-", rigs.Add(1)), admin: admin, cfg: cfg, ns: apitest.Namespace(t, admin), dir: t.TempDir(), client: &http.Client{}}
	for _, name := range []string{"lucas", "anna", "eve", "nisse-ops", "nisse-gates"} {
		r.register(name)
	}
	r.ops, r.gates = r.user("nisse-ops"), r.user("nisse-gates")
	for _, user := range []id.UserID{r.ops, r.gates} {
		r.must(os.MkdirAll(filepath.Join(r.dir, "credentials"), 0o700))
		r.must(os.WriteFile(filepath.Join(r.dir, "credentials", user.Localpart()+".json"), fmt.Appendf(nil, `{"userID": %q, "password": %q}`, user, password), 0o600))
	}
	r.lucas, r.anna, r.eve = r.login("lucas"), r.login("anna"), r.login("eve")
	r.base = r.hs.BaseURL
	room, err := r.lucas.CreateRoom(t.Context(), person.RoomOptions{Alias: "ops" + r.suffix, Invite: []id.UserID{r.ops, r.anna.UserID(), r.eve.UserID()}})
	r.must(err)
	r.room = room
	for _, p := range []*person.Person{r.anna, r.eve} {
		_, err := p.Join(t.Context(), room.String())
		r.must(err)
	}
	r.create(&v1alpha1.Person{ObjectMeta: r.meta("lucas"), Spec: v1alpha1.PersonSpec{Identities: v1alpha1.Identities{Matrix: r.lucas.UserID().String()}}})
	r.create(&v1alpha1.Person{ObjectMeta: r.meta("anna"), Spec: v1alpha1.PersonSpec{Identities: v1alpha1.Identities{Matrix: r.anna.UserID().String()}}})
	r.create(r.agent("ops", r.ops.String(), r.alias()))
	return r
}

func (r *rig) agent(name, user, room string) *v1alpha1.Agent {
	return &v1alpha1.Agent{ObjectMeta: r.meta(name), Spec: v1alpha1.AgentSpec{
		Workflow: v1alpha1.WorkflowOperations,
		People: []v1alpha1.AgentPerson{
			{Name: "lucas", May: []v1alpha1.Right{v1alpha1.RightInstruct, v1alpha1.RightApprove}}, {Name: "anna", May: []v1alpha1.Right{v1alpha1.RightInstruct}},
		},
		Conversation: v1alpha1.Conversation{Matrix: v1alpha1.MatrixConversation{UserID: user, Room: room}},
		Models: v1alpha1.Models{
			Endpoint: v1alpha1.ModelEndpoint{URL: "http://192.0.2.1/v1", Protocol: v1alpha1.ProtocolOpenAI},
			Roles:    map[string]v1alpha1.ModelRole{"executor": {Model: "none"}},
		},
		Tools: v1alpha1.Tools{Allow: []string{"fs.read"}},
	}}
}

// user is the rig's own account of a name.
func (r *rig) user(name string) id.UserID { return id.NewUserID(name+r.suffix, r.hs.ServerName) }

// alias of the rig's room.
func (r *rig) alias() string { return "#ops" + r.suffix + ":" + r.hs.ServerName }

func (r *rig) register(name string) {
	r.t.Helper()
	r.hs.RegisterUser(r.t, name+r.suffix, password, false)
}

func (r *rig) login(name string) *person.Person {
	r.t.Helper()
	return r.hs.Login(r.t, name+r.suffix, password)
}

func (r *rig) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: r.ns, Name: name}
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) create(o client.Object) {
	r.t.Helper()
	r.must(r.admin.Create(r.t.Context(), o))
}

// RoundTrip is the gateway's way to the API server.
type faulty struct {
	away  *atomic.Bool
	blind *blindfold
	next  http.RoundTripper
}

var errAway = errors.New("the API server is away")

func (f faulty) RoundTrip(req *http.Request) (*http.Response, error) {
	if f.away.Load() {
		return nil, errAway
	}
	req, err := f.blind.over(req)
	if err != nil {
		return nil, err
	}
	return f.next.RoundTrip(req)
}

// blindfold keeps what informers ask about work items from being answered, and lets everything else through: a cache that lags, and
// an API server that does not.
type blindfold struct {
	mu    sync.Mutex
	on    bool
	watch []context.CancelFunc
}

func (b *blindfold) put() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.on = true
	for _, cancel := range b.watch {
		cancel()
	}
	b.watch = nil
}

func (b *blindfold) drop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.on = false
}

func (b *blindfold) over(req *http.Request) (*http.Request, error) {
	q := req.URL.Query()
	watch := q.Get("watch") != ""
	if !strings.HasSuffix(req.URL.Path, "/workitems") || (!watch && !q.Has("resourceVersion")) {
		return req, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.on {
		return nil, errAway
	}
	ctx := req.Context()
	if watch {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		b.watch = append(b.watch, cancel)
	}
	return req.WithContext(ctx), nil
}

// start the gateway on the state it has, and wait until the agent is connected.
func (r *rig) start() {
	r.t.Helper()
	s, err := store.Open(r.t.Context(), filepath.Join(r.dir, "state"))
	r.must(err)
	r.store = s
	cfg := rest.CopyConfig(r.cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return faulty{&r.away, &r.blind, next} })
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: apitest.Scheme(), Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{r.ns: {}}},
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
	})
	r.must(err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	r.must(err)
	r.door = l.Addr().String()
	r.must(l.Close())
	r.must(gateway.Setup(mgr, gateway.Options{
		Namespace: r.ns, Homeserver: r.base, Approvals: r.gates.String(), Bind: r.door, Store: s,
		Credentials: matrix.Credentials{Dir: filepath.Join(r.dir, "credentials")}, Log: slog.New(slog.NewTextHandler(testLog{r}, nil)),
		Timing: matrix.Timing{Backoff: 20 * time.Millisecond, MaxBackoff: 200 * time.Millisecond, Retry: 100 * time.Millisecond, Poll: 2 * time.Second, Timeline: 20},
	}))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	r.halt = func() {
		r.halt = nil
		cancel()
		if err := <-ended; err != nil {
			r.t.Error(err)
		}
		r.must(s.Close())
	}
	r.t.Cleanup(func() {
		if r.halt != nil {
			r.halt()
		}
	})
	r.wait("the door is open", func(ctx context.Context) error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", r.door)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	r.wait("the agent is connected", func(ctx context.Context) error {
		var a v1alpha1.Agent
		if err := r.admin.Get(ctx, client.ObjectKey{Namespace: r.ns, Name: "ops"}, &a); err != nil {
			return err
		}
		if c := a.Status.Conversation; c == nil || !c.Connected {
			return fmt.Errorf("conversation %+v", c)
		}
		return nil
	})
}

type testLog struct{ r *rig }

func (l testLog) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("msg=message.stored")) {
		l.r.stored.Add(1)
	}
	l.r.t.Logf("%s", strings.TrimSpace(string(b)))
	return len(b), nil
}

func (r *rig) wait(what string, check func(context.Context) error) {
	r.t.Helper()
	apitest.Wait(r.t, patience, func(ctx context.Context) error {
		if err := check(ctx); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	})
}

// say something in the room, or in a thread of it.
func (r *rig) say(who *person.Person, text string, thread id.EventID) id.EventID {
	r.t.Helper()
	e, err := who.Say(r.t.Context(), r.room, text, person.Where{Thread: thread})
	r.must(err)
	return e
}

// hear waits for a message of an account after an event.
func (r *rig) hear(from id.UserID, pattern string, after, thread id.EventID) person.Message {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	m, err := r.lucas.WaitFor(ctx, r.room, person.Want{Sender: from, Text: regexp.MustCompile(pattern), After: after, Thread: thread})
	r.must(err)
	return m
}

// said counts the messages that match, edits applied.
func (r *rig) said(pattern string) int {
	r.t.Helper()
	c, err := r.lucas.Conversation(r.t.Context(), r.room)
	r.must(err)
	n := 0
	for _, m := range c.Messages {
		if regexp.MustCompile(pattern).MatchString(m.Body) {
			n++
		}
	}
	return n
}

// item waits for the n-th work item.
func (r *rig) item(n int) *v1alpha1.WorkItem {
	r.t.Helper()
	var got v1alpha1.WorkItem
	r.wait(fmt.Sprintf("work item %d", n), func(ctx context.Context) error {
		items := r.items()
		if len(items) < n {
			return fmt.Errorf("there are %d", len(items))
		}
		got = items[n-1]
		return nil
	})
	return &got
}

// items by age.
func (r *rig) items() []v1alpha1.WorkItem {
	r.t.Helper()
	var all v1alpha1.WorkItemList
	r.must(r.admin.List(r.t.Context(), &all, client.InNamespace(r.ns)))
	return all.Items // names begin with the time
}

// work plays the manager that takes up an item.
func (r *rig) work(w *v1alpha1.WorkItem, state v1alpha1.WorkItemState) {
	r.t.Helper()
	r.must(r.admin.Get(r.t.Context(), client.ObjectKeyFromObject(w), w))
	w.Status.State = state
	r.must(r.admin.Status().Update(r.t.Context(), w))
	active := w.Name
	if state == v1alpha1.WorkItemClosed {
		active = ""
	}
	a := &v1alpha1.Agent{ObjectMeta: r.meta(w.Spec.Agent)}
	r.must(r.admin.Status().Patch(r.t.Context(), a, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"status":{"activeWorkItem":%q}}`, active))))
}

const digest = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

// gate plays the manager that asks about a revision.
func (r *rig) gate(w *v1alpha1.WorkItem, revision int32, message string) *v1alpha1.Gate {
	r.t.Helper()
	g := &v1alpha1.Gate{ObjectMeta: r.meta(fmt.Sprintf("%s-rev-%d", w.Name, revision)), Spec: v1alpha1.GateSpec{
		Agent: w.Spec.Agent, WorkItem: v1alpha1.ObjectRef{Name: w.Name, UID: string(w.UID)}, Kind: v1alpha1.GatePlan,
		Subject: v1alpha1.GateSubject{Kind: v1alpha1.SubjectPlan, Name: "p", UID: "u"}, Revision: revision, Rule: "test", Digest: digest,
		Tier: v1alpha1.TierStandard, Title: w.Spec.Title, Message: message, Approvers: []string{"lucas"}, Required: 1,
		ExpiresAt: metav1.NewTime(time.Now().Add(time.Hour)), WindowSeconds: 600,
	}}
	r.create(g)
	return g
}

func (r *rig) haltGate(w *v1alpha1.WorkItem, n int) *v1alpha1.Gate {
	r.t.Helper()
	g := &v1alpha1.Gate{ObjectMeta: r.meta(fmt.Sprintf("%s-halt-%d", w.Name, n)), Spec: v1alpha1.GateSpec{
		Agent: w.Spec.Agent, WorkItem: v1alpha1.ObjectRef{Name: w.Name, UID: string(w.UID)}, Kind: v1alpha1.GateHalt,
		Subject: v1alpha1.GateSubject{Kind: v1alpha1.SubjectWorkItem, Name: w.Name, UID: string(w.UID)}, Halt: &v1alpha1.GateHaltRef{Stop: "s"}, Rule: "test",
		Digest: digest, Tier: v1alpha1.TierStandard, Title: w.Spec.Title, Message: "Stopped.\nReply  continue  ·  replan  ·  abandon", Approvers: []string{"lucas"}, Required: 1,
		ExpiresAt: metav1.NewTime(time.Now().Add(time.Hour)), WindowSeconds: 600,
	}}
	r.create(g)
	return g
}

// end plays the manager that commits a gate's outcome.
func (r *rig) end(g *v1alpha1.Gate, outcome v1alpha1.GateOutcome, message string, decisions ...v1alpha1.GateDecision) {
	r.t.Helper()
	r.endAt(g, time.Now(), outcome, message, decisions...)
}

// endAt is end by a manager whose clock shows a time.
func (r *rig) endAt(g *v1alpha1.Gate, at time.Time, outcome v1alpha1.GateOutcome, message string, decisions ...v1alpha1.GateDecision) {
	r.t.Helper()
	r.must(r.admin.Get(r.t.Context(), client.ObjectKeyFromObject(g), g))
	decided := metav1.NewTime(at)
	g.Status.Outcome, g.Status.Message, g.Status.DecidedAt, g.Status.Decisions = outcome, message, &decided, decisions
	r.must(r.admin.Status().Update(r.t.Context(), g))
}

func by(person string, d v1alpha1.Decision) v1alpha1.GateDecision {
	return v1alpha1.GateDecision{Approval: "a", Person: person, Decision: d, Channel: v1alpha1.ChannelMatrix, At: metav1.Now()}
}

// approvals that were made, without what the API server adds.
func (r *rig) approvals() []v1alpha1.Approval {
	r.t.Helper()
	var all v1alpha1.ApprovalList
	r.must(r.admin.List(r.t.Context(), &all, client.InNamespace(r.ns)))
	return all.Items
}

// approval waits for the one about a gate.
func (r *rig) approval(g *v1alpha1.Gate) *v1alpha1.Approval {
	r.t.Helper()
	var got v1alpha1.Approval
	r.wait("an approval of "+g.Name, func(context.Context) error {
		for _, a := range r.approvals() {
			if a.Spec.Gate.UID == string(g.UID) {
				got = a
				return nil
			}
		}
		return errors.New("none")
	})
	return &got
}

// pod makes the agent's pod and returns its token for the gateway.
func (r *rig) pod(agent string) string {
	r.t.Helper()
	sa := &corev1.ServiceAccount{ObjectMeta: r.meta("agent-" + agent)}
	if err := r.admin.Create(r.t.Context(), sa); err != nil && !apierrors.IsAlreadyExists(err) {
		r.t.Fatal(err)
	}
	p := &corev1.Pod{ObjectMeta: r.meta("agent-" + agent + "-0"), Spec: corev1.PodSpec{ServiceAccountName: sa.Name, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	r.create(p)
	req := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences: []string{doors.AudienceGateway}, BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: p.Name, UID: p.UID},
	}}
	r.must(r.admin.SubResource("token").Create(r.t.Context(), sa, req))
	return req.Status.Token
}

// call the door; the answer's body goes into out.
func (r *rig) call(token, method, path string, in, out any) int {
	r.t.Helper()
	body, err := json.Marshal(in)
	r.must(err)
	req, err := http.NewRequestWithContext(r.t.Context(), method, "http://"+r.door+path, strings.NewReader(string(body)))
	r.must(err)
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := r.client.Do(req)
	r.must(err)
	defer res.Body.Close()
	if out != nil {
		if err := json.NewDecoder(res.Body).Decode(out); err != nil {
			r.t.Fatalf("%s %s: %d: %v", method, path, res.StatusCode, err)
		}
	}
	return res.StatusCode
}

// letters that the agent has, at least n.
func (r *rig) letters(token string, n int) []doors.Message {
	r.t.Helper()
	var first, inbox doors.Inbox
	if status := r.call(token, http.MethodGet, "/v1/inbox?epoch=&after=0", nil, &first); status != http.StatusConflict || first.Epoch == "" {
		r.t.Fatalf("an unknown epoch got %d, %+v", status, first)
	}
	r.wait(fmt.Sprintf("%d letters", n), func(context.Context) error {
		if status := r.call(token, http.MethodGet, "/v1/inbox?wait=1&after=0&epoch="+first.Epoch, nil, &inbox); status != http.StatusOK {
			return fmt.Errorf("status %d", status)
		}
		if len(inbox.Messages) < n {
			return fmt.Errorf("%d letters", len(inbox.Messages))
		}
		return nil
	})
	return inbox.Messages
}

func (r *rig) post(token string, o doors.Outgoing) {
	r.t.Helper()
	var p doors.Problem
	req := r.call(token, http.MethodPost, "/v1/outbox", o, nil)
	if req != http.StatusAccepted {
		r.t.Fatalf("the outbox answered %d %+v", req, p)
	}
}
