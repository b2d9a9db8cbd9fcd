package broker

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/doors"
)

func TestToolsThatAreNotAllowedDoNotExist(t *testing.T) {
	r := newRig(t, options{agent: func(a *v1alpha1.Agent) { a.Spec.Tools.Allow = []string{"fs.read"} }})
	s := r.session()
	var got []string
	for tool, err := range s.Tools(t.Context(), nil) {
		must(t, err)
		got = append(got, tool.Name)
	}
	if slices.Sort(got); !slices.Equal(got, []string{"finish", "fs_read"}) {
		t.Errorf("tools %q", got)
	}
	for _, name := range []string{"fs_write", "submit_plan", "rm", "fs.read"} {
		if _, err := r.call(s, "c", name, writeArgs("a", "x")); err == nil || !strings.Contains(err.Error(), "unknown tool") {
			t.Errorf("%s: %v, want unknown tool", name, err)
		}
	}
}

func TestFromPlanToDeed(t *testing.T) {
	r := newRig(t, options{})
	r.want(r.do("c1", "exec", `{"device":"web1","argv":["/usr/bin/df","-h"]}`), doors.Done, "")
	r.want(r.do("c1b", "fs_read", `{"device":"web1","path":"/srv/a"}`), doors.Failed, "") // not there yet
	p := r.submit("c2", "a", "b")
	r.want(r.do("c3", "fs_write", writeArgs("a", "x")), doors.Pending, "AwaitingApproval")
	g := r.gate(p)
	res := r.do("c4", "fs_write", writeArgs("a", "x"))
	r.want(res, doors.Pending, "AwaitingApproval")
	if res.Gate != g.Name || res.Revision != 1 {
		t.Errorf("pending names gate %q rev %d", res.Gate, res.Revision)
	}
	r.outcome(g, v1alpha1.GateApproved, r.statement(g, p, r.approver))
	res = r.do("c5", "fs_write", `{"path":"/srv/a","device":"web1","content":"x"}`)
	r.want(res, doors.Done, "")
	if res.Step != 1 || res.AuditHash == "" || !strings.Contains(string(res.Output), `"bytes":1`) {
		t.Errorf("result %+v", res)
	}
	again := r.do("c5", "fs_write", writeArgs("a", "x"))
	r.want(again, doors.Done, "")
	r.want(r.do("c6", "fs_write", writeArgs("b", "x")), doors.Done, "")
	r.want(r.do("c7", "fs_write", writeArgs("c", "x")), doors.Pending, "AwaitingApproval") // another call than those of the plan
	r.ran(2)
	for _, name := range []string{"a", "b"} {
		if b, err := os.ReadFile(filepath.Join(r.root, name)); err != nil || string(b) != "x" {
			t.Errorf("file %s: %q, %v", name, b, err)
		}
	}
	for _, j := range r.jobs() {
		if j.Status.State != v1alpha1.JobSucceeded || j.Labels[v1alpha1.LabelWorkItem] != "wi-1" || len(j.OwnerReferences) != 1 || j.OwnerReferences[0].BlockOwnerDeletion != nil {
			t.Errorf("job %+v", j)
		}
	}
	r.want(r.do("c8", "finish", `{"summary":"both written"}`), doors.Done, "")
	r.want(r.do("c8", "finish", `{"summary":"both written"}`), doors.Done, "")
	if f := r.itemNow().Status.Runtime.Finished; f == nil || f.Summary != "both written" {
		t.Errorf("finished %+v", f)
	}
	r.want(r.do("c9", "fs_read", `{"device":"web1","path":"/srv/a"}`), doors.Refused, "ItemOver")
	if len(r.events.all) != 0 {
		t.Errorf("events %q of what the objects tell", r.events.all)
	}
}

