package sanitize

import "testing"

func TestProse(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"lines":                        {"a\n\tb\r\nc", "a\n\tb\nc"},
		"an override":                  {"photo\u202egpj.exe", `photo\u202egpj.exe`},
		"an isolate":                   {"a\u2066b\u2069", `a\u2066b\u2069`},
		"a mark of direction":          {"a\u200fb", `a\u200fb`},
		"a zero-width space":           {"app\u200brove", `app\u200brove`},
		"a joiner in Latin":            {"app\u200drove", `app\u200drove`},
		"a joiner at the end":          {"👩\u200d", `👩\u200d`},
		"a terminal's escape":          {"\x1b[31mred", `\u001b[31mred`},
		"a lone carriage return":       {"good\rbad", `good\u000dbad`},
		"tags":                         {"x\U000e0061", `x\U000e0061`},
		"a selector behind a letter":   {"a\ufe0f", `a\ufe0f`},
		"two selectors":                {"✔\ufe0f\ufe0f", "✔\ufe0f" + `\ufe0f`},
		"no UTF-8":                     {"a\xffb", "a\ufffdb"},
		"a no-break space":             {"5\u00a0%", "5 %"},
		"Hebrew and Arabic":            {"שלום مساحة", "שלום مساحة"},
		"a Persian word":               {"می\u200cخواهم", "می\u200cخواهم"},
		"a Hindi conjunct":             {"क्\u200dष", "क्\u200dष"},
		"a family":                     {"👩\u200d👩\u200d👧", "👩\u200d👩\u200d👧"},
		"an astronaut of some colour":  {"👩🏽\u200d🚀", "👩🏽\u200d🚀"},
		"a rainbow flag":               {"🏳\ufe0f\u200d🌈", "🏳\ufe0f\u200d🌈"},
		"a tick as a picture":          {"✔\ufe0f done", "✔\ufe0f done"},
		"a keycap":                     {"1\ufe0f\u20e3", "1\ufe0f\u20e3"},
		"a heart between two, written": {"👩\u200d❤\ufe0f\u200d👨", "👩\u200d❤\ufe0f\u200d👨"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Prose(tc.in); got != tc.want {
				t.Errorf("got %+q, want %+q", got, tc.want)
			}
			if again := Prose(tc.want); again != tc.want {
				t.Errorf("what was made harmless becomes %+q", again)
			}
		})
	}
}

func TestMarkup(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"our own":            {"<p>a &lt;b&gt; &#39;c&#39; &#34;</p>\n", "<p>a &lt;b&gt; &#39;c&#39; &#34;</p>\n"},
		"an override":        {"<p>a\u202eb</p>", `<p>a\u202eb</p>`},
		"as a reference":     {"<p>a&#x202e;b&#8238;</p>", "<p>a&amp;#x202e;b&amp;#8238;</p>"},
		"beyond Unicode":     {"&#x7fffffff;&#9999999999;", "&amp;#x7fffffff;&amp;#9999999999;"},
		"a control":          {"&#27;", "&amp;#27;"},
		"shown as it is":     {"&amp;#x202e;", "&amp;#x202e;"},
		"a letter, referred": {"&#x5d0;", "&#x5d0;"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Markup(tc.in); got != tc.want {
				t.Errorf("got %+q, want %+q", got, tc.want)
			}
		})
	}
}
