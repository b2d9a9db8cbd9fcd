package broker

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/internal/names"
	"nisse.io/nisse/test/apitest"
	"nisse.io/nisse/test/faultydevice"
)

const (
	touchX = `{"device":"web1","argv":["/usr/bin/touch","/srv/x"]}`
	df     = `{"device":"web1","argv":["/usr/bin/df","-h"]}`
)

// programs is a plan in which a file is written, and then commands run.
func programs(t *testing.T, commands ...[]string) string {
	t.Helper()
	return planOf(t, []any{map[string]any{"device": "web1", "capability": "fs.write", "args": map[string]any{"path": "/srv/a", "content": "x"}}}, commands...)
}

func planOf(t *testing.T, steps []any, commands ...[]string) string {
	t.Helper()
	for _, argv := range commands {
		steps = append(steps, map[string]any{"device": "web1", "capability": "exec", "args": map[string]any{"argv": argv}})
	}
	b, err := json.Marshal(map[string]any{"reason": "as asked", "steps": steps})
	must(t, err)
	return string(b)
}

var touch = []string{"/usr/bin/touch", "/srv/x"}

func (r *rig) plan(res doors.ToolResult) *v1alpha1.Plan {
	r.t.Helper()
	r.want(res, doors.Pending, "AwaitingApproval")
	p := &v1alpha1.Plan{}
	must(r.t, r.api.Get(r.t.Context(), client.ObjectKey{Namespace: r.ns, Name: res.Gate}, p))
	return p
}

func resolvedOf(p *v1alpha1.Plan) []*v1alpha1.ResolvedProgram {
	all := make([]*v1alpha1.ResolvedProgram, len(p.Spec.Steps))
	for i, s := range p.Spec.Steps {
		all[i] = s.Resolved
	}
	return all
}

// A plan says which programs it runs, by one question to the device, and none where nothing can be resolved.
func TestAPlanSaysWhichProgramsItRuns(t *testing.T) {
	r := newRig(t, options{faults: true})
	asked := func(want int) {
		t.Helper()
		if got := len(r.device.Asked()); got != want {
			t.Fatalf("%d questions, want %d", got, want)
		}
	}
	r.want(r.do("free", "exec", df), doors.Done, "")
	r.submit("c1", "a", "b")
	asked(0)

	args := programs(t, touch, []string{"/usr/bin/df", "-h"}, touch)
	p := r.plan(r.do("c2", "submit_plan", args))
	asked(1)
	if got := r.device.Asked()[0].Calls; len(got) != 2 {
		t.Errorf("asked about %+v", got)
	}
	is := func(name string) *v1alpha1.ResolvedProgram {
		return &v1alpha1.ResolvedProgram{Executable: name, SHA256: faultydevice.Program, User: faultydevice.User}
	}
	if d := cmp.Diff([]*v1alpha1.ResolvedProgram{nil, is("/usr/bin/touch"), is("/usr/bin/df"), is("/usr/bin/touch")}, resolvedOf(p)); d != "" {
		t.Error(d)
	}

	// The same call again asks nobody; the same steps by another call do, for their programs may be others by now.
	if again := r.plan(r.do("c2", "submit_plan", args)); again.Name != p.Name {
		t.Errorf("made %s anew", again.Name)
	}
	asked(1)
	if again := r.plan(r.do("c3", "submit_plan", args)); again.Name != p.Name {
		t.Errorf("made %s beside one that waits", again.Name)
	}
	asked(2)
	changed := strings.Repeat("b", 64)
	r.device.Set(faultydevice.Fault{Program: changed})
	p2 := r.plan(r.do("c4", "submit_plan", args))
	if p2.Name == p.Name || p2.Spec.Steps[1].Resolved.SHA256 != changed {
		t.Errorf("%s runs %+v", p2.Name, p2.Spec.Steps[1].Resolved)
	}
	asked(3)
}

