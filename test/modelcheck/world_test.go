// Package modelcheck runs random interleavings of everything that can happen around a deed, with the manager's real policy and
// workflow, the broker's real judge, the real device and the real core of the runtime. In the hostile mode the runtime is whatever
// calls it pleases, and the API server may be put back to an older state: no deed happens twice. In the honest mode the runtime is
// the product's, over its real log: nothing is done, said or heard twice either, nothing is lost, and the work comes to an end once
// the world is quiet.
package modelcheck

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/broker/judge"
	"nisse.io/nisse/broker/tools"
	"nisse.io/nisse/controllers/gate/policy"
	"nisse.io/nisse/device"
	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/hosttools/command"
	"nisse.io/nisse/hosttools/confine"
	"nisse.io/nisse/internal/approval"
	"nisse.io/nisse/internal/canonical"
	"nisse.io/nisse/internal/deed"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/manifest"
	"nisse.io/nisse/internal/names"
	"nisse.io/nisse/test/signed"
)

const (
	steps     = 2
	jobLife   = 300
	statement = 3600
	mktemp    = "/usr/bin/mktemp"
)

// T is what a run needs to fail.
type T interface {
	Fatalf(format string, args ...any)
}

// cluster is the API server's state; copied as a whole for snapshots.
type cluster struct {
	item  api.WorkItem
	plans []api.Plan
	gates []api.Gate
	// approvals that people wrote, of whichever gate; they stay.
	approvals []api.Approval
	jobs      map[string]api.DeviceJob
}

func (c *cluster) clone() *cluster {
	d := &cluster{item: *c.item.DeepCopy(), jobs: map[string]api.DeviceJob{}}
	for _, p := range c.plans {
		d.plans = append(d.plans, *p.DeepCopy())
	}
	for _, g := range c.gates {
		d.gates = append(d.gates, *g.DeepCopy())
	}
	for _, a := range c.approvals {
		d.approvals = append(d.approvals, *a.DeepCopy())
	}
	for n, j := range c.jobs {
		d.jobs[n] = *j.DeepCopy()
	}
	return d
}

// op is one call on its way through a broker, as far as it has come. A crash of the broker forgets it.
type op struct {
	call judge.Call
	job  string
	// stage: 0 judge and make the job, 1 judge again and send, 2 wait for the answer.
	stage int
}

// packet is a signed request somewhere in the network.
type packet struct {
	job  string
	body []byte
	// deed and from whom; of an honest run.
	deed string
	from *request
}

// world is everything.
type world struct {
	t        T
	dir      string
	now      time.Time
	agent    api.Agent
	people   []api.Person
	device   api.Device
	manifest *api.DeviceManifest
	digest   string
	keys     map[string]ed25519.PrivateKey
	cluster  *cluster
	older    *cluster
	ops      []*op
	net      []packet
	daemon   *device.Device
	handler  http.Handler
	fault    bool
	serial   int
	asked    int // calls that a person was asked about by themselves
}

func seeded(b byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{b}, ed25519.SeedSize))
}

func public(k ed25519.PrivateKey) ed25519.PublicKey { return k.Public().(ed25519.PublicKey) }

