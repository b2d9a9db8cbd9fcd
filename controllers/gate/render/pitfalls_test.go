package render

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"nisse.io/nisse/api/v1alpha1"
)

// What is shown in full and still reads as something else is told above it.
func TestPitfalls(t *testing.T) {
	for _, tc := range []struct {
		name, capability, args string
		want                   []string
	}{
		{"ordinary", "fs.write", `{"content":"Filesystem  Use%\n/dev/sda1                 41%\n","path":"/srv/nisse/report.txt"}`, nil},
		{"prose in one other alphabet", "fs.write", `{"content":"отчёт о диске, 5 µs, 3 kΩ, größer","path":"/srv/a"}`, nil},
		{"a path with letters of another alphabet", "fs.write", `{"content":"","path":"/srv/nisse/r\u0435p\u043ert.txt"}`,
			[]string{"step 2: path has characters beyond ASCII, which may look like others: U+0435, U+043E"}},
		{"a path with another slash", "fs.read", `{"path":"/srv/nisse\u2044secret"}`, []string{"step 2: path has characters beyond ASCII, which may look like others: U+2044"}},
		{"composed otherwise", "fs.read", `{"path":"/srv/caf` + "e\u0301" + `"}`, []string{"step 2: path has characters beyond ASCII, which may look like others: U+0301"}},
		{"a command line", "exec", `{"argv":["/usr/bin/touch","/srv/` + "\u0430" + `"],"timeoutSeconds":3}`, []string{"step 2: argv has characters beyond ASCII, which may look like others: U+0430"}},
		{"content of mixed alphabets", "fs.write", `{"content":"allow p` + "\u0430" + `ypal.example","path":"/srv/a"}`, []string{"step 2: content has words of mixed alphabets, which may read as others: pаypal"}},
		{"a commit in another alphabet", "git.commit", `{"files":["a"],"message":"отчёт о диске","path":"/srv/a"}`, nil},
		{"a file that is committed", "git.commit", `{"files":["r\u0435port"],"message":"x","path":"/srv/a"}`, []string{"step 2: files has characters beyond ASCII, which may look like others: U+0435"}},
		{"a clipboard of mixed alphabets", "clipboard.write", `{"content":"p` + "\u0430" + `ypal.example"}`, []string{"step 2: content has words of mixed alphabets, which may read as others: pаypal"}},
		{"a package", "pkg.install", `{"names":["ngin\u0445"]}`, []string{"step 2: names has characters beyond ASCII, which may look like others: U+0445"}},
		{"bytes", "fs.write", `{"content":"IyEvYmluL3No","encoding":"base64","path":"/srv/a"}`, []string{"step 2: content is base64, which nobody can read here; decode it before you decide"}},
		{"a gap", "fs.write", `{"content":"harmless` + strings.Repeat(" ", 40) + `rm","path":"/srv/a"}`, []string{"step 2: content has 40 spaces or more in a row; read what comes after them"}},
		{"deep inside, and in a name", "exec", `{"options":{"а":["/srv",{"to":"е"}]}}`, []string{"step 2: options has characters beyond ASCII, which may look like others: U+0430, U+0435"}},
		{"each character once", "fs.read", `{"path":"/ааеа"}`, []string{"step 2: path has characters beyond ASCII, which may look like others: U+0430, U+0435"}},
		{"eight characters", "fs.read", `{"path":"/абвгдежз"}`,
			[]string{"step 2: path has characters beyond ASCII, which may look like others: U+0430, U+0431, U+0432, U+0433, U+0434, U+0435, U+0436, U+0437"}},
		{"nine characters", "fs.read", `{"path":"/абвгдежзи"}`,
			[]string{"step 2: path has characters beyond ASCII, which may look like others: U+0430, U+0431, U+0432, U+0433, U+0434, U+0435, U+0436, U+0437, …"}},
		{"more words than can be told", "fs.write", `{"content":"aа bа cа dа eа fа gа hа iа aа","path":"/srv/a"}`,
			[]string{"step 2: content has words of mixed alphabets, which may read as others: aа, bа, cа, dа, eа, fа, gа, hа, …"}},
		{"no JSON: it is shown to nobody", "fs.read", `{]`, nil},
		{"39 spaces are not a gap", "fs.write", `{"content":"harmless` + strings.Repeat(" ", 39) + `rm","path":"/srv/a"}`, nil},
		{"hidden ones are escaped anyway", "fs.read", `{"path":"/srv/\u202e"}`, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Pitfalls([]v1alpha1.PlanStep{step("web1", "exec", `{"argv":["/usr/bin/df"]}`), step("web1", tc.capability, tc.args)})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestPitfallsOfPrograms(t *testing.T) {
	odd := running(step("web1", "exec", `{"argv":["/usr/bin/df"]}`), "/usr/bin/d\u0444"+strings.Repeat(" ", manySpaces), "nobody")
	want := []string{"step 1: what it runs has characters beyond ASCII, which may look like others: U+0444", "step 1: what it runs has 40 spaces or more in a row; read what comes after them"}
	if diff := cmp.Diff(want, Pitfalls([]v1alpha1.PlanStep{odd})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// However many there are, a gate holds them.
func TestPitfallsAreBounded(t *testing.T) {
	var steps []v1alpha1.PlanStep
	for range v1alpha1.PlanMaxSteps {
		steps = append(steps, step("web1", "exec", `{"`+strings.Repeat("k", 300)+`":"`+strings.Repeat("\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0455\u0458", 9)+strings.Repeat(" ", 99)+`"}`))
	}
	got := Pitfalls(steps)
	if len(got) != maxPitfalls+1 || got[maxPitfalls] != "and 68 more of this kind" {
		t.Errorf("%d pitfalls, the last %q", len(got), got[len(got)-1])
	}
	for _, p := range got {
		if n := utf8.RuneCountInString(p); n > 256 {
			t.Errorf("%d runes: %s", n, p)
		}
	}
}