// What nobody can show a person is not put to them.
func TestAPlanThatCannotBeShownIsRefused(t *testing.T) {
	r := newRig(t, options{faults: true})
	args := programs(t, touch, []string{"/usr/bin/df", "-h"})
	for name, c := range map[string]struct {
		fault  faultydevice.Fault
		reason string
		says   string
	}{
		"away":                  {faultydevice.Fault{Silent: true}, "DeviceAway", "I have not tried again"},
		"no answer to that":     {faultydevice.Fault{Unasked: true}, "DeviceAway", "web1"},
		"somebody else":         {faultydevice.Fault{WrongKey: true}, "DeviceAway", "does not hold its key"},
		"busy":                  {faultydevice.Fault{Refuse: wire.Busy}, "NotResolved", "Busy"},
		"it would refuse":       {faultydevice.Fault{WouldRefuse: wire.Unavailable}, "NotResolved", "web1 would not run this: Unavailable: as the test wants it."},
		"answers about others":  {faultydevice.Fault{Misplaced: true}, "DeviceAway", "web1"},
		"no hash":               {faultydevice.Fault{Program: "0123"}, "NotResolved", "does not say properly"},
		"a hash in capitals":    {faultydevice.Fault{Program: strings.Repeat("A", 64)}, "NotResolved", "does not say properly"},
		"a relative path":       {faultydevice.Fault{Executable: "usr/bin/touch"}, "NotResolved", "does not say properly"},
		"a path with detours":   {faultydevice.Fault{Executable: "/usr/../bin/touch"}, "NotResolved", "does not say properly"},
		"a path beyond showing": {faultydevice.Fault{Executable: "/" + strings.Repeat("a", 1024)}, "NotResolved", "too long"},
	} {
		t.Run(name, func(t *testing.T) {
			r.item = r.newItem("wi-" + strings.ReplaceAll(name, " ", "-"))
			r.activate(r.item.Name)
			r.device.Set(c.fault)
			res := r.do(name, "submit_plan", args)
			r.want(res, doors.Refused, c.reason)
			if res.Step != 2 || !strings.HasPrefix(res.Message, "Step 2: ") || !strings.Contains(res.Message, c.says) {
				t.Errorf("step %d: %s", res.Step, res.Message)
			}
			var l v1alpha1.PlanList
			must(t, r.api.List(t.Context(), &l, client.InNamespace(r.ns), client.MatchingLabels{v1alpha1.LabelWorkItem: r.item.Name}))
			if len(l.Items) != 0 {
				t.Errorf("%d plans were stored", len(l.Items))
			}
			r.device.Set(faultydevice.Fault{})
			r.plan(r.do(name+" again", "submit_plan", args))
		})
	}
}

// A single call that a person is asked about says which program it runs, as a plan does.
func TestACallSaysWhichProgramItRuns(t *testing.T) {
	r := newRig(t, options{faults: true})
	r.device.Set(faultydevice.Fault{WouldRefuse: wire.Unavailable})
	res := r.do("c1", "exec", touchX)
	r.want(res, doors.Refused, "NotResolved")
	if res.Step != 0 || !strings.HasPrefix(res.Message, "web1 would not run this: Unavailable") {
		t.Errorf("step %d: %s", res.Step, res.Message)
	}
	r.device.Set(faultydevice.Fault{})
	p := r.asked(r.do("c2", "exec", touchX))
	want := &v1alpha1.ResolvedProgram{Executable: "/usr/bin/touch", SHA256: faultydevice.Program, User: faultydevice.User}
	if d := cmp.Diff(want, p.Spec.Steps[0].Resolved); d != "" {
		t.Error(d)
	}
	r.want(r.do("c3", "exec", touchX), doors.Pending, "AwaitingApproval")
	if n := len(r.device.Asked()); n != 2 {
		t.Errorf("the device was asked %d times, want 2", n)
	}
	r.approve(p)
	r.device.Set(faultydevice.Fault{Program: strings.Repeat("b", 64)})
	r.want(r.do("c4", "exec", touchX), doors.Refused, "DeviceRefused")
	r.ran(0)
	// It was asked for, and that is its answer; another decision takes a plan.
	again := r.plan(r.do("c5", "submit_plan", planOf(t, nil, touch)))
	if got := again.Spec.Steps[0].Resolved.SHA256; got != strings.Repeat("b", 64) {
		t.Errorf("asked about %s", got)
	}
	r.approve(again)
	r.want(r.do("c6", "exec", touchX), doors.Done, "")
	r.ran(1)
}

// A device that has lost its manifest since is brought it, and asked again.
func TestADeviceIsBroughtItsManifestToResolve(t *testing.T) {
	r := newRig(t, options{faults: true})
	for _, id := range []string{"c1", "c2"} {
		r.device.Forget()
		p := r.plan(r.do(id, "submit_plan", programs(t, touch)))
		if p.Spec.Steps[1].Resolved == nil || r.device.Holds() == "" {
			t.Errorf("resolved to %+v", p.Spec.Steps[1].Resolved)
		}
	}
}

