package main

import (
	"errors"
	"flag"
	"strings"
	"testing"
)

// Who mistypes is told what, and who asks for help is not scolded.
func TestWhatIsNoCommandIsNamed(t *testing.T) {
	for _, c := range []struct {
		args string
		want error
		says string
	}{
		{"bogus", errNoCommand, `there is no command "bogus"`},
		{"bogus --config x extra", errNoCommand, `there is no command "bogus"`},
		{"audit burn", errNoCommand, `there is no command "audit burn"`},
		{"manifest", flag.ErrHelp, ""},
		{"help", flag.ErrHelp, ""},
		{"--help", flag.ErrHelp, ""},
		{"", flag.ErrHelp, ""},
	} {
		if err := run(t.Context(), strings.Fields(c.args)); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v, want %v", c.args, err, c.want)
		}
	}
}
