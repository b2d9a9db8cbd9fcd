package subject

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/approval"
)

const zero = "sha256:0000000000000000000000000000000000000000000000000000000000000000"

var hash = strings.Repeat("0a", 32)

func item() *v1alpha1.WorkItem {
	return &v1alpha1.WorkItem{ObjectMeta: metav1.ObjectMeta{Name: "wi-1", UID: "item-1"}, Spec: v1alpha1.WorkItemSpec{Agent: "ops"},
		Status: v1alpha1.WorkItemStatus{State: v1alpha1.WorkItemAwaitingApproval}}
}

func agent() *v1alpha1.Agent {
	return &v1alpha1.Agent{ObjectMeta: metav1.ObjectMeta{Name: "ops", UID: "agent-1"}}
}

func plan(revision int32) *v1alpha1.Plan {
	return &v1alpha1.Plan{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("wi-1-rev-%d", revision), UID: "plan-1"}, Spec: v1alpha1.PlanSpec{
		Agent: "ops", AgentUID: "agent-1", WorkItem: v1alpha1.ObjectRef{Name: "wi-1", UID: "item-1"}, Revision: revision, CallID: "c1", ToolSchemaDigest: zero,
		Steps: []v1alpha1.PlanStep{{Device: "web1", Capability: "fs.write", Args: `{"content":"x","path":"/srv/a"}`, ManifestDigest: zero},
			{Device: "web1", Capability: "exec", Args: `{"argv":["/usr/bin/df","-h"]}`, ManifestDigest: zero,
				Resolved: &v1alpha1.ResolvedProgram{Executable: "/usr/bin/df", SHA256: hash, User: "nobody"}}}}}
}

// What the approval binds: every change of any of it is another digest, and so another approval. Cases 5, 6, 11 and 14.
func TestDigestBindsEverything(t *testing.T) {
	base, err := PlanDigest(plan(1), 3600)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{base: "the plan itself"}
	for name, change := range map[string]func(*v1alpha1.Plan) int32{
		"agent UID":     func(p *v1alpha1.Plan) int32 { p.Spec.AgentUID = "agent-2"; return 3600 },
		"work item UID": func(p *v1alpha1.Plan) int32 { p.Spec.WorkItem.UID = "item-2"; return 3600 },
		"plan UID":      func(p *v1alpha1.Plan) int32 { p.UID = "plan-2"; return 3600 },
		"revision":      func(p *v1alpha1.Plan) int32 { p.Spec.Revision = 2; return 3600 },
		"tool schemas": func(p *v1alpha1.Plan) int32 {
			p.Spec.ToolSchemaDigest = strings.Replace(zero, "0", "1", 1)
			return 3600
		},
		"window": func(*v1alpha1.Plan) int32 { return 3601 },
		"device": func(p *v1alpha1.Plan) int32 { p.Spec.Steps[0].Device = "web2"; return 3600 },
		"manifest": func(p *v1alpha1.Plan) int32 {
			p.Spec.Steps[0].ManifestDigest = strings.Replace(zero, "0", "2", 1)
			return 3600
		},
		"capability":    func(p *v1alpha1.Plan) int32 { p.Spec.Steps[0].Capability = "fs.read"; return 3600 },
		"one character": func(p *v1alpha1.Plan) int32 { p.Spec.Steps[0].Args = `{"content":"y","path":"/srv/a"}`; return 3600 },
		"an invisible one": func(p *v1alpha1.Plan) int32 {
			p.Spec.Steps[0].Args = "{\"content\":\"x\u200b\",\"path\":\"/srv/a\"}"
			return 3600
		},
		"another invisible": func(p *v1alpha1.Plan) int32 {
			p.Spec.Steps[0].Args = "{\"content\":\"x\u200c\",\"path\":\"/srv/a\"}"
			return 3600
		},
		"another argument": func(p *v1alpha1.Plan) int32 { p.Spec.Steps[1].Args = `{"argv":["/usr/bin/df"]}`; return 3600 },
		"a timeout": func(p *v1alpha1.Plan) int32 {
			p.Spec.Steps[1].Args = `{"argv":["/usr/bin/df","-h"],"timeoutSeconds":9}`
			return 3600
		},
		"one digit of the program": func(p *v1alpha1.Plan) int32 {
			p.Spec.Steps[1].Resolved.SHA256 = strings.Replace(hash, "0", "1", 1)
			return 3600
		},
		"where it lies":  func(p *v1alpha1.Plan) int32 { p.Spec.Steps[1].Resolved.Executable = "/usr/bin/dF"; return 3600 },
		"who it runs as": func(p *v1alpha1.Plan) int32 { p.Spec.Steps[1].Resolved.User = "root"; return 3600 },
		"no program":     func(p *v1alpha1.Plan) int32 { p.Spec.Steps[1].Resolved = nil; return 3600 },
		"its program elsewhere": func(p *v1alpha1.Plan) int32 {
			s := p.Spec.Steps
			s[0].Resolved, s[1].Resolved = s[1].Resolved, nil
			return 3600
		},
		"order":               func(p *v1alpha1.Plan) int32 { s := p.Spec.Steps; s[0], s[1] = s[1], s[0]; return 3600 },
		"a step less, case 1": func(p *v1alpha1.Plan) int32 { p.Spec.Steps = p.Spec.Steps[:1]; return 3600 },
		"a step more":         func(p *v1alpha1.Plan) int32 { p.Spec.Steps = append(p.Spec.Steps, p.Spec.Steps[0]); return 3600 },
	} {
		p := plan(1)
		window := change(p)
		d, err := PlanDigest(p, window)
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[d]; ok {
			t.Errorf("%s has the digest of %s", name, other)
		}
		seen[d] = name
	}
	prose := plan(1)
	prose.Spec.Body = "other words"
	if d, _ := PlanDigest(prose, 3600); d != base {
		t.Error("the agent's prose changes what is approved")
	}
}

