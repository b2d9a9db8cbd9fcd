package stack

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"maunium.net/go/mautrix/id"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/internal/lead"
	"nisse.io/nisse/internal/testrig/homeserver"
	"nisse.io/nisse/internal/testrig/person"
	"nisse.io/nisse/internal/testrig/port"
	"nisse.io/nisse/test/apitest"
	"nisse.io/nisse/test/scriptedmodel"
	"nisse.io/nisse/test/signed"
)

const password = "correct horse battery"

// Start brings the whole product up and waits until the agent is ready for work.
func Start(t testing.TB, o Options) *Stack {
	t.Helper()
	build(t)
	n := started.Add(1)
	s := &Stack{T: t, Dir: t.TempDir(), Namespace: fmt.Sprint("nisse-", n), opts: o, procs: map[string]*Process{}, ports: map[string]int{}, public: map[string]string{}}
	s.must(os.Chmod(s.Dir, 0o755))
	s.Config, s.Admin = apitest.Start(t)
	server, err := url.Parse(s.Config.Host)
	s.must(err)
	s.API = NewLink(t, server.Host)
	ctx := t.Context()
	s.install(ctx)
	if o.OwnHome {
		s.Home = homeserver.Start(t, homeserver.Options{})
	} else {
		s.Home, s.suffix = homeserver.Shared(t), fmt.Sprint("-", n)
	}
	s.startModel()
	s.startRoom(ctx)
	s.startDevice(ctx)
	s.startComponents(ctx)
	s.makeAgent(ctx)
	s.startRuntime(ctx)
	s.Wait(60*time.Second, "agent is connected", func(ctx context.Context) error {
		var a api.Agent
		if err := s.Admin.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: Agent}, &a); err != nil {
			return err
		}
		if a.Status.Conversation == nil || !a.Status.Conversation.Connected {
			return fmt.Errorf("conversation: %+v", a.Status.Conversation)
		}
		return nil
	})
	s.Wait(60*time.Second, "the device answers the broker", func(ctx context.Context) error {
		var d api.Device
		if err := s.Admin.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: Device}, &d); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(d.Status.Conditions, api.ConditionOnline) {
			return fmt.Errorf("conditions: %+v", d.Status.Conditions)
		}
		return nil
	})
	return s
}

// started counts the stacks of the test process.
var started atomic.Int64

// leases is the namespace of this stack's Leases: that of the components, if stacks were alone.
func (s *Stack) leases() string { return s.Namespace + "-system" }

var policies sync.Mutex

// install what the chart installs: the admission policies, which all stacks share, and each component's rights, in the stack's own
// namespaces.
func (s *Stack) install(ctx context.Context) {
	s.T.Helper()
	policies.Lock()
	defer policies.Unlock()
	apitest.Install(s.T, s.Admin, apitest.Path("config", "admission"))
	for _, ns := range []string{s.Namespace, s.leases(), System} {
		s.create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	}
	apitest.Install(s.T, s.Admin, apitest.Path("config", "rbac"), func(u *unstructured.Unstructured) {
		switch u.GetNamespace() {
		case "nisse":
			u.SetNamespace(s.Namespace)
		case System:
			u.SetNamespace(s.leases())
		}
	})
}

func (s *Stack) create(ctx context.Context, o client.Object) {
	s.T.Helper()
	if err := s.Admin.Create(ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
		s.T.Fatal(err)
	}
}

func (s *Stack) startModel() {
	s.T.Helper()
	path := s.opts.Scenario
	if path == "" {
		path = "test/scriptedmodel/scenarios/demo.yaml"
	}
	text, err := os.ReadFile(apitest.Path(path))
	s.must(err)
	// The scenario's device directory is this stack's own.
	s.Files = filepath.Join(s.Dir, "srv")
	text = []byte(strings.ReplaceAll(string(text), "/srv/nisse", s.Files))
	sc, err := scriptedmodel.Parse(text)
	s.must(err)
	s.Model = scriptedmodel.Start(s.T, sc)
}

func (s *Stack) startRoom(ctx context.Context) {
	s.T.Helper()
	for _, name := range []string{"lucas", "nisse-ops", "nisse-gates", "mallory"} {
		s.Home.RegisterUser(s.T, name+s.suffix, password, false)
		if strings.HasPrefix(name, "nisse-") {
			b, err := json.Marshal(map[string]string{"userID": s.UserID(name), "password": password})
			s.must(err)
			s.write("credentials/"+name+".json", b, 0o600)
		}
	}
	s.You = s.Home.Login(s.T, "lucas"+s.suffix, password)
	room, err := s.You.CreateRoom(ctx, person.RoomOptions{Alias: "ops" + s.suffix, Name: "ops", Invite: []id.UserID{id.UserID(s.UserID("nisse-ops")), id.UserID(s.UserID("nisse-gates")), id.UserID(s.UserID("mallory"))}})
	s.must(err)
	s.Room = room.String()
}

