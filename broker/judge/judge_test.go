package judge

import (
	"crypto/ed25519"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/approval"
	"nisse.io/nisse/internal/deed"
	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/manifest"
	"nisse.io/nisse/internal/names"
	"nisse.io/nisse/internal/sanitize"
	"nisse.io/nisse/test/signed"
)

var (
	now         = time.Unix(1_800_000_000, 0)
	key         = ed25519.NewKeyFromSeed([]byte(strings.Repeat("a", 32)))
	otherKey    = ed25519.NewKeyFromSeed([]byte(strings.Repeat("b", 32)))
	rootKey     = ed25519.NewKeyFromSeed([]byte(strings.Repeat("r", 32)))
	list1       = mustManifest()
	listSigned  = mustSign(list1, rootKey) // before the digest: signing sets the epoch
	listDigest  = mustDigest(list1)
	otherDigest = "sha256:" + strings.Repeat("0", 64)
)

func mustManifest() *manifest.Manifest {
	m, err := manifest.Parse([]byte(`
v: 1
device: web1
privilege: User
epoch: 1
expiresAt: "2027-06-01T00:00:00Z"
keys: {request: ["` + dsse.EncodeKey(key.Public().(ed25519.PublicKey)) + `"], approval: []}
paths:
  fs.read: [{glob: /srv/nisse/**, approval: None}]
  fs.write: [{glob: /srv/nisse/**, approval: Required}]
commands: [{argv: [/usr/bin/touch, "{f}"], slots: {f: {type: path, glob: /srv/nisse/**}}, approval: Required, timeoutSeconds: 7}]
limits: {writeBytes: 4096, outputBytes: 4096, timeoutSeconds: 60}`))
	if err != nil {
		panic(err)
	}
	return m
}

// mustSign the manifest an hour ago, and make the object that keeps it.
func mustSign(m *manifest.Manifest, root ed25519.PrivateKey) *v1alpha1.DeviceManifest {
	envelope, err := m.Sign(root, now.Add(-time.Hour))
	if err != nil {
		panic(err)
	}
	o, err := signed.Object("nisse", m, envelope)
	if err != nil {
		panic(err)
	}
	return o
}

// resign what the world's manifest says now.
func (w *World) resign(root ed25519.PrivateKey) {
	text, err := w.Manifest.Spec.Text()
	if err != nil {
		panic(err)
	}
	m, err := manifest.Parse(text)
	if err != nil {
		panic(err)
	}
	w.Manifest = mustSign(m, root)
}

func mustDigest(m *manifest.Manifest) string {
	d, err := m.Digest()
	if err != nil {
		panic(err)
	}
	return d
}

func write(name string) v1alpha1.PlanStep {
	return v1alpha1.PlanStep{Device: "web1", Capability: "fs.write", Args: `{"content":"x","path":"/srv/nisse/` + name + `"}`, ManifestDigest: listDigest}
}

func call(s v1alpha1.PlanStep) Call {
	return Call{ID: "call-9", Device: s.Device, Capability: s.Capability, Args: s.Args}
}

// touch is a step that runs a program.
func touch() v1alpha1.PlanStep {
	return v1alpha1.PlanStep{Device: "web1", Capability: "exec", Args: `{"argv":["/usr/bin/touch","/srv/nisse/a"]}`, ManifestDigest: listDigest,
		Resolved: &v1alpha1.ResolvedProgram{Executable: "/usr/bin/touch", SHA256: strings.Repeat("0a", 32), User: "nobody"}}
}

// touching changes the world to one whose plan in force is a write and a touch, approved by a statement that is changed.
func touching(plan func(*v1alpha1.ResolvedProgram), statement func(*approval.Statement)) func(*World) {
	return func(w *World) {
		w.plan(2, touch(), write("b"))
		w.approveWith(1, key, statement)
		plan(w.Plans[1].Spec.Steps[0].Resolved)
	}
}

func asIs(*v1alpha1.ResolvedProgram) {}
func asSigned(*approval.Statement)   {}

func read() Call {
	return Call{ID: "call-9", Device: "web1", Capability: "fs.read", Args: `{"path":"/srv/nisse/a"}`}
}

func readStep() v1alpha1.PlanStep {
	return v1alpha1.PlanStep{Device: "web1", Capability: "fs.read", Args: read().Args, ManifestDigest: listDigest}
}

// world in which ops works on wi-1, whose plan rev-1 (write a, write b, write a) is approved until in 10 minutes.
func world() *World {
	w := &World{
		Now: now, Manifest: listSigned.DeepCopy(), ApprovalKeys: []ed25519.PublicKey{key.Public().(ed25519.PublicKey)},
		Agent: &v1alpha1.Agent{ObjectMeta: metav1.ObjectMeta{Name: "ops", UID: "agent-uid"}, Spec: v1alpha1.AgentSpec{
			Tools: v1alpha1.Tools{Allow: []string{"fs.read", "fs.write", "exec", "submit_plan"}}, Devices: []string{"web1", "gone"},
			People: []v1alpha1.AgentPerson{{Name: "lucas", May: []v1alpha1.Right{v1alpha1.RightInstruct, v1alpha1.RightApprove}}, {Name: "vera", May: []v1alpha1.Right{v1alpha1.RightApprove}}}}},
		Item:   &v1alpha1.WorkItem{ObjectMeta: metav1.ObjectMeta{Name: "wi-1", UID: "item-uid"}, Spec: v1alpha1.WorkItemSpec{Agent: "ops"}, Status: v1alpha1.WorkItemStatus{State: v1alpha1.WorkItemWorking}},
		Device: &v1alpha1.Device{ObjectMeta: metav1.ObjectMeta{Name: "web1"}, Spec: v1alpha1.DeviceSpec{RootKey: dsse.EncodeKey(rootKey.Public().(ed25519.PublicKey))}},
	}
	w.plan(1, write("a"), write("b"), write("a"))
	w.approve(0)
	return w
}