func TestHaltDigestBindsEverything(t *testing.T) {
	held := v1alpha1.GateHaltRef{Stop: "s1", Halt: "h1"}
	halted := func() *v1alpha1.WorkItem {
		w := item()
		w.Status.Runtime = &v1alpha1.WorkItemRuntime{Halt: &v1alpha1.HaltReport{ID: "h1", Message: "m"}}
		return w
	}
	seen := map[string]string{}
	for name, digest := range map[string]func() (string, error){
		"itself": func() (string, error) { return HaltDigest("agent-1", halted(), held) },
		"agent":  func() (string, error) { return HaltDigest("agent-2", halted(), held) },
		"stop": func() (string, error) {
			return HaltDigest("agent-1", halted(), v1alpha1.GateHaltRef{Stop: "s2", Halt: "h1"})
		},
		"halt": func() (string, error) {
			return HaltDigest("agent-1", halted(), v1alpha1.GateHaltRef{Stop: "s1", Halt: "h2"})
		},
		"no halt": func() (string, error) { return HaltDigest("agent-1", halted(), v1alpha1.GateHaltRef{Stop: "s1"}) },
		"swapped": func() (string, error) {
			return HaltDigest("agent-1", halted(), v1alpha1.GateHaltRef{Stop: "h1", Halt: "s1"})
		},
		"item": func() (string, error) { w := halted(); w.UID = "item-2"; return HaltDigest("agent-1", w, held) },
		"what was reported": func() (string, error) {
			w := halted()
			w.Status.Runtime.Halt.Message = "n"
			return HaltDigest("agent-1", w, held)
		},
	} {
		d, err := digest()
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[d]; ok {
			t.Errorf("%s has the digest of %s", name, other)
		}
		seen[d] = name
	}
}