func TestARepeatedFinishDoesNotEndTheNextItem(t *testing.T) {
	r := newRig(t, options{})
	s := r.session()
	res, err := r.callFor(s, "wi-1", "f1", "finish", `{"summary":"done"}`)
	must(t, err)
	r.want(res, doors.Done, "")
	r.status(r.item, func() { r.item.Status.State = v1alpha1.WorkItemClosed })
	next := r.newItem("wi-2")
	r.activate("wi-2")
	res, err = r.callFor(s, "wi-1", "f1", "finish", `{"summary":"done"}`)
	must(t, err)
	r.want(res, doors.Done, "")
	res, err = r.callFor(s, "wi-1", "r1", "fs_read", `{"device":"web1","path":"/srv/a"}`)
	must(t, err)
	r.want(res, doors.Refused, "OtherWorkItem")
	for _, item := range []string{"wi-9", "../wi-1", "WI", strings.Repeat("w", 100)} {
		res, err = r.callFor(s, item, "f2", "finish", `{"summary":"done"}`)
		must(t, err)
		r.want(res, doors.Refused, "OtherWorkItem")
	}
	must(t, r.api.Get(t.Context(), client.ObjectKeyFromObject(next), next))
	if next.Status.Runtime != nil {
		t.Errorf("the next item got %+v", next.Status.Runtime)
	}
}

// Case 1: a later revision drops a target; the older approved plan must not run.
func TestAnOlderPlanDoesNotRun(t *testing.T) {
	r := newRig(t, options{})
	r.approve(r.submit("c1", "a"))
	p2 := r.submit("c2", "b")
	r.want(r.do("c3", "fs_write", writeArgs("a", "x")), doors.Pending, "AwaitingApproval")
	r.approve(p2)
	res := r.do("c4", "fs_write", writeArgs("a", "x"))
	r.want(res, doors.Halted, "CallMismatch")
	r.ran(0)
}

// Case 4 and the stop: what was approved and then revoked does not run; revocation acts where the deed is done.
func TestRevocation(t *testing.T) {
	tests := map[string]struct {
		revoke func(*rig)
		status string
		reason string
	}{
		"stop":              {func(r *rig) { r.spec(r.item, func() { r.item.Spec.Stop = &v1alpha1.StopRequest{ID: "s1"} }) }, doors.Halted, "Stopped"},
		"close":             {func(r *rig) { r.spec(r.item, func() { r.item.Spec.Close = true }) }, doors.Refused, "ItemOver"},
		"replan":            {func(r *rig) { r.status(r.item, func() { r.item.Status.ClosedRevision = 1 }) }, doors.Refused, "PlanClosed"},
		"plan deleted":      {func(r *rig) { must(r.t, r.api.DeleteAllOf(r.t.Context(), &v1alpha1.Plan{}, client.InNamespace(r.ns))) }, doors.Pending, "AwaitingApproval"},
		"gate deleted":      {func(r *rig) { must(r.t, r.api.DeleteAllOf(r.t.Context(), &v1alpha1.Gate{}, client.InNamespace(r.ns))) }, doors.Pending, "AwaitingApproval"},
		"tool taken away":   {func(r *rig) { r.spec(r.agent, func() { r.agent.Spec.Tools.Allow = []string{"fs.read"} }) }, "unknown", ""},
		"device taken away": {func(r *rig) { r.spec(r.agent, func() { r.agent.Spec.Devices = nil }) }, "unknown", ""},
		"agent suspended":   {func(r *rig) { r.spec(r.agent, func() { r.agent.Spec.Suspend = true }) }, doors.Refused, "AgentSuspended"},
		"approver demoted": {func(r *rig) {
			r.spec(r.agent, func() { r.agent.Spec.People[0].May = []v1alpha1.Right{v1alpha1.RightInstruct} })
		}, doors.Refused, "ApproverRevoked"},
		"approver replaced": {func(r *rig) { r.spec(r.agent, func() { r.agent.Spec.People[0].Name = "vera" }) }, doors.Refused, "ApproverRevoked"},
		"another manifest":  {func(r *rig) { r.sign(func(m *v1alpha1.DeviceManifestSpec) { m.Limits.WriteBytes++ }) }, doors.Refused, "ManifestChanged"},
		"manifest unsigned": {func(r *rig) { r.spec(r.manifest, func() { r.manifest.Spec.Limits.WriteBytes++ }) }, doors.Refused, "ManifestUnsigned"},
		"manifest deleted":  {func(r *rig) { must(r.t, r.api.Delete(r.t.Context(), r.manifest)) }, doors.Refused, "NoManifest"},
		"manifest by a thief": {func(r *rig) {
			r.rootKey = newKey(r.t)
			r.sign(func(*v1alpha1.DeviceManifestSpec) {})
		}, doors.Refused, "ManifestUntrusted"},
		"device revoked": {func(r *rig) {
			d := &v1alpha1.Device{ObjectMeta: r.meta("web1")}
			r.spec(d, func() { d.Spec.RevokedEpoch = r.manifest.Spec.Epoch })
		}, doors.Refused, "ManifestRevoked"},
		"agent elevated": {func(r *rig) { r.spec(r.agent, func() { r.agent.Spec.Privilege = v1alpha1.PrivilegeElevated }) }, doors.Refused, "NoManifest"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, options{})
			s := r.session() // it saw the tools before
			r.approve(r.submit("c1", "a"))
			tt.revoke(r)
			res, err := r.call(s, "c2", "fs_write", writeArgs("a", "x"))
			if tt.status == "unknown" {
				// The list of tools may lag; the judge does not.
				if err == nil && res.Status != doors.Refused {
					t.Errorf("got %+v", res)
				}
			} else {
				must(t, err)
				r.want(res, tt.status, tt.reason)
			}
			r.ran(0)
		})
	}
}