func newWorld(t T, dir string) *world {
	w := &world{t: t, dir: dir, now: time.Unix(1_800_000_000, 0), keys: map[string]ed25519.PrivateKey{"request": seeded(1), "approval": seeded(2), "device": seeded(3), "root": seeded(4)}}
	w.must(os.MkdirAll(filepath.Join(dir, "out"), 0o755))
	text := fmt.Appendf(nil, `{"v":1,"device":"d","privilege":"User","epoch":1,"expiresAt":"2027-12-01T00:00:00Z","keys":{"request":[%q],"approval":[%q]},"limits":{"writeBytes":1,"outputBytes":4096,"timeoutSeconds":30},
		"commands":[{"argv":["/usr/bin/mktemp","{f}"],"slots":{"f":{"type":"path","glob":%q}},"approval":"Required"},
			{"argv":["/usr/bin/mktemp","-q","{f}"],"slots":{"f":{"type":"path","glob":%q}},"approval":"None"}]}`,
		dsse.EncodeKey(public(w.keys["request"])), dsse.EncodeKey(public(w.keys["approval"])), filepath.Join(dir, "out", "plan*"), filepath.Join(dir, "out", "free*"))
	m, err := manifest.Parse(text)
	w.must(err)
	envelope, err := m.Sign(w.keys["root"], w.now.Add(-time.Hour))
	w.must(err)
	w.manifest, err = signed.Object("nisse", m, envelope)
	w.must(err)
	w.digest, err = m.Digest()
	w.must(err)
	w.agent = api.Agent{ObjectMeta: metav1.ObjectMeta{Name: "ops", UID: "agent"}, Spec: api.AgentSpec{Workflow: api.WorkflowOperations, Tools: api.Tools{Allow: []string{manifest.Exec, tools.SubmitPlan, tools.AskHuman}}, Devices: []string{"d"},
		People: []api.AgentPerson{{Name: "lucas", May: []api.Right{api.RightApprove}}}}}
	w.people = []api.Person{{ObjectMeta: metav1.ObjectMeta{Name: "lucas"}, Spec: api.PersonSpec{Identities: api.Identities{Kubernetes: []string{"lucas@example.org"}}}}}
	w.device = api.Device{ObjectMeta: metav1.ObjectMeta{Name: "d", UID: "device"}, Spec: api.DeviceSpec{RootKey: dsse.EncodeKey(public(w.keys["root"])), PublicKey: dsse.EncodeKey(public(w.keys["device"]))}}
	w.cluster = &cluster{item: api.WorkItem{ObjectMeta: metav1.ObjectMeta{Name: "wi", UID: "item"}, Spec: api.WorkItemSpec{Agent: "ops"},
		Status: api.WorkItemStatus{State: api.WorkItemWorking}}, jobs: map[string]api.DeviceJob{}}
	w.start()
	_, err = w.daemon.Install(context.Background(), envelope)
	w.must(err)
	return w
}

func (w *world) must(err error) {
	if err != nil {
		w.t.Fatalf("%v", err)
	}
}

var errCrash = errors.New("power cut")

func (w *world) start() {
	d, h, err := device.New(context.Background(), device.Options{Dir: filepath.Join(w.dir, "state"), Device: "d", RootKey: public(w.keys["root"]), Key: w.keys["device"],
		Now: func() time.Time { return w.now },
		Fault: func() error {
			if w.fault {
				return errCrash
			}
			return nil
		}})
	w.must(err)
	w.daemon, w.handler = d, h
}

// target of a step: every run of its command makes one more file that begins so.
func (w *world) target(plan, step int) string {
	return filepath.Join(w.dir, "out", fmt.Sprintf("plan%d-step%d.XXXXXXXX", plan, step))
}

func (w *world) args(plan, step int) string {
	b, err := canonical.Marshal(manifest.ExecArgs{Argv: []string{mktemp, w.target(plan, step)}})
	w.must(err)
	return string(b)
}

// runs counts the effects on the machine, by plan and step.
func (w *world) runs() map[string]int {
	entries, err := os.ReadDir(filepath.Join(w.dir, "out"))
	w.must(err)
	n := map[string]int{}
	for _, e := range entries {
		name, _, _ := strings.Cut(e.Name(), ".")
		n[name]++
	}
	return n
}

// --- what people and the manager do -------------------------------------------------------------------------------------

// submit a revision; the manager opens its gate and supersedes the others'.
func (w *world) submit() {
	w.serial++
	var all []api.PlanStep
	for s := 1; s <= steps; s++ {
		all = append(all, api.PlanStep{Device: "d", Capability: manifest.Exec, Args: w.args(w.serial, s), ManifestDigest: w.digest, Resolved: program()})
	}
	w.propose(false, all...)
}

// nagging is how a call is refused that was asked about before.
const nagging = "Nagging"

