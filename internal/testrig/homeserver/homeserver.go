// Package homeserver gives tests a real Matrix homeserver of their own: Synapse, or Dendrite where the environment
// variable NISSE_TEST_HOMESERVER says so. It listens on loopback, on a port the system chose, keeps its state in a
// directory of the test, and is gone with the test. What it runs, and how, is hack/homeserver, the same as in the demo.
package homeserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"maunium.net/go/mautrix/id"

	"nisse.io/nisse/internal/testrig/person"
	"nisse.io/nisse/internal/testrig/port"
)

const (
	installTimeout = 10 * time.Minute // a cold cache on a slow network
	readyTimeout   = 90 * time.Second
	stopTimeout    = 20 * time.Second
)

// Options of a server; the zero value is what most tests want.
type Options struct {
	ServerName string // default "test.local"
	// TightRateLimits lets a user send about three messages in a row and then one a second; the next is answered 429.
	// So are joins and invitations. Dendrite limits these and other requests in the same way, but never messages.
	TightRateLimits bool
}

// Server is a running homeserver, or one that was stopped and may be restarted.
type Server struct {
	BaseURL    string // stays the same across restarts
	ServerName string
	Dir        string // the server's state and logs
	// Implementation is "synapse" or "dendrite", for what differs between them.
	Implementation string

	options Options
	port    *port.Kept
	process *process
}

// Start installs the homeserver if this machine has none yet, starts one, and waits until it answers. The test's end
// stops it.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	s, err := start(t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.end((*os.Process).Kill); err != nil {
			t.Error(err)
		}
		if err := s.port.Release(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the end of the homeserver's log:\n%s", s.logTail())
		}
	})
	return s
}

// Stop ends the server in good order. Until Restart, connections are refused.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	if err := s.end(terminate); err != nil {
		t.Fatal(err)
	}
}

// Kill ends the server as a power cut would.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	if err := s.end((*os.Process).Kill); err != nil {
		t.Fatal(err)
	}
}

// Restart starts the server on the state it has and at the address it had, after stopping it if it runs.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	if err := s.end(terminate); err != nil {
		t.Fatal(err)
	}
	if err := s.run(); err != nil {
		t.Fatal(err)
	}
}

// RegisterUser makes an account. One that exists already is left as it is.
func (s *Server) RegisterUser(t testing.TB, name, password string, admin bool) id.UserID {
	t.Helper()
	secret, err := s.registrationSecret()
	if err != nil {
		t.Fatal(err)
	}
	account := person.Account{Homeserver: s.BaseURL, Name: name, Password: password}
	if err := person.Register(t.Context(), account, secret, admin); err != nil {
		t.Fatal(err)
	}
	return id.NewUserID(name, s.ServerName)
}

// Login opens a session for an account; its Client method gives the mautrix client.
func (s *Server) Login(t testing.TB, name, password string) *person.Person {
	t.Helper()
	p, err := person.Login(t.Context(), person.Account{Homeserver: s.BaseURL, Name: name, Password: password})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func start(dir string, o Options) (*Server, error) {
	if o.ServerName == "" {
		o.ServerName = "test.local"
	}
	scripts, err := scripts()
	if err != nil {
		return nil, err
	}
	impl, err := install(scripts)
	if err != nil {
		return nil, err
	}
	s := &Server{ServerName: o.ServerName, Dir: dir, Implementation: impl, options: o}
	if s.port, err = port.Keep(); err != nil {
		return nil, err
	}
	s.BaseURL = "http://127.0.0.1:" + strconv.Itoa(s.port.Number)
	return s, s.run()
}

// run starts the process and returns when the server answers.
func (s *Server) run() error {
	scripts, err := scripts()
	if err != nil {
		return err
	}
	limits := "generous"
	if s.options.TightRateLimits {
		limits = "tight"
	}
	s.process, err = spawn(filepath.Join(s.Dir, "homeserver.out"), filepath.Join(scripts, "run.sh"),
		"--impl", s.Implementation, "--dir", s.Dir, "--listen", "127.0.0.1", "--port", strconv.Itoa(s.port.Number),
		"--server-name", s.ServerName, "--rate-limits", limits)
	if err != nil {
		return fmt.Errorf("start the homeserver: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	if err := s.ready(ctx); err != nil {
		// What is said about the end of a server that never answered is less than what its log says.
		_ = s.end((*os.Process).Kill)
		return fmt.Errorf("%w; the end of its log:\n%s", err, s.logTail())
	}
	return nil
}

func (s *Server) ready(ctx context.Context) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-s.process.done:
			return fmt.Errorf("the homeserver stopped while starting: %w", s.process.err)
		case <-ctx.Done():
			return fmt.Errorf("the homeserver does not answer at %s: %w", s.BaseURL, ctx.Err())
		case <-tick.C:
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.BaseURL+"/_matrix/client/versions", nil)
			if err != nil {
				return fmt.Errorf("ask the homeserver for its versions: %w", err)
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil { // not listening yet
				continue
			}
			_ = res.Body.Close() // nothing of it was read
			if res.StatusCode == http.StatusOK {
				return nil
			}
		}
	}
}

// end sends the signal that how sends and waits for the process; it is no error if it is gone already.
func (s *Server) end(how func(*os.Process) error) error {
	if s.process == nil {
		return nil
	}
	if err := how(s.process.os); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop the homeserver: %w", err)
	}
	select {
	case <-s.process.done:
	case <-time.After(stopTimeout):
		_ = s.process.os.Kill() // whatever it answers, the next line waits for the end
		<-s.process.done
	}
	s.process = nil
	return nil
}

func (s *Server) registrationSecret() (string, error) {
	raw, err := os.ReadFile(filepath.Join(s.Dir, "env"))
	if err != nil {
		return "", fmt.Errorf("read the registration secret: %w", err)
	}
	for line := range strings.Lines(string(raw)) {
		if secret, found := strings.CutPrefix(strings.TrimSpace(line), "HOMESERVER_REGISTRATION_SECRET="); found {
			return secret, nil
		}
	}
	return "", fmt.Errorf("%s/env names no registration secret", s.Dir)
}

// logTail is the end of what the server and the script that started it said.
func (s *Server) logTail() string {
	const most = 4000
	var tail bytes.Buffer
	for _, name := range []string{"homeserver.out", "homeserver.log"} {
		raw, err := os.ReadFile(filepath.Join(s.Dir, name))
		if err != nil { // Dendrite has but one
			continue
		}
		tail.Write(raw[max(0, len(raw)-most):])
	}
	return tail.String()
}

// install returns the name of the implementation that is there afterwards. It does nothing when the cache is warm.
func install(scripts string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), installTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(scripts, "install.sh"))
	if impl := os.Getenv("NISSE_TEST_HOMESERVER"); impl != "" {
		cmd.Args = append(cmd.Args, "--impl", impl)
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("install a homeserver: %w\n%s", err, said.Bytes())
	}
	return strings.TrimSpace(string(out)), nil
}

// scripts finds hack/homeserver from the directory of whichever package is tested.
func scripts() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find hack/homeserver: %w", err)
	}
	for {
		found := filepath.Join(dir, "hack", "homeserver")
		if _, err := os.Stat(filepath.Join(found, "run.sh")); err == nil {
			return found, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no hack/homeserver/run.sh above the working directory; run the tests inside the source tree")
		}
		dir = filepath.Dir(dir)
	}
}