// first object of a kind.
func (r *rig) first(l client.ObjectList) client.Object {
	r.t.Helper()
	must(r.t, r.api.List(r.t.Context(), l, client.InNamespace(r.ns)))
	all, err := meta.ExtractList(l)
	must(r.t, err)
	return all[0].(client.Object)
}

// Labels are anybody's who may edit metadata. Taking them away hides nothing from the judge.
func TestLabelsDecideNothing(t *testing.T) {
	tests := map[string]struct {
		before func(*rig) client.Object // what loses its labels
		status string
		reason string
		ran    int
	}{
		"later revision":   {func(r *rig) client.Object { return r.submit("c2", "b") }, doors.Pending, "AwaitingApproval", 0},
		"plan in force":    {func(r *rig) client.Object { return r.first(&v1alpha1.PlanList{}) }, doors.Done, "", 1},
		"gate of the plan": {func(r *rig) client.Object { return r.first(&v1alpha1.GateList{}) }, doors.Done, "", 1},
		"job of the last step": {func(r *rig) client.Object {
			r.do("c2", "fs_write", writeArgs("a", "x"))
			return r.first(&v1alpha1.DeviceJobList{})
		}, doors.Done, "", 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, options{faults: true})
			r.approve(r.submit("c1", "a"))
			o := tt.before(r)
			r.spec(o, func() { o.SetLabels(nil) })
			r.want(r.do("c3", "fs_write", writeArgs("a", "x")), tt.status, tt.reason)
			r.ran(tt.ran)
			s, _, stop := r.stream()
			defer stop()
			until(t, s, "the plan and its gate are told", func(s doors.Snapshot) bool {
				p := s.Active.Plan
				if tt.ran == 0 {
					return p != nil && p.Revision == 2
				}
				return p != nil && p.Gate != "" && p.Steps[0].State == "Succeeded"
			})
		})
	}
}

