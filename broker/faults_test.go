package broker

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/broker/judge"
	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/internal/deed"
	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/names"
	"nisse.io/nisse/test/apitest"
	"nisse.io/nisse/test/faultydevice"
)

// frozen is a cache that has stopped hearing of changes: it answers what it knew when it froze.
type frozen struct {
	client.Reader
	mu    sync.Mutex
	since *v1alpha1.Agent
	lists map[string]client.ObjectList
}

func (f *frozen) freeze(t *testing.T, r *rig) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.since = &v1alpha1.Agent{}
	must(t, r.api.Get(t.Context(), client.ObjectKeyFromObject(r.agent), f.since))
	f.lists = map[string]client.ObjectList{}
	for _, l := range []client.ObjectList{&v1alpha1.WorkItemList{}, &v1alpha1.PlanList{}, &v1alpha1.GateList{}, &v1alpha1.DeviceJobList{}, &v1alpha1.DeviceList{}} {
		must(t, r.api.List(t.Context(), l, client.InNamespace(r.ns)))
		f.lists[fmt.Sprintf("%T", l)] = l
	}
}

func (f *frozen) Get(ctx context.Context, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if a, ok := o.(*v1alpha1.Agent); ok && f.since != nil {
		f.since.DeepCopyInto(a)
		return nil
	}
	return f.Reader.Get(ctx, k, o, opts...)
}

func (f *frozen) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	known, ok := f.lists[fmt.Sprintf("%T", l)]
	if !ok {
		return f.Reader.List(ctx, l, opts...)
	}
	switch l := l.(type) {
	case *v1alpha1.WorkItemList:
		known.(*v1alpha1.WorkItemList).DeepCopyInto(l)
	case *v1alpha1.PlanList:
		known.(*v1alpha1.PlanList).DeepCopyInto(l)
	case *v1alpha1.GateList:
		known.(*v1alpha1.GateList).DeepCopyInto(l)
	case *v1alpha1.DeviceJobList:
		known.(*v1alpha1.DeviceJobList).DeepCopyInto(l)
	case *v1alpha1.DeviceList:
		known.(*v1alpha1.DeviceList).DeepCopyInto(l)
	}
	return nil
}

// The broker's informer is held back while something is written that forbids rev-1. It must not run.
func TestAHeldBackInformerLetsNothingRun(t *testing.T) {
	tests := map[string]struct {
		write  func(*rig)
		status string
		reason string
	}{
		"stop":   {func(r *rig) { r.spec(r.item, func() { r.item.Spec.Stop = &v1alpha1.StopRequest{ID: "s1"} }) }, doors.Halted, "Stopped"},
		"rev-2":  {func(r *rig) { r.submit("c9", "b") }, doors.Pending, "AwaitingApproval"},
		"replan": {func(r *rig) { r.status(r.item, func() { r.item.Status.ClosedRevision = 1 }) }, doors.Refused, "PlanClosed"},
		"tool":   {func(r *rig) { r.spec(r.agent, func() { r.agent.Spec.Tools.Allow = []string{"fs.read"} }) }, doors.Refused, "ToolNotAllowed"},
		"item":   {func(r *rig) { r.newItem("wi-2"); r.activate("wi-2") }, doors.Pending, "AwaitingApproval"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			held := &frozen{}
			r := newRig(t, options{faults: true, cached: func(c client.Reader) client.Reader { held.Reader = c; return held }})
			r.approve(r.submit("c1", "a"))
			held.freeze(t, r)
			tt.write(r)
			r.want(r.do("c2", "fs_write", writeArgs("a", "x")), tt.status, tt.reason)
			r.ran(0)
		})
	}
}

// An informer that shows nothing of an item holds up none of its steps, and makes none run twice.
func TestAHeldBackInformerHidesNoStep(t *testing.T) {
	held := &frozen{}
	r := newRig(t, options{faults: true, cached: func(c client.Reader) client.Reader { held.Reader = c; return held }})
	held.freeze(t, r)
	r.approve(r.submit("c1", "a", "b"))
	r.want(r.do("c2", "fs_write", writeArgs("a", "x")), doors.Done, "")
	r.want(r.do("c3", "fs_write", writeArgs("a", "x")), doors.Done, "") // the same step again: its answer
	r.ran(1)
	r.want(r.do("c4", "fs_write", writeArgs("b", "x")), doors.Done, "")
	r.want(r.do("c2", "fs_write", writeArgs("a", "x")), doors.Done, "")
	r.ran(2)
	r.approve(r.submit("c5", "a"))
	r.want(r.do("c6", "fs_write", writeArgs("b", "x")), doors.Halted, string(v1alpha1.HaltCallMismatch))
	r.ran(2)
}

