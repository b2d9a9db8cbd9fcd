// Package stack runs the whole product as plain processes on one machine for tests: a real API server with the admission policies
// and each component's own rights, a real homeserver, the scripted model, and the five binaries, each of which can be killed,
// restarted or told to die at a crash point. Only the kubelet is missing: the stack makes the agent's pod object itself, asks for
// its tokens, and runs the runtime where the pod would be.
package stack

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/testrig/homeserver"
	"nisse.io/nisse/internal/testrig/person"
	"nisse.io/nisse/test/apitest"
	"nisse.io/nisse/test/scriptedmodel"
)

// Names of what the stack sets up.
const (
	// System is the namespace of the components' ServiceAccounts, by which the admission policies know them.
	System = "nisse-system"
	Agent  = "ops"
	Device = "web1"
	Person = "lucas"
	// Kubernetes is the person's username at the API server.
	Kubernetes = "lucas@example.org"
)

// Options of a stack; the zero value plays the demo's scenario.
type Options struct {
	// Scenario of the model: a path in the repository.
	Scenario string
	// Crash maps a component to the crash point at which it dies once (needs binaries built with the crash rig's tag).
	Crash map[string]string
	// Agent changes the Agent before it is made.
	Agent func(*api.Agent)
	// OwnHome gives the stack a homeserver that no other test uses, so that it may be killed.
	OwnHome bool
}

// Stack is running. Those of a package share an API server and a homeserver, and may run beside each other: each has namespaces,
// accounts and a room of its own.
type Stack struct {
	T   testing.TB
	Dir string
	// Namespace of the agents.
	Namespace string
	Config    *rest.Config
	Admin     client.Client
	Home      *homeserver.Server
	Model     *scriptedmodel.Running
	// API is the components' way to the API server. The test's own clients do not use it.
	API *Link
	// You are the person in the room.
	You *person.Person
	// Room ID.
	Room string
	// Files is the directory that the device may write: /srv/nisse of the demo.
	Files string

	opts Options
	// suffix of the accounts at a homeserver that is shared.
	suffix string
	mu     sync.Mutex
	procs  map[string]*Process
	ports  map[string]int
	public map[string]string
}

// Components in the order in which they start.
var Components = []string{"nisse-device", "manager", "broker", "gateway", "agentruntime"}

// kubeconfig with which a component talks to the API server as user, holding that user's rights and no others.
func (s *Stack) kubeconfig(name, user string, more ...string) string {
	s.T.Helper()
	groups := append([]string{"system:authenticated"}, more...)
	if strings.HasPrefix(user, "system:serviceaccount:") {
		groups = append(groups, "system:serviceaccounts", "system:serviceaccounts:"+System)
	}
	cfg := clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c": {Server: "https://" + s.API.Address(), CertificateAuthorityData: s.Config.CAData}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {ClientCertificateData: s.Config.CertData, ClientKeyData: s.Config.KeyData,
			Impersonate: user, ImpersonateGroups: groups}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}
	path := filepath.Join(s.Dir, name+".kubeconfig")
	if err := clientcmd.WriteToFile(cfg, path); err != nil {
		s.T.Fatal(err)
	}
	return path
}

// As returns a client of somebody, who may do what they are granted.
func (s *Stack) As(user string, groups ...string) client.Client {
	return apitest.As(s.T, s.Config, user, groups...)
}

func (s *Stack) must(err error) {
	s.T.Helper()
	if err != nil {
		s.T.Fatal(err)
	}
}

func (s *Stack) write(name string, data []byte, mode os.FileMode) string {
	s.T.Helper()
	p := filepath.Join(s.Dir, name)
	s.must(os.MkdirAll(filepath.Dir(p), 0o755))
	s.must(os.WriteFile(p, data, mode))
	return p
}

// key makes one signing key and returns the path of its private half.
func (s *Stack) key(name string) string {
	s.T.Helper()
	pub, private, err := ed25519.GenerateKey(rand.Reader)
	s.must(err)
	pem, err := dsse.EncodePrivateKey(private)
	s.must(err)
	s.public[name] = dsse.EncodeKey(pub)
	return s.write("keys/"+name+".pem", pem, 0o600)
}

// tokens asks for the pod's projected tokens, as the kubelet does.
func (s *Stack) tokens(ctx context.Context, pod *corev1.Pod) {
	s.T.Helper()
	cs, err := kubernetes.NewForConfig(s.Config)
	s.must(err)
	hour := int64(3600)
	for _, audience := range []string{"broker", "gateway"} {
		tr, err := cs.CoreV1().ServiceAccounts(s.Namespace).CreateToken(ctx, "agent-"+Agent, tokenRequest(audience, pod, hour), metav1.CreateOptions{})
		s.must(err)
		s.write("tokens/"+audience, []byte(tr.Status.Token), 0o600)
	}
}

// Wait until check returns nil, and fail with its last error and the components' last lines.
func (s *Stack) Wait(within time.Duration, what string, check func(context.Context) error) {
	s.T.Helper()
	ctx, cancel := context.WithTimeout(s.T.Context(), within)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			s.Dump()
			s.T.Fatalf("%s: after %s: %v", what, within, err)
		case <-tick.C:
		}
	}
}