// Case 14: what is in the objects was edited between display and decision.
func TestEditedObjectsDoNotRun(t *testing.T) {
	r := newRig(t, options{})
	p := r.submit("c1", "a")
	g := r.gate(p)
	forged := r.statement(g, p, newKey(t))
	r.outcome(g, v1alpha1.GateApproved, forged)
	r.want(r.do("c2", "fs_write", writeArgs("a", "x")), doors.Refused, "StatementInvalid")

	p2 := r.submit("c3", "b")
	g2 := r.gate(p2)
	other := p2.DeepCopy()
	other.Spec.Steps[0].Args = `{"content":"x","path":"/srv/z"}`
	r.outcome(g2, v1alpha1.GateApproved, r.statement(g2, other, r.approver)) // the right key, other calls
	r.want(r.do("c4", "fs_write", writeArgs("b", "x")), doors.Refused, "StatementInvalid")
	r.ran(0)
}

// Case 21: denied is terminal.
func TestARejectedPlanNeverRuns(t *testing.T) {
	r := newRig(t, options{})
	g := r.gate(r.submit("c1", "a"))
	r.outcome(g, v1alpha1.GateRejected, "")
	res := r.do("c2", "fs_write", writeArgs("a", "x"))
	r.want(res, doors.Refused, "PlanRejected")
	if !strings.Contains(res.Message, `lucas: "use daily.txt"`) {
		t.Errorf("message %q does not tell who and why", res.Message)
	}
	_, url := r.start(options{}) // a restart changes nothing
	res, err := r.call(r.sessionAt(url), "c2", "fs_write", writeArgs("a", "x"))
	must(t, err)
	r.want(res, doors.Refused, "PlanRejected")
	r.ran(0)
}

func TestOneCharacterDiffers(t *testing.T) {
	r := newRig(t, options{})
	r.approve(r.submit("c1", "a"))
	res := r.do("c2", "fs_write", writeArgs("A", "x"))
	r.want(res, doors.Halted, "CallMismatch")
	it := r.itemNow()
	if !it.Halted() || it.Status.Runtime.Halt.Revision != 1 || it.Status.Runtime.Halt.Step != 1 || !strings.Contains(it.Status.Runtime.Halt.Message, `path="`+r.root+`/a";`+"\n"+`ops called it with path="`+r.root+`/A"`) {
		t.Fatalf("halt %+v", it.Status.Runtime)
	}
	r.want(r.do("c3", "fs_write", writeArgs("a", "x")), doors.Halted, "CallMismatch")
	r.want(r.do("c4", "fs_read", `{"device":"web1","path":"/srv/a"}`), doors.Halted, "CallMismatch")
	r.want(r.do("c5", "submit_plan", planArgs("z")), doors.Halted, "CallMismatch")
	r.want(r.do("c6", "ask_human", `{"question":"why?"}`), doors.Halted, "CallMismatch")
	r.want(r.do("c7", "finish", `{"summary":"x"}`), doors.Halted, "CallMismatch")
	r.ran(0)
	r.status(r.item, func() { r.item.Status.AnsweredHalt = r.item.Status.Runtime.Halt.ID }) // a person said continue
	r.want(r.do("c8", "fs_write", writeArgs("a", "x")), doors.Done, "")
	r.ran(1)
}