// A cache that lags names the item that was active before. It is only a guess at what to read: the live agent says what the call is about.
func TestAHeldBackInformerNamesTheWrongItem(t *testing.T) {
	held := &frozen{}
	r := newRig(t, options{faults: true, cached: func(c client.Reader) client.Reader { held.Reader = c; return held }})
	r.approve(r.submit("c1", "a"))
	held.freeze(t, r)
	r.newItem("wi-2")
	r.activate("wi-2")
	r.want(r.do("c2", "fs_write", writeArgs("a", "x")), doors.Pending, judge.AwaitingApproval)
	r.activate("")
	r.want(r.do("c3", "fs_write", writeArgs("a", "x")), doors.Refused, judge.NoWorkItem)
	r.ran(0)
	r.activate("wi-1")
	r.want(r.do("c4", "fs_write", writeArgs("a", "x")), doors.Done, "")
	r.ran(1)
}

// pendingJob is what a broker leaves behind that dies right after it recorded that step 1 was asked for.
func (r *rig) pendingJob(p *v1alpha1.Plan, g *v1alpha1.Gate) *v1alpha1.DeviceJob {
	r.t.Helper()
	return r.jobUntil(p, g, time.Now().Add(time.Minute))
}

func (r *rig) jobUntil(p *v1alpha1.Plan, g *v1alpha1.Gate, ends time.Time) *v1alpha1.DeviceJob {
	r.t.Helper()
	id, s := deed.Approved(string(g.UID), 1, 1), p.Spec.Steps[0]
	j := &v1alpha1.DeviceJob{ObjectMeta: r.meta(names.Job(id)), Spec: v1alpha1.DeviceJobSpec{
		Agent: "ops", AgentUID: string(r.agent.UID), WorkItem: p.Spec.WorkItem, Device: s.Device, DeviceKey: dsse.EncodeKey(r.target.Key), ManifestDigest: s.ManifestDigest, Capability: s.Capability, Args: s.Args,
		Deed: id, Gate: v1alpha1.GateRef{Name: g.Name, UID: string(g.UID)}, Step: 1, Attempt: 1, ExpiresAt: metav1.NewTime(ends)}}
	j.Labels = map[string]string{v1alpha1.LabelAgent: "ops", v1alpha1.LabelWorkItem: r.item.Name}
	r.create(j)
	return j
}

func (r *rig) jobIs(j *v1alpha1.DeviceJob, want v1alpha1.JobState) {
	r.t.Helper()
	must(r.t, r.api.Get(r.t.Context(), client.ObjectKeyFromObject(j), j))
	if j.Status.State != want {
		r.t.Fatalf("job is %q (%s), want %q", j.Status.State, j.Status.Message, want)
	}
	// The conditions say the same, for tools that know nothing of jobs; one that has not ended has what its schema begins with.
	ended := func(kind string, status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: string(want), Message: j.Status.Message, ObservedGeneration: j.Generation}
	}
	var all []metav1.Condition
	switch want {
	case "":
		all = append(all, metav1.Condition{Type: "Ready", Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonPending, Message: "The device has not answered for it.", ObservedGeneration: 1})
	case v1alpha1.JobSucceeded:
		all = append(all, ended("Ready", metav1.ConditionTrue))
	default:
		all = append(all, ended("Stalled", metav1.ConditionTrue), ended("Ready", metav1.ConditionFalse))
	}
	if diff := cmp.Diff(all, j.Status.Conditions, cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime")); diff != "" || (j.Status.ObservedGeneration == 0) != (want == "") {
		r.t.Errorf("conditions of a job that is %q, at generation %d (-want +got):\n%s", want, j.Status.ObservedGeneration, diff)
	}
}