// proposed tells whether the very same was asked about before. A person who approves that anew wants it done again, and then it counts twice.
func (w *world) proposed(args string) bool {
	return slices.ContainsFunc(w.cluster.plans, func(p api.Plan) bool {
		return slices.ContainsFunc(p.Spec.Steps, func(s api.PlanStep) bool { return s.Args == args })
	})
}

// propose a plan, or a single call, with its gate.
func (w *world) propose(call bool, all ...api.PlanStep) {
	rev := int32(len(w.cluster.plans) + 1)
	// A UID is never given twice, also not after the API server was put back.
	w.serial++
	p := api.Plan{ObjectMeta: metav1.ObjectMeta{Name: names.Plan("wi", rev), UID: types.UID(fmt.Sprint("plan", w.serial))},
		Spec: api.PlanSpec{Agent: "ops", AgentUID: "agent", WorkItem: api.ObjectRef{Name: "wi", UID: "item"}, Revision: rev, Call: call, ToolSchemaDigest: manifest.SchemaDigest(), Steps: all}}
	kind := api.GatePlan
	if call {
		kind = api.GateCall
		w.asked++
	}
	digest, err := judge.PlanDigest(&w.agent, &w.cluster.item, &p, statement)
	w.must(err)
	for i := range w.cluster.gates {
		if g := &w.cluster.gates[i]; g.Open() {
			g.Status.Outcome = api.GateSuperseded
		}
	}
	w.cluster.plans = append(w.cluster.plans, p)
	w.cluster.gates = append(w.cluster.gates, api.Gate{ObjectMeta: metav1.ObjectMeta{Name: names.PlanGate(p.Name), UID: types.UID(fmt.Sprint("gate", w.serial))},
		Spec: api.GateSpec{Agent: "ops", WorkItem: p.Spec.WorkItem, Kind: kind, Subject: api.GateSubject{Kind: api.SubjectPlan, Name: p.Name, UID: string(p.UID)},
			Revision: rev, Digest: digest, WindowSeconds: statement, Tier: api.TierStandard, Approvers: []string{"lucas"}, Required: 1,
			ExpiresAt: metav1.NewTime(w.now.Add(time.Hour))}})
}

// vote writes an Approval of a gate, open or not, by lucas or by somebody who may not.
func (w *world) vote(gate int, who string, d api.Decision) {
	g := &w.cluster.gates[gate]
	w.serial++
	w.cluster.approvals = append(w.cluster.approvals, api.Approval{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("approval", w.serial), UID: types.UID(fmt.Sprint("approval", w.serial)), CreationTimestamp: metav1.NewTime(w.now)},
		Spec: api.ApprovalSpec{Gate: api.GateRef{Name: g.Name, UID: string(g.UID)}, Digest: g.Spec.Digest, Decision: d, Approver: who,
			Channel: api.Channel{Kind: api.ChannelKubernetes}}})
}

// decide commits every open gate whose approvals suffice, by the manager's own policy: outcome and statement in one write.
func (w *world) decide() {
	for i := range w.cluster.gates {
		g := &w.cluster.gates[i]
		if !g.Open() {
			continue
		}
		var own []api.Approval
		for _, a := range w.cluster.approvals {
			if a.Spec.Gate.UID == string(g.UID) {
				own = append(own, a)
			}
		}
		v := policy.Decide(g, nil, &w.agent, w.people, own, w.now)
		if v.Outcome != "" {
			at := metav1.NewTime(w.now)
			g.Status.DecidedAt = &at
		}
		plan := slices.IndexFunc(w.cluster.plans, func(p api.Plan) bool { return string(p.UID) == g.Spec.Subject.UID })
		if v.Outcome != api.GateApproved || plan < 0 {
			g.Status.Outcome, g.Status.Decisions = v.Outcome, v.Decisions
			continue
		}
		s := approval.Statement{GateUID: string(g.UID), Digest: g.Spec.Digest, ExpiresAt: w.now.Unix() + statement}
		for _, d := range v.Decisions {
			s.Approvers = append(s.Approvers, d.Person)
		}
		for _, st := range w.cluster.plans[plan].Spec.Steps {
			s.Calls, s.Attempts, s.Resolved = append(s.Calls, judge.StepCall(st).Hash()), append(s.Attempts, 1), append(s.Resolved, st.Resolved.SHA256)
		}
		env, err := s.Sign(w.keys["approval"])
		w.must(err)
		g.Status.Outcome, g.Status.Decisions, g.Status.Statement = api.GateApproved, v.Decisions, env
	}
}

