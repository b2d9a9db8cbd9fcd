package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"nisse.io/nisse/hosttools/proc"
	"nisse.io/nisse/hosttools/program"
	"nisse.io/nisse/internal/testrig"
)

// engine of the test's own, with one container called web. Where Docker is not installed, or may not be started, there is none.
func engine(t *testing.T) (e Engine, id string, ok bool) {
	t.Helper()
	none := func(format string, args ...any) (Engine, string, bool) {
		t.Helper()
		t.Logf("no Engine of the test's own runs here; the fake one is all: "+format, args...)
		return Engine{}, "", false
	}
	file, err := program.Find("dockerd")
	if err != nil || os.Geteuid() != 0 {
		return none("%v, user %d", err, os.Geteuid())
	}
	d, err := os.MkdirTemp("", "nisse-docker") // short, for sockets' names are
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(d, "docker.sock")
	var log bytes.Buffer
	c := exec.Command(file, "--data-root", filepath.Join(d, "data"), "--exec-root", filepath.Join(d, "exec"), "--pidfile", filepath.Join(d, "pid"), "--host", "unix://"+socket,
		"--iptables=false", "--ip6tables=false", "--bridge=none", "--storage-driver=vfs")
	c.Stdout, c.Stderr = &log, &log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = c.Wait() }()
	env := []string{"DOCKER_HOST=unix://" + socket}
	t.Cleanup(func() {
		if e.client != nil {
			_ = e.ask(context.Background(), http.MethodDelete, "/containers/web?force=true", nil, new(any))
		}
		_ = c.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(time.Minute):
			_ = c.Process.Kill()
			<-ended
		}
		_ = syscall.Unmount(filepath.Join(d, "data"), syscall.MNT_DETACH) // which one that could not begin leaves behind
		if err := os.RemoveAll(d); err != nil && ok {
			t.Error(err)
		}
	})
	app := built(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, err := Probe(ctx, env); err != nil; _, err = Probe(ctx, env) {
		select {
		case <-ended:
			return none("%v: %s", c.ProcessState, &log)
		case <-ctx.Done():
			return none("not within a minute: %v", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
	if e, err = Open(env); err != nil {
		t.Fatal(err)
	}
	if id, err = serve(ctx, e, app); err != nil {
		return none("it answers and starts no container: %v", err)
	}
	return e, id, true
}

// serve starts the container. An Engine in a container, or on a machine whose control groups it may not write, refuses that.
func serve(ctx context.Context, e Engine, app []byte) (id string, err error) {
	if err := load(ctx, e, app); err != nil {
		return "", err
	}
	var made struct {
		ID string `json:"Id"`
	}
	order := map[string]any{"Image": "nisse-test:1", "Cmd": []string{"/app", "serve"}, "HostConfig": map[string]any{"NetworkMode": "none"}}
	if err := e.ask(ctx, http.MethodPost, "/containers/create?name=web", order, &made); err != nil {
		return "", err
	}
	r, err := e.do(ctx, http.MethodPost, "/containers/web/start", nil)
	if err != nil {
		return "", err
	}
	return made.ID, r.Body.Close()
}

// built is the one program of the image, testdata/app.
func built(t *testing.T) []byte {
	t.Helper()
	app := filepath.Join(t.TempDir(), "app")
	build := exec.Command("go", "build", "-o", app, "./testdata/app")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b, err := os.ReadFile(app)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// load the image of a program.
func load(ctx context.Context, e Engine, b []byte) error {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	err := errors.Join(w.WriteHeader(&tar.Header{Name: "app", Mode: 0o755, Size: int64(len(b))}), func() error { _, err := w.Write(b); return err }(), w.Close())
	if err != nil {
		return err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://docker/images/create?fromSrc=-&repo=nisse-test&tag=1", &archive)
	if err != nil {
		return err
	}
	r, err := e.client.Do(q)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	said, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", r.Status, said)
	}
	return err
}

func TestRealEngine(t *testing.T) {
	e, id, ok := engine(t)
	if !ok {
		return
	}
	t.Run("list", func(t *testing.T) {
		got, err := e.Containers(t.Context())
		if err != nil || len(got) != 1 || got[0].Created == 0 {
			t.Fatalf("%+v, %v", got, err)
		}
		got[0].Created, got[0].Status = 0, ""
		if d := cmp.Diff([]Container{{ID: id, Name: "web", Image: "nisse-test:1", State: "running"}}, got); d != "" {
			t.Error(d)
		}
	})
	t.Run("logs", func(t *testing.T) {
		testrig.Until(t, "the container's words", func() bool {
			out, errs, err := e.Logs(t.Context(), "web", 10, 1000)
			return err == nil && out.Text() == "serving\n" && errs.Text() == "with a warning\n"
		})
	})
	t.Run("exec", func(t *testing.T) {
		ran, err := e.Exec(t.Context(), "web", id, []string{"/app", "say", "$HOME `id`", "--privileged", ""}, 1000)
		if err != nil || ran.ExitCode != 3 || ran.Stdout.Text() != "$HOME `id`|--privileged|" || ran.Stderr.Text() != "0" || ran.Container != id {
			t.Errorf("%+v, %v", ran, err)
		}
	})
	t.Run("long output keeps head and tail", func(t *testing.T) {
		ran, err := e.Exec(t.Context(), "web", "", []string{"/app", "flood"}, 300)
		text := ran.Stdout.Text()
		if err != nil || ran.Stdout.Total != 1300000 || !strings.HasPrefix(text, "line 0000000\n") || !strings.HasSuffix(text, "line 0099999\n") {
			t.Errorf("%d bytes, %q, %v", ran.Stdout.Total, text, err)
		}
	})
	t.Run("no such program", func(t *testing.T) {
		if ran, err := e.Exec(t.Context(), "web", "", []string{"/nowhere"}, 1000); err == nil && ran.ExitCode == 0 {
			t.Errorf("%+v, %v", ran, err)
		}
	})
	t.Run("names are no IDs", func(t *testing.T) {
		for _, name := range []string{id, id[:12], "wEb", "we"} {
			if _, err := e.Exec(t.Context(), name, "", []string{"/app", "say"}, 1000); !errors.Is(err, program.ErrRefused) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	t.Run("what takes too long is killed", func(t *testing.T) {
		e, ctx := overdueAfter(t, e, frame(1, "hanging\n")) // which is when it has a child
		ran, err := e.Exec(ctx, "web", "", []string{"/app", "hang"}, 1000)
		if err != nil || !ran.TimedOut || ran.Left || !strings.HasPrefix(ran.Stdout.Text(), "hanging\n") {
			t.Errorf("%+v, %v", ran, err)
		}
		testrig.Until(t, "the end of what hung", func() bool { return hanging(t) == 0 })
		if out, _, err := e.Logs(t.Context(), "web", 10, 1000); err != nil || out.Text() != "serving\n" {
			t.Errorf("the container itself: %q, %v", out.Text(), err)
		}
	})
	t.Run("one that stopped", func(t *testing.T) {
		r, err := e.do(t.Context(), http.MethodPost, "/containers/web/kill", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		testrig.Until(t, "the end of the container", func() bool {
			got, err := e.Containers(t.Context())
			return err == nil && got[0].State == "exited"
		})
		if _, err := e.Exec(t.Context(), "web", "", []string{"/app", "say"}, 1000); !errors.Is(err, program.ErrRefused) {
			t.Errorf("got %v", err)
		}
	})
}

// hanging processes in the container.
func hanging(t *testing.T) int {
	t.Helper()
	all, err := proc.List()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, p := range all {
		if len(p.Argv) > 1 && p.Argv[0] == "/app" && p.Argv[1] == "hang" && p.State != "Z" {
			n++
		}
	}
	return n
}

// A process of this machine is no container's, whatever number the Engine says.
func TestKillTreeSparesOthers(t *testing.T) {
	c := exec.Command("/bin/sleep", "1000")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	killTree(idA, c.Process.Pid)
	killTree(idA, 1)
	killTree(idA, 0)
	if p, err := proc.Look(c.Process.Pid); err != nil || p.State == "Z" {
		t.Errorf("%+v, %v", p, err)
	}
}