// What a broker finds when it starts: jobs that nobody has settled, and a device that knows more or less of them.
func TestRecovery(t *testing.T) {
	tests := map[string]struct {
		ends   time.Duration // the job's time, from now
		before func(*rig, *v1alpha1.DeviceJob)
		fault  faultydevice.Fault
		want   v1alpha1.JobState
		ran    int
		halted bool
	}{
		"never sent":        {ends: time.Minute, want: v1alpha1.JobSucceeded, ran: 1},
		"sent, answer lost": {ends: time.Minute, before: runOnDevice, want: v1alpha1.JobSucceeded, ran: 1},
		"sent, answer lost, approval gone": {ends: time.Minute, before: func(r *rig, j *v1alpha1.DeviceJob) {
			runOnDevice(r, j)
			r.spec(r.item, func() { r.item.Spec.Close = true })
		}, want: v1alpha1.JobSucceeded, ran: 1},
		"sent, answer lost, time over since": {ends: time.Minute, before: runOnDevice, fault: faultydevice.Fault{Clock: time.Hour}, want: v1alpha1.JobSucceeded, ran: 1},
		"never sent, stopped meanwhile": {ends: time.Minute, before: func(r *rig, _ *v1alpha1.DeviceJob) {
			r.spec(r.item, func() { r.item.Spec.Stop = &v1alpha1.StopRequest{ID: "s"} })
		}, want: "", ran: 0},
		"never sent, approver revoked meanwhile": {ends: time.Minute, before: func(r *rig, _ *v1alpha1.DeviceJob) {
			r.spec(r.agent, func() { r.agent.Spec.People[0].May = []v1alpha1.Right{v1alpha1.RightInstruct} })
		}, want: "", ran: 0},
		"never sent, time over":                {ends: -time.Second, want: v1alpha1.JobExpired, ran: 0},
		"never sent, device's clock is behind": {ends: -time.Second, fault: faultydevice.Fault{Clock: -time.Minute}, want: "", ran: 0},
		"device cannot be asked":               {ends: time.Minute, fault: faultydevice.Fault{Silent: true}, want: "", ran: 0},
		"device away for an hour":              {ends: -61 * time.Minute, fault: faultydevice.Fault{Silent: true}, want: v1alpha1.JobUnknown, ran: 0, halted: true},
		"device's clock stands still":          {ends: -61 * time.Minute, fault: faultydevice.Fault{Clock: -2 * time.Hour}, want: v1alpha1.JobUnknown, ran: 0, halted: true},
		"device never tells how it ended": {ends: -61 * time.Minute, before: func(r *rig, j *v1alpha1.DeviceJob) {
			runWith(r, j, faultydevice.Fault{LoseAnswer: true, State: wire.Running, Clock: -2 * time.Hour})
		}, want: v1alpha1.JobUnknown, ran: 1, halted: true},
		"device does not know how it ended": {ends: time.Minute, fault: faultydevice.Fault{State: wire.Unknown}, want: v1alpha1.JobUnknown, ran: 1, halted: true},
		"somebody else answers":             {ends: time.Minute, fault: faultydevice.Fault{WrongKey: true}, want: "", ran: 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, options{faults: true})
			p := r.submit("c1", "a")
			g := r.approve(p)
			j := r.jobUntil(p, g, time.Now().Add(tt.ends))
			if tt.before != nil {
				tt.before(r, j)
			}
			r.device.Set(tt.fault)
			b, _ := r.start(options{}) // the broker after the crash
			for range 2 {              // and after another one
				b.dispatcher.Resolve(t.Context(), r.api)
			}
			r.jobIs(j, tt.want)
			r.ran(tt.ran)
			it := r.itemNow()
			if it.Halted() != tt.halted {
				t.Errorf("halted %v, want %v", it.Halted(), tt.halted)
			}
			if tt.halted && it.Status.Runtime.Halt.ID != deed.UnknownHalt(j.Spec.Deed) {
				t.Errorf("halt %+v", it.Status.Runtime.Halt)
			}
		})
	}
}

// runOnDevice lets the device do the job and loses the answer, as a broker killed while it waited would.
func runOnDevice(r *rig, j *v1alpha1.DeviceJob) {
	r.t.Helper()
	runWith(r, j, faultydevice.Fault{LoseAnswer: true})
}

