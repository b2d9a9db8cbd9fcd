package device_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"nisse.io/nisse/device"
	"nisse.io/nisse/device/deeds"
	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/hosttools/confine"
	"nisse.io/nisse/internal/approval"
	"nisse.io/nisse/internal/canonical"
	"nisse.io/nisse/internal/deed"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/manifest"
	"nisse.io/nisse/internal/testrig"
)

// TestMain makes the test binary a program that devices may run: what it did can be counted.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "act" {
		act(os.Args[2], os.Args[3])
		return
	}
	os.Exit(m.Run())
}

func act(what, arg string) {
	switch what {
	case "append": // a letter to a file: once is one letter
		f, err := os.OpenFile(arg, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			panic(err)
		}
		if _, err := f.WriteString("x"); err != nil {
			panic(err)
		}
		f.Close()
	case "hang": // after it has said so in a file
		act("append", arg)
		testrig.Hang()
	case "tell": // how far it is, and end when somebody makes the file
		fmt.Print("\xfffetched 10 %\rfetched 40 %\n")
		fmt.Fprintln(os.Stderr, "slowly")
		for _, err := os.Stat(arg); err != nil; _, err = os.Stat(arg) {
			time.Sleep(5 * time.Millisecond)
		}
	case "fail":
		os.Exit(3)
	case "controls":
		_, _ = os.Stdout.Write(bytes.Repeat([]byte{1}, 4<<20))
		_, _ = os.Stderr.Write(bytes.Repeat([]byte{'"'}, 4<<20))
	}
}

// world is one machine with a device, and the keys of the cluster that it trusts.
type world struct {
	t     testing.TB
	files string // what the manifest lets agents reach
	out   string // what it does not
	state string
	self  string
	m     *manifest.Manifest // held from the start

	request, approve, device, root ed25519.PrivateKey

	now    atomic.Int64 // Unix seconds
	fault  atomic.Pointer[error]
	bounds deeds.Bounds
	busy   int
	count  int // of reads
	// sealAfter is how long the device waits with a checkpoint.
	sealAfter time.Duration

	d    *device.Device
	http *httptest.Server
}

func key(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
}

func pub(k ed25519.PrivateKey) ed25519.PublicKey { return k.Public().(ed25519.PublicKey) }

func text(k ed25519.PrivateKey) string { return dsse.EncodeKey(pub(k)) }

const began = 1_800_000_000

// newWorld is a machine whose device holds a manifest.
func newWorld(t testing.TB) *world {
	t.Helper()
	w := newMachine(t)
	_, err := w.d.Install(t.Context(), w.signed(w.m, w.root))
	must(t, err)
	return w
}

// newMachine is one whose device holds none yet.
func newMachine(t testing.TB) *world {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	self, err := os.Executable()
	must(t, err)
	w := &world{t: t, files: filepath.Join(top, "files"), out: filepath.Join(top, "out"), state: filepath.Join(top, "state"), self: self,
		request: key(1), approve: key(2), device: key(3), root: key(4)}
	for _, d := range []string{w.files, w.out} {
		must(t, os.Mkdir(d, 0o755))
	}
	must(t, os.WriteFile(w.files+"/a", []byte("hello"), 0o644))
	w.m, err = manifest.Parse([]byte(fmt.Sprintf(`
v: 1
device: web1
privilege: User
epoch: 1
expiresAt: "2027-12-30T00:00:00Z"
keys: {request: ["%s"], approval: ["%s"]}
paths:
  fs.read: [{glob: "%[3]s/private/**", approval: Required}, {glob: "%[3]s/**", approval: None}]
  fs.list: [{glob: "%[3]s/**", approval: None}]
  fs.stat: [{glob: "%[3]s/**", approval: None}]
  fs.write: [{glob: "%[3]s/**", approval: Required}]
commands:
- {argv: ["%[4]s", act, append, "{file}"], slots: {file: {type: path, glob: "%[3]s/*"}}, approval: Required}
- {argv: ["%[4]s", act, hang, "{file}"], slots: {file: {type: path, glob: "%[3]s/*"}}, approval: Required, timeoutSeconds: 60}
- {argv: ["%[4]s", act, tell, "{file}"], slots: {file: {type: path, glob: "%[3]s/*"}}, approval: Required, timeoutSeconds: 60}
- {argv: ["%[4]s", act, fail, x], approval: Required}
- {argv: ["%[4]s", act, controls, x], approval: None}
limits: {writeBytes: 65536, outputBytes: 4194304, timeoutSeconds: 60}
`, text(w.request), text(w.approve), w.files, w.self)))
	must(t, err)
	w.now.Store(began)
	w.start()
	t.Cleanup(w.stop)
	return w
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) start() {
	w.t.Helper()
	d, h, err := device.New(w.t.Context(), device.Options{Dir: w.state, Device: "web1", RootKey: pub(w.root), Key: w.device, Now: func() time.Time { return time.Unix(w.now.Load(), 0) },
		Bounds: w.bounds, Busy: w.busy, SealAfter: w.sealAfter, Version: "test", Fault: func() error {
			if e := w.fault.Load(); e != nil {
				return *e
			}
			return nil
		}})
	must(w.t, err)
	w.d, w.http = d, httptest.NewServer(h)
}

