package render

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nisse.io/nisse/api/v1alpha1"
)

var update = flag.Bool("update", false, "write the golden files")

func gate() Gate {
	return Gate{Agent: "ops", Title: "Write the disk usage of the machine into /srv/nisse/report.txt", Approvers: []string{"lucas"}, Required: 1,
		Rule: "web1 requires an approval for fs.write", AskedAt: time.Date(2026, 11, 30, 12, 50, 0, 0, time.UTC), ExpiresAt: time.Date(2026, 11, 30, 14, 20, 0, 0, time.FixedZone("CET", 3600))}
}

func step(device, capability, args string) v1alpha1.PlanStep {
	s := v1alpha1.PlanStep{Device: device, Capability: capability, Args: args, ManifestDigest: "sha256:" + strings.Repeat("a", 64)}
	if capability == "exec" {
		s.Resolved = &v1alpha1.ResolvedProgram{Executable: "/usr/bin/df", SHA256: strings.Repeat("0123456789abcdef", 4), User: "www-data"}
	}
	return s
}

// running a step says that it runs that.
func running(s v1alpha1.PlanStep, executable, user string) v1alpha1.PlanStep {
	s.Resolved.Executable, s.Resolved.User = executable, user
	return s
}

func plan(body string, steps ...v1alpha1.PlanStep) v1alpha1.PlanSpec {
	return v1alpha1.PlanSpec{Agent: "ops", Revision: 1, Body: body, Steps: steps}
}

func TestPlan(t *testing.T) {
	for _, tc := range []struct {
		name string
		gate func(*Gate)
		plan v1alpha1.PlanSpec
	}{
		{"ordinary", nil, plan("df was read at 13:58; the file holds its output.",
			step("web1", "fs.write", `{"content":"Filesystem  Use%\n/dev/sda1    41%\n","path":"/srv/nisse/report.txt"}`),
			step("web1", "exec", `{"argv":["/usr/bin/df","-h"],"timeoutSeconds":30}`))},
		{"until another day", func(g *Gate) { g.ExpiresAt = g.ExpiresAt.Add(20 * time.Hour) }, plan("", step("web1", "fs.stat", `{"path":"/srv"}`))},
		{"flags and two approvers", func(g *Gate) {
			g.Flags, g.Approvers, g.Required = []string{"irreversible: web1 /srv/data", "hosts the agent itself"}, []string{"lucas", "maria", "n.n"}, 2
		}, plan("", step("web1", "fs.write", `{"path":"/srv/data","content":""}`))},
		{"hidden characters", nil, plan("safe\u202ereversed", step("web1", "exec", `{"argv":["rm\u200b","\u202etxt.exe\u2066","a b","\u0000\u001b[31m"]}`))},
		{"links and mentions", func(g *Gate) { g.Title = "see https://evil.example/ and @room" },
			plan("[click](https://evil.example) @lucas:example.org #ops:example.org !abc:example.org www.evil.example mailto:a@b.example <https://x.example>",
				step("web1", "fs.write", `{"content":"https://evil.example @room javascript:alert(1) <b>bold</b> &lt;i&gt; //evil.example/x","path":"/srv/a"}`))},
		{"prose that plays a gate", nil, plan("fine ❞\nReply  approve rev-9\n\n1. web1 · exec\n   argv = [\"true\"]\nNothing here is marked irreversible", step("web1", "fs.stat", `{"path":"/srv"}`))},
		{"markdown", nil, plan("**bold** `code` ~~x~~ | a | b |\n# heading\n> quote", step("web1", "fs.write", `{"content":"# h\n**b** [a](b)\n`+"```"+`\n","path":"/srv/a.md"}`))},
		{"hostile programs", nil, plan("",
			running(step("web1", "exec", `{"argv":["/usr/bin/report"],"runs \"/usr/bin/true\" as nobody, SHA-256 0123456789ab…":1}`), "/opt/a b\u202e\nReply  approve rev-9\n2. web1 · exec\n   runs", "root"),
			running(step("web1", "exec", `{"argv":["/usr/bin/report"],"runs":"/usr/bin/true"}`), "/srv/https://evil.example/@room <b>", "no one\n@lucas:example.org"))},
		{"awkward names", func(g *Gate) { g.Agent, g.Title = "ops", "a\u0000b\nc\td\u00ad" },
			plan("", v1alpha1.PlanStep{Device: "web1 · exec", Capability: "fs.write", Args: `{"":null,"a b":[1,true,{"k":"v"}],"path":"/x","\u202e":"y"}`})},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := gate()
			if tc.gate != nil {
				tc.gate(&g)
			}
			got, err := Plan(g, tc.plan)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, got)
			harmless(t, got)
		})
	}
}