func runWith(r *rig, j *v1alpha1.DeviceJob, f faultydevice.Fault) {
	r.t.Helper()
	g := &v1alpha1.Gate{}
	must(r.t, r.api.Get(r.t.Context(), client.ObjectKey{Namespace: r.ns, Name: j.Spec.Gate.Name}, g))
	r.device.Set(f)
	_, err := r.broker.dispatcher.Devices.Call(r.t.Context(), r.target, wire.Request{
		V: wire.Version, Device: j.Spec.Device, ManifestDigest: j.Spec.ManifestDigest, Capability: j.Spec.Capability, Args: j.Spec.Args, Deed: j.Spec.Deed,
		At: time.Now().Unix(), ExpiresAt: j.Spec.ExpiresAt.Unix(), Agent: "ops", Approved: &wire.Approved{GateUID: j.Spec.Gate.UID, Step: 1, Attempt: 1, Statement: g.Status.Statement}})
	if err == nil {
		r.t.Fatal("the answer was not lost")
	}
}

func TestAnAnswerLostOnTheWay(t *testing.T) {
	r := newRig(t, options{faults: true})
	r.approve(r.submit("c1", "a", "b"))
	r.device.Set(faultydevice.Fault{LoseAnswer: true})
	res := r.do("c2", "fs_write", writeArgs("a", "x")) // the deed is asked for and found done
	r.want(res, doors.Done, "")
	r.ran(1)

	r.device.Set(faultydevice.Fault{LoseAnswer: true, LoseDeeds: true})
	res = r.do("c3", "fs_write", writeArgs("b", "x"))
	r.want(res, doors.Pending, "")
	if !strings.Contains(res.Message, "device away") {
		t.Errorf("message %q", res.Message)
	}
	r.want(r.do("c4", "finish", `{"summary":"x"}`), doors.Refused, "StepPending")
	r.device.Set(faultydevice.Fault{})
	r.want(r.do("c3", "fs_write", writeArgs("b", "x")), doors.Done, "") // the same call attaches and learns
	r.ran(2)
}

func TestADeviceThatIsAway(t *testing.T) {
	r := newRig(t, options{faults: true})
	r.approve(r.submit("c1", "a"))
	r.device.Set(faultydevice.Fault{Silent: true})
	res := r.do("c2", "fs_write", writeArgs("a", "x"))
	r.want(res, doors.Refused, "DeviceAway")
	if len(r.jobs()) != 0 {
		t.Error("a device that is away used up the step")
	}
	r.want(r.do("c3", "fs_read", `{"device":"web1","path":"/srv/a"}`), doors.Refused, "DeviceAway")
	d := &v1alpha1.Device{}
	must(t, r.api.Get(t.Context(), client.ObjectKey{Namespace: r.ns, Name: "web1"}, d))
	if c := d.Status.Conditions; len(c) != 1 || c[0].Status != metav1.ConditionFalse || c[0].Reason != v1alpha1.ReasonUnreachable {
		t.Errorf("conditions %+v", c)
	}
	r.device.Set(faultydevice.Fault{})
	r.want(r.do("c4", "fs_write", writeArgs("a", "x")), doors.Done, "")
	must(t, r.api.Get(t.Context(), client.ObjectKeyFromObject(d), d))
	if c := d.Status.Conditions; c[0].Status != metav1.ConditionTrue || c[0].Reason != v1alpha1.ReasonAnswering {
		t.Errorf("conditions %+v", c)
	}
	version := d.ResourceVersion
	for range 3 {
		must(t, r.broker.registry.Ready(t.Context(), d))
	}
	must(t, r.api.Get(t.Context(), client.ObjectKeyFromObject(d), d))
	if d.ResourceVersion != version {
		t.Error("a device at rest was written")
	}
}