func (w *world) stop() {
	w.http.Close()
	if err := w.d.Close(); err != nil && w.fault.Load() == nil {
		w.t.Error(err)
	}
}

func (w *world) restart() { w.t.Helper(); w.stop(); w.start() }

// breakDisk makes every write of the state fail until mend.
func (w *world) breakDisk() { e := errors.New("no space left on device"); w.fault.Store(&e) }
func (w *world) mend()      { w.fault.Store(nil) }

func (w *world) digest() string { return digest(w.t, w.m) }

func digest(t testing.TB, m *manifest.Manifest) string {
	t.Helper()
	d, err := m.Digest()
	must(t, err)
	return d
}

// signed manifest; its epoch rises.
func (w *world) signed(m *manifest.Manifest, root ed25519.PrivateKey) string {
	w.t.Helper()
	env, err := m.Sign(root, time.Unix(w.now.Load(), 0))
	must(w.t, err)
	return env
}

func args(t testing.TB, v any) string {
	t.Helper()
	b, err := canonical.Marshal(v)
	must(t, err)
	return string(b)
}

func (w *world) write(name, content string) approval.Call {
	return w.call(manifest.FSWrite, manifest.WriteArgs{Path: w.files + "/" + name, Content: content})
}

func (w *world) exec(what, arg string) approval.Call {
	return w.call(manifest.Exec, manifest.ExecArgs{Argv: []string{w.self, "act", what, arg}})
}

func (w *world) call(capability string, a any) approval.Call {
	return approval.Call{Device: "web1", ManifestDigest: w.digest(), Capability: capability, Args: args(w.t, a)}
}

// statement over calls of gate g, one attempt each.
func (w *world) statement(gate string, calls ...approval.Call) approval.Statement {
	s := approval.Statement{GateUID: gate, Digest: "sha256:d", Approvers: []string{"lucas"}, ExpiresAt: w.now.Load() + 3600}
	for _, c := range calls {
		s.Calls, s.Attempts = append(s.Calls, c.Hash()), append(s.Attempts, 1)
	}
	return s
}

func (w *world) sign(s approval.Statement) string {
	env, err := s.Sign(w.approve)
	must(w.t, err)
	return env
}

// approved request for a step of a statement.
func (w *world) approved(s approval.Statement, step int32, c approval.Call) wire.Request {
	r := w.free(c, "")
	r.Deed = deed.Approved(s.GateUID, step, 1)
	r.Approved = &wire.Approved{GateUID: s.GateUID, Step: step, Attempt: 1, Statement: w.sign(s)}
	return r
}

// one approved request, of a plan with one step.
func (w *world) one(gate string, c approval.Call) wire.Request {
	return w.approved(w.statement(gate, c), 1, c)
}

func (w *world) free(c approval.Call, id string) wire.Request {
	return wire.Request{Device: c.Device, ManifestDigest: c.ManifestDigest, Capability: c.Capability, Args: c.Args, Deed: deed.Free("agent", id),
		At: w.now.Load(), ExpiresAt: w.now.Load() + 600, CorrelationID: "item", Agent: "ops"}
}

func (w *world) post(body []byte) (int, []byte) { w.t.Helper(); return w.send("/v1/call", "", body) }