// UserID of an account at the stack's homeserver.
func (s *Stack) UserID(name string) string { return "@" + name + s.suffix + ":" + s.Home.ServerName }

func (s *Stack) startDevice(ctx context.Context) {
	s.T.Helper()
	for _, name := range []string{"approval", "request", "root"} {
		s.key(name)
	}
	s.must(os.MkdirAll(s.Files, 0o755))
	s.ports["device"] = port.For(s.T)
	dir := filepath.Join(s.Dir, "device")
	s.run(ctx, "nisse-device", "init", "--dir", dir)
	s.write("device/config.yaml", []byte(fmt.Sprintf("listen: [\"127.0.0.1:%d\"]\nstateDir: %s\ndevice: %s\nrootKey: %s\nkey: %s/device.key\nallowRoot: true\n",
		s.ports["device"], dir, Device, s.public["root"], dir)), 0o644)
	out := s.run(ctx, "nisse-device", "id", "--config", s.DeviceConfig())
	s.launch("nisse-device", nil, "run", "--config", s.DeviceConfig())
	// A broker that finds nobody there looks again after half a minute.
	s.Wait(60*time.Second, "the device listens", func(ctx context.Context) error {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", s.ports["device"]))
		if err != nil {
			return err
		}
		return c.Close()
	})
	s.create(ctx, &api.Device{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: Device}, Spec: api.DeviceSpec{
		URL: fmt.Sprintf("https://127.0.0.1:%d", s.ports["device"]), PublicKey: field(s.T, out, "publicKey"), RootKey: field(s.T, out, "rootKey")}})
	// The machine holds no manifest; the broker brings this one.
	m, _ := signed.Manifest(s.T, s.Key("root"), s.Namespace, fmt.Sprintf(`
v: 1
device: %s
privilege: User
keys: {request: ["%s"], approval: ["%s"]}
paths:
  fs.read: [{glob: "%[4]s/**", approval: None}]
  fs.list: [{glob: "%[4]s/**", approval: None}]
  fs.stat: [{glob: "%[4]s/**", approval: None}]
  fs.write: [{glob: "%[4]s/**", approval: Required}]
commands:
- {argv: [/usr/bin/df, -h], approval: None}
- {argv: [/usr/bin/touch, "{file}"], slots: {file: {type: path, glob: "%[4]s/*"}}, approval: Required}
limits: {writeBytes: 65536, outputBytes: 262144, timeoutSeconds: 60}`, Device, s.public["request"], s.public["approval"], s.Files))
	s.create(ctx, m)
}

// DeviceConfig is the path of the device daemon's configuration.
func (s *Stack) DeviceConfig() string { return filepath.Join(s.Dir, "device", "config.yaml") }

// field reads "name: value" from what a command printed.
func field(t testing.TB, out, name string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^\s*` + name + `:\s*"?([^\s"]+)"?\s*$`).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("no %s in %q", name, out)
	}
	return m[1]
}