// A person who says stop while the device is asked is heard.
func TestStopWhileADeviceIsAsked(t *testing.T) {
	r := newRig(t, options{faults: true})
	gate := make(chan struct{})
	r.device.Set(faultydevice.Fault{Gate: gate})
	session := r.session()
	got := make(chan doors.ToolResult, 1)
	go func() {
		res, err := r.call(session, "c1", "submit_plan", programs(t, touch))
		if err != nil {
			t.Error(err)
		}
		got <- res
	}()
	apitest.Wait(t, soon, func(context.Context) error {
		if len(r.device.Asked()) == 0 {
			return errors.New("not asked yet")
		}
		return nil
	})
	r.spec(r.item, func() { r.item.Spec.Stop = &v1alpha1.StopRequest{ID: "s1"} })
	close(gate)
	r.want(<-got, doors.Halted, "Stopped")
	var l v1alpha1.PlanList
	must(t, r.api.List(t.Context(), &l, client.InNamespace(r.ns)))
	if len(l.Items) != 0 {
		t.Errorf("%d plans were stored", len(l.Items))
	}
}

// The bytes that were shown are the ones that run. Others refuse the step, and the agent may ask for them.
func TestAnotherProgramThanWasApproved(t *testing.T) {
	r := newRig(t, options{faults: true})
	args := planOf(t, nil, touch)
	r.approve(r.plan(r.do("c1", "submit_plan", args)))
	changed := strings.Repeat("b", 64)
	r.device.Set(faultydevice.Fault{Program: changed})
	res := r.do("c2", "exec", touchX)
	r.want(res, doors.Refused, "DeviceRefused")
	if !strings.HasPrefix(res.Message, "ExecutableChanged: ") {
		t.Errorf("it says %q", res.Message)
	}
	r.want(r.do("c3", "exec", touchX), doors.Refused, "DeviceRefused") // the step was asked for, and this is its answer
	r.ran(0)
	p := r.plan(r.do("c4", "submit_plan", args))
	if p.Spec.Revision != 2 || p.Spec.Steps[0].Resolved.SHA256 != changed {
		t.Errorf("rev-%d runs %+v", p.Spec.Revision, p.Spec.Steps[0].Resolved)
	}
	r.approve(p)
	r.want(r.do("c5", "exec", touchX), doors.Done, "")
	r.ran(1)
}

// A broker that lies about what would run gets nothing else to run: the device compares with what was shown, whoever showed it.
func TestALieAboutAProgramRunsNothing(t *testing.T) {
	r := newRig(t, options{})
	r.sign(func(m *v1alpha1.DeviceManifestSpec) {
		slots := map[string]v1alpha1.ManifestSlot{"f": {Type: "path", Glob: r.root + "/**"}}
		m.Commands = append(m.Commands, v1alpha1.ManifestCommand{Argv: []string{"/usr/bin/touch", "{f}"}, Slots: slots, ManifestRule: v1alpha1.ManifestRule{Approval: "Required"}})
	})
	args := planOf(t, nil, touch)
	honest := r.plan(r.do("c1", "submit_plan", args))
	lie := honest.DeepCopy()
	lie.ObjectMeta = r.meta(names.Plan(r.item.Name, 2))
	lie.Labels = honest.Labels
	lie.Spec.Revision, lie.Spec.CallID = 2, "lie"
	sha := []byte(honest.Spec.Steps[0].Resolved.SHA256)
	sha[0] = map[bool]byte{true: '1', false: '0'}[sha[0] == '0']
	lie.Spec.Steps[0].Resolved.SHA256 = string(sha)
	r.create(lie)
	r.approve(lie)
	res := r.do("c2", "exec", touchX)
	r.want(res, doors.Refused, "DeviceRefused")
	if !strings.HasPrefix(res.Message, "ExecutableChanged: ") {
		t.Errorf("it says %q", res.Message)
	}
	if _, err := os.Stat(r.root + "/x"); !os.IsNotExist(err) {
		t.Errorf("it ran: %v", err)
	}
	r.approve(r.plan(r.do("c3", "submit_plan", args)))
	r.want(r.do("c4", "exec", touchX), doors.Done, "")
	if _, err := os.Stat(r.root + "/x"); err != nil {
		t.Error(err)
	}
}

// A pod says what it wants to call, and not what that runs.
func TestAPodResolvesNothing(t *testing.T) {
	r := newRig(t, options{faults: true})
	lie := `"resolved":{"executable":"/usr/bin/touch","sha256":"` + strings.Repeat("c", 64) + `","user":"nobody"}`
	for name, args := range map[string]string{
		"in a step":      strings.Replace(programs(t, touch), `"capability":"exec"`, `"capability":"exec",`+lie, 1),
		"in the plan":    strings.Replace(programs(t, touch), `{`, `{`+lie+`,`, 1),
		"in its command": strings.Replace(programs(t, touch), `"argv":`, lie+`,"argv":`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(args, lie) {
				t.Fatal("it does not lie")
			}
			res, err := r.call(r.session(), name, "submit_plan", args)
			if err == nil && res.Status != doors.Refused {
				t.Errorf("%+v", res)
			}
		})
	}
	if n := len(r.device.Asked()); n != 0 {
		t.Errorf("the device was asked %d times", n)
	}
}
