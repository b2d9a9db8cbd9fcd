package main

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/broker/judge"
	"nisse.io/nisse/device"
	"nisse.io/nisse/internal/approval"
	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/test/apitest"
	"nisse.io/nisse/test/signed"
)

func TestMain(m *testing.M) { apitest.Main(m) }

const (
	namespace = "nisse"
	system    = "nisse-system"
)

// rig is what a broker process lives among: an API server with the shipped roles and admission policies, and a real device.
type rig struct {
	t        *testing.T
	cfg      *rest.Config
	admin    client.Client
	manager  client.Client
	dir      string
	bin      string
	request  ed25519.PrivateKey
	approver ed25519.PrivateKey
	agent    *v1alpha1.Agent
	item     *v1alpha1.WorkItem
	token    string
}

// TestProcess runs the command itself, with the rights of its role and no others, under the shipped admission policies.
func TestProcess(t *testing.T) {
	r := newRig(t)
	a := r.start("a")
	r.ready(a)
	b := r.start("b")

	call := func(p *process, id, tool, args string) doors.ToolResult {
		t.Helper()
		var res doors.ToolResult
		apitest.Wait(t, time.Minute, func(ctx context.Context) (err error) {
			res, err = r.call(ctx, p, id, tool, args)
			return err
		})
		return res
	}
	file := filepath.Join(r.dir, "files", "a")
	write := fmt.Sprintf(`{"device":"web1","path":%q,"content":"x"}`, file)
	res := call(a, "c1", "submit_plan", fmt.Sprintf(`{"reason":"r","steps":[{"device":"web1","capability":"fs.write","args":{"path":%q,"content":"x"}},{"device":"web1","capability":"fs.write","args":{"path":%q,"content":"y"}}]}`, file, file))
	if res.Status != doors.Pending {
		t.Fatalf("submit_plan: %+v", res)
	}
	r.approve(res.Gate)
	if res := call(a, "c2", "fs_write", write); res.Status != doors.Done {
		t.Fatalf("fs_write: %+v", res)
	}
	if err := get(t.Context(), "http://"+b.metrics+"/readyz"); err == nil {
		t.Error("two brokers serve at a time")
	}
	if err := get(t.Context(), "http://"+b.metrics+"/healthz"); err != nil {
		t.Errorf("the broker that waits: %v", err)
	}

	a.signal(syscall.SIGKILL) // its Lease lapses
	r.ready(b)
	if res := call(b, "c2", "fs_write", write); res.Status != doors.Done {
		t.Errorf("the same call at the next broker: %+v", res)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "x" {
		t.Errorf("file %q, %v", got, err)
	}
	if res := call(b, "c3", "fs_write", strings.Replace(write, `"x"`, `"z"`, 1)); res.Status != doors.Halted {
		t.Errorf("another call: %+v", res)
	}
	metrics := text(t, "http://"+b.metrics+"/metrics")
	for _, want := range []string{`nisse_broker_tool_calls_total{status="done",tool="fs_write"} 1`, `nisse_broker_refusals_total{reason="CallMismatch"} 1`, "nisse_broker_jobs_pending 0", "nisse_broker_dispatch_seconds"} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
	var device v1alpha1.Device
	if err := r.admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "web1"}, &device); err != nil || len(device.Status.Conditions) == 0 {
		t.Errorf("device %+v, %v", device.Status, err)
	}
	apitest.Wait(t, time.Minute, func(ctx context.Context) error {
		var l coordinationv1.Lease
		if err := r.admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "device-web1"}, &l); err != nil || l.Spec.RenewTime == nil {
			return fmt.Errorf("the Lease that tells when it answered last: %+v, %w", l.Spec, err)
		}
		return nil
	})

	b.signal(syscall.SIGTERM)
	if err := b.wait(); err != nil {
		t.Errorf("told to end: %v\n%s", err, b.output())
	}
	c := r.start("c") // the Lease was given back, so nobody waits
	r.ready(c)
	if denied := a.output() + b.output() + c.output(); strings.Contains(denied, "forbidden") {
		t.Errorf("a right is missing:\n%s", denied)
	}
}

