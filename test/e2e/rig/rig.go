// Package rig is the product as hack/demo/up.sh left it running, for tests that watch it from outside: through a room, through the
// API server with a person's own certificate, and through what the kernel says of its processes.
//
// The tests use an agent, an account and a room of their own, so a demo that runs already keeps its own conversation.
package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"maunium.net/go/mautrix/id"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/testrig/person"
	"nisse.io/nisse/test/apitest"
)

// Names of what the demo brought up, and of the agent that the tests add.
const (
	Namespace = "nisse"
	System    = "nisse-system"
	Device    = "web1"
	Person    = "lucas"
	Agent     = "e2e" // and those of a crew, whose names begin with it
	Server    = "nisse.local"
	Gates     = id.UserID("@nisse-gates:" + Server)
	Account   = id.UserID("@nisse-e2e:" + Server)
	// Files is the directory that the device may write.
	Files = "/srv/nisse"
)

// Patience for one thing to happen; generous, for machines with few cores.
const Patience = 2 * time.Minute

// Rig is what the tests of a package share.
type Rig struct {
	Config *rest.Config
	Admin  client.Client
	You    *person.Person
	Room   id.RoomID
	// Dir is where the demo keeps its state.
	Dir string
	// NodeIP is the address on which the programs of this machine listen for pods.
	NodeIP string
	// Agent that works in Room, and its account.
	Agent   string
	Account id.UserID
}

var (
	once    sync.Once
	shared  *Rig
	failure error
)

// Main runs a package's tests and removes what they added to the demo.
func Main(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	code := m.Run()
	if shared != nil {
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		if err := shared.remove(ctx, crew...); err != nil {
			fmt.Fprintln(os.Stderr, "remove the tests' agents:", err)
		}
		cancel()
	}
	os.Exit(code)
}

// Open returns the rig with the tests' agent ready for work.
func Open(t testing.TB) *Rig {
	t.Helper()
	once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*Patience)
		defer cancel()
		shared, failure = open(ctx)
	})
	if failure != nil {
		t.Fatalf("%v\n(run the end-to-end tests with hack/e2e.sh, which brings everything up)", failure)
	}
	return shared
}

func open(ctx context.Context) (*Rig, error) {
	r := &Rig{Dir: filepath.Join(os.Getenv("NISSE_RUN"), "demo"), NodeIP: os.Getenv("NODEIP"), Agent: Agent, Account: Account}
	if os.Getenv("NISSE_RUN") == "" || r.NodeIP == "" {
		return nil, errors.New("NISSE_RUN and NODEIP are not set")
	}
	if r.Fact("ready") == "" {
		return nil, fmt.Errorf("no demo runs in %s", r.Dir)
	}
	var err error
	if r.Config, err = clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG")); err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	r.Config.QPS, r.Config.Burst = 100, 200
	if r.Admin, err = client.New(r.Config, client.Options{Scheme: apitest.Scheme()}); err != nil {
		return nil, fmt.Errorf("reach the cluster: %w", err)
	}
	if r.You, err = person.Login(ctx, person.Account{Homeserver: r.Fact("matrix-url"), Name: "you", Password: r.Fact("password")}); err != nil {
		return nil, err
	}
	if err := r.remove(ctx, crew...); err != nil {
		return nil, err
	}
	if err := r.addAgent(ctx); err != nil {
		return nil, err
	}
	return r, r.isReady(ctx)
}

// crew are the agents that the tests may add; the accounts are the demo's.
var crew = []string{Agent, Agent + "-2", Agent + "-3"}

// Crew returns the rig three times, each with an agent and a room of its own, so that three stories go on beside each other. Those that are
// not the tests' usual agent are gone with the test.
func Crew(t testing.TB) []*Rig {
	t.Helper()
	first := Open(t)
	all := []*Rig{first}
	t.Cleanup(func() {
		if err := first.remove(context.WithoutCancel(t.Context()), crew[1:]...); err != nil {
			t.Error(err)
		}
	})
	for _, name := range crew[1:] {
		r := *first
		r.Agent, r.Account = name, id.UserID("@nisse-"+name+":"+Server)
		if err := r.addAgent(t.Context()); err != nil {
			t.Fatal(err)
		}
		all = append(all, &r)
	}
	for _, r := range all {
		if err := r.isReady(t.Context()); err != nil {
			r.Dump(t)
			t.Fatal(err)
		}
	}
	return all
}

