package render

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"nisse.io/nisse/internal/sanitize"
)

func TestNotice(t *testing.T) {
	got := Notice("a <b> & \"c\"\nanswer `approve rev-1`")
	want := Content{
		Type: "m.notice", Body: "a <b> & \"c\"\nanswer `approve rev-1`", Format: "org.matrix.custom.html",
		Formatted: "a &lt;b&gt; &amp; &#34;c&#34;<br>answer <code>approve rev-1</code>",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := string(Notice("x").JSON()); !strings.Contains(got, `"m.mentions":{}`) {
		t.Errorf("says nothing of mentions, so a client may guess: %s", got)
	}
}

func TestMarkdown(t *testing.T) {
	for name, tc := range map[string]struct{ text, html string }{
		"emphasis":        {"a **b**", "a <strong>b</strong>"},
		"HTML is text":    {"<script>x</script> <b>y</b>", ""},
		"image":           {"![x](https://example.org/x.png)", ""},
		"code":            {"```\n<a>\n```", "<pre><code>&lt;a&gt;\n</code></pre>"},
		"plain":           {"nothing special", ""},
		"right to left":   {"**שלום** 👩\u200d🚀", "<strong>שלום</strong> 👩\u200d🚀"},
		"mention by pill": {"[lucas](https://matrix.to/#/@lucas:example.org)", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := Markdown(tc.text)
			if len(got) != 1 || got[0].Body != tc.text || len(got[0].Mentions.UserIDs) != 0 {
				t.Fatalf("%+v", got)
			}
			if tc.html != "" && strings.TrimSpace(got[0].Formatted) != tc.html {
				t.Errorf("HTML %q, want %q", got[0].Formatted, tc.html)
			}
			for _, live := range []string{"<script", "<b>"} {
				if strings.Contains(got[0].Formatted, live) {
					t.Errorf("%s in %q", live, got[0].Formatted)
				}
			}
		})
	}
}

// What an agent says shows what it holds: nothing is turned around or hidden, however it was written.
func TestMarkdownHidesNothing(t *testing.T) {
	got := Markdown("run **photo\u202egpj.exe** &#x202e;now\u200b\x1b[2K &rlm;end")
	if len(got) != 1 || got[0].Body != `run **photo\u202egpj.exe** &#x202e;now\u200b\u001b[2K &rlm;end` {
		t.Errorf("%+q", got)
	}
	for _, r := range got[0].Formatted {
		if r != '\n' && sanitize.Hidden(r) {
			t.Errorf("%U in %+q", r, got[0].Formatted)
		}
	}
	if ref := "&#x202e;"; strings.Contains(got[0].Formatted, ref) || !strings.Contains(got[0].Formatted, `<strong>photo\u202egpj.exe</strong>`) {
		t.Errorf("%+q", got[0].Formatted)
	}
}

// Whatever the text: every part fits, and all of it is there, in order.
func FuzzSplit(f *testing.F) {
	f.Add("a\nb", 1)
	f.Add("ä", 40000)
	f.Add("<&>\"\n", 20000)
	f.Add("```\nx\n", 9000)
	f.Add("\x01", 30000)
	f.Fuzz(func(t *testing.T, unit string, times int) {
		if !utf8.ValidString(unit) || times < 0 || len(unit) == 0 || times > 200000/len(unit) {
			return // not what a room can hold
		}
		text := strings.Repeat(unit, times)
		var whole strings.Builder
		for _, c := range Gate(text, nil) {
			if n := size(c.Body) + size(c.Formatted); n > Budget {
				t.Fatalf("a part of %d bytes", n)
			}
			body := c.Body
			if first, rest, ok := strings.Cut(body, "\n"); ok && strings.HasPrefix(first, "Part ") {
				body = rest
			}
			whole.WriteString(body)
		}
		flat := strings.NewReplacer("\n", "")
		if flat.Replace(whole.String()) != flat.Replace(text) {
			t.Fatal("something is lost")
		}
		for _, c := range Markdown(text) {
			var back Content
			if n := size(c.Body) + size(c.Formatted); n > Budget {
				t.Fatalf("a part of %d bytes", n)
			}
			if err := json.Unmarshal(c.JSON(), &back); err != nil {
				t.Fatal(err)
			}
		}
	})
}
