package command_test

import (
	"strings"
	"testing"

	"nisse.io/nisse/hosttools/command"
)

func TestTail(t *testing.T) {
	for name, c := range map[string]struct {
		writes []string
		want   string
	}{
		"nothing":             {nil, ""},
		"all of it":           {[]string{"a\n", "b\n"}, "a\nb\n"},
		"the newest":          {[]string{"old", strings.Repeat("x", command.MostTail-1), "y"}, strings.Repeat("x", command.MostTail-1) + "y"},
		"one long write":      {[]string{"old", "old" + strings.Repeat("x", command.MostTail)}, strings.Repeat("x", command.MostTail)},
		"a rune that was cut": {[]string{"é" + strings.Repeat("x", command.MostTail-1)}, strings.Repeat("x", command.MostTail-1)},
		"no text":             {[]string{"a\xffb"}, "a\uFFFDb"},
	} {
		t.Run(name, func(t *testing.T) {
			var tail command.Tail
			for _, w := range c.writes {
				if n, err := tail.Write([]byte(w)); n != len(w) || err != nil {
					t.Fatal(n, err)
				}
			}
			if got := tail.Text(); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
