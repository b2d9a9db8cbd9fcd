package render

import (
	"html"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

const asked = `Plan rev-1 of ops for "disk <b>"
Waits for lucas until 14:20 UTC.
Nothing here is marked irreversible or protected.
Asked because: web1 requires an approval for fs.write.

1. web1 · fs.write
   content = "Filesystem  Use%\n/dev/sda1    41%\n"
   path = "/srv/<b>"

The agent's words: "fine\nReply  approve rev-9"
Reply  approve rev-1  ·  reject <why>`

const steps = `<pre><code>1. web1 · fs.write
   content = 
  ↳ &#34;Filesystem  Use%\n
  ↳ /dev/sda1    41%\n&#34;
   path = &#34;/srv/&lt;b&gt;&#34;
</code></pre>`

func TestGate(t *testing.T) {
	got := Gate(asked, []string{"@lucas:x"})
	want := []Content{{
		Type: "m.text", Body: asked, Format: "org.matrix.custom.html", Mentions: Mentions{UserIDs: []string{"@lucas:x"}},
		Formatted: `<p>Plan rev-1 of ops for <code>&#34;disk &lt;b&gt;&#34;</code><br>Waits for lucas until 14:20 UTC.<br>` +
			`Nothing here is marked irreversible or protected.<br>Asked because: web1 requires an approval for fs.write.</p>` + steps +
			`<p>The agent&#39;s words: <code>&#34;fine\nReply  approve rev-9&#34;</code></p><p>Reply <code>approve rev-1</code> · <code>reject &lt;why&gt;</code></p>`,
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// What a step runs stands below its arguments, whole, in the block that is not made clickable.
func TestGateShowsPrograms(t *testing.T) {
	got := Gate("Plan rev-1 of ops for \"x\"\n\n1. web1 · exec\n   argv = [\"/usr/bin/report\"]\n   runs \"/opt/report/bin/report-2.1\" as www-data, SHA-256 0123456789ab…\n\nReply  approve rev-1", nil)
	want := "<pre><code>1. web1 · exec\n   argv = [&#34;/usr/bin/report&#34;]\n   runs &#34;/opt/report/bin/report-2.1&#34; as \n  ↳ www-data, SHA-256 0123456789ab…\n</code></pre>"
	if len(got) != 1 || !strings.Contains(got[0].Formatted, want) {
		t.Errorf("got %q", got[0].Formatted)
	}
}

// A gate that is over says how, and neither that it waits nor what to type.
func TestEnded(t *testing.T) {
	const halt = `ops has stopped in "disk"
Waits for lucas.

Stopped by the broker at step 2 of rev-1:
– Step 2 of rev-1 wants web1 · exec with argv="/usr/bin/a";
– ops called it with argv="Nothing runs until you answer.".
– Nothing runs until you answer.
   kubectl nisse job settle wi-1-step-1 -n nisse --as Failed --reason x

Nothing runs until you answer.
continue: it goes on.
replan: it makes another.
abandon: the work is closed.
Reply  continue  ·  replan <advice>  ·  abandon`
	for name, tc := range map[string]struct{ asked, body, html string }{
		"a plan": {asked, `✓ <lucas>

What was shown:
Plan rev-1 of ops for "disk <b>"
Nothing here is marked irreversible or protected.
Asked because: web1 requires an approval for fs.write.

1. web1 · fs.write
   content = "Filesystem  Use%\n/dev/sda1    41%\n"
   path = "/srv/<b>"

The agent's words: "fine\nReply  approve rev-9"`, `<p><strong>✓ &lt;lucas&gt;</strong></p><p>What was shown:</p>` +
			`<p>Plan rev-1 of ops for <code>&#34;disk &lt;b&gt;&#34;</code><br>Nothing here is marked irreversible or protected.<br>` +
			`Asked because: web1 requires an approval for fs.write.</p>` + steps + `<p>The agent&#39;s words: <code>&#34;fine\nReply  approve rev-9&#34;</code></p>`},
		"a halt": {halt, `✓ <lucas>

What was shown:
ops has stopped in "disk"

Stopped by the broker at step 2 of rev-1:
– Step 2 of rev-1 wants web1 · exec with argv="/usr/bin/a";
– ops called it with argv="Nothing runs until you answer.".
– Nothing runs until you answer.
   kubectl nisse job settle wi-1-step-1 -n nisse --as Failed --reason x`, `<p><strong>✓ &lt;lucas&gt;</strong></p><p>What was shown:</p>` +
			`<p>ops has stopped in <code>&#34;disk&#34;</code></p>` +
			`<p>Stopped by the broker at step 2 of rev-1:<br>– Step 2 of rev-1 wants web1 · exec with argv=<code>&#34;/usr/bin/a&#34;</code>;` +
			`<br>– ops called it with argv=<code>&#34;Nothing runs until you answer.&#34;</code>.<br>– Nothing runs until you answer.</p>` +
			"<pre><code>   kubectl nisse job settle wi-1-step-1 -n nisse --as Failed --reason x\n</code></pre>"},
	} {
		t.Run(name, func(t *testing.T) {
			want := []Content{{Type: "m.text", Body: tc.body, Format: "org.matrix.custom.html", Formatted: tc.html, Short: "✓ <lucas>"}}
			if diff := cmp.Diff(want, Ended("✓ <lucas>", tc.asked)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What an answer to a halt does stands beside the word to type.
func TestChoicesAreShownAsWhatToType(t *testing.T) {
	got := Gate("x\nabandon: the work is closed.\nReply  replan <advice>  ·  abandon", nil)[0].Formatted
	if want := "<p>x<br><code>abandon</code>: the work is closed.</p><p>Reply <code>replan &lt;advice&gt;</code> · <code>abandon</code></p>"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A line that is cut between two messages cannot make the second begin like one of ours: it says so, and is no sentence.
func TestNoPieceLooksLikeALineOfOurs(t *testing.T) {
	got := Gate("1. web1 · fs.write\n   content = \""+strings.Repeat("Reply  approve rev-9  ·  ", 2000)+"\"\nReply  approve rev-1", nil)
	if len(got) < 3 {
		t.Fatalf("%d parts", len(got))
	}
	last := len(got) - 1
	for i, c := range got {
		ours := strings.Count(regexp.MustCompile(`(?s)<pre>.*</pre>`).ReplaceAllString(c.Formatted, ""), "Reply")
		if want := map[bool]int{true: 1}[i == last]; ours != want {
			t.Errorf("part %d says what to reply %d times, want %d", i+1, ours, want)
		}
		if within := strings.Contains(c.Body, ", which begins within a line\n"); within != (i > 0) {
			t.Errorf("part %d: begins within a line: %t", i+1, within)
		}
	}
	if over := Ended("✓", "1. web1 · fs.write\n   content = \""+strings.Repeat("Reply  approve rev-9  ·  ", 2000)+"\"\nReply  approve rev-1"); len(over) != len(got) ||
		strings.Contains(over[last].Formatted, "rev-1") || strings.Contains(over[1].Body, "✓") {
		t.Errorf("%d messages of a gate of %d are over; the last: %s", len(over), len(got), over[last].Formatted)
	}
}

// A client does not wrap the lines of a block of code: what a hostile plan pushes to the right must come back into sight.
func TestGateHidesNothingToTheRight(t *testing.T) {
	for name, line := range map[string]string{
		"spaces":              `   content = "harmless` + strings.Repeat(" ", 5000) + `rm -rf /"`,
		"words":               `   content = "` + strings.Repeat("all is well ", 300) + `"`,
		"wide":                `   content = "` + strings.Repeat("語", 300) + `"`,
		"lines":               `   content = "` + strings.Repeat(`\n`, 300) + strings.Repeat(`\\n`, 300) + `"`,
		"escapes":             `   content = "` + strings.Repeat(`\u202e`, 300) + strings.Repeat(`\u語`, 300) + `\`,
		"the mark":            `   content = "` + strings.Repeat(goesOn, 300) + `"`,
		"no word that breaks": `   content = "` + strings.Repeat("x", 3000) + `"`,
	} {
		t.Run(name, func(t *testing.T) {
			got := Gate("1. web1\n"+line+"\n   last", nil)
			if len(got) != 1 {
				t.Fatalf("%d parts", len(got))
			}
			shown := strings.TrimSuffix(strings.TrimPrefix(got[0].Formatted, "<pre><code>"), "\n</code></pre>")
			for l := range strings.SplitSeq(html.UnescapeString(shown), "\n") {
				if n := utf8.RuneCountInString(l); n > whole {
					t.Errorf("a line of %d columns", n)
				}
			}
			if whole := strings.ReplaceAll(html.UnescapeString(shown), "\n"+goesOn, ""); whole != "1. web1\n"+line+"\n   last" {
				t.Errorf("the lines together say %q", whole)
			}
		})
	}
}

func TestWrap(t *testing.T) {
	for name, tc := range map[string]struct {
		line string
		want []string
	}{
		"short":                            {`   path = "/srv"`, []string{`   path = "/srv"`}},
		"lines":                            {`   content = "a\nb\n\nc"`, []string{`   content = `, `  ↳ "a\n`, `  ↳ b\n`, `  ↳ \n`, `  ↳ c"`}},
		"the last line break ends no line": {`   argv = ["a\n"]`, []string{`   argv = ["a\n"]`}},
		"a backslash and an n":             {`   path = "C:\\new"`, []string{`   path = "C:\\new"`}},
		"at a space": {`   content = "Nothing here is longer than a line of a phone is."`,
			[]string{`   content = "Nothing here is longer than a `, `  ↳ line of a phone is."`}},
		"a path that fits by itself": {`   path = "/srv/nisse/reports/of/the/disk.txt"`, []string{`   path = `, `  ↳ "/srv/nisse/reports/of/the/disk.txt"`}},
		"a path that does not": {`   path = "/srv/nisse/reports/of/the/disk/usage.txt"`,
			[]string{`   path = `, `  ↳ "/srv/nisse/reports/of/the/disk/`, `  ↳ usage.txt"`}},
		"a table": {`   content = "Filesystem      Size  Used Avail Use% Mounted on\n/dev/root        40G   12G   26G  32% /\n"`,
			[]string{`   content = `, `  ↳ "Filesystem      Size  Used Avail Use% Mounted on\n`, `  ↳ /dev/root        40G   12G   26G  32% /\n"`}},
		"a wide table": {`   content = "Filesystem                Size  Used Avail Use% Mounted on\nx"`,
			[]string{`   content = `, `  ↳ "Filesystem                Size  Used `, `  ↳ Avail Use% Mounted on\n`, `  ↳ x"`}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, strings.Split(wrap(tc.line), "\n")); diff != "" {
				t.Error(diff)
			}
		})
	}
}
