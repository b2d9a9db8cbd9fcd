package clipboard

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"nisse.io/nisse/hosttools/command"
	"nisse.io/nisse/hosttools/desktoptest"
	"nisse.io/nisse/hosttools/display"
	"nisse.io/nisse/hosttools/program"
	"nisse.io/nisse/internal/testrig"
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
			var f *program.Failure
			_, perr := Probe(env)
			_, rerr := Read(t.Context(), as(env))
			switch {
			case errors.Is(perr, program.ErrMissing):
				if werr := Write(t.Context(), as(env), []byte("x")); !errors.Is(rerr, program.ErrMissing) || !errors.Is(werr, program.ErrMissing) {
					t.Errorf("a machine without the programs: %v, %v, %v", perr, rerr, werr)
				}
			case !ok:
				if werr := Write(t.Context(), as(env), []byte("x")); perr != nil || !errors.As(rerr, &f) || !errors.As(werr, &f) {
					t.Errorf("a display that nobody serves: %v, %v, %v", perr, rerr, werr)
				}
			default:
				works(t, env)
			}
		})
	}
}

// works: what is written is read, again and again.
func works(t *testing.T, env []string) {
	t.Helper()
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
	out, err := Read(t.Context(), as(env))
	if err != nil || !strings.HasPrefix(out.Text(), "0123456789abcdef") {
		t.Errorf("what came too late left %.40q, %v", out.Text(), err)
	}
}

// An owner that does not answer holds up neither who takes its place nor who reads then.
func TestOwnerThatHangs(t *testing.T) {
	env, ok := desktoptest.X11(t)
	file, err := program.Find("xclip")
	if !ok || err != nil {
		if _, err := Read(t.Context(), as(env)); err == nil {
			t.Error("a machine without the programs reads a clipboard")
		}
		return
	}
	for range 2 {
		owner := exec.Command(file, "-quiet", "-selection", "clipboard", "-in")
		owner.Env, owner.Stdin = env, strings.NewReader("slow")
		if err := owner.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = owner.Process.Kill(); _ = owner.Wait() })
		testrig.Until(t, "the clipboard to be owned", func() bool {
			out, err := Read(t.Context(), as(env))
			return err == nil && out.Text() == "slow"
		})
		if err := owner.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		begin, read := time.Now(), make(chan error, 1)
		go func() {
			out, err := Read(t.Context(), as(env))
			if err == nil && out.Text() != "quick" {
				err = fmt.Errorf("read %q", out.Text())
			}
			read <- err
		}()
		if err := errors.Join(Write(t.Context(), as(env), []byte("quick")), <-read); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took > as(env).Timeout { // one that waits for the owner ends by its timeout alone
			t.Errorf("it took %s", took)
		}
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
