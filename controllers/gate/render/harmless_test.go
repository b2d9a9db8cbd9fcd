package render

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"sort"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/canonical"
	"nisse.io/nisse/internal/sanitize"
)

// clickable is written apart from the renderer's own pattern: what a reader's client would act on.
var clickable = regexp.MustCompile(`(?i)[a-z][a-z0-9+.-]*://|\bmailto:|\bjavascript:|\bwww\.|@room\b|@[a-z0-9._=/+-]+:[a-z0-9]|[a-z0-9]@[a-z0-9-]+\.[a-z]|#[a-z0-9_-]+:[a-z0-9]|![a-z0-9]+:[a-z0-9]|<[a-z/!]|&[a-z]+;|&#`)

// harmless checks what holds for every message.
func harmless(t interface {
	Helper()
	Errorf(string, ...any)
}, message string) {
	t.Helper()
	if !utf8.ValidString(message) {
		t.Errorf("message is not UTF-8")
	}
	if len(message) > MaxBytes {
		t.Errorf("message has %d bytes", len(message))
	}
	for _, r := range message {
		if r != '\n' && sanitize.Hidden(r) {
			t.Errorf("message holds hidden character %U", r)
		}
	}
	lines := strings.Split(message, "\n")
	if m := clickable.FindString(strings.Join(lines[:len(lines)-1], "\n")); m != "" {
		t.Errorf("message holds live text %q", m)
	}
	if !strings.HasPrefix(lines[len(lines)-1], "Reply  ") {
		t.Errorf("last line is %q", lines[len(lines)-1])
	}
	for _, l := range lines[:len(lines)-1] {
		if strings.HasPrefix(l, "Reply") {
			t.Errorf("a second reply line: %q", l)
		}
	}
}

var hostile = []string{"https://", "https:///", "////x", "http://a.b", "@room", "@a:b", "#a:b", "!a:b", "www.", "mailto:", "javascript:", "<b>", "</b>", "&amp;", "&#", "//x",
	"\u202e", "\u200b", "\u2066", "\ufeff", "\u00ad", "\u2028", "\x1b[31m", "\x7f", "\n", "\r\n", "\t", "\"", "\\", "`", "```", "**", "❞", "Reply  approve rev-1",
	"\n1. web1 · exec\n", "\U000e0041", "a", " ", "é", "語"}

func text(t *rapid.T, label string) string {
	return strings.Join(rapid.SliceOfN(rapid.OneOf(rapid.SampledFrom(hostile), rapid.StringN(0, 20, 60)), 0, 30).Draw(t, label), "")
}

// anyPlan draws a plan within the caps.
func anyPlan(t *rapid.T) v1alpha1.PlanSpec {
	p := v1alpha1.PlanSpec{Agent: "ops", Revision: rapid.Int32Range(1, 1000).Draw(t, "revision"), Body: text(t, "body")}
	for i := range rapid.IntRange(1, 12).Draw(t, "steps") {
		a, err := canonical.Marshal(map[string]any{"path": text(t, fmt.Sprint("path", i)), "argv": []string{text(t, fmt.Sprint("argv", i))}, text(t, fmt.Sprint("key", i)): i})
		if err != nil {
			t.Fatal(err)
		}
		p.Steps = append(p.Steps, v1alpha1.PlanStep{Device: "web1", Capability: "exec", Args: string(a), ManifestDigest: "sha256:" + strings.Repeat("a", 64),
			Resolved: &v1alpha1.ResolvedProgram{Executable: text(t, fmt.Sprint("executable", i)), SHA256: text(t, fmt.Sprint("hash", i)), User: text(t, fmt.Sprint("user", i))}})
	}
	for size(t, p) > v1alpha1.PlanMaxBytes {
		p.Steps = p.Steps[:len(p.Steps)-1]
	}
	return p
}

// size is what counts towards the cap.
func size(t interface{ Fatal(...any) }, p v1alpha1.PlanSpec) int {
	b, err := canonical.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return len(b)
}