func (s *Stack) run(ctx context.Context, name string, args ...string) string {
	s.T.Helper()
	out, err := exec.CommandContext(ctx, filepath.Join(binaries, name), args...).CombinedOutput()
	if err != nil {
		s.T.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// Run a component's command and return what it prints.
func (s *Stack) Run(name string, args ...string) string { return s.run(s.T.Context(), name, args...) }

func (s *Stack) startComponents(ctx context.Context) {
	s.T.Helper()
	for _, p := range []string{"manager-metrics", "broker", "broker-metrics", "gateway", "gateway-metrics", "runtime-metrics"} {
		s.ports[p] = port.For(s.T)
	}
	at := func(port string) string { return fmt.Sprintf("127.0.0.1:%d", s.ports[port]) }
	sa := func(name string) string { return apitest.ServiceAccount(System, "nisse-"+name) }
	s.launch("manager", []string{"KUBECONFIG=" + s.kubeconfig("manager", sa("manager"))},
		"--namespace="+s.Namespace, "--system-namespace="+s.leases(), "--approval-key-file="+filepath.Join(s.Dir, "keys/approval.pem"), "--agent-image=nisse-agent:test",
		"--broker-url=http://"+at("broker"), "--gateway-url=http://"+at("gateway"), "--metrics-bind-address="+at("manager-metrics"))
	// A process that is started again is the holder that it was, as a restarted container is. That another pod waits for the Lease to
	// lapse is what the end-to-end tests see.
	s.launch("broker", []string{"KUBECONFIG=" + s.kubeconfig("broker", sa("broker")), lead.InPod + "=127.0.0.1"},
		"--namespace="+s.Namespace, "--system-namespace="+s.leases(), "--request-key-file="+filepath.Join(s.Dir, "keys/request.pem"), "--approval-public-key="+s.public["approval"],
		"--bind-address="+at("broker"), "--metrics-bind-address="+at("broker-metrics"))
	s.must(os.MkdirAll(filepath.Join(s.Dir, "gateway"), 0o700))
	s.launch("gateway", []string{"KUBECONFIG=" + s.kubeconfig("gateway", sa("gateway"))},
		"--namespace="+s.Namespace, "--homeserver-url="+s.Home.BaseURL, "--approvals-user="+s.UserID("nisse-gates"), "--credentials-dir="+filepath.Join(s.Dir, "credentials"),
		"--state-dir="+filepath.Join(s.Dir, "gateway"), "--bind-address="+at("gateway"), "--metrics-bind-address="+at("gateway-metrics"))
	for _, c := range []string{"manager", "broker", "gateway"} {
		s.Wait(60*time.Second, c+" is ready", func(ctx context.Context) error { return get(ctx, "http://"+at(c+"-metrics")+"/readyz") })
	}
}

func get(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return nil
}

func (s *Stack) makeAgent(ctx context.Context) {
	s.T.Helper()
	s.create(ctx, &api.Person{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: Person}, Spec: api.PersonSpec{
		Identities: api.Identities{Matrix: s.UserID("lucas"), Kubernetes: []string{Kubernetes}}}})
	s.create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "model", Labels: map[string]string{api.LabelAgentAccess: "true"}},
		StringData: map[string]string{"token": s.Model.Key}})
	a := &api.Agent{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: Agent}, Spec: api.AgentSpec{
		Workflow:     api.WorkflowOperations,
		People:       []api.AgentPerson{{Name: Person, May: []api.Right{api.RightInstruct, api.RightApprove}}},
		Conversation: api.Conversation{Matrix: api.MatrixConversation{UserID: s.UserID("nisse-ops"), Room: s.Room}},
		Models: api.Models{Endpoint: api.ModelEndpoint{URL: s.Model.BaseURL, Protocol: api.ProtocolOpenAI, Credentials: &api.SecretKey{Name: "model", Key: "token"}},
			Roles: map[string]api.ModelRole{"executor": {Model: "scripted"}}},
		Tools:   api.Tools{Allow: []string{"fs.read", "fs.list", "fs.stat", "fs.write", "exec", "submit_plan", "ask_human"}},
		Devices: []string{Device},
	}}
	if s.opts.Agent != nil {
		s.opts.Agent(a)
	}
	s.create(ctx, a)
}

// startRuntime does what StatefulSet controller and kubelet do: the pod, its tokens, its configuration, its process.
func (s *Stack) startRuntime(ctx context.Context) {
	s.T.Helper()
	key := client.ObjectKey{Namespace: s.Namespace, Name: "agent-" + Agent}
	var config corev1.ConfigMap
	var account corev1.ServiceAccount
	s.Wait(60*time.Second, "the agent's children", func(ctx context.Context) error {
		if err := s.Admin.Get(ctx, key, &config); err != nil {
			return err
		}
		return s.Admin.Get(ctx, key, &account)
	})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "agent-" + Agent + "-0", Labels: map[string]string{api.LabelAgent: Agent}},
		Spec: corev1.PodSpec{ServiceAccountName: account.Name, NodeName: "node", Containers: []corev1.Container{{Name: "agentruntime", Image: "nisse-agent:test"}}}}
	s.create(ctx, pod)
	s.must(s.Admin.Get(ctx, client.ObjectKeyFromObject(pod), pod))
	s.tokens(ctx, pod)
	s.write("runtime/config.json", []byte(config.Data["config.json"]), 0o600)
	s.write("model/token", []byte(s.Model.Key), 0o600)
	s.launch("agentruntime", nil, "--config="+filepath.Join(s.Dir, "runtime/config.json"), "--state="+filepath.Join(s.Dir, "runtime"),
		"--broker-token="+filepath.Join(s.Dir, "tokens", doors.AudienceBroker), "--gateway-token="+filepath.Join(s.Dir, "tokens", doors.AudienceGateway),
		"--model-token="+filepath.Join(s.Dir, "model/token"), fmt.Sprintf("--metrics-bind-address=127.0.0.1:%d", s.ports["runtime-metrics"]))
}

func tokenRequest(audience string, pod *corev1.Pod, seconds int64) *authv1.TokenRequest {
	return &authv1.TokenRequest{Spec: authv1.TokenRequestSpec{Audiences: []string{audience}, ExpirationSeconds: &seconds,
		BoundObjectRef: &authv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID}}}
}