// Two plans have one digest only if they are one plan, whatever their strings hold: no separator can be forged.
func TestDigestIsInjective(t *testing.T) {
	text := rapid.StringOfN(rapid.SampledFrom([]rune{'a', '"', '\\', ',', ':', '{', '}', 0x200b}), 0, 4, -1)
	draw := func(t *rapid.T, label string) *v1alpha1.Plan {
		p := plan(1)
		p.Spec.Steps = nil
		for i := range rapid.IntRange(1, 3).Draw(t, label) {
			p.Spec.Steps = append(p.Spec.Steps, v1alpha1.PlanStep{Device: text.Draw(t, fmt.Sprint(label, i, "d")), Capability: text.Draw(t, fmt.Sprint(label, i, "c")), Args: text.Draw(t, fmt.Sprint(label, i, "a"))})
			if rapid.Bool().Draw(t, fmt.Sprint(label, i, "r")) {
				p.Spec.Steps[i].Resolved = &v1alpha1.ResolvedProgram{Executable: text.Draw(t, fmt.Sprint(label, i, "e")), SHA256: text.Draw(t, fmt.Sprint(label, i, "h")), User: text.Draw(t, fmt.Sprint(label, i, "u"))}
			}
		}
		return p
	}
	rapid.Check(t, func(t *rapid.T) {
		p, q := draw(t, "p"), draw(t, "q")
		dp, errp := PlanDigest(p, 60)
		dq, errq := PlanDigest(q, 60)
		if errp != nil || errq != nil {
			t.Fatal(errp, errq)
		}
		if (dp == dq) != cmp.Equal(p.Spec.Steps, q.Spec.Steps) {
			t.Fatalf("%v and %v: one digest %t", p.Spec.Steps, q.Spec.Steps, dp == dq)
		}
	})
}

func TestStatement(t *testing.T) {
	p := plan(1)
	g := &v1alpha1.Gate{ObjectMeta: metav1.ObjectMeta{UID: "gate-1"}, Spec: v1alpha1.GateSpec{Digest: zero}}
	s := Statement(g, p, []string{"lucas", "maria"}, time.Unix(1000, 999))
	calls := Calls(p)
	want := approval.Statement{GateUID: "gate-1", Digest: zero, Approvers: []string{"lucas", "maria"}, ExpiresAt: 1000, Calls: []string{calls[0].Hash(), calls[1].Hash()}, Attempts: []int32{1, 1},
		Resolved: []string{"", hash}}
	if diff := cmp.Diff(want, s); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for step := range int32(2) {
		if err := s.Covers(step+1, 1, calls[step], 999); err != nil {
			t.Error(err)
		}
		if err := s.Covers(step+1, 2, calls[step], 999); !errors.Is(err, approval.ErrNotCovered) {
			t.Errorf("a second attempt is covered: %v", err)
		}
	}
	if err := s.Covers(1, 1, calls[1], 999); !errors.Is(err, approval.ErrNotCovered) {
		t.Errorf("step 2 in place of step 1 is covered: %v", err)
	}
}

// What resolves nothing says nothing of it: statements of plans without programs are what they always were.
func TestStatementWithoutPrograms(t *testing.T) {
	p := plan(1)
	p.Spec.Steps = p.Spec.Steps[:1]
	if s := Statement(&v1alpha1.Gate{}, p, []string{"lucas"}, time.Unix(1000, 0)); s.Resolved != nil {
		t.Errorf("resolved %q", s.Resolved)
	}
}

func TestCheckAcceptsAGoodPlan(t *testing.T) {
	if err := Check(plan(1), item(), agent()); err != nil {
		t.Error(err)
	}
}

func TestLatest(t *testing.T) {
	namesake := plan(9)
	namesake.Spec.WorkItem.UID = "item-0"
	for _, tc := range []struct {
		name  string
		plans []v1alpha1.Plan
		want  int32
	}{
		{"none", nil, 0},
		{"one", []v1alpha1.Plan{*plan(1)}, 1},
		{"in any order", []v1alpha1.Plan{*plan(2), *plan(10), *plan(3)}, 10},
		{"a namesake's do not count", []v1alpha1.Plan{*plan(2), *namesake}, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := int32(0)
			if l := Latest(item(), tc.plans); l != nil {
				got = l.Spec.Revision
			}
			if got != tc.want {
				t.Errorf("rev-%d, want rev-%d", got, tc.want)
			}
		})
	}
}