func TestFlagsThatCannotWork(t *testing.T) {
	bin := build(t)
	key := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(key, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		args []string
		says string
	}{
		"no key":       {nil, "--request-key-file"},
		"bad key":      {[]string{"--request-key-file=" + key}, "PEM"},
		"missing file": {[]string{"--request-key-file=/nowhere"}, "no such file"},
		"bad level":    {[]string{"--log-level=loud"}, "--log-level"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := exec.CommandContext(t.Context(), bin, tt.args...).CombinedOutput()
			if err == nil || !strings.Contains(string(out), tt.says) {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

func build(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "broker")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return bin
}

func newRig(t *testing.T) *rig {
	t.Helper()
	cfg, admin := apitest.Start(t)
	r := &rig{t: t, cfg: cfg, admin: admin, dir: t.TempDir(), bin: build(t)}
	for _, ns := range []string{namespace, system} {
		r.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	}
	apitest.Install(t, admin, apitest.Path("config", "admission"))
	apitest.Install(t, admin, apitest.Path("config", "rbac", "broker.yaml"))
	as := apitest.ServiceAccount(system, "nisse-manager")
	apitest.Grant(t, admin, namespace, as, apitest.Rule("agents workitems plans gates", "get list watch"), apitest.Rule("gates", "create"), apitest.Rule("gates/status agents/status workitems/status", "patch update"))
	r.manager = apitest.As(t, cfg, as)
	r.request, r.approver = r.key("request"), r.key("approval")
	r.startDevice()
	r.agent = &v1alpha1.Agent{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ops"}, Spec: v1alpha1.AgentSpec{
		Workflow:     v1alpha1.WorkflowOperations,
		People:       []v1alpha1.AgentPerson{{Name: "lucas", May: []v1alpha1.Right{v1alpha1.RightInstruct, v1alpha1.RightApprove}}},
		Conversation: v1alpha1.Conversation{Matrix: v1alpha1.MatrixConversation{UserID: "@ops:example.org", Room: "#ops:example.org"}},
		Models:       v1alpha1.Models{Endpoint: v1alpha1.ModelEndpoint{URL: "http://127.0.0.1:4000/v1", Protocol: v1alpha1.ProtocolOpenAI}, Roles: map[string]v1alpha1.ModelRole{"executor": {Model: "m"}}},
		Tools:        v1alpha1.Tools{Allow: []string{"fs.write", "submit_plan"}}, Devices: []string{"web1"},
	}}
	r.create(r.agent)
	r.item = &v1alpha1.WorkItem{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "wi-1"}, Spec: v1alpha1.WorkItemSpec{Agent: "ops", Title: "t", Request: "r", Source: v1alpha1.Source{Kind: v1alpha1.SourceKubernetes}}}
	r.create(r.item)
	r.item.Status.State = v1alpha1.WorkItemWorking
	r.must(r.manager.Status().Update(t.Context(), r.item))
	r.agent.Status.ActiveWorkItem = "wi-1"
	r.must(r.manager.Status().Update(t.Context(), r.agent))
	r.startPod()
	return r
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

func (r *rig) key(name string) ed25519.PrivateKey {
	r.t.Helper()
	_, k, err := ed25519.GenerateKey(nil)
	r.must(err)
	pem, err := dsse.EncodePrivateKey(k)
	r.must(err)
	r.must(os.WriteFile(filepath.Join(r.dir, name+".pem"), pem, 0o600))
	return k
}

func public(k ed25519.PrivateKey) string { return dsse.EncodeKey(k.Public().(ed25519.PublicKey)) }

func (r *rig) startDevice() {
	r.t.Helper()
	files := filepath.Join(r.dir, "files")
	r.must(os.Mkdir(files, 0o700))
	_, root, err := ed25519.GenerateKey(nil)
	r.must(err)
	m, _ := signed.Manifest(r.t, root, namespace, fmt.Sprintf(`
v: 1
device: web1
privilege: User
keys: {request: [%q], approval: [%q]}
paths: {fs.write: [{glob: "%s/**", approval: Required}]}
limits: {writeBytes: 4096, outputBytes: 4096, timeoutSeconds: 30}`, public(r.request), public(r.approver), files))
	_, key, err := ed25519.GenerateKey(nil)
	r.must(err)
	// It holds no manifest: the broker brings it.
	d, h, err := device.New(context.WithoutCancel(r.t.Context()), device.Options{Dir: r.t.TempDir(), Device: "web1", RootKey: root.Public().(ed25519.PublicKey), Key: key})
	r.must(err)
	srv := httptest.NewServer(h)
	r.t.Cleanup(func() {
		srv.Close()
		if err := d.Close(); err != nil {
			r.t.Error(err)
		}
	})
	r.create(&v1alpha1.Device{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web1"}, Spec: v1alpha1.DeviceSpec{URL: srv.URL, PublicKey: public(key), RootKey: public(root)}})
	r.create(m)
}

func (r *rig) startPod() {
	r.t.Helper()
	r.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "agent-ops"}})
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "agent-ops-0"}, Spec: corev1.PodSpec{ServiceAccountName: "agent-ops", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	r.create(p)
	kube, err := kubernetes.NewForConfig(r.cfg)
	r.must(err)
	tr, err := kube.CoreV1().ServiceAccounts(namespace).CreateToken(r.t.Context(), "agent-ops", &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences: []string{doors.AudienceBroker}, BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: p.Name, UID: p.UID}}}, metav1.CreateOptions{})
	r.must(err)
	r.token = tr.Status.Token
}