func TestHowAStepEnds(t *testing.T) {
	tests := map[string]struct {
		fault          faultydevice.Fault
		status, reason string
		next, why      string // the step after it
		job            v1alpha1.JobState
	}{
		"failed":        {faultydevice.Fault{State: wire.Failed}, doors.Failed, "", doors.Refused, "PlanOver", v1alpha1.JobFailed},
		"refused":       {faultydevice.Fault{Refuse: wire.PathRefused}, doors.Refused, "DeviceRefused", doors.Refused, "PlanOver", v1alpha1.JobRefused},
		"unknown":       {faultydevice.Fault{State: wire.Unknown}, doors.Unknown, "OutcomeUnknown", doors.Halted, "OutcomeUnknown", v1alpha1.JobUnknown},
		"busy":          {faultydevice.Fault{Refuse: wire.Busy}, doors.Pending, "", doors.Pending, "StepPending", ""},
		"other state":   {faultydevice.Fault{State: "Odd"}, doors.Pending, "", doors.Pending, "StepPending", ""},
		"audit is full": {faultydevice.Fault{Refuse: wire.AuditUnwritable}, doors.Pending, "", doors.Pending, "StepPending", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, options{faults: true})
			r.approve(r.submit("c1", "a", "b"))
			r.device.Set(tt.fault)
			r.want(r.do("c2", "fs_write", writeArgs("a", "x")), tt.status, tt.reason)
			if got := r.jobs()[0].Status.State; got != tt.job {
				t.Errorf("job is %q, want %q", got, tt.job)
			}
			r.want(r.do("c3", "fs_write", writeArgs("b", "x")), tt.next, tt.why)
		})
	}
}

func TestUnknownGoesOnWhenAPersonSaysContinue(t *testing.T) {
	r := newRig(t, options{faults: true})
	r.approve(r.submit("c1", "a", "b"))
	r.device.Set(faultydevice.Fault{State: wire.Unknown})
	r.want(r.do("c2", "fs_write", writeArgs("a", "x")), doors.Unknown, "OutcomeUnknown")
	r.device.Set(faultydevice.Fault{})
	halt := r.itemNow().Status.Runtime.Halt
	g := &v1alpha1.Gate{ObjectMeta: r.meta(names.HaltGate("wi-1", "", halt.ID)), Spec: v1alpha1.GateSpec{
		Agent: "ops", WorkItem: v1alpha1.ObjectRef{Name: "wi-1", UID: string(r.item.UID)}, Kind: v1alpha1.GateHalt, Subject: v1alpha1.GateSubject{Kind: v1alpha1.SubjectWorkItem, Name: "wi-1", UID: string(r.item.UID)},
		Halt: &v1alpha1.GateHaltRef{Halt: halt.ID}, Rule: "halt", Digest: "sha256:" + strings.Repeat("0", 64), Tier: v1alpha1.TierStandard, Title: "t", Message: "m", Required: 1,
		ExpiresAt: metav1.NewTime(time.Now().Add(time.Hour)), WindowSeconds: 1}}
	g.Labels = map[string]string{v1alpha1.LabelWorkItem: "wi-1"}
	r.create(g)
	r.status(g, func() {
		g.Status.Outcome = v1alpha1.GateApproved
		g.Status.Decisions = []v1alpha1.GateDecision{{Approval: "x", Person: "lucas", Decision: v1alpha1.DecisionApprove, Answer: v1alpha1.AnswerContinue, Channel: v1alpha1.ChannelKubernetes, At: metav1.Now()}}
	})
	r.status(r.item, func() { r.item.Status.AnsweredHalt = halt.ID })
	r.want(r.do("c3", "fs_write", writeArgs("b", "x")), doors.Done, "")
	r.ran(2)
}

// Case 33: an old leader that does not know yet sends nothing.
func TestABrokerThatLostItsLeaseSendsNothing(t *testing.T) {
	r := newRig(t, options{faults: true})
	r.approve(r.submit("c1", "a"))
	r.fence.lose()
	if res, err := r.call(r.session(), "c2", "fs_write", writeArgs("a", "x")); err == nil {
		t.Fatalf("answered %+v", res)
	}
	r.ran(0)
	r.fence = &fence{}
	_, url := r.start(options{}) // the new leader
	res, err := r.call(r.sessionAt(url), "c2", "fs_write", writeArgs("a", "x"))
	must(t, err)
	r.want(res, doors.Done, "")
	r.ran(1)
}

