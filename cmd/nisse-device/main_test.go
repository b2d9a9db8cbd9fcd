package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/device/wire/pin"
	"nisse.io/nisse/internal/approval"
	"nisse.io/nisse/internal/canonical"
	"nisse.io/nisse/internal/deed"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/manifest"
	"nisse.io/nisse/internal/testrig"
)

// nobody is who the daemon runs as when the tests run as root.
const nobody = 65534

// binary is nisse-device built for the crash rig.
var binary string

func TestMain(m *testing.M) {
	if len(os.Args) == 3 { // the program that devices run here: a letter to a file, and for some files no end
		f, err := os.OpenFile(os.Args[2], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			panic(err)
		}
		if _, err := f.WriteString("x"); err != nil {
			panic(err)
		}
		f.Close()
		if os.Args[1] == "hang" {
			testrig.Hang()
		}
		return
	}
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "nisse-device-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "nisse-device")
	build := exec.Command("go", "build", "-tags", "crashrig", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		panic(fmt.Sprintf("%v: %s", err, out))
	}
	return m.Run()
}

// machine runs nisse-device as a process of an unprivileged user.
type machine struct {
	t                testing.TB
	dir, files, tool string
	config           string
	request, approve ed25519.PrivateKey
	root             ed25519.PrivateKey
	manifest         *manifest.Manifest
	public           ed25519.PublicKey
	digest           string
	url              string
	process          *exec.Cmd
	log              *bytes.Buffer
	// elevated lets the device be root.
	elevated bool
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newMachine whose device holds a manifest.
func newMachine(t testing.TB) *machine {
	t.Helper()
	m := bareMachine(t)
	file := m.sign(m.manifest, m.root)
	if out := m.run("manifest", "install", "--config", m.config, file); !strings.Contains(out, "held: the User manifest "+m.digest) {
		t.Fatalf("manifest install says %q", out)
	}
	return m
}

// sign a manifest into a file.
func (m *machine) sign(man *manifest.Manifest, root ed25519.PrivateKey) string {
	m.t.Helper()
	env, err := man.Sign(root, time.Now())
	must(m.t, err)
	m.digest, err = man.Digest()
	must(m.t, err)
	file := m.dir + "/manifest.json"
	must(m.t, os.WriteFile(file, []byte(env), 0o644))
	return file
}

func (m *machine) configure(listen string, root ed25519.PrivateKey) {
	m.t.Helper()
	must(m.t, os.WriteFile(m.config, []byte(fmt.Sprintf("listen: [%q]\nstateDir: state\ndevice: web1\nrootKey: %s\nkey: state/device.key\n",
		listen, dsse.EncodeKey(root.Public().(ed25519.PublicKey)))), 0o644))
}

// bareMachine is one whose device holds none yet.
func bareMachine(t testing.TB) *machine {
	t.Helper()
	dir, err := os.MkdirTemp("", "nisse-machine-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	dir, err = filepath.EvalSymlinks(dir)
	must(t, err)
	m := &machine{t: t, dir: dir, files: dir + "/files", tool: dir + "/tool", config: dir + "/config.yaml"}
	must(t, os.Chmod(dir, 0o755))
	for _, d := range []string{m.files, dir + "/state"} {
		must(t, os.Mkdir(d, 0o700))
		if os.Getuid() == 0 {
			must(t, os.Chown(d, nobody, nobody))
		}
	}
	self, err := os.Executable()
	must(t, err)
	b, err := os.ReadFile(self)
	must(t, err)
	must(t, os.WriteFile(m.tool, b, 0o755))
	_, m.request, err = ed25519.GenerateKey(rand.Reader)
	must(t, err)
	_, m.approve, err = ed25519.GenerateKey(rand.Reader)
	must(t, err)
	_, m.root, err = ed25519.GenerateKey(rand.Reader)
	must(t, err)
	text := fmt.Sprintf(`
v: 1
device: web1
privilege: User
epoch: 1
expiresAt: %[5]s
keys: {request: ["%[1]s"], approval: ["%[2]s"]}
paths:
  fs.read: [{glob: "/**", approval: None}]
  fs.write: [{glob: "%[3]s/**", approval: Required}]
commands:
- {argv: ["%[4]s", append, "{file}"], slots: {file: {type: path, glob: "%[3]s/*"}}, approval: Required}
- {argv: ["%[4]s", hang, "{file}"], slots: {file: {type: path, glob: "%[3]s/*"}}, approval: Required, timeoutSeconds: 60}
- {argv: [/usr/bin/id, -u], approval: None}
limits: {writeBytes: 65536, outputBytes: 65536, timeoutSeconds: 60}
`, dsse.EncodeKey(m.request.Public().(ed25519.PublicKey)), dsse.EncodeKey(m.approve.Public().(ed25519.PublicKey)), m.files, m.tool, time.Now().Add(24*time.Hour).UTC().Format(time.RFC3339))
	m.manifest, err = manifest.Parse([]byte(text))
	must(t, err)
	m.configure("127.0.0.1:0", m.root)
	m.run("init", "--dir", dir+"/state")
	id := m.run("id", "--config", m.config)
	fields := regexp.MustCompile(`^publicKey: (\S+)\nrootKey: (\S+)\n$`).FindStringSubmatch(id)
	if fields == nil || fields[2] != dsse.EncodeKey(m.root.Public().(ed25519.PublicKey)) {
		t.Fatalf("id says %q", id)
	}
	m.public, err = dsse.ParseKey(fields[1])
	must(t, err)
	t.Cleanup(func() {
		if m.process != nil {
			_ = m.process.Process.Kill()
			_ = m.process.Wait()
		}
	})
	return m
}

// command as the device's user.
func (m *machine) command(args ...string) *exec.Cmd {
	c := exec.Command(binary, args...)
	c.Dir = "/"
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getuid() == 0 && !m.elevated {
		c.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	return c
}

func (m *machine) run(args ...string) string {
	m.t.Helper()
	out, err := m.command(args...).CombinedOutput()
	if err != nil {
		m.t.Fatalf("nisse-device %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// start the daemon, to crash at a point when one is named.
func (m *machine) start(crashAt string) {
	m.t.Helper()
	m.process = m.command("run", "--config", m.config)
	m.process.Env = []string{"NISSE_CRASH_AT=" + crashAt, "SECRET=of-the-daemon"}
	r, w, err := os.Pipe()
	must(m.t, err)
	m.process.Stderr = w
	must(m.t, m.process.Start())
	must(m.t, w.Close())
	address := make(chan string, 1)
	m.log = &bytes.Buffer{}
	go func() {
		defer r.Close()
		d := json.NewDecoder(io.TeeReader(r, m.log))
		for {
			var line struct{ Event, Address string }
			if d.Decode(&line) != nil {
				close(address)
				return
			}
			if line.Event == "device.listening" {
				address <- line.Address
			}
		}
	}()
	a, ok := <-address
	if !ok {
		m.t.Fatalf("it does not run: %s", m.log)
	}
	m.url = "https://" + a
}

// http to the device: to the holder of its key alone.
func (m *machine) http() *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: pin.Client(m.public), DisableKeepAlives: true}}
}

// died waits for the daemon's end and tells the signal.
func (m *machine) died() syscall.Signal {
	_ = m.process.Wait() // the state says it
	p := m.process.ProcessState.Sys().(syscall.WaitStatus)
	m.process = nil
	if p.Signaled() {
		return p.Signal()
	}
	return 0
}

func (m *machine) call(capability string, args any) approval.Call {
	b, err := canonical.Marshal(args)
	must(m.t, err)
	return approval.Call{Device: "web1", ManifestDigest: m.digest, Capability: capability, Args: string(b)}
}

func (m *machine) approved(gate string, c approval.Call) wire.Request {
	now := time.Now().Unix()
	s := approval.Statement{GateUID: gate, Digest: "sha256:d", Approvers: []string{"lucas"}, ExpiresAt: now + 600, Calls: []string{c.Hash()}, Attempts: []int32{1}}
	env, err := s.Sign(m.approve)
	must(m.t, err)
	r := m.free(c, "")
	r.Deed, r.Approved = deed.Approved(gate, 1, 1), &wire.Approved{GateUID: gate, Step: 1, Attempt: 1, Statement: env}
	return r
}

func (m *machine) free(c approval.Call, id string) wire.Request {
	now := time.Now().Unix()
	return wire.Request{Device: c.Device, ManifestDigest: c.ManifestDigest, Capability: c.Capability, Args: c.Args, Deed: deed.Free("agent", id), At: now, ExpiresAt: now + 300,
		CorrelationID: "item", Agent: "ops"}
}

// ask the daemon; an error means that it did not answer.
func (m *machine) ask(r wire.Request) (wire.Answer, error) {
	m.t.Helper()
	body, err := wire.SignRequest(m.request, r)
	must(m.t, err)
	resp, err := m.http().Post(m.url+"/v1/call", "application/json", bytes.NewReader(body))
	if err != nil {
		return wire.Answer{}, err
	}
	defer resp.Body.Close()
	env, err := io.ReadAll(resp.Body)
	if err != nil {
		return wire.Answer{}, err
	}
	return wire.OpenAnswer(env, m.public, "web1", r.Deed)
}

func (m *machine) seen(id string) wire.State {
	m.t.Helper()
	path := "/v1/deeds/" + id
	now := time.Now().Unix()
	h, err := wire.SignQuery(m.request, wire.Query{Device: "web1", Path: path, At: now, ExpiresAt: now + 60, Nonce: "n"})
	must(m.t, err)
	req, err := http.NewRequest(http.MethodGet, m.url+path, nil)
	must(m.t, err)
	req.Header.Set(wire.QueryHeader, h)
	resp, err := m.http().Do(req)
	must(m.t, err)
	defer resp.Body.Close()
	env, err := io.ReadAll(resp.Body)
	must(m.t, err)
	a, err := wire.OpenAnswer(env, m.public, "web1", id)
	must(m.t, err)
	return a.State
}

func (m *machine) content(name string) string {
	b, err := os.ReadFile(filepath.Join(m.files, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		m.t.Error(err)
	}
	return string(b)
}

// Killed at every boundary that is written down: the effect happens once or not at all, and what nobody can know is called Unknown and
// not tried again.
func TestKilledAtEveryBoundary(t *testing.T) {
	for _, c := range []struct {
		point   string
		effects int // before the restart
		after   wire.State
		again   wire.State // to the same request
	}{
		{"device.intent.before", 0, wire.NotSeen, wire.Succeeded},
		{"device.intent.after", 0, wire.Unknown, wire.Unknown},
		{"device.run.before", 0, wire.Unknown, wire.Unknown},
		{"device.run.after", 1, wire.Unknown, wire.Unknown},
		{"device.outcome.before", 1, wire.Unknown, wire.Unknown},
		{"device.outcome.after", 1, wire.Succeeded, wire.Succeeded},
	} {
		t.Run(c.point, func(t *testing.T) {
			m := newMachine(t)
			r := m.approved("gate", m.call(manifest.Exec, manifest.ExecArgs{Argv: []string{m.tool, "append", m.files + "/log"}}))
			m.start(c.point)
			if a, err := m.ask(r); err == nil {
				t.Fatalf("it answered %+v", a)
			}
			if s := m.died(); s != syscall.SIGKILL {
				t.Fatalf("it ended by %v", s)
			}
			if n := len(m.content("log")); n != c.effects {
				t.Errorf("%d effects before the restart, want %d", n, c.effects)
			}
			m.start("")
			if s := m.seen(r.Deed); s != c.after {
				t.Errorf("after the restart it is %s, want %s", s, c.after)
			}
			want := c.effects
			if c.again == wire.Succeeded {
				want = 1
			}
			for range 2 {
				a, err := m.ask(r)
				if err != nil || a.State != c.again {
					t.Errorf("asked again: %s, %v; want %s", a.State, err, c.again)
				}
				if n := len(m.content("log")); n != want {
					t.Errorf("%d effects, want %d", n, want)
				}
			}
			if out := m.run("audit", "verify", "--config", m.config); !strings.Contains(out, "whole: ") {
				t.Errorf("audit verify: %s", out)
			}
			out := m.run("audit", "show", "--config", m.config)
			if n := strings.Count(out, "outcome"); n != 1 || !strings.Contains(out, string(c.again)) || !strings.Contains(out, `approvers=["lucas"]`) {
				t.Errorf("audit: %s", out)
			}
		})
	}
}

// Case 38: killed while a command runs. The command dies too; what it did stands, and it is not run again.
func TestKilledMidCommand(t *testing.T) {
	m := newMachine(t)
	m.start("")
	r := m.approved("gate", m.call(manifest.Exec, manifest.ExecArgs{Argv: []string{m.tool, "hang", m.files + "/log"}}))
	answered := make(chan error, 1)
	go func() { _, err := m.ask(r); answered <- err }()
	testrig.Until(t, "the command to run", func() bool { return m.content("log") == "x" })
	must(t, m.process.Process.Kill())
	m.died()
	if err := <-answered; err == nil {
		t.Error("it answered")
	}
	testrig.Until(t, "the command's end", func() bool { return !running(t, m.tool) })
	m.start("")
	if s := m.seen(r.Deed); s != wire.Unknown {
		t.Errorf("it is %s", s)
	}
	if a, err := m.ask(r); err != nil || a.State != wire.Unknown || m.content("log") != "x" {
		t.Errorf("got %+v, %v, it ran %d times", a, err, len(m.content("log")))
	}
}

// Told to stop, it kills the command and writes down how that ended.
func TestStops(t *testing.T) {
	m := newMachine(t)
	m.start("")
	r := m.approved("gate", m.call(manifest.Exec, manifest.ExecArgs{Argv: []string{m.tool, "hang", m.files + "/log"}}))
	go func() { _, _ = m.ask(r) }()
	testrig.Until(t, "the command to run", func() bool { return m.content("log") == "x" })
	must(t, m.process.Process.Signal(syscall.SIGTERM))
	if s := m.died(); s != 0 {
		t.Errorf("it ended by %v: %s", s, m.log)
	}
	m.start("")
	if s := m.seen(r.Deed); s != wire.Failed {
		t.Errorf("it is %s", s)
	}
}

// As an unprivileged user it can do what that user can, and its own secrets stay its own.
func TestUnprivileged(t *testing.T) {
	m := newMachine(t)
	m.start("")
	a, err := m.ask(m.free(m.call(manifest.Exec, manifest.ExecArgs{Argv: []string{"/usr/bin/id", "-u"}}), "1"))
	must(t, err)
	want := os.Getuid()
	if want == 0 {
		want = nobody
	}
	if a.State != wire.Succeeded || !strings.Contains(a.Result, `"stdout":"`+strconv.Itoa(want)+`\n"`) {
		t.Errorf("got %+v", a)
	}
	a, err = m.ask(m.approved("gate", m.call(manifest.FSWrite, manifest.WriteArgs{Path: m.files + "/report.txt", Content: "81%"})))
	if err != nil || a.State != wire.Succeeded || m.content("report.txt") != "81%" {
		t.Errorf("got %+v, %v, file %q", a, err, m.content("report.txt"))
	}
	for name, c := range map[string]struct {
		path  string
		state wire.State
	}{
		"its environment":          {"/proc/self/environ", wire.Refused},
		"its environment, by pid":  {fmt.Sprintf("/proc/%d/environ", m.process.Process.Pid), wire.Refused},
		"its memory":               {"/proc/self/mem", wire.Refused},
		"its key":                  {m.dir + "/state/device.key", wire.Refused},
		"its audit":                {m.dir + "/state/device.db", wire.Refused},
		"a device":                 {"/dev/zero", wire.Refused},
		"what root alone may read": {"/etc/shadow", wire.Failed},
		"a directory":              {"/etc", wire.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := m.ask(m.free(m.call(manifest.FSRead, manifest.ReadArgs{Path: c.path}), name))
			if err != nil || a.State != c.state || a.Result != "" {
				t.Errorf("got %+v, %v", a, err)
			}
		})
	}
}

func TestCommands(t *testing.T) {
	m := newMachine(t)
	key := m.dir + "/state/device.key"
	if i, err := os.Stat(key); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("the key is %v, %v", i.Mode(), err)
	}
	if out := m.run("init", "--dir", m.dir+"/state"); !strings.Contains(out, "is there already") || !strings.Contains(out, dsse.EncodeKey(m.public)) {
		t.Errorf("init again: %s", out)
	}
	out := m.run("check", "--config", m.config)
	for _, want := range []string{"ok    User manifest " + m.digest, dsse.EncodeKey(m.public), "fs.write", "approval Required"} {
		if !strings.Contains(out, want) {
			t.Errorf("check does not say %q: %s", want, out)
		}
	}
	fails := func(want string, args ...string) {
		t.Helper()
		out, err := m.command(args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("nisse-device %s: %v: %s; want %q", strings.Join(args, " "), err, out, want)
		}
	}
	fails("--config is missing", "run")
	fails("belong together", "audit", "verify", "--config", m.config, "--rows", "3")
	fails("nisse-device check", "frobnicate")
	fails("nisse-device check")
	m.start("")
	fails("another nisse-device uses", "run", "--config", m.config)
	fails("let the cluster bring", "manifest", "install", "--config", m.config, m.dir+"/manifest.json")
	if out := m.run("manifest", "show", "--config", m.config); !strings.Contains(out, "User manifest "+m.digest) || !strings.Contains(out, ": in force") {
		t.Errorf("manifest show: %s", out)
	}
	must(t, m.process.Process.Signal(syscall.SIGTERM))
	m.died()
	fails("Truncated", "audit", "verify", "--config", m.config, "--rows", "3", "--head", strings.Repeat("a", 64))
	must(t, os.Chmod(key, 0o644))
	fails("may be read by others", "run", "--config", m.config)
	must(t, os.Chmod(key, 0o600))
	b, err := os.ReadFile(m.config)
	must(t, err)
	must(t, os.WriteFile(m.config, bytes.Replace(b, []byte("rootKey: "), []byte("rootKey: x"), 1), 0o644))
	fails("rootKey", "run", "--config", m.config)
}

// Root is refused unless the config says so; the tests of an unprivileged user pretend by a user namespace.
func TestRoot(t *testing.T) {
	m := newMachine(t)
	c := exec.Command(binary, "run", "--config", m.config)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		c.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	}
	out, err := c.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "refusing to run as root") {
		t.Errorf("got %v: %s", err, out)
	}
}

// running tells whether any process runs a program.
func running(t testing.TB, program string) bool {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/exe")
	must(t, err)
	for _, p := range all {
		if exe, err := os.Readlink(p); err == nil && exe == program {
			return true
		}
	}
	return false
}