func TestStop(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 11, 30, 14, 3, 0, 0, time.UTC))
	for _, tc := range []struct {
		name string
		halt Halt
	}{
		{"stop", Halt{Stopped: true, StoppedBy: "@lucas:example.org"}},
		{"stop by nobody named", Halt{Stopped: true}},
		{"halt", Halt{Report: &v1alpha1.HaltReport{ID: "h1", Reason: v1alpha1.HaltCallMismatch, Revision: 1, Step: 2, At: at,
			Message: "Step 2 wants\n   path = \"/srv/a\"\nthe agent called\n   path = \"/srv/\\u202eb\""}}},
		{"a command in the report", Halt{Report: &v1alpha1.HaltReport{ID: "h3", Reason: v1alpha1.HaltOutcomeUnknown, Revision: 1, Step: 1, At: at,
			Message: "Nobody can prove how step 1 ended.\nIf it was not done, run\nkubectl nisse job settle j -n nisse --as Failed --reason '...'\nand it counts as failed."}}},
		{"stop and halt with hostile message", Halt{Stopped: true, StoppedBy: "lucas\nReply  approve", Report: &v1alpha1.HaltReport{ID: "h2",
			Reason: v1alpha1.HaltOutcomeUnknown, At: at, Message: "see https://evil.example\u2028Reply  continue @room"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Stop(gate(), tc.halt)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, got)
			harmless(t, got)
		})
	}
}

func TestPlanRefusesWhatItCannotShow(t *testing.T) {
	for _, tc := range []struct {
		name, args string
		tooLong    bool
	}{
		{"not JSON", `{"path":`, false},
		{"not an object", `["a"]`, false},
		{"data after the object", `{} {}`, false},
		{"escapes beyond the cap", `{"path":"` + strings.Repeat("\x7f", 16000) + `"}`, true},
		{"100 KB", `{"path":"` + strings.Repeat("x", 100_000) + `"}`, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Plan(gate(), plan("", step("web1", "fs.stat", tc.args)))
			if err == nil || got != "" {
				t.Fatalf("got %d bytes and %v, want an error", len(got), err)
			}
			if errors.Is(err, ErrTooLong) != tc.tooLong {
				t.Errorf("error %v, ErrTooLong wanted: %t", err, tc.tooLong)
			}
		})
	}
}

func TestProseIsShort(t *testing.T) {
	got, err := Plan(gate(), plan(strings.Repeat("é", 100_000), step("web1", "fs.stat", `{"path":"/srv"}`)))
	if err != nil {
		t.Fatal(err)
	}
	if want := "The agent's words: \"" + strings.Repeat("é", MaxProse) + "…\"\n"; !strings.Contains(got, want) {
		t.Errorf("prose is not cut at %d characters:\n%s", MaxProse, got)
	}
}

func TestTitle(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"ordinary", "nginx on web1 answers 502", "nginx on web1 answers 502"},
		{"lines and spaces", " a\n\tb  c ", "a b c"},
		{"hidden", "a\u202eb", `a\u202eb`},
		{"link", "see https://evil.example", `see https:\/\/evil.example`},
		{"long", strings.Repeat("é", 300), strings.Repeat("é", 160) + "…"},
		{"long and hidden", strings.Repeat("\u202e", 300), strings.Repeat(`\u202e`, 33) + `\…`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Title(tc.in)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// golden compares with testdata/<test>.txt.
func golden(t *testing.T, got string) {
	t.Helper()
	name := strings.NewReplacer("/", "-", " ", "_").Replace(t.Name())
	path := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(path, []byte(got+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got+"\n"); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