func (w *World) plan(revision int32, steps ...v1alpha1.PlanStep) {
	name := names.Plan("wi-1", revision)
	p := v1alpha1.Plan{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + "-uid")}, Spec: v1alpha1.PlanSpec{
		Agent: "ops", AgentUID: "agent-uid", WorkItem: v1alpha1.ObjectRef{Name: "wi-1", UID: "item-uid"}, Revision: revision, CallID: "c",
		ToolSchemaDigest: manifest.SchemaDigest(), Steps: steps}}
	w.Plans = append(w.Plans, p)
	digest, err := PlanDigest(w.Agent, w.Item, &p, 600)
	if err != nil {
		panic(err)
	}
	w.Gates = append(w.Gates, v1alpha1.Gate{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + "-gate-uid")}, Spec: v1alpha1.GateSpec{
		Agent: "ops", WorkItem: p.Spec.WorkItem, Kind: v1alpha1.GatePlan, Revision: revision, Digest: digest, WindowSeconds: 600,
		Subject: v1alpha1.GateSubject{Kind: v1alpha1.SubjectPlan, Name: name, UID: string(p.UID)}}})
}

func (w *World) approve(i int) { w.approveWith(i, key, func(*approval.Statement) {}) }

func (w *World) approveWith(i int, k ed25519.PrivateKey, change func(*approval.Statement)) {
	g := &w.Gates[i]
	s := approval.Statement{GateUID: string(g.UID), Digest: g.Spec.Digest, Approvers: []string{"lucas"}, ExpiresAt: now.Unix() + 600}
	for _, step := range w.Plans[i].Spec.Steps {
		s.Calls = append(s.Calls, StepCall(step).Hash())
		s.Attempts = append(s.Attempts, 1)
		if s.Resolved = append(s.Resolved, ""); step.Resolved != nil {
			s.Resolved[len(s.Resolved)-1] = step.Resolved.SHA256
		}
	}
	change(&s)
	env, err := s.Sign(k)
	if err != nil {
		panic(err)
	}
	g.Status.Outcome, g.Status.Statement = v1alpha1.GateApproved, env
}

func (w *World) job(step int32, state v1alpha1.JobState, callID string) {
	g, s := w.Gates[0], w.Plans[0].Spec.Steps[step-1]
	d := deed.Approved(string(g.UID), step, 1)
	w.Jobs = append(w.Jobs, v1alpha1.DeviceJob{
		ObjectMeta: metav1.ObjectMeta{Name: names.Job(d), Annotations: map[string]string{AnnotationCallID: callID}},
		Spec: v1alpha1.DeviceJobSpec{Agent: "ops", AgentUID: "agent-uid", WorkItem: v1alpha1.ObjectRef{Name: "wi-1", UID: "item-uid"}, Device: s.Device,
			ManifestDigest: s.ManifestDigest, Capability: s.Capability, Args: s.Args, Deed: d, Gate: v1alpha1.GateRef{Name: g.Name, UID: string(g.UID)},
			Step: step, Attempt: 1, ExpiresAt: metav1.NewTime(now.Add(time.Minute))},
		Status: v1alpha1.DeviceJobStatus{State: state},
	})
}

func (w *World) haltGate(haltID string, outcome v1alpha1.GateOutcome, answer v1alpha1.HaltAnswer) {
	g := v1alpha1.Gate{ObjectMeta: metav1.ObjectMeta{Name: names.HaltGate("wi-1", "", haltID)}, Spec: v1alpha1.GateSpec{
		Kind: v1alpha1.GateHalt, WorkItem: v1alpha1.ObjectRef{Name: "wi-1", UID: "item-uid"}, Halt: &v1alpha1.GateHaltRef{Halt: haltID}}}
	g.Status.Outcome = outcome
	g.Status.Decisions = []v1alpha1.GateDecision{{Answer: answer}}
	w.Gates = append(w.Gates, g)
}

// revoke the right to approve of one of the agent's people.
func revoke(i int) func(*World) {
	return func(w *World) { w.Agent.Spec.People[i].May = []v1alpha1.Right{v1alpha1.RightInstruct} }
}

func approvedByBoth(w *World) {
	w.approveWith(0, key, func(s *approval.Statement) { s.Approvers = []string{"lucas", "vera"} })
}