// approve the newest gate as lucas, and let the manager see it.
func (w *world) approve() {
	if len(w.cluster.gates) > 0 {
		w.vote(len(w.cluster.gates)-1, "lucas@example.org", api.DecisionApprove)
		w.decide()
	}
}

func (w *world) stop() {
	w.serial++
	w.cluster.item.Spec.Stop = &api.StopRequest{ID: fmt.Sprint("stop", w.serial)}
}

// answer every hold with continue.
func (w *world) answer() {
	it := &w.cluster.item
	if it.Spec.Stop != nil {
		it.Status.AnsweredStop = it.Spec.Stop.ID
	}
	if it.Halted() {
		it.Status.AnsweredHalt = it.Status.Runtime.Halt.ID
	}
}

func (w *world) replan() {
	w.answer()
	w.cluster.item.Status.ClosedRevision = int32(len(w.cluster.plans))
}

// --- what a broker does, one step of a call at a time ---------------------------------------------------------------------

// view of the cluster, as a broker reads it live.
func (w *world) view() judge.World {
	jw := judge.World{Now: w.now, Agent: &w.agent, Item: &w.cluster.item, Plans: w.cluster.plans, Gates: w.cluster.gates, Device: &w.device, Manifest: w.manifest,
		ApprovalKeys: []ed25519.PublicKey{public(w.keys["approval"])}}
	for _, j := range w.cluster.jobs {
		jw.Jobs = append(jw.Jobs, j)
	}
	return jw
}

func (w *world) judge(c judge.Call) judge.Decision { return judge.Judge(c, w.view()) }

// advance a call by one step. It reports whether the call goes on.
func (w *world) advance(o *op) bool {
	switch o.stage {
	case 0:
		d := w.judge(o.call)
		switch d.Verdict {
		case judge.Run:
			o.job = w.makeJob(d)
		case judge.Attach:
			o.job = d.Job.Name
		case judge.Ask:
			if !w.proposed(o.call.Args) {
				w.propose(true, api.PlanStep{Device: o.call.Device, Capability: o.call.Capability, Args: o.call.Args, ManifestDigest: w.digest, Resolved: program()})
			}
			return false
		case judge.Halt:
			w.serial++
			id := d.HaltID
			if id == "" {
				id = fmt.Sprint("halt", w.serial)
			}
			w.cluster.item.Status.Runtime = &api.WorkItemRuntime{Halt: &api.HaltReport{ID: id, Reason: api.HaltReason(d.Reason), Step: d.Step}}
			return false
		default:
			return false
		}
		o.stage = 1
		return true
	case 1:
		// The last live look before the signature: what would be sent must still be what may run.
		j, ok := w.cluster.jobs[o.job]
		if !ok || j.Status.State != "" || judge.StillGood(&j, w.view()) != nil {
			return false
		}
		w.send(j)
		o.stage = 2
		return true
	}
	return false
}

func (w *world) makeJob(d judge.Decision) string {
	id := deed.Approved(string(d.Gate.UID), d.Step, d.Attempt)
	name := names.Job(id)
	if _, ok := w.cluster.jobs[name]; ok {
		return name // AlreadyExists: it was asked for before
	}
	s := d.Plan.Spec.Steps[d.Step-1]
	w.cluster.jobs[name] = api.DeviceJob{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: api.DeviceJobSpec{Agent: "ops", AgentUID: "agent", WorkItem: d.Plan.Spec.WorkItem,
		Device: s.Device, ManifestDigest: s.ManifestDigest, Capability: s.Capability, Args: s.Args, Deed: id, Gate: api.GateRef{Name: d.Gate.Name, UID: string(d.Gate.UID)},
		Step: d.Step, Attempt: d.Attempt, ExpiresAt: metav1.NewTime(w.now.Add(jobLife * time.Second))}}
	return name
}

