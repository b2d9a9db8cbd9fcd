package clipboard

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"nisse.io/nisse/hosttools/command"
	"nisse.io/nisse/hosttools/desktoptest"
	"nisse.io/nisse/hosttools/display"
	"nisse.io/nisse/hosttools/program"
)

func as(env []string) command.Command {
	return command.Command{Timeout: time.Minute, Keep: 1 << 20, Env: env}
}

func TestClipboard(t *testing.T) {
	for name, start := range map[string]func(testing.TB) ([]string, bool){"X11": desktoptest.X11, "Wayland": desktoptest.Wayland} {
		t.Run(name, func(t *testing.T) {
			env, ok := start(t)
			if !ok {
				env = map[string][]string{"X11": {"DISPLAY=:1"}, "Wayland": {"WAYLAND_DISPLAY=wayland-1", "XDG_RUNTIME_DIR=/nowhere"}}[name]
			}
			s, err := display.Of(env)
			if err != nil || string(s) != name {
				t.Fatal(s, err)
			}
			found := 0
			for _, one := range tools[s] {
				_, rerr := program.Find(one.read[0])
				_, oerr := program.Find(one.own[0])
				if rerr != nil || oerr != nil {
					continue
				}
				found++
				if ok {
					t.Run(one.read[0], func(t *testing.T) { works(t, s, one, env) })
				}
			}
			var f *program.Failure
			_, perr := Probe(env)
			_, rerr := Read(t.Context(), as(env))
			switch {
			case found == 0:
				if werr := Write(t.Context(), as(env), []byte("x")); !errors.Is(perr, program.ErrMissing) || !errors.Is(rerr, program.ErrMissing) || !errors.Is(werr, program.ErrMissing) {
					t.Errorf("a machine without the programs: %v, %v, %v", perr, rerr, werr)
				}
			case !ok:
				if werr := Write(t.Context(), as(env), []byte("x")); perr != nil || !errors.As(rerr, &f) || !errors.As(werr, &f) {
					t.Errorf("a display that nobody serves: %v, %v, %v", perr, rerr, werr)
				}
			case perr != nil || rerr != nil:
				t.Error(perr, rerr)
			}
		})
	}
}

// works: what is written is read, by this very tool, again and again.
func works(t *testing.T, s display.Session, one tool, env []string) {
	all := tools[s]
	tools[s] = []tool{one}
	t.Cleanup(func() { tools[s] = all })
	for _, text := range []string{"plain", "--help", "two\nlines\n", " Grüße 日本語 ", strings.Repeat("0123456789abcdef", 8192)} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := Write(ctx, as(env), []byte(text)); err != nil {
			t.Fatalf("%.20q: %v", text, err)
		}
		for range 2 {
			out, err := Read(ctx, as(env))
			if err != nil || string(out.Bytes()) != text {
				t.Fatalf("%.20q came back as %.40q, %v", text, out.Text(), err)
			}
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Write(ended, as(env), []byte("too late")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestNoDisplay(t *testing.T) {
	if _, err := Read(t.Context(), as(nil)); !errors.Is(err, program.ErrMissing) {
		t.Errorf("got %v", err)
	}
	if err := Write(t.Context(), as(nil), []byte("x")); !errors.Is(err, program.ErrMissing) {
		t.Errorf("got %v", err)
	}
}