func TestJudge(t *testing.T) {
	second := write("b")
	tests := map[string]struct {
		change  func(*World)
		call    Call
		verdict Verdict
		reason  string
		step    int32
		says    string
	}{
		"read-only call":                       {call: read(), verdict: Free},
		"read-only call while waiting":         {change: func(w *World) { w.Gates[0].Status = v1alpha1.GateStatus{} }, call: read(), verdict: Free},
		"read-only call that is the next step": {change: func(w *World) { w.plan(2, readStep()); w.approve(1) }, call: read(), verdict: Run, step: 1},
		"read-only call that is a later step":  {change: func(w *World) { w.plan(2, write("a"), readStep()); w.approve(1) }, call: read(), verdict: Free},
		"read-only step before approval":       {change: func(w *World) { w.plan(2, readStep()) }, call: read(), verdict: Free},
		"next step":                            {call: call(write("a")), verdict: Run, step: 1},
		"second step":                          {change: func(w *World) { w.job(1, v1alpha1.JobSucceeded, "call-1") }, call: call(second), verdict: Run, step: 2},
		"same call twice in a plan":            {change: func(w *World) { w.job(1, v1alpha1.JobSucceeded, "call-1"); w.job(2, v1alpha1.JobSucceeded, "call-2") }, call: call(write("a")), verdict: Run, step: 3},
		"tool that is not allowed":             {change: func(w *World) { w.Agent.Spec.Tools.Allow = []string{"fs.read"} }, call: call(write("a")), verdict: Refuse, reason: ToolNotAllowed},
		"agent is suspended":                   {change: func(w *World) { w.Agent.Spec.Suspend = true }, call: read(), verdict: Refuse, reason: AgentSuspended},
		"agent is gone":                        {change: func(w *World) { w.Agent = nil }, call: read(), verdict: Refuse, reason: ToolNotAllowed},
		"other device":                         {call: Call{Device: "db1", Capability: "fs.read", Args: `{"path":"/x"}`}, verdict: Refuse, reason: DeviceNotAllowed, says: "web1, gone"},
		"device that does not exist":           {change: func(w *World) { w.Device = nil }, call: Call{Device: "gone", Capability: "fs.read", Args: `{"path":"/x"}`}, verdict: Refuse, reason: DeviceNotFound},
		"no manifest":                          {change: func(w *World) { w.Manifest = nil }, call: read(), verdict: Refuse, reason: NoManifest, says: "no DeviceManifest web1-user"},
		"manifest going away":                  {change: func(w *World) { w.Manifest.DeletionTimestamp = &metav1.Time{Time: now} }, call: read(), verdict: Refuse, reason: NoManifest},
		"none of this privilege":               {change: func(w *World) { w.Agent.Spec.Privilege, w.Manifest = v1alpha1.PrivilegeElevated, nil }, call: read(), verdict: Refuse, reason: NoManifest, says: "web1-elevated"},
		"manifest is not signed":               {change: func(w *World) { w.Manifest.Spec.Signature = "" }, call: read(), verdict: Refuse, reason: ManifestUnsigned, says: "not signed yet"},
		"manifest changed after signing":       {change: func(w *World) { w.Manifest.Spec.Paths.Read[0].Glob = "/**" }, call: read(), verdict: Refuse, reason: ManifestUnsigned, says: "changed after it was signed"},
		"another key signed the manifest":      {change: func(w *World) { w.resign(otherKey) }, call: read(), verdict: Refuse, reason: ManifestUntrusted, says: "not of the device's root key"},
		"manifest of another device":           {change: func(w *World) { w.Manifest.Spec.Device = "web2"; w.resign(rootKey) }, call: read(), verdict: Refuse, reason: ManifestUntrusted, says: "on web2"},
		"manifest of another privilege": {change: func(w *World) {
			w.Manifest.Spec.Privilege, w.Manifest.Spec.ExpiresAt = v1alpha1.PrivilegeElevated, "2027-03-01T00:00:00Z"
			w.resign(rootKey)
		}, call: read(), verdict: Refuse, reason: ManifestUntrusted, says: "privilege Elevated"},
		"manifest that nobody could sign":      {change: func(w *World) { w.Manifest.Spec.Limits.TimeoutSeconds = 0 }, call: read(), verdict: Refuse, reason: ManifestInvalid},
		"manifest has ended":                   {change: func(w *World) { w.Now = now.Add(200 * 24 * time.Hour) }, call: read(), verdict: Refuse, reason: ManifestExpired, says: "2027-06-01"},
		"manifest was revoked":                 {change: func(w *World) { w.Device.Spec.RevokedEpoch = list1.Epoch }, call: read(), verdict: Refuse, reason: ManifestRevoked, says: "revoked"},
		"an earlier epoch was revoked":         {change: func(w *World) { w.Device.Spec.RevokedEpoch = list1.Epoch - 1 }, call: read(), verdict: Free},
		"a step, and its manifest was revoked": {change: func(w *World) { w.Device.Spec.RevokedEpoch = list1.Epoch }, call: call(write("a")), verdict: Refuse, reason: ManifestRevoked},
		"path that is not listed":              {call: Call{Device: "web1", Capability: "fs.read", Args: `{"path":"/etc/shadow"}`}, verdict: Refuse, reason: NotListed, says: "/etc/shadow"},
		"path with ..":                         {call: Call{Device: "web1", Capability: "fs.read", Args: `{"path":"/srv/nisse/../x"}`}, verdict: Refuse, reason: BadArguments},
		"no item":                              {change: func(w *World) { w.Item, w.Plans, w.Gates = nil, nil, nil }, call: read(), verdict: Refuse, reason: NoWorkItem},
		"item of another agent":                {change: func(w *World) { w.Item.Spec.Agent = "dev" }, call: read(), verdict: Refuse, reason: NoWorkItem},
		"item is closed":                       {change: func(w *World) { w.Item.Status.State = v1alpha1.WorkItemClosed }, call: call(write("a")), verdict: Refuse, reason: ItemOver},
		"item is finished":                     {change: func(w *World) { w.Item.Status.Runtime = &v1alpha1.WorkItemRuntime{Finished: &v1alpha1.FinishReport{}} }, call: read(), verdict: Refuse, reason: ItemOver},
		"item is asked to close":               {change: func(w *World) { w.Item.Spec.Close = true }, call: call(write("a")), verdict: Refuse, reason: ItemOver},
		"stopped":                              {change: func(w *World) { w.Item.Spec.Stop = &v1alpha1.StopRequest{ID: "s1"} }, call: call(write("a")), verdict: Held, reason: Stopped},
		"stopped holds reading too":            {change: func(w *World) { w.Item.Spec.Stop = &v1alpha1.StopRequest{ID: "s1"} }, call: read(), verdict: Held, reason: Stopped},
		"stop was answered":                    {change: func(w *World) { w.Item.Spec.Stop = &v1alpha1.StopRequest{ID: "s1"}; w.Item.Status.AnsweredStop = "s1" }, call: read(), verdict: Free},
		"another stop":                         {change: func(w *World) { w.Item.Spec.Stop = &v1alpha1.StopRequest{ID: "s2"}; w.Item.Status.AnsweredStop = "s1" }, call: read(), verdict: Held, reason: Stopped},
		"halted": {change: func(w *World) {
			w.Item.Status.Runtime = &v1alpha1.WorkItemRuntime{Halt: &v1alpha1.HaltReport{ID: "h1", Reason: v1alpha1.HaltCallMismatch, Message: "Differs."}}
		}, call: call(write("a")), verdict: Held, reason: "CallMismatch", says: "Differs."},
		"halt was answered": {change: func(w *World) {
			w.Item.Status.Runtime = &v1alpha1.WorkItemRuntime{Halt: &v1alpha1.HaltReport{ID: "h1"}}
			w.Item.Status.AnsweredHalt = "h1"
		}, call: call(write("a")), verdict: Run, step: 1},
		"no plan":                  {change: func(w *World) { w.Plans, w.Gates = nil, nil }, call: call(write("a")), verdict: Ask},
		"plan of an earlier item":  {change: func(w *World) { w.Plans[0].Spec.WorkItem.UID = "older" }, call: call(write("a")), verdict: Ask},
		"plan of an earlier agent": {change: func(w *World) { w.Plans[0].Spec.AgentUID = "older" }, call: call(write("a")), verdict: Refuse, reason: GateMismatch},
		"no gate yet":              {change: func(w *World) { w.Gates = nil }, call: call(write("a")), verdict: Wait, reason: AwaitingApproval},
		"gate is open":             {change: func(w *World) { w.Gates[0].Status = v1alpha1.GateStatus{} }, call: call(write("a")), verdict: Wait, reason: AwaitingApproval, says: "rev-1"},
		"gate of another plan":     {change: func(w *World) { w.Gates[0].Spec.Subject.UID = "x" }, call: call(write("a")), verdict: Refuse, reason: GateMismatch},
		"gate of kind Halt":        {change: func(w *World) { w.Gates[0].Spec.Kind = v1alpha1.GateHalt }, call: call(write("a")), verdict: Refuse, reason: GateMismatch},
		"rejected": {change: func(w *World) {
			w.Gates[0].Status = v1alpha1.GateStatus{Outcome: v1alpha1.GateRejected, Decisions: []v1alpha1.GateDecision{{Person: "lucas", Decision: v1alpha1.DecisionReject, Text: "use \u202edaily"}}}
		}, call: call(write("a")), verdict: Refuse, reason: PlanRejected, says: `lucas: "use \u202edaily"`},
		"expired":                         {change: func(w *World) { w.Gates[0].Status = v1alpha1.GateStatus{Outcome: v1alpha1.GateExpired} }, call: call(write("a")), verdict: Refuse, reason: PlanExpired},
		"superseded":                      {change: func(w *World) { w.Gates[0].Status = v1alpha1.GateStatus{Outcome: v1alpha1.GateSuperseded} }, call: call(write("a")), verdict: Refuse, reason: PlanSuperseded},
		"a later revision waits":          {change: func(w *World) { w.plan(2, write("c")) }, call: call(write("a")), verdict: Wait, reason: AwaitingApproval, says: "rev-2"},
		"a later revision has no gate":    {change: func(w *World) { w.plan(2, write("c")); w.Gates = w.Gates[:1] }, call: call(write("a")), verdict: Wait, reason: AwaitingApproval, says: "rev-2"},
		"a later revision dropped a step": {change: func(w *World) { w.plan(2, write("b")); w.approve(1) }, call: call(write("a")), verdict: Halt, reason: "CallMismatch", step: 1, says: "rev-2"},
		"ninth and tenth revision":        {change: func(w *World) { w.plan(10, write("x")); w.plan(9, write("a")); w.approve(1); w.approve(2) }, call: call(write("x")), verdict: Run, step: 1},
		"closed by replan":                {change: func(w *World) { w.Item.Status.ClosedRevision = 1 }, call: call(write("a")), verdict: Refuse, reason: PlanClosed},
		"a step was edited":               {change: func(w *World) { w.Plans[0].Spec.Steps[0].Args = `{"path":"/srv/nisse/z"}` }, call: call(write("a")), verdict: Refuse, reason: DigestMismatch},
		"the window was edited":           {change: func(w *World) { w.Gates[0].Spec.WindowSeconds = 9999 }, call: call(write("a")), verdict: Refuse, reason: DigestMismatch},
		"no statement":                    {change: func(w *World) { w.Gates[0].Status.Statement = "" }, call: call(write("a")), verdict: Refuse, reason: StatementInvalid},
		"statement by another key":        {change: func(w *World) { w.approveWith(0, otherKey, func(*approval.Statement) {}) }, call: call(write("a")), verdict: Refuse, reason: StatementInvalid},
		"statement of another gate":       {change: func(w *World) { w.approveWith(0, key, func(s *approval.Statement) { s.GateUID = "x" }) }, call: call(write("a")), verdict: Refuse, reason: StatementInvalid},
		"statement of another digest":     {change: func(w *World) { w.approveWith(0, key, func(s *approval.Statement) { s.Digest = otherDigest }) }, call: call(write("a")), verdict: Refuse, reason: StatementInvalid},
		"statement of other calls":        {change: func(w *World) { w.approveWith(0, key, func(s *approval.Statement) { s.Calls[0] = s.Calls[1] }) }, call: call(write("a")), verdict: Refuse, reason: StatementInvalid},
		"statement of fewer calls": {change: func(w *World) {
			w.approveWith(0, key, func(s *approval.Statement) { s.Calls, s.Attempts = s.Calls[:1], s.Attempts[:1] })
		}, call: call(write("a")), verdict: Refuse, reason: StatementInvalid},
		"a program": {change: touching(asIs, asSigned), call: call(touch()), verdict: Run, step: 1},
		"one digit of the program was edited": {change: touching(func(r *v1alpha1.ResolvedProgram) { r.SHA256 = strings.Replace(r.SHA256, "0", "1", 1) }, asSigned),
			call: call(touch()), verdict: Refuse, reason: DigestMismatch},
		"where the program lies was edited":     {change: touching(func(r *v1alpha1.ResolvedProgram) { r.Executable = "/srv/touch" }, asSigned), call: call(touch()), verdict: Refuse, reason: DigestMismatch},
		"who the program runs as was edited":    {change: touching(func(r *v1alpha1.ResolvedProgram) { r.User = "root" }, asSigned), call: call(touch()), verdict: Refuse, reason: DigestMismatch},
		"the program was taken out of the plan": {change: func(w *World) { touching(asIs, asSigned)(w); w.Plans[1].Spec.Steps[0].Resolved = nil }, call: call(touch()), verdict: Refuse, reason: DigestMismatch},
		"statement of another program":          {change: touching(asIs, func(s *approval.Statement) { s.Resolved[0] = strings.Repeat("0b", 32) }), call: call(touch()), verdict: Refuse, reason: StatementInvalid},
		"statement of no program":               {change: touching(asIs, func(s *approval.Statement) { s.Resolved = nil }), call: call(touch()), verdict: Refuse, reason: StatementInvalid},
		"statement of a program too many":       {change: touching(asIs, func(s *approval.Statement) { s.Resolved[1] = s.Resolved[0] }), call: call(touch()), verdict: Refuse, reason: StatementInvalid},
		"no key is trusted":                     {change: func(w *World) { w.ApprovalKeys = nil }, call: call(write("a")), verdict: Refuse, reason: StatementInvalid},
		"last second of the window":             {change: func(w *World) { w.Now = now.Add(599 * time.Second) }, call: call(write("a")), verdict: Run, step: 1},
		"window is over":                        {change: func(w *World) { w.Now = now.Add(600 * time.Second) }, call: call(write("a")), verdict: Refuse, reason: ApprovalEnded},
		"another approver is taken away":        {change: func(w *World) { w.Agent.Spec.People = w.Agent.Spec.People[:1] }, call: call(write("a")), verdict: Run, step: 1},
		"approver is taken away":                {change: func(w *World) { w.Agent.Spec.People = w.Agent.Spec.People[1:] }, call: call(write("a")), verdict: Refuse, reason: ApproverRevoked, says: "lucas approved rev-1 and may not approve for ops any more"},
		"approver may instruct only":            {change: revoke(0), call: call(write("a")), verdict: Refuse, reason: ApproverRevoked, says: "Submit the plan again"},
		"nobody may approve any more":           {change: func(w *World) { w.Agent.Spec.People = nil }, call: call(write("a")), verdict: Refuse, reason: ApproverRevoked},
		"approver of two is taken away":         {change: func(w *World) { approvedByBoth(w); revoke(1)(w) }, call: call(write("a")), verdict: Refuse, reason: ApproverRevoked, says: "vera approved"},
		"both approvers may still":              {change: approvedByBoth, call: call(write("a")), verdict: Run, step: 1},
		"revoked after the first step":          {change: func(w *World) { w.job(1, v1alpha1.JobSucceeded, "call-1"); revoke(0)(w) }, call: call(second), verdict: Refuse, reason: ApproverRevoked},
		"revoked, an old answer":                {change: func(w *World) { w.job(1, v1alpha1.JobSucceeded, "call-9"); revoke(0)(w) }, call: call(write("a")), verdict: Repeat, step: 1},
		"revoked, read-only call":               {change: revoke(0), call: read(), verdict: Free},
		"revoked, read-only next step":          {change: func(w *World) { w.plan(2, readStep()); w.approve(1); revoke(0)(w) }, call: read(), verdict: Free},
		"manifest changed since":                {change: func(w *World) { w.Manifest.Spec.Limits.WriteBytes++; w.resign(rootKey) }, call: call(write("a")), verdict: Refuse, reason: ManifestChanged},
		"one character differs":                 {call: call(write("A")), verdict: Halt, reason: "CallMismatch", step: 1, says: "wants web1 · fs.write with path=\"/srv/nisse/a\";\nops called it with path=\"/srv/nisse/A\".\nNothing was run."},
		"an argument more":                      {call: Call{Device: "web1", Capability: "fs.write", Args: `{"content":"x","encoding":"utf-8","path":"/srv/nisse/a"}`}, verdict: Halt, reason: "CallMismatch", step: 1, says: "with encoding=(absent);\nops called it with encoding=\"utf-8\""},
		"another capability":                    {call: Call{Device: "web1", Capability: "exec", Args: `{"argv":["/usr/bin/touch","/srv/nisse/a"]}`}, verdict: Halt, reason: "CallMismatch", step: 1, says: "ops called web1 · exec with {\"argv\":[\"/usr/bin/touch\",\"/srv/nisse/a\"]}.\n"},
		"a later step first":                    {call: call(second), verdict: Halt, reason: "CallMismatch", step: 1},
		"same call again":                       {change: func(w *World) { w.job(1, v1alpha1.JobSucceeded, "call-9") }, call: call(write("a")), verdict: Repeat, step: 1},
		"same call again without an ID":         {change: func(w *World) { w.job(1, v1alpha1.JobSucceeded, "") }, call: Call{Device: "web1", Capability: "fs.write", Args: write("a").Args}, verdict: Repeat, step: 1},
		"same call again while stopped": {change: func(w *World) {
			w.job(1, v1alpha1.JobSucceeded, "call-9")
			w.Item.Spec.Stop = &v1alpha1.StopRequest{ID: "s"}
		}, call: call(write("a")), verdict: Repeat, step: 1},
		"same call again after rev-2":            {change: func(w *World) { w.job(1, v1alpha1.JobSucceeded, "call-9"); w.plan(2, write("c")) }, call: call(write("a")), verdict: Repeat, step: 1},
		"ran, and there is no manifest any more": {change: func(w *World) { w.job(1, v1alpha1.JobSucceeded, "call-1"); w.Manifest = nil }, call: call(write("a")), verdict: Repeat, step: 1},
		"ran, and the manifests were revoked": {change: func(w *World) {
			w.job(1, v1alpha1.JobFailed, "call-1")
			w.Device.Spec.RevokedEpoch = 1 << 52
		}, call: call(write("a")), verdict: Repeat, step: 1},
		"runs, and there is no manifest any more": {change: func(w *World) { w.job(1, "", "call-1"); w.Manifest = nil }, call: call(write("a")), verdict: Refuse, reason: NoManifest},
		"is due again, and there is no manifest": {change: func(w *World) {
			w.job(1, v1alpha1.JobSucceeded, "call-1")
			w.job(2, v1alpha1.JobSucceeded, "call-2")
			w.Manifest = nil
		}, call: call(write("a")), verdict: Refuse, reason: NoManifest},
		"never ran, and there is no manifest":     {change: func(w *World) { w.job(1, v1alpha1.JobSucceeded, "call-1"); w.Manifest = nil }, call: call(write("z")), verdict: Refuse, reason: NoManifest},
		"ran under a plan that a person withdrew": {change: func(w *World) { w.job(1, v1alpha1.JobSucceeded, "call-1"); revoke(0)(w); w.Manifest = nil }, call: call(write("a")), verdict: Refuse, reason: NoManifest},
		"same call while it runs":                 {change: func(w *World) { w.job(1, "", "call-9") }, call: call(write("a")), verdict: Attach, step: 1},
		"same call while it runs, no ID":          {change: func(w *World) { w.job(1, "", "call-1") }, call: Call{Device: "web1", Capability: "fs.write", Args: write("a").Args}, verdict: Attach, step: 1},
		"one ID for two calls":                    {change: func(w *World) { w.job(1, v1alpha1.JobSucceeded, "call-9") }, call: call(second), verdict: Refuse, reason: CallIDReused},
		"step before is pending":                  {change: func(w *World) { w.job(1, "", "call-1") }, call: call(second), verdict: Wait, reason: StepPending, step: 1},
		"mismatch while one is pending":           {change: func(w *World) { w.job(1, "", "call-1") }, call: call(write("z")), verdict: Halt, reason: "CallMismatch", step: 1},
		"step before failed":                      {change: func(w *World) { w.job(1, v1alpha1.JobFailed, "call-1") }, call: call(second), verdict: Refuse, reason: PlanOver, says: "Failed"},
		"step before was refused":                 {change: func(w *World) { w.job(1, v1alpha1.JobRefused, "call-1") }, call: call(second), verdict: Refuse, reason: PlanOver},
		"step before expired":                     {change: func(w *World) { w.job(1, v1alpha1.JobExpired, "call-1") }, call: call(second), verdict: Refuse, reason: PlanOver},
		"failed step again":                       {change: func(w *World) { w.job(1, v1alpha1.JobFailed, "call-1") }, call: call(write("a")), verdict: Repeat, step: 1},
		"step before is unknown":                  {change: func(w *World) { w.job(1, v1alpha1.JobUnknown, "call-1") }, call: call(second), verdict: Halt, reason: "OutcomeUnknown", step: 1, says: "Nobody can prove how step 1 ended"},
		"unknown, answered continue": {change: func(w *World) {
			w.job(1, v1alpha1.JobUnknown, "call-1")
			w.haltGate(deed.UnknownHalt(w.Jobs[0].Spec.Deed), v1alpha1.GateApproved, v1alpha1.AnswerContinue)
		}, call: call(second), verdict: Run, step: 2},
		"unknown, settled as done": {change: func(w *World) {
			w.job(1, v1alpha1.JobUnknown, "call-1")
			w.haltGate(deed.UnknownHalt(w.Jobs[0].Spec.Deed), v1alpha1.GateApproved, v1alpha1.AnswerContinue)
			w.Gates[len(w.Gates)-1].Status.Decisions[0].Settle = v1alpha1.SettledSucceeded
		}, call: call(second), verdict: Run, step: 2},
		"unknown, settled as failed": {change: func(w *World) {
			w.job(1, v1alpha1.JobUnknown, "call-1")
			w.haltGate(deed.UnknownHalt(w.Jobs[0].Spec.Deed), v1alpha1.GateApproved, v1alpha1.AnswerContinue)
			w.Gates[len(w.Gates)-1].Status.Decisions[0].Settle = v1alpha1.SettledFailed
		}, call: call(second), verdict: Refuse, reason: PlanOver, says: "settled step 1 of rev-1 as Failed"},
		"unknown, settled as failed, the same again": {change: func(w *World) {
			w.job(1, v1alpha1.JobUnknown, "call-1")
			w.haltGate(deed.UnknownHalt(w.Jobs[0].Spec.Deed), v1alpha1.GateApproved, v1alpha1.AnswerContinue)
			w.Gates[len(w.Gates)-1].Status.Decisions[0].Settle = v1alpha1.SettledFailed
		}, call: call(write("a")), verdict: Repeat, step: 1},
		"unknown, answered replan": {change: func(w *World) {
			w.job(1, v1alpha1.JobUnknown, "call-1")
			w.haltGate(deed.UnknownHalt(w.Jobs[0].Spec.Deed), v1alpha1.GateApproved, v1alpha1.AnswerReplan)
		}, call: call(second), verdict: Halt, reason: "OutcomeUnknown", step: 1},
		"unknown, gate open": {change: func(w *World) {
			w.job(1, v1alpha1.JobUnknown, "call-1")
			w.haltGate(deed.UnknownHalt(w.Jobs[0].Spec.Deed), "", v1alpha1.AnswerContinue)
		}, call: call(second), verdict: Halt, reason: "OutcomeUnknown", step: 1},
		"unknown, another halt continued": {change: func(w *World) {
			w.job(1, v1alpha1.JobUnknown, "call-1")
			w.haltGate("h7", v1alpha1.GateApproved, v1alpha1.AnswerContinue)
		}, call: call(second), verdict: Halt, reason: "OutcomeUnknown", step: 1},
		"all done, one more": {change: func(w *World) {
			w.job(1, v1alpha1.JobSucceeded, "1")
			w.job(2, v1alpha1.JobSucceeded, "2")
			w.job(3, v1alpha1.JobSucceeded, "3")
		}, call: call(write("z")), verdict: Ask},
		"all done, an old one": {change: func(w *World) {
			w.job(1, v1alpha1.JobSucceeded, "1")
			w.job(2, v1alpha1.JobSucceeded, "2")
			w.job(3, v1alpha1.JobSucceeded, "3")
		}, call: call(second), verdict: Repeat, step: 2},
		"job of an earlier gate":           {change: func(w *World) { w.job(1, v1alpha1.JobSucceeded, "call-1"); w.Jobs[0].Spec.Gate.UID = "older" }, call: call(write("a")), verdict: Run, step: 1},
		"approval-needing call not listed": {call: Call{Device: "web1", Capability: "fs.write", Args: `{"content":"x","path":"/etc/passwd"}`}, verdict: Refuse, reason: NotListed},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := world()
			if tt.change != nil {
				tt.change(w)
			}
			d := Judge(tt.call, *w)
			if d.Verdict != tt.verdict || d.Reason != tt.reason || d.Step != tt.step {
				t.Errorf("got %s %q step %d (%s), want %s %q step %d", d.Verdict, d.Reason, d.Step, d.Message, tt.verdict, tt.reason, tt.step)
			}
			if !strings.Contains(d.Message, tt.says) {
				t.Errorf("message %q does not say %q", d.Message, tt.says)
			}
			if d.Reason != "" && d.Message == "" {
				t.Error("a reason without words for a person")
			}
		})
	}
}