func TestManyAtOnce(t *testing.T) {
	t.Run("two plans are two revisions", func(t *testing.T) {
		r := newRig(t, options{faults: true})
		s := r.session()
		got := make([]doors.ToolResult, 4)
		parallel(t, len(got), func(i int) (err error) {
			got[i], err = r.call(s, fmt.Sprint("p", i), "submit_plan", planArgs(fmt.Sprint("f", i)))
			return err
		})
		seen := map[int32]bool{}
		for _, res := range got {
			r.want(res, doors.Pending, "AwaitingApproval")
			seen[res.Revision] = true
		}
		if len(seen) != len(got) || !seen[1] || !seen[int32(len(got))] {
			t.Errorf("revisions %v", seen)
		}
	})
	t.Run("one plan sent many times is one revision", func(t *testing.T) {
		r := newRig(t, options{faults: true})
		s := r.session()
		parallel(t, 5, func(int) error {
			res, err := r.call(s, "p1", "submit_plan", planArgs("a"))
			if err == nil && res.Revision != 1 {
				err = fmt.Errorf("got %+v", res)
			}
			return err
		})
	})
	for name, id := range map[string]string{"with an ID": "c2", "without IDs": ""} {
		t.Run("one call made many times is one deed, "+name, func(t *testing.T) {
			r := newRig(t, options{faults: true})
			s := r.session()
			r.approve(r.submit("c1", "a", "b"))
			gate := make(chan struct{})
			r.device.Set(faultydevice.Fault{Gate: gate})
			time.AfterFunc(300*time.Millisecond, func() { close(gate) }) // while all are under way
			parallel(t, 5, func(int) error {
				res, err := r.call(s, id, "fs_write", writeArgs("a", "x"))
				if err == nil && res.Status != doors.Done {
					err = fmt.Errorf("got %+v", res)
				}
				return err
			})
			r.ran(1)
		})
	}
}

func parallel(t *testing.T, n int, f func(int) error) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if err := f(i); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// Case 17: the caller goes away; what was begun is carried out and written down.
func TestACallerThatGoesAway(t *testing.T) {
	r := newRig(t, options{faults: true})
	s := r.session()
	r.approve(r.submit("c1", "a"))
	gate := make(chan struct{})
	r.device.Set(faultydevice.Fault{Gate: gate})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = s.CallTool(ctx, callParams("c2", "fs_write", writeArgs("a", "x")))
	}()
	apitest.Wait(t, time.Minute, func(context.Context) error {
		if len(r.jobs()) == 0 {
			return fmt.Errorf("no job yet")
		}
		return nil
	})
	cancel()
	<-done
	close(gate)
	apitest.Wait(t, time.Minute, func(context.Context) error {
		if j := r.jobs()[0]; j.Status.State != v1alpha1.JobSucceeded {
			return fmt.Errorf("job is %q", j.Status.State)
		}
		return nil
	})
	r.ran(1)
}

// What is wrong with a device shows in its condition, and its sentence reaches the agent.
func TestDeviceConditions(t *testing.T) {
	tests := map[string]struct {
		spoil  func(*rig)
		reason string
		says   string
	}{
		"silent":       {func(r *rig) { r.device.Set(faultydevice.Fault{Silent: true}) }, v1alpha1.ReasonUnreachable, "I have not tried again"},
		"another key":  {func(r *rig) { r.device.Set(faultydevice.Fault{WrongKey: true}) }, v1alpha1.ReasonKeyMismatch, "does not hold its key"},
		"nobody there": {func(r *rig) { d := r.deviceNow(); r.spec(d, func() { d.Spec.URL = "http://127.0.0.1:1" }) }, v1alpha1.ReasonUnreachable, "I have not tried again"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, options{faults: true})
			r.want(r.do("c1", "fs_read", `{"device":"web1","path":"/srv/a"}`), doors.Done, "")
			tt.spoil(r)
			_, url := r.start(options{}) // a broker that knows no manifest yet
			res, err := r.call(r.sessionAt(url), "c2", "fs_read", `{"device":"web1","path":"/srv/a"}`)
			must(t, err)
			r.want(res, doors.Refused, "DeviceAway")
			if !strings.Contains(res.Message, tt.says) {
				t.Errorf("message %q does not say %q", res.Message, tt.says)
			}
			c := r.deviceNow().Status.Conditions
			if len(c) != 1 || c[0].Status != metav1.ConditionFalse || c[0].Reason != tt.reason || c[0].Message == "" {
				t.Errorf("conditions %+v, want %s", c, tt.reason)
			}
		})
	}
}

func (r *rig) deviceNow() *v1alpha1.Device {
	r.t.Helper()
	d := &v1alpha1.Device{}
	must(r.t, r.api.Get(r.t.Context(), client.ObjectKey{Namespace: r.ns, Name: "web1"}, d))
	return d
}
