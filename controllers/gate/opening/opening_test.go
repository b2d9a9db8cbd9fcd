package opening_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/controllertest"
	"nisse.io/nisse/controllers/gate/opening"
	"nisse.io/nisse/controllers/gate/subject"
	"nisse.io/nisse/controllers/pass"
	"nisse.io/nisse/internal/clock"
	"nisse.io/nisse/internal/manifest"
	"nisse.io/nisse/test/apitest"
)

func TestMain(m *testing.M) { apitest.Main(m) }

var now = time.Date(2026, 11, 30, 14, 0, 0, 500, time.FixedZone("CET", 3600))

func objects() (*v1alpha1.Agent, *v1alpha1.WorkItem) {
	a := controllertest.NewAgent("nisse", "ops")
	a.UID = "agent-1"
	w := controllertest.NewItem(a, "wi-1")
	w.UID = "item-1"
	return a, w
}

func TestApprovers(t *testing.T) {
	person := func(name string, may ...v1alpha1.Right) v1alpha1.AgentPerson {
		return v1alpha1.AgentPerson{Name: name, May: may}
	}
	for _, tc := range []struct {
		name   string
		people []v1alpha1.AgentPerson
		want   []string
	}{
		{"nobody", nil, nil},
		{"instructing is not approving", []v1alpha1.AgentPerson{person("a", v1alpha1.RightInstruct)}, nil},
		{"in the spec's order", []v1alpha1.AgentPerson{person("z", v1alpha1.RightApprove), person("a", v1alpha1.RightInstruct, v1alpha1.RightApprove)}, []string{"z", "a"}},
		{"a right that this version does not know", []v1alpha1.AgentPerson{person("a", "Admire")}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := &v1alpha1.Agent{Spec: v1alpha1.AgentSpec{People: tc.people}}
			if diff := cmp.Diff(tc.want, opening.Approvers(a)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestPlanGateLivesAsLongAsTheAgentSays(t *testing.T) {
	for name, tc := range map[string]struct {
		limits *v1alpha1.Limits
		want   time.Duration
	}{
		"nothing said":             {nil, 30 * time.Minute},
		"limits without a word":    {&v1alpha1.Limits{}, 30 * time.Minute},
		"a minute":                 {&v1alpha1.Limits{ApprovalSeconds: new(int32(60))}, time.Minute},
		"a day, which is the most": {&v1alpha1.Limits{ApprovalSeconds: new(int32(86400))}, 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			a, w := objects()
			a.Spec.Limits = tc.limits
			g, err := opening.Plan(controllertest.NewPlan(a, w, 1, controllertest.Report), w, a, controllertest.Rules(1), now)
			if err != nil {
				t.Fatal(err)
			}
			if want := now.Truncate(time.Second).Add(tc.want); !g.Spec.ExpiresAt.Time.Equal(want) {
				t.Errorf("expires %s, want %s", g.Spec.ExpiresAt, want)
			}
			if line := "\nWaits for lucas until " + clock.Tell(g.Spec.ExpiresAt.UTC(), now) + ".\n"; !strings.Contains(g.Spec.Message, line) {
				t.Errorf("the message does not say%s but:\n%s", line, g.Spec.Message)
			}
		})
	}
}

// The reason names what asks for it, and is bounded however many devices there are and whatever they are called.
func TestPlanGateSaysWhy(t *testing.T) {
	long := strings.Repeat("d", 253)
	on := func(capability string, devices ...string) (steps []v1alpha1.PlanStep) {
		for _, d := range devices {
			steps = append(steps, v1alpha1.PlanStep{Device: d, Capability: capability, Args: `{"path":"/srv/a"}`, ManifestDigest: "sha256:" + strings.Repeat("a", 64)})
		}
		return steps
	}
	for name, tc := range map[string]struct {
		steps []v1alpha1.PlanStep
		want  string
	}{
		"a write":                 {on("fs.write", "web1"), "web1 requires an approval for fs.write"},
		"two writes on one":       {on("fs.write", "web1", "web1"), "web1 requires an approval for fs.write"},
		"on two":                  {on("fs.write", "web1", "web2"), "an approval is required for fs.write on web1, fs.write on web2"},
		"on five":                 {on("fs.write", "a", "b", "c", "d", "e"), "an approval is required for fs.write on a, fs.write on b, fs.write on c and 2 more"},
		"two things":              {append(on("git.push", "web1"), on("fs.write", "web1")...), "an approval is required for git.push on web1, fs.write on web1"},
		"a push":                  {on("git.push", "web1"), "web1 requires an approval for git.push"},
		"odd capabilities":        {on("a\nReply", "web1"), `web1 requires an approval for "a\nReply"`},
		"a name that is a string": {on("fs.write", "a\nReply"), `"a\nReply" requires an approval for fs.write`},
		"long names":              {on("fs.write", long), strings.Repeat("d", 140) + "… requires an approval for fs.write"},
		"many long names":         {on("fs.write", long, long[1:]), "an approval is required for fs.write on " + strings.Repeat("d", 210) + "…"},
		"nothing is written":      {on("fs.stat", "web1"), opening.RulePlan},
		"something is written":    {append(on("fs.stat", "web2"), on("fs.write", "web1")...), "web1 requires an approval for fs.write"},
	} {
		t.Run(name, func(t *testing.T) {
			a, w := objects()
			p := controllertest.NewPlan(a, w, 1, controllertest.Report)
			p.Spec.Steps = tc.steps
			rules := controllertest.Rules(len(tc.steps))
			for i, s := range tc.steps {
				if s.Capability == "fs.stat" {
					rules[i].Approval = manifest.None
				}
			}
			g, err := opening.Plan(p, w, a, rules, now)
			if err != nil {
				t.Fatal(err)
			}
			if g.Spec.Rule != tc.want || !strings.Contains(g.Spec.Message, "\nAsked because: "+tc.want+".\n") {
				t.Errorf("%q, want %q, in\n%s", g.Spec.Rule, tc.want, g.Spec.Message)
			}
		})
	}
}

func TestHaltGate(t *testing.T) {
	a, w := objects()
	w.Spec.Stop = &v1alpha1.StopRequest{ID: "s1", By: "@lucas:example.org"}
	w.Status.Runtime = &v1alpha1.WorkItemRuntime{Halt: &v1alpha1.HaltReport{ID: "h1", Reason: v1alpha1.HaltOutcomeUnknown, Message: "web1 cannot say whether step 1 ran.", Revision: 1, Step: 1}}
	seen := map[string]bool{}
	for name, tc := range map[string]struct {
		held     v1alpha1.GateHaltRef
		rule     string
		has, not []string
	}{
		"stop": {v1alpha1.GateHaltRef{Stop: "s1"}, opening.RuleStop, []string{"Stopped by"}, []string{"web1 cannot say", opening.RuleStop}},
		"halt": {v1alpha1.GateHaltRef{Halt: "h1"}, opening.RuleHalt, []string{"web1 cannot say", "Stopped by the broker at step 1"}, []string{"lucas:example", "OutcomeUnknown"}},
		"both": {v1alpha1.GateHaltRef{Stop: "s1", Halt: "h1"}, opening.RuleHalt, []string{"Stopped by", "web1 cannot say"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g, err := opening.Halt(w, a, tc.held, now)
			if err != nil {
				t.Fatal(err)
			}
			digest, err := subject.HaltDigest("agent-1", w, tc.held)
			if err != nil {
				t.Fatal(err)
			}
			s := g.Spec
			if s.Kind != v1alpha1.GateHalt || s.Rule != tc.rule || *s.Halt != tc.held || s.Digest != digest || s.Revision != 0 || g.Name != subject.HaltGate("wi-1", tc.held) || seen[g.Name] {
				t.Errorf("%s: %+v", g.Name, s)
			}
			seen[g.Name] = true
			for _, part := range tc.has {
				if !strings.Contains(s.Message, part) {
					t.Errorf("the message lacks %q:\n%s", part, s.Message)
				}
			}
			for _, part := range tc.not {
				if strings.Contains(s.Message, part) {
					t.Errorf("the message says %q:\n%s", part, s.Message)
				}
			}
			if left := s.ExpiresAt.Sub(now); left < 300*24*time.Hour {
				t.Errorf("lapses in %s: nobody could answer afterwards", left)
			}
		})
	}
}

func TestNobodyToAsk(t *testing.T) {
	a, w := objects()
	a.Spec.People = a.Spec.People[1:]
	if _, err := opening.Plan(controllertest.NewPlan(a, w, 1, controllertest.Report), w, a, controllertest.Rules(1), now); !errors.Is(err, opening.ErrNoApprovers) {
		t.Errorf("plan: %v", err)
	}
	w.Spec.Stop = &v1alpha1.StopRequest{ID: "s1"}
	if _, err := opening.Halt(w, a, v1alpha1.GateHaltRef{Stop: "s1"}, now); !errors.Is(err, opening.ErrNoApprovers) {
		t.Errorf("halt: %v", err)
	}
	// The plan's own fault is told first: mending the people would not help.
	if _, err := opening.Plan(controllertest.NewPlan(a, w, 1), w, a, nil, now); !errors.Is(err, subject.ErrNotReady) {
		t.Errorf("empty plan: %v", err)
	}
}

// Whoever creates second, gets the first one's gate: same UID, same expiry, one object.
func TestCreateTwice(t *testing.T) {
	b := controllertest.New(t, nil)
	p := b.Plan(1, controllertest.Report)
	build := func(at time.Time) *v1alpha1.Gate {
		g, err := opening.Plan(p, b.Item, b.Agent, controllertest.Rules(1), at)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	first, created, err := opening.Create(t.Context(), b.Admin, b.Admin, build(now))
	if err != nil || !created {
		t.Fatalf("first: %t, %v", created, err)
	}
	second, created, err := opening.Create(t.Context(), b.Admin, b.Admin, build(now.Add(time.Minute)))
	if err != nil || created {
		t.Fatalf("second: %t, %v", created, err)
	}
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("two gates (-first +second):\n%s", diff)
	}
}

func TestCreateRefusesANamesake(t *testing.T) {
	b := controllertest.New(t, nil)
	p := b.Plan(1, controllertest.Report)
	g := b.Gate(p, now)
	other := g.DeepCopy()
	other.ObjectMeta = metav1.ObjectMeta{Namespace: g.Namespace, Name: g.Name}
	other.Spec.Subject.UID = "a plan made later"
	var stall *pass.Stall
	if _, _, err := opening.Create(t.Context(), b.Admin, b.Admin, other); !errors.As(err, &stall) || stall.Reason != v1alpha1.ReasonForeignGate {
		t.Errorf("got %v, want a stall", err)
	}
}

// failing lets nothing be created.
type failing struct{ client.Client }

var errAway = errors.New("the API server is away")

func (failing) Create(context.Context, client.Object, ...client.CreateOption) error { return errAway }

func TestCreateFails(t *testing.T) {
	a, w := objects()
	g, err := opening.Plan(controllertest.NewPlan(a, w, 1, controllertest.Report), w, a, controllertest.Rules(1), now)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := opening.Create(t.Context(), failing{}, nil, g); !errors.Is(err, errAway) || !strings.Contains(err.Error(), g.Name) {
		t.Errorf("got %v", err)
	}
}

// A gate that is there and cannot be read is neither made nor taken for the one that is wanted.
func TestCreateCannotSeeWhatIsThere(t *testing.T) {
	b := controllertest.New(t, nil)
	g := b.Gate(b.Plan(1, controllertest.Report), now)
	again := g.DeepCopy()
	again.ObjectMeta = metav1.ObjectMeta{Namespace: g.Namespace, Name: g.Name}
	away := b.Intercepted(interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		return errAway
	}})
	if made, created, err := opening.Create(t.Context(), b.Admin, away, again); !errors.Is(err, errAway) || created || made != nil {
		t.Errorf("got %+v, %t, %v", made, created, err)
	}
}

func TestAlone(t *testing.T) {
	b := controllertest.New(t, nil)
	alone := func(name string, want bool) {
		t.Helper()
		got, err := opening.Alone(t.Context(), b.Admin, b.Item, name)
		if err != nil || got != want {
			t.Errorf("alone but for %s: %t, %v; want %t", name, got, err, want)
		}
	}
	alone("wi-1-rev-1", true)
	g := b.Gate(b.Plan(1, controllertest.Report), now)
	alone("wi-1-rev-1", true) // itself does not count
	alone("wi-1-rev-2", false)
	b.Status(g, func() { g.Status.Outcome = v1alpha1.GateSuperseded })
	alone("wi-1-rev-2", true)
}

// What reads as something else is told by code, above the steps.
func TestPlanGateTellsPitfalls(t *testing.T) {
	a, w := objects()
	p := controllertest.NewPlan(a, w, 1, controllertest.Report)
	p.Spec.Steps[0].Args = `{"content":"","path":"/srv/nisse/r` + "\u0435" + `port.txt"}`
	g, err := opening.Plan(p, w, a, controllertest.Rules(1), now)
	if err != nil {
		t.Fatal(err)
	}
	if len(g.Spec.Flags) != 1 || !strings.Contains(g.Spec.Flags[0], "U+0435") || !strings.Contains(g.Spec.Message, "\n! \""+g.Spec.Flags[0]+"\"\n") {
		t.Errorf("flags %q, message:\n%s", g.Spec.Flags, g.Spec.Message)
	}
}