func (w *world) send(path, query string, body []byte) (int, []byte) {
	w.t.Helper()
	req, err := http.NewRequest(http.MethodPost, w.http.URL+path, bytes.NewReader(body))
	must(w.t, err)
	req.Header.Set(wire.QueryHeader, query)
	resp, err := http.DefaultClient.Do(req)
	must(w.t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	must(w.t, err)
	return resp.StatusCode, b
}

// ask the device by its wire; the raw envelope comes too.
func (w *world) ask(r wire.Request) (wire.Answer, []byte) {
	w.t.Helper()
	body, err := wire.SignRequest(w.request, r)
	must(w.t, err)
	return w.read(body, r.Deed)
}

func (w *world) read(body []byte, id string) (wire.Answer, []byte) {
	w.t.Helper()
	status, env := w.post(body)
	if status != http.StatusOK {
		w.t.Fatalf("status %d: %s", status, env)
	}
	a, err := wire.OpenAnswer(env, pub(w.device), "web1", id)
	var refused *wire.RefusedError
	if errors.As(err, &refused) {
		return wire.Answer{State: wire.Refused, Reason: refused.Reason, Message: refused.Message}, env
	}
	must(w.t, err)
	return a, env
}

func (w *world) get(path string) (wire.Query, []byte) {
	w.t.Helper()
	q := w.query(path)
	return q, w.getAs(q, w.request, path)
}

func (w *world) query(path string) wire.Query {
	return wire.Query{V: wire.Version, Device: "web1", Path: path, At: w.now.Load(), ExpiresAt: w.now.Load() + 60, Nonce: fmt.Sprint("n", time.Now().UnixNano())}
}

func (w *world) getAs(q wire.Query, k ed25519.PrivateKey, path string) []byte {
	w.t.Helper()
	h, err := wire.SignQuery(k, q)
	must(w.t, err)
	req, err := http.NewRequest(http.MethodGet, w.http.URL+path, nil)
	must(w.t, err)
	req.Header.Set(wire.QueryHeader, h)
	resp, err := http.DefaultClient.Do(req)
	must(w.t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	must(w.t, err)
	if resp.StatusCode != http.StatusOK {
		w.t.Fatalf("%s: status %d: %s", path, resp.StatusCode, b)
	}
	return b
}

// seen is what GET /v1/deeds says.
func (w *world) seen(id string) wire.Answer {
	w.t.Helper()
	return w.seenBy("/v1/deeds/"+id, id)
}

func (w *world) seenBy(path, id string) wire.Answer {
	w.t.Helper()
	_, env := w.get(path)
	a, err := wire.OpenAnswer(env, pub(w.device), "web1", id)
	must(w.t, err)
	return a
}

func (w *world) status() wire.Status {
	w.t.Helper()
	q, env := w.get("/v1/status")
	s, err := wire.OpenStatus(env, pub(w.device), q)
	must(w.t, err)
	return s
}

// content of a file; empty when it is not there.
func (w *world) content(name string) string {
	b, err := os.ReadFile(filepath.Join(w.files, name))
	if err != nil && !os.IsNotExist(err) {
		w.t.Error(err)
	}
	return string(b)
}

func (w *world) want(a wire.Answer, state wire.State, reason wire.Reason) {
	w.t.Helper()
	if a.State != state || a.Reason != reason {
		w.t.Errorf("got %s %s %q, want %s %s", a.State, a.Reason, a.Message, state, reason)
	}
}

func result[T any](t testing.TB, a wire.Answer) T {
	t.Helper()
	var v T
	must(t, json.Unmarshal([]byte(a.Result), &v))
	return v
}

func together(n int, do func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { do(i) })
	}
	wg.Wait()
}

func contains(all []string, part string) bool { return strings.Contains(strings.Join(all, "\n"), part) }

// troubles of a device, but for the want of Landlock, which is the kernel's and which every manifest with commands is told.
func troubles(s wire.Status) []string {
	missing := confine.Missing()
	return slices.DeleteFunc(slices.Clone(s.Problems), func(p string) bool { return missing != "" && strings.HasSuffix(p, missing) })
}

func unixTime(s int64) time.Time { return time.Unix(s, 0) }

// impatient sends a body and hangs up.
func impatient(t testing.TB, w *world, body []byte) {
	t.Helper()
	c, err := net.Dial("tcp", w.http.Listener.Addr().String())
	must(t, err)
	_, err = fmt.Fprintf(c, "POST /v1/call HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	must(t, err)
	must(t, c.Close())
}