func TestStillGood(t *testing.T) {
	tests := map[string]struct {
		change func(*World)
		reason string
	}{
		"good":                {change: func(*World) {}},
		"stopped":             {change: func(w *World) { w.Item.Spec.Stop = &v1alpha1.StopRequest{ID: "s"} }, reason: Stopped},
		"over":                {change: func(w *World) { w.Item.Spec.Close = true }, reason: ItemOver},
		"a later revision":    {change: func(w *World) { w.plan(2, write("c")) }, reason: AwaitingApproval},
		"rev-2 is approved":   {change: func(w *World) { w.plan(2, write("c")); w.approve(1) }, reason: PlanSuperseded},
		"rev-2 was deleted":   {change: func(w *World) { w.Item.Status.Plan = &v1alpha1.PlanRef{Name: "gone", Revision: 2} }, reason: PlanSuperseded},
		"tool taken away":     {change: func(w *World) { w.Agent.Spec.Tools.Allow = nil }, reason: ToolNotAllowed},
		"device taken away":   {change: func(w *World) { w.Agent.Spec.Devices = nil }, reason: DeviceNotAllowed},
		"job is not the step": {change: func(w *World) { w.Jobs[0].Spec.Args = `{"content":"x","path":"/srv/nisse/z"}` }, reason: DigestMismatch},
		"manifest changed":    {change: func(w *World) { w.Manifest.Spec.Limits.WriteBytes++; w.resign(rootKey) }, reason: ManifestChanged},
		"manifest unsigned":   {change: func(w *World) { w.Manifest.Spec.Limits.WriteBytes++ }, reason: ManifestUnsigned},
		"manifest revoked":    {change: func(w *World) { w.Device.Spec.RevokedEpoch = list1.Epoch }, reason: ManifestRevoked},
		"approval ended":      {change: func(w *World) { w.Now = now.Add(time.Hour) }, reason: ApprovalEnded},
		"job's time is over":  {change: func(w *World) { w.Now = now.Add(time.Minute) }, reason: ApprovalEnded},
		"closed by replan":    {change: func(w *World) { w.Item.Status.ClosedRevision = 1 }, reason: PlanClosed},
		"approver revoked":    {change: revoke(0), reason: ApproverRevoked},
		"other one revoked":   {change: revoke(1)},
		"one of two revoked":  {change: func(w *World) { approvedByBoth(w); revoke(1)(w) }, reason: ApproverRevoked},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := world()
			w.job(1, "", "call-9")
			tt.change(w)
			d := StillGood(&w.Jobs[0], *w)
			got := ""
			if d != nil {
				got = d.Reason
			}
			if got != tt.reason {
				t.Errorf("got %q, want %q", got, tt.reason)
			}
		})
	}
}

