package dispatch

import (
	"strings"
	"testing"
)

func TestNewest(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"nothing":            {"", ""},
		"blank lines":        {"\n \r\n", ""},
		"the last line":      {"one\ntwo\n", "two"},
		"one under way":      {"one\ntwo", "two"},
		"a bar":              {"fetch\n10 %\r20 %\r", "20 %"},
		"blank after it":     {"one\n\n  \n", "one"},
		"what nobody sees":   {"a\u202eb\x1b[1m", `a\u202eb\u001b[1m`},
		"longer than a line": {strings.Repeat("x", 300), strings.Repeat("x", maxLine) + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := newest(c.text); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
