package program

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"nisse.io/nisse/hosttools/command"
)

func TestFind(t *testing.T) {
	if file, err := Find("there-is-no-such-program", "true"); err != nil || !strings.HasSuffix(file, "/true") {
		t.Errorf("%s, %v", file, err)
	}
	if _, err := Find("there-is-no-such-program", "nor-this"); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "no there-is-no-such-program and no nor-this") {
		t.Errorf("got %v", err)
	}
}

func TestRun(t *testing.T) {
	for _, c := range []struct {
		name    string
		argv    []string
		timeout time.Duration
		want    string // end of the error; empty: none
	}{
		{"success", []string{"true"}, time.Minute, ""},
		{"no words", []string{"false"}, time.Minute, "false exited with code 1"},
		{"words", []string{"cat", "/nowhere/at/all"}, time.Minute, "No such file or directory"},
		{"too long", []string{"sleep", "100"}, 10 * time.Millisecond, "sleep was killed for the time it took"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file, err := Find(c.argv[0])
			if err != nil {
				t.Fatal(err)
			}
			_, err = Run(t.Context(), command.Command{Argv: append([]string{file}, c.argv[1:]...), Timeout: c.timeout, Keep: 1000})
			var f *Failure
			if (c.want == "") != (err == nil) || err != nil && (!errors.As(err, &f) || !strings.HasSuffix(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ended, command.Command{Argv: []string{"/nowhere"}}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestEnv(t *testing.T) {
	got := Env([]string{"A=1", "B=2", "A=3"}, "B=4", "C=", "AB=5")
	if d := cmp.Diff([]string{"A=3", "B=4", "C=", "AB=5"}, got); d != "" {
		t.Error(d)
	}
	if Variable(got, "B") != "4" || Variable(got, "D") != "" {
		t.Error(got)
	}
	if d := cmp.Diff(command.Environment, Env(nil)); d != "" {
		t.Error(d)
	}
}