func TestMismatchShowsTheDifferenceInLongArguments(t *testing.T) {
	long := strings.Repeat("ä", 3000)
	want := v1alpha1.PlanStep{Device: "web1", Capability: "fs.write", Args: `{"content":"` + long + "x" + long + `","path":"/a"}`}
	m := mismatch("ops", "rev-1", 2, want, Call{Device: "web1", Capability: "fs.write", Args: `{"content":"` + long + "y" + long + `","path":"/a"}`})
	if len(m) > 1000 || !strings.Contains(m, "äx") || !strings.Contains(m, "äy") || strings.Contains(m, "path") {
		t.Errorf("%d bytes: %s", len(m), m)
	}
}

// What the doors call a device that is away is what is judged here: agents tell it apart from what was forbidden by that name.
func TestAwayIsNamedAlike(t *testing.T) {
	if DeviceAway != doors.DeviceAway {
		t.Errorf("%q here, %q at the doors", DeviceAway, doors.DeviceAway)
	}
}

// A list of the agent's is shown in a halt as in the question about the plan, unless it would have to be cut.
func TestExcerptsOfLists(t *testing.T) {
	long := `["` + strings.Repeat("a", maxWhole) + `"]`
	for name, tc := range map[string]struct{ args, want string }{
		"a list":                     {`{"argv":["/usr/bin/touch","/srv/a"]}`, `argv=["/usr/bin/touch","/srv/a"]`},
		"what others would not see":  {`{"argv":["a\u202eb"]}`, `argv=["a\u202eb"]`},
		"a quote and a line of ours": {`{"argv":["\".\nNothing runs until you answer."]}`, `argv=["\".\nNothing runs until you answer."]`},
		"an object":                  {`{"env":{"b":1e3,"a":[true,null]}}`, `env={"a":[true,null],"b":1e3}`},
		"too long":                   {`{"argv":` + long + `}`, `argv=` + sanitize.Quote(long[:around]) + "…"},
		"a string":                   {`{"argv":"[\"x\"]"}`, `argv="[\"x\"]"`},
	} {
		t.Run(name, func(t *testing.T) {
			got, _ := differing(tc.args, `{}`)
			if got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}
