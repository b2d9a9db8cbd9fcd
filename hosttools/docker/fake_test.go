package docker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"nisse.io/nisse/hosttools/command"
	"nisse.io/nisse/hosttools/program"
)

const (
	idA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	idB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

// fake Engine that answers as it is told, for what no real one says: faults, and containers that are exchanged between two calls.
func fake(t *testing.T, answers map[string]string) Engine {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "docker.sock")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, ok := answers[r.Method+" "+r.URL.Path]
		if !ok {
			t.Errorf("nobody expected %s %s", r.Method, r.URL)
			w.WriteHeader(http.StatusNotFound)
			return
		}
		status := http.StatusOK
		if n, err := fmt.Sscanf(a, "%d ", &status); n == 1 && err == nil {
			_, a, _ = strings.Cut(a, " ")
		}
		a, hangs := strings.CutSuffix(a, "…")
		a, breaks := strings.CutSuffix(a, "✂")
		if breaks {
			w.Header().Set("Content-Length", "1000000")
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, a)
		if hangs {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	e, err := Open([]string{"DOCKER_HOST=unix://" + socket})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// overdue is a context whose time is up when it is cancelled, so that a test needs no clock.
type overdue struct{ context.Context }

func (o overdue) Err() error {
	if o.Context.Err() != nil {
		return context.DeadlineExceeded
	}
	return nil
}

// overdueAfter gives a context whose time is up as soon as the engine's command has said this much and what it said was taken.
func overdueAfter(t *testing.T, e Engine, said string) (Engine, context.Context) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	client, inner := *e.client, e.client.Transport
	client.Transport = transport(func(q *http.Request) (*http.Response, error) {
		r, err := inner.RoundTrip(q)
		if err == nil && strings.HasPrefix(q.URL.Path, "/exec/") && strings.HasSuffix(q.URL.Path, "/start") {
			r.Body = &until{ReadCloser: r.Body, left: len(said), then: cancel}
		}
		return r, err
	})
	e.client = &client
	return e, overdue{ctx}
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(q *http.Request) (*http.Response, error) { return f(q) }

// until so many bytes were read and somebody wants more.
type until struct {
	io.ReadCloser
	left int
	then func()
}

func (u *until) Read(b []byte) (int, error) {
	if u.left <= 0 {
		u.then()
	}
	n, err := u.ReadCloser.Read(b)
	u.left -= n
	return n, err
}

func frame(stream byte, text string) string {
	head := make([]byte, 8)
	head[0] = stream
	binary.BigEndian.PutUint32(head[4:], uint32(len(text)))
	return string(head) + text
}

func container(id, name string, running bool) string {
	return fmt.Sprintf(`{"Id":%q,"Name":"/%s","Config":{"Tty":false},"State":{"Running":%t}}`, id, name, running)
}

func TestContainers(t *testing.T) {
	e := fake(t, map[string]string{"GET /containers/json": `[{"Id":"` + idA + `","Names":["/other/alias","/web"],"Image":"nginx:1","State":"running","Status":"Up 2 hours","Created":7,"Labels":{"x":"y"}},
		{"Id":"` + idB + `","Names":[],"Image":"x"}]`})
	got, err := e.Containers(t.Context())
	if d := cmp.Diff([]Container{{ID: idA, Name: "web", Image: "nginx:1", State: "running", Status: "Up 2 hours", Created: 7}}, got); d != "" || err != nil {
		t.Error(err, d)
	}
}

func TestExec(t *testing.T) {
	good := map[string]string{
		"GET /containers/web/json":          container(idA, "web", true),
		"POST /containers/" + idA + "/exec": "201 " + `{"Id":"` + idB + `"}`,
		"POST /exec/" + idB + "/start":      frame(1, "out") + frame(2, "err") + frame(1, ""),
		"GET /exec/" + idB + "/json":        `{"Running":false,"ExitCode":3,"Pid":0}`,
		"GET /containers/" + idA + "/logs":  frame(1, "line\n") + frame(2, "oops\n"),
		"GET /containers/aaaaaaaaaaaa/json": container(idA, "web", true),
		"GET /containers/stopped/json":      container(idA, "stopped", false),
		"GET /containers/gone/json":         "404 " + `{"message":"No such container: gone"}`,
		"GET /containers/broken/json":       "500 " + `{"message":"a\nb"}`,
		"GET /containers/strange/json":      "<html>",
		"GET /containers/short/json":        `{"Id":"abc","Name":"/short","State":{"Running":true}}`,
		"GET /containers/paused/json":       container(idB, "paused", true),
		"POST /containers/" + idB + "/exec": "409 " + `{"message":"Container paused is paused, unpause the container before exec"}`,
		"GET /containers/" + idB + "/logs":  "\x07\x00\x00\x00\x00\x00\x00\x01x",
		"GET /containers/cut/json":          container(idB, "cut", true),
	}
	e := fake(t, good)
	ran, err := e.Exec(t.Context(), "web", "", []string{"/bin/x"}, 100)
	if err != nil || ran.Container != idA || ran.ExitCode != 3 || ran.Stdout.Text() != "out" || ran.Stderr.Text() != "err" {
		t.Errorf("%+v, %v", ran, err)
	}
	if _, err := e.Exec(t.Context(), "web", idA, []string{"/bin/x"}, 100); err != nil {
		t.Error(err)
	}
	out, errs, err := e.Logs(t.Context(), "web", 10, 100)
	if err != nil || out.Text() != "line\n" || errs.Text() != "oops\n" {
		t.Errorf("%q, %q, %v", out.Text(), errs.Text(), err)
	}
	for _, c := range []struct {
		name, container, id string
		refused             bool
		says                string
	}{
		{"an ID for a name", "aaaaaaaaaaaa", "", true, "no container is called"},
		{"another container of that name", "web", idB, true, "another one by now"},
		{"does not run", "stopped", "", true, "does not run"},
		{"is not there", "gone", "", true, "No such container"},
		{"is paused", "paused", "", true, "unpause"},
		{"the Engine fails", "broken", "", false, `a`},
		{"the Engine says something else", "strange", "", false, "not understood"},
		{"the Engine names half an ID", "short", "", true, "no container is called"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := e.Exec(t.Context(), c.container, c.id, []string{"/bin/x"}, 100)
			if err == nil || errors.Is(err, program.ErrRefused) != c.refused || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v", err)
			}
		})
	}
	if _, _, err := e.Logs(t.Context(), "cut", 10, 100); err == nil || !strings.Contains(err.Error(), "stream 7") {
		t.Errorf("a frame of no stream: %v", err)
	}
}