// approve the plan as the manager does.
func (r *rig) approve(name string) {
	r.t.Helper()
	p := &v1alpha1.Plan{}
	r.must(r.manager.Get(r.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, p))
	digest, err := judge.PlanDigest(r.agent, r.item, p, 600)
	r.must(err)
	g := &v1alpha1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{v1alpha1.LabelWorkItem: "wi-1"}}, Spec: v1alpha1.GateSpec{
		Agent: "ops", WorkItem: p.Spec.WorkItem, Kind: v1alpha1.GatePlan, Subject: v1alpha1.GateSubject{Kind: v1alpha1.SubjectPlan, Name: name, UID: string(p.UID)}, Revision: 1, Rule: "r",
		Digest: digest, Tier: v1alpha1.TierStandard, Title: "t", Message: "m", Approvers: []string{"lucas"}, Required: 1, ExpiresAt: metav1.NewTime(time.Now().Add(time.Hour)), WindowSeconds: 600}}
	r.must(r.manager.Create(r.t.Context(), g))
	s := approval.Statement{GateUID: string(g.UID), Digest: digest, Approvers: []string{"lucas"}, ExpiresAt: time.Now().Add(10 * time.Minute).Unix()}
	for _, step := range p.Spec.Steps {
		s.Calls, s.Attempts = append(s.Calls, judge.StepCall(step).Hash()), append(s.Attempts, 1)
	}
	env, err := s.Sign(r.approver)
	r.must(err)
	now := metav1.Now()
	g.Status = v1alpha1.GateStatus{Outcome: v1alpha1.GateApproved, Statement: env, DecidedAt: &now}
	r.must(r.manager.Status().Update(r.t.Context(), g))
}

// process is one broker.
type process struct {
	cmd           *exec.Cmd
	log           string
	door, metrics string
	done          chan error
}

func (r *rig) start(name string) *process {
	r.t.Helper()
	p := &process{door: address(r.t), metrics: address(r.t), log: filepath.Join(r.dir, name+".log"), done: make(chan error, 1)}
	p.cmd = exec.Command(r.bin, "--namespace="+namespace, "--system-namespace="+system, "--request-key-file="+filepath.Join(r.dir, "request.pem"),
		"--approval-public-key="+public(r.approver), "--bind-address="+p.door, "--metrics-bind-address="+p.metrics, "--log-level=debug")
	p.cmd.Env = append(os.Environ(), "KUBECONFIG="+r.kubeconfig())
	f, err := os.Create(p.log)
	r.must(err)
	p.cmd.Stdout, p.cmd.Stderr = f, f
	r.must(p.cmd.Start())
	go func() { p.done <- p.cmd.Wait() }()
	r.t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // most have ended
		_ = f.Close()
		if r.t.Failed() {
			r.t.Logf("broker %s:\n%s", name, p.output())
		}
	})
	return p
}

func (p *process) signal(s os.Signal) { _ = p.cmd.Process.Signal(s) } // one that has ended shows in what follows

func (p *process) wait() error {
	select {
	case err := <-p.done:
		return err
	case <-time.After(40 * time.Second):
		return errors.New("it did not end")
	}
}

func (p *process) output() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// kubeconfig of the broker's service account.
func (r *rig) kubeconfig() string {
	r.t.Helper()
	path := filepath.Join(r.dir, "kubeconfig")
	r.must(clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"c": {Server: r.cfg.Host, CertificateAuthorityData: r.cfg.CAData}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {ClientCertificateData: r.cfg.CertData, ClientKeyData: r.cfg.KeyData,
			Impersonate: apitest.ServiceAccount(system, "nisse-broker"), ImpersonateGroups: []string{"system:authenticated", "system:serviceaccounts", "system:serviceaccounts:" + system}}},
		Contexts: map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}}, CurrentContext: "x",
	}, path))
	return path
}

func address(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (r *rig) ready(p *process) {
	r.t.Helper()
	apitest.Wait(r.t, 60*time.Second, func(ctx context.Context) error { return get(ctx, "http://"+p.metrics+"/readyz") })
}

func get(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, res.Status)
	}
	return nil
}

func text(t *testing.T, url string) string {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

type bearer string

func (b bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(req)
}

func (r *rig) call(ctx context.Context, p *process, id, tool, args string) (doors.ToolResult, error) {
	var out doors.ToolResult
	c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	s, err := c.Connect(ctx, &sdk.StreamableClientTransport{Endpoint: "http://" + p.door + "/mcp", HTTPClient: &http.Client{Transport: bearer(r.token)}, DisableStandaloneSSE: true, MaxRetries: -1}, nil)
	if err != nil {
		return out, err
	}
	defer s.Close()
	res, err := s.CallTool(ctx, &sdk.CallToolParams{Meta: sdk.Meta{doors.MetaCallID: id}, Name: tool, Arguments: json.RawMessage(args)})
	if err != nil {
		return out, err
	}
	return out, json.Unmarshal([]byte(res.Content[0].(*sdk.TextContent).Text), &out)
}