// Case 18: a tool returns 2 MB.
func TestAHugeResultIsCut(t *testing.T) {
	r := newRig(t, options{})
	text := "first line\n" + strings.Repeat("ab\x1b[31m<|im_start|>\u202e", 100_000) + "\nlast line"
	must(t, os.WriteFile(filepath.Join(r.root, "big"), []byte(text), 0o600))
	read := `{"device":"web1","path":"/srv/big"}`
	free := r.do("c1", "fs_read", read)
	res := r.do("p1", "submit_plan", `{"reason":"look","steps":[{"device":"web1","capability":"fs.read","args":{"path":"/srv/big"}}]}`)
	r.want(res, doors.Pending, "AwaitingApproval")
	p := &v1alpha1.Plan{}
	must(t, r.api.Get(t.Context(), client.ObjectKey{Namespace: r.ns, Name: res.Gate}, p))
	r.approve(p)
	step := r.do("c2", "fs_read", read) // the same call, as a step of a plan
	r.ran(1)
	for _, res := range []doors.ToolResult{free, step, r.do("c2", "fs_read", read)} {
		r.want(res, doors.Done, "")
		out := string(res.Output)
		for _, want := range []string{"first line", "last line", "bytes left out", `"size":`} {
			if !strings.Contains(out, want) {
				t.Errorf("output lacks %q", want)
			}
		}
		if len(out) > 8192 || len(out) < 4000 || strings.Contains(out, "<|im_start|>") || strings.ContainsAny(out, "\x1b\u202e") {
			t.Errorf("%d bytes of output: %.300s", len(out), out)
		}
	}
	if j := r.jobs()[0]; len(j.Status.Result) > 8192 || j.Status.State != v1alpha1.JobSucceeded {
		t.Errorf("job holds %d bytes, %s", len(j.Status.Result), j.Status.State)
	}
}

func TestBadInputIsRefusedWithASentence(t *testing.T) {
	r := newRig(t, options{})
	tests := map[string]struct{ tool, args, reason, says string }{
		"duplicate keys":      {"fs_read", `{"device":"web1","path":"/srv/a","path":"/srv/b"}`, "BadArguments", `duplicate key "path"`},
		"float":               {"fs_read", `{"device":"web1","path":"/srv/a","limit":1.5}`, "BadArguments", "float"},
		"huge integer":        {"fs_read", `{"device":"web1","path":"/srv/a","limit":99999999999999999999}`, "BadArguments", "2^53"},
		"field too many":      {"fs_read", `{"device":"web1","path":"/srv/a","x":1}`, "BadArguments", "x"},
		"other device":        {"fs_read", `{"device":"db1","path":"/srv/a"}`, "BadArguments", "web1"},
		"not allowed there":   {"fs_read", `{"device":"web1","path":"/etc/shadow"}`, "NotListed", "/etc/shadow"},
		"plan: zero steps":    {"submit_plan", `{"reason":"x","steps":[]}`, "BadArguments", "minItems"},
		"plan: duplicate key": {"submit_plan", `{"reason":"x","steps":[{"device":"web1","capability":"fs.write","args":{"path":"/srv/a","path":"/srv/b","content":""}}]}`, "BadArguments", "duplicate key"},
		"plan: bad step":      {"submit_plan", `{"reason":"x","steps":[{"device":"web1","capability":"fs.write","args":{"path":"/srv/a","content":"x"}},{"device":"web1","capability":"fs.write","args":{"path":"/srv/a"}}]}`, "BadArguments", "Step 2"},
		"plan: not allowed":   {"submit_plan", `{"reason":"x","steps":[{"device":"web1","capability":"fs.write","args":{"path":"/etc/a","content":"x"}}]}`, "NotListed", "Step 1"},
		"plan: too long":      {"submit_plan", `{"reason":"x","steps":[{"device":"web1","capability":"fs.write","args":{"path":"/srv/a","content":"` + strings.Repeat("x", 17000) + `"}}]}`, "PlanTooLong", "16384"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			res := r.do("", tt.tool, tt.args)
			r.want(res, doors.Refused, tt.reason)
			if !strings.Contains(res.Message, tt.says) {
				t.Errorf("message %q does not say %q", res.Message, tt.says)
			}
		})
	}
	var plans v1alpha1.PlanList
	must(t, r.api.List(t.Context(), &plans, client.InNamespace(r.ns)))
	if len(plans.Items) != 0 || len(r.runs(false)) != 0 {
		t.Errorf("%d plans, %d runs", len(plans.Items), len(r.runs(false)))
	}
}