func TestAnyPlanIsShownHarmlesslyAndInFull(t *testing.T) {
	shown := 0
	t.Cleanup(func() {
		if shown == 0 {
			t.Error("no plan was shown")
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		p, g := anyPlan(t), gate()
		g.Title = text(t, "title")
		got, err := Plan(g, p)
		if errors.Is(err, ErrTooLong) {
			return // escapes beyond the cap: refused, tested elsewhere
		}
		if err != nil {
			t.Fatal(err)
		}
		shown++
		harmless(t, got)
		for i, s := range p.Steps {
			var a struct {
				Path string   `json:"path"`
				Argv []string `json:"argv"`
			}
			if err := json.Unmarshal([]byte(s.Args), &a); err != nil {
				t.Fatal(err)
			}
			if line := "   path = " + inert(a.Path) + "\n"; !strings.Contains(got, line) {
				t.Fatalf("step %d: %q is not shown", i+1, line)
			}
			if line := "   runs " + inert(s.Resolved.Executable) + " as "; strings.Count(got, line) == 0 {
				t.Fatalf("step %d: %q is not shown", i+1, line)
			}
			if !strings.Contains(got, fmt.Sprintf("\n%d. web1 · exec\n", i+1)) {
				t.Fatalf("step %d is not numbered", i+1)
			}
		}
	})
}

// Text that people can read fits, however many of its characters must be broken: the worst takes two bytes and becomes seven.
func TestPrintablePlanWithinCapsAlwaysFits(t *testing.T) {
	for _, unit := range []string{"<a", "&#", "@a:", "@a.", "#a:", "!a:", "//x", "im:", "www.", "a", "é", "\u00ad", "\u202e", `\"`, "@room "} {
		t.Run(unit, func(t *testing.T) {
			full := func(n int) v1alpha1.PlanSpec {
				a, err := canonical.Marshal(map[string]string{"content": strings.Repeat(unit, n)})
				if err != nil {
					t.Fatal(err)
				}
				return plan("", step("web1", "fs.write", string(a)))
			}
			n := sort.Search(v1alpha1.PlanMaxBytes, func(n int) bool { return size(t, full(n)) > v1alpha1.PlanMaxBytes }) - 1
			got, err := Plan(gate(), full(n))
			if err != nil {
				t.Fatalf("%d times: %v", n, err)
			}
			harmless(t, got)
		})
	}
}

// What is shown is what runs: reading the quoted line as JSON gives the argument back.
func TestInertIsReversible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := strings.Map(func(r rune) rune {
			if r > 0xFFFF && sanitize.Hidden(r) {
				return -1 // shown with eight digits, which JSON does not know
			}
			return r
		}, strings.ToValidUTF8(text(t, "text"), "�"))
		s = strings.ReplaceAll(s, "�", "")
		var back string
		if err := json.Unmarshal([]byte(inert(s)), &back); err != nil {
			t.Fatalf("%s: %v", inert(s), err)
		}
		if back != s {
			t.Fatalf("%q is shown as %s, which reads %q", s, inert(s), back)
		}
	})
}

func FuzzPlan(f *testing.F) {
	for _, h := range hostile {
		f.Add(h, h+h, h)
	}
	f.Add(strings.Repeat("@", 5000)+"a:b", strings.Repeat("#@!", 3000)+"a:b", strings.Repeat("<", 6000))
	f.Fuzz(func(t *testing.T, title, argument, body string) {
		a, err := canonical.Marshal(map[string]string{"content": strings.ToValidUTF8(argument, "")})
		if err != nil {
			return // not acceptable as an argument
		}
		g := gate()
		g.Title = title
		got, err := Plan(g, plan(body, step("web1", "fs.write", string(a))))
		if err != nil {
			if !errors.Is(err, ErrTooLong) {
				t.Fatal(err)
			}
			return
		}
		harmless(t, got)
	})
}