// Fact that the demo wrote down; empty when it did not.
func (r *Rig) Fact(name string) string {
	b, err := os.ReadFile(filepath.Join(r.Dir, "fact-"+name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// addAgent makes the rig's agent, like the demo's but in a fresh room, and with these changes.
func (r *Rig) addAgent(ctx context.Context, changes ...func(*api.AgentSpec)) error {
	var err error
	if r.Room, err = r.You.CreateRoom(ctx, person.RoomOptions{Name: "end-to-end", Invite: []id.UserID{r.Account, Gates}}); err != nil {
		return err
	}
	var demo api.Agent
	if err := r.Admin.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: "ops"}, &demo); err != nil {
		return fmt.Errorf("the demo's agent: %w", err)
	}
	a := &api.Agent{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: r.Agent}, Spec: *demo.Spec.DeepCopy()}
	a.Spec.Conversation.Matrix = api.MatrixConversation{UserID: r.Account.String(), Room: r.Room.String()}
	for _, change := range changes {
		change(&a.Spec)
	}
	if err := r.Admin.Create(ctx, a); err != nil {
		return fmt.Errorf("make the tests' agent: %w", err)
	}
	return nil
}

// isReady waits for the rig's agent.
func (r *Rig) isReady(ctx context.Context) error {
	return Poll(ctx, 2*Patience, func(ctx context.Context) error { return r.AgentReady(ctx, r.Agent) })
}

// AgentReady is nil once an agent is ready and in its room.
func (r *Rig) AgentReady(ctx context.Context, name string) error {
	var a api.Agent
	if err := r.Admin.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: name}, &a); err != nil {
		return err
	}
	for _, want := range []string{"Ready", "Connected"} {
		found := false
		for _, c := range a.Status.Conditions {
			if c.Type == want && c.ObservedGeneration == a.Generation {
				found = c.Status == metav1.ConditionTrue
			}
		}
		if !found {
			return fmt.Errorf("agent %s is not %s: %+v", name, want, a.Status)
		}
	}
	return nil
}

// remove what earlier tests left of these agents: themselves, their work and their logs.
func (r *Rig) remove(ctx context.Context, agents ...string) error {
	var items api.WorkItemList
	if err := r.Admin.List(ctx, &items, client.InNamespace(Namespace)); err != nil {
		return err
	}
	var gone []client.Object
	for i := range items.Items {
		if slices.Contains(agents, items.Items[i].Spec.Agent) {
			if err := r.Admin.Delete(ctx, &items.Items[i]); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
	}
	for _, name := range agents {
		a := &api.Agent{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name}}
		log := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "state-agent-" + name + "-0"}}
		for _, o := range []client.Object{a, log} {
			if err := r.Admin.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
		gone = append(gone, a, log, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "agent-" + name + "-0"}})
	}
	return Poll(ctx, Patience, func(ctx context.Context) error {
		for _, o := range gone {
			if err := r.Admin.Get(ctx, client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%T %s is still there: %w", o, o.GetName(), err)
			}
		}
		return nil
	})
}

// Poll until check returns nil; the error is check's last.
func Poll(ctx context.Context, within time.Duration, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %s: %w", within, err)
		case <-tick.C:
		}
	}
}

// Wait until check returns nil, and fail with its last error and what the components said last.
func (r *Rig) Wait(t testing.TB, what string, within time.Duration, check func(context.Context) error) {
	t.Helper()
	if err := Poll(t.Context(), within, check); err != nil {
		r.Dump(t)
		t.Fatalf("%s: %v", what, err)
	}
}
