package broker

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/doors"
)

func (r *rig) revisions(n int) {
	r.t.Helper()
	var l v1alpha1.PlanList
	must(r.t, r.api.List(r.t.Context(), &l, client.InNamespace(r.ns)))
	if len(l.Items) != n {
		r.t.Errorf("%d revisions, want %d", len(l.Items), n)
	}
}

// A call that needs approval and is in no plan: a person is asked about that call, once, and it runs once.
func TestACallIsAskedAbout(t *testing.T) {
	r := newRig(t, options{})
	first := r.do("c1", "fs_write", writeArgs("a", "x"))
	p := r.asked(first)
	if first.Revision != 1 || p.Spec.CallID != "c1" || p.Spec.Steps[0].Capability != "fs.write" || !strings.Contains(first.Message, "exactly this call again") {
		t.Errorf("%+v, %+v", first, p.Spec)
	}
	// However it comes again, and whichever broker it meets: the same question.
	_, url := r.start(options{})
	for _, id := range []string{"c1", "c2", ""} {
		res, err := r.call(r.sessionAt(url), id, "fs_write", writeArgs("a", "x"))
		must(t, err)
		if r.want(res, doors.Pending, "AwaitingApproval"); res.Gate != first.Gate {
			t.Errorf("call %q waits for %s", id, res.Gate)
		}
	}
	// Another call waits until that is decided; the ID of the first is taken.
	if other := r.do("c3", "fs_write", writeArgs("b", "x")); other.Status != doors.Pending || other.Gate != first.Gate {
		t.Errorf("another call: %+v", other)
	}
	r.want(r.do("c1", "fs_write", writeArgs("b", "x")), doors.Refused, "CallIDReused")
	r.want(r.do("c4", "exec", `{"device":"web1","argv":["/usr/bin/df","-h"]}`), doors.Done, "") // looks go on
	r.revisions(1)
	r.ran(0)

	r.approve(p)
	r.want(r.do("c5", "fs_write", writeArgs("a", "x")), doors.Done, "")
	for _, id := range []string{"c1", "c5", "c6", ""} { // its answer, from the job
		r.want(r.do(id, "fs_write", writeArgs("a", "x")), doors.Done, "")
	}
	r.revisions(1)
	r.ran(1)
	if jobs := r.jobs(); len(jobs) != 1 || jobs[0].Spec.Gate.Name != first.Gate || jobs[0].Spec.Step != 1 {
		t.Errorf("jobs %+v", jobs)
	}
}

// What a person did not approve does not run, and is not asked about again; something else may be.
func TestACallThatNobodyApproved(t *testing.T) {
	r := newRig(t, options{})
	g := r.gate(r.asked(r.do("c1", "fs_write", writeArgs("a", "x"))))
	r.outcome(g, v1alpha1.GateRejected, "")
	for _, id := range []string{"c1", "c2", ""} {
		res := r.do(id, "fs_write", writeArgs("a", "x"))
		if r.want(res, doors.Refused, "PlanRejected"); !strings.Contains(res.Message, `lucas: "use daily.txt"`) {
			t.Errorf("message %q does not tell who and why", res.Message)
		}
	}
	r.revisions(1)
	p := r.asked(r.do("c3", "fs_write", writeArgs("b", "x")))
	r.want(r.do("c1", "fs_write", writeArgs("a", "x")), doors.Refused, "PlanSuperseded") // an answer that came late
	r.outcome(r.gate(p), v1alpha1.GateExpired, "")
	r.want(r.do("c3", "fs_write", writeArgs("b", "x")), doors.Refused, "PlanExpired")
	if p := r.asked(r.do("c4", "fs_write", writeArgs("b", "x"))); p.Spec.Revision != 3 {
		t.Errorf("asked again as rev-%d", p.Spec.Revision)
	}
	r.ran(0)
}

// A pod that has one call approved and makes another: nothing runs, and a person is told of both.
func TestACallThatIsAlteredAfterItsApproval(t *testing.T) {
	for name, args := range map[string]string{"path": writeArgs("b", "x"), "content": writeArgs("a", "y")} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, options{})
			r.approve(r.asked(r.do("c1", "fs_write", writeArgs("a", "x"))))
			r.want(r.do("c1", "fs_write", args), doors.Refused, "CallIDReused")
			res := r.do("c2", "fs_write", args)
			r.want(res, doors.Halted, string(v1alpha1.HaltCallMismatch))
			r.want(r.do("c3", "fs_write", writeArgs("a", "x")), doors.Halted, string(v1alpha1.HaltCallMismatch))
			r.ran(0)
			r.revisions(1)
		})
	}
}

// Where a plan says what runs, or a person wants another one, no single call is asked about instead.
func TestACallBesideAPlan(t *testing.T) {
	for name, tt := range map[string]struct {
		before         func(*rig)
		status, reason string
	}{
		"a plan waits":        {func(r *rig) { r.gate(r.submit("p", "a")) }, doors.Pending, "AwaitingApproval"},
		"a plan is in force":  {func(r *rig) { r.approve(r.submit("p", "a")) }, doors.Halted, string(v1alpha1.HaltCallMismatch)},
		"a plan was rejected": {func(r *rig) { r.outcome(r.gate(r.submit("p", "a")), v1alpha1.GateRejected, "") }, doors.Refused, "PlanRejected"},
		"a plan was closed": {func(r *rig) {
			r.approve(r.submit("p", "a"))
			r.status(r.item, func() { r.item.Status.ClosedRevision = 1 })
		}, doors.Refused, "PlanClosed"},
		"the work is stopped": {func(r *rig) { r.spec(r.item, func() { r.item.Spec.Stop = &v1alpha1.StopRequest{ID: "s1"} }) }, doors.Halted, "Stopped"},
		"it is over":          {func(r *rig) { r.spec(r.item, func() { r.item.Spec.Close = true }) }, doors.Refused, "ItemOver"},
		"it is not listed":    {func(r *rig) { r.sign(func(m *v1alpha1.DeviceManifestSpec) { m.Paths.Write = nil }) }, doors.Refused, "NotListed"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, options{})
			tt.before(r)
			var l v1alpha1.PlanList
			must(t, r.api.List(t.Context(), &l, client.InNamespace(r.ns)))
			r.want(r.do("c9", "fs_write", writeArgs("z", "x")), tt.status, tt.reason)
			r.revisions(len(l.Items))
			r.ran(0)
		})
	}
	// A single call that was closed, dropped or failed leaves room for the next.
	r := newRig(t, options{})
	r.asked(r.do("c1", "fs_write", writeArgs("a", "x")))
	r.status(r.item, func() { r.item.Status.ClosedRevision = 1 })
	if p := r.asked(r.do("c2", "fs_write", writeArgs("a", "x"))); p.Spec.Revision != 2 {
		t.Errorf("asked again as rev-%d", p.Spec.Revision)
	}
	r.want(r.do("c1", "fs_write", writeArgs("a", "x")), doors.Refused, "PlanSuperseded")
}