// A command that outlives its time, on an Engine whose processes this machine does not show: nobody is told that it ended.
func TestExecThatIsLeft(t *testing.T) {
	e := fake(t, map[string]string{
		"GET /containers/web/json":          container(idA, "web", true),
		"POST /containers/" + idA + "/exec": `{"Id":"` + idB + `"}`,
		"POST /exec/" + idB + "/start":      frame(1, "out") + "…",
		"GET /exec/" + idB + "/json":        `{"Running":true,"Pid":0}`,
	})
	e, ctx := overdueAfter(t, e, frame(1, "out"))
	ran, err := e.Exec(ctx, "web", "", []string{"/bin/x"}, 100)
	if !errors.Is(err, command.ErrUnproven) || !ran.TimedOut || !ran.Left || ran.Stdout.Text() != "out" {
		t.Errorf("%+v, %v", ran, err)
	}
}

// After its start was asked for, only the Engine knows whether a command ran: where it does not say, nobody is told that it failed.
func TestExecThatNobodyHeard(t *testing.T) {
	for _, c := range []struct {
		name, start, state string
		unproven           bool
		exit               int
		says               string
	}{
		{"the connection broke, and it ended", frame(1, "out") + "✂", `{"Running":false,"ExitCode":0}`, false, 0, ""},
		{"the connection broke, and it ended badly", frame(1, "out") + "✂", `{"Running":false,"ExitCode":4}`, false, 4, ""},
		{"the connection broke, and it runs", frame(1, "out") + "✂", `{"Running":true,"Pid":0}`, true, 0, "may still run"},
		{"the connection broke, and it has not begun", "✂", `{"Running":false,"ExitCode":null}`, true, 0, "may still run"},
		{"the connection broke, and the Engine says nothing", frame(1, "out") + "✂", "500 {}", true, 0, "status 500"},
		{"it closed its output and runs on", frame(1, "out"), `{"Running":true,"Pid":0}`, true, 0, "runs on"},
		{"nobody says how it ended", frame(1, "out"), "<html>", true, 0, "not understood"},
		{"the Engine did not start it", "400 " + `{"message":"no such file"}`, `{"Running":false,"ExitCode":null}`, false, 0, "no such file"},
		{"the Engine says that it did not start it, and it runs", "500 " + `{"message":"oops"}`, `{"Running":true,"Pid":0}`, true, 0, "oops"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := fake(t, map[string]string{
				"GET /containers/web/json":          container(idA, "web", true),
				"POST /containers/" + idA + "/exec": `{"Id":"` + idB + `"}`,
				"POST /exec/" + idB + "/start":      c.start,
				"GET /exec/" + idB + "/json":        c.state,
			})
			ran, err := e.Exec(t.Context(), "web", "", []string{"/bin/x"}, 100)
			if errors.Is(err, command.ErrUnproven) != c.unproven || ran.ExitCode != c.exit || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%+v, %v", ran, err)
			}
			if cut := strings.HasSuffix(c.start, "✂"); err == nil && (ran.Cut != nil) != cut {
				t.Errorf("its output was cut: %v, and it says %v", cut, ran.Cut)
			}
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, host := range []string{"tcp://127.0.0.1:2375", "ssh://host", "unix://relative", "unix:///nowhere/docker.sock", "unix:///etc/passwd"} {
		if _, err := Open([]string{"DOCKER_HOST=" + host}); !errors.Is(err, program.ErrMissing) {
			t.Errorf("%s: %v", host, err)
		}
	}
	if _, err := Probe(t.Context(), []string{"DOCKER_HOST=unix:///nowhere"}); !errors.Is(err, program.ErrMissing) {
		t.Errorf("got %v", err)
	}
}