func TestHeld(t *testing.T) {
	stop := func(w *v1alpha1.WorkItem) { w.Spec.Stop = &v1alpha1.StopRequest{ID: "s1"} }
	halt := func(w *v1alpha1.WorkItem) {
		w.Status.Runtime = &v1alpha1.WorkItemRuntime{Halt: &v1alpha1.HaltReport{ID: "h1"}}
	}
	for _, tc := range []struct {
		name string
		by   []func(*v1alpha1.WorkItem)
		want *v1alpha1.GateHaltRef
	}{
		{"nothing", nil, nil},
		{"a stop", []func(*v1alpha1.WorkItem){stop}, &v1alpha1.GateHaltRef{Stop: "s1"}},
		{"a halt", []func(*v1alpha1.WorkItem){halt}, &v1alpha1.GateHaltRef{Halt: "h1"}},
		{"both", []func(*v1alpha1.WorkItem){stop, halt}, &v1alpha1.GateHaltRef{Stop: "s1", Halt: "h1"}},
		{"an answered stop", []func(*v1alpha1.WorkItem){stop, func(w *v1alpha1.WorkItem) { w.Status.AnsweredStop = "s1" }}, nil},
		{"an answered halt under a stop", []func(*v1alpha1.WorkItem){stop, halt, func(w *v1alpha1.WorkItem) { w.Status.AnsweredHalt = "h1" }}, &v1alpha1.GateHaltRef{Stop: "s1"}},
		{"an earlier stop's answer", []func(*v1alpha1.WorkItem){stop, func(w *v1alpha1.WorkItem) { w.Status.AnsweredStop = "s0" }}, &v1alpha1.GateHaltRef{Stop: "s1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := item()
			for _, f := range tc.by {
				f(w)
			}
			if diff := cmp.Diff(tc.want, Held(w)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if HaltGate("wi-1", v1alpha1.GateHaltRef{Stop: "a"}) == HaltGate("wi-1", v1alpha1.GateHaltRef{Halt: "a"}) {
		t.Error("a stop and a halt of one ID are one question")
	}
}

// A gate stands while its question does, and never longer.
func TestSupersededProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := item()
		w.Status.ClosedRevision = rapid.Int32Range(0, 3).Draw(t, "closed")
		w.Spec.Close = rapid.Bool().Draw(t, "close")
		if rapid.Bool().Draw(t, "stop") {
			w.Spec.Stop = &v1alpha1.StopRequest{ID: "s1"}
		}
		if rapid.Bool().Draw(t, "over") {
			w.Status.State = v1alpha1.WorkItemClosed
		}
		top := rapid.Int32Range(1, 3).Draw(t, "latest")
		var plans []v1alpha1.Plan
		for r := int32(1); r <= top; r++ {
			plans = append(plans, *plan(r))
		}
		seen := rapid.Int32Range(0, 4).Draw(t, "seen")
		if seen > 0 {
			w.Status.Plan = &v1alpha1.PlanRef{Revision: seen}
		}
		g := &v1alpha1.Gate{Spec: v1alpha1.GateSpec{Kind: v1alpha1.GatePlan, WorkItem: v1alpha1.ObjectRef{Name: "wi-1", UID: "item-1"}, Revision: rapid.Int32Range(1, 3).Draw(t, "revision")}}
		stands := !w.Over() && Held(w) == nil && g.Spec.Revision == top && seen <= top && g.Spec.Revision > w.Status.ClosedRevision
		if why := Superseded(g, w, plans, time.Unix(0, 0)); (why == "") != stands {
			t.Fatalf("rev-%d of %d, closed %d, over %t, held %v: %q", g.Spec.Revision, top, w.Status.ClosedRevision, w.Over(), Held(w), why)
		}
	})
}