func TestTheSameCallIDIsTheSameCall(t *testing.T) {
	r := newRig(t, options{})
	must(t, os.WriteFile(filepath.Join(r.root, "a"), []byte("x"), 0o600))
	read := `{"device":"web1","path":"/srv/a"}`
	for range 2 {
		r.want(r.do("c1", "fs_read", read), doors.Done, "")
	}
	if n := len(r.runs(false)); n != 1 {
		t.Errorf("one call ran %d times", n)
	}
	r.want(r.do("c1", "fs_read", `{"device":"web1","path":"/srv/b"}`), doors.Refused, "CallIDReused")
	for range 2 { // without an ID reading is done anew: an old answer would be worse
		r.want(r.do("", "fs_read", read), doors.Done, "")
	}
	if n := len(r.runs(false)); n != 3 {
		t.Errorf("%d runs, want 3", n)
	}
	p := r.submit("p1", "a", "b")
	if again := r.submit("p1", "a", "b"); again.UID != p.UID {
		t.Error("the same submit_plan made another plan")
	}
	if again := r.submit("p2", "a", "b"); again.UID != p.UID {
		t.Error("the same steps made another plan while the first waits")
	}
	r.want(r.do("p1", "submit_plan", planArgs("z")), doors.Refused, "CallIDReused")
	r.approve(p)
	r.want(r.do("c2", "fs_write", writeArgs("a", "x")), doors.Done, "")
	r.want(r.do("c2", "fs_write", writeArgs("b", "x")), doors.Refused, "CallIDReused")
	r.want(r.do("c2", "fs_write", writeArgs("a", "x")), doors.Done, "")
	r.want(r.do("", "fs_write", writeArgs("a", "x")), doors.Done, "")
	r.ran(1)
}

// The steps of a plan that was replaced by one that is gone wait for nobody: they are a plan of their own.
func TestWhatWasReplacedIsSubmittedAnew(t *testing.T) {
	r := newRig(t, options{})
	p := r.submit("p1", "a")
	r.status(r.item, func() { r.item.Status.Plan = &v1alpha1.PlanRef{Name: "gone", Revision: 2} })
	if again := r.submit("p2", "a"); again.UID == p.UID {
		t.Error("it is said to wait still")
	}
}

func TestQuestions(t *testing.T) {
	r := newRig(t, options{})
	r.want(r.do("q1", "ask_human", `{"question":"which file?"}`), doors.Pending, "")
	r.want(r.do("q1", "ask_human", `{"question":"which file?"}`), doors.Pending, "")
	r.want(r.do("q2", "ask_human", `{"question":"which host?"}`), doors.Refused, "QuestionOpen")
	q := r.itemNow().Status.Runtime.Question
	if q == nil || q.Text != "which file?" {
		t.Fatalf("question %+v", q)
	}
	r.status(r.item, func() { r.item.Status.Conversation = &v1alpha1.WorkItemConversation{AnsweredQuestion: q.ID} })
	r.want(r.do("q1", "ask_human", `{"question":"which file?"}`), doors.Done, "")
	r.want(r.do("q2", "ask_human", `{"question":"which host?"}`), doors.Pending, "")
}

func TestLimits(t *testing.T) {
	three, two := int32(3), int32(2)
	r := newRig(t, options{agent: func(a *v1alpha1.Agent) {
		a.Spec.Limits = &v1alpha1.Limits{ToolCallsPerMinute: &three, PlanRevisions: &two}
	}})
	s := r.session()
	submit := func(id string, files ...string) doors.ToolResult {
		res, err := r.call(s, id, "submit_plan", planArgs(files...))
		must(t, err)
		return res
	}
	r.want(submit("1", "a"), doors.Pending, "AwaitingApproval")
	r.want(submit("2", "b"), doors.Pending, "AwaitingApproval")
	r.want(submit("3", "c"), doors.Refused, "TooManyRevisions")
	r.want(submit("4", "d"), doors.Refused, "RateLimited")
}