func (w *world) send(j api.DeviceJob) {
	var g *api.Gate
	for i := range w.cluster.gates {
		if string(w.cluster.gates[i].UID) == j.Spec.Gate.UID {
			g = &w.cluster.gates[i]
		}
	}
	if g == nil {
		return
	}
	body, err := wire.SignRequest(w.keys["request"], wire.Request{V: wire.Version, Device: j.Spec.Device, ManifestDigest: j.Spec.ManifestDigest, Capability: j.Spec.Capability,
		Args: j.Spec.Args, Deed: j.Spec.Deed, At: w.now.Unix(), ExpiresAt: j.Spec.ExpiresAt.Unix(), CorrelationID: "wi", Agent: "ops",
		Approved: &wire.Approved{GateUID: j.Spec.Gate.UID, Step: j.Spec.Step, Attempt: j.Spec.Attempt, Statement: g.Status.Statement}})
	w.must(err)
	w.net = append(w.net, packet{job: j.Name, body: body, deed: j.Spec.Deed})
}

// --- what the network and the device do ---------------------------------------------------------------------------------

// deliver a request; the answer goes back through the network too, and is written down if a broker is there to do it.
func (w *world) deliver(p packet, answered bool) {
	body, ok := w.post(p.body)
	if !ok || !answered {
		return
	}
	j, ok := w.cluster.jobs[p.job]
	if !ok || j.Status.State != "" {
		return
	}
	a, err := wire.OpenAnswer(body, public(w.keys["device"]), "d", j.Spec.Deed)
	w.must(err)
	if j.Status.State = ended(a); j.Status.State != "" {
		w.cluster.jobs[p.job] = j
	}
}

// post a request to the device. It reports whether the device answered.
func (w *world) post(body []byte) ([]byte, bool) {
	rec := httptest.NewRecorder()
	w.handler.ServeHTTP(rec, httptest.NewRequest(http.MethodPost, "/v1/call", bytes.NewReader(body)))
	return rec.Body.Bytes(), rec.Code == http.StatusOK
}

// ended is the state of a job by the device's answer; empty while it has none.
func ended(a wire.Answer) api.JobState {
	switch a.State {
	case wire.Succeeded:
		return api.JobSucceeded
	case wire.Failed:
		return api.JobFailed
	case wire.Unknown:
		return api.JobUnknown
	case wire.Refused:
		switch {
		case a.Reason.Transient():
			return ""
		case a.Reason == wire.Expired:
			return api.JobExpired
		}
		return api.JobRefused
	case wire.Running, wire.NotSeen:
	}
	return ""
}

// crash the device; with fault, in the middle of whatever it would write next.
func (w *world) crash() {
	w.fault = false
	_ = w.daemon.Close()
	w.start()
}

// check the invariant.
func (w *world) check() {
	for name, n := range w.runs() {
		if n > 1 {
			w.t.Fatalf("%s ran %d times", name, n)
		}
	}
}

// durations that pass; short ones mostly, or everything would have expired before it could happen.
var durations = []time.Duration{time.Second, time.Second, time.Second, time.Second, time.Minute, time.Minute, jobLife * time.Second, 2 * statement * time.Second}

// program that every approved command runs, as the device would tell: it runs no other bytes.
var program = sync.OnceValue(func() *api.ResolvedProgram {
	path, sha256, err := command.Resolve([]string{mktemp})
	if err != nil {
		panic(err) // coreutils are there, or nothing here can be checked
	}
	return &api.ResolvedProgram{Executable: path, SHA256: sha256, User: confine.Self()}
})
