// Package faultydevice is a device for tests of what can go wrong on the way: it checks signatures, keeps a deed table and counts what
// ran, and it loses answers, falls silent or refuses when told to. The real device's own server is used wherever nothing goes wrong.
package faultydevice

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/internal/approval"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/manifest"
)

// Device of a test.
type Device struct {
	Name string
	URL  string
	Key  ed25519.PrivateKey
	// Root key of the device, and the manifest that it holds from the start, as that key signed it.
	Root     ed25519.PrivateKey
	Manifest *manifest.Manifest
	Digest   string
	Envelope string

	t        testing.TB
	request  ed25519.PublicKey
	approval ed25519.PublicKey

	mu sync.Mutex
	// held is its digest while the device holds the manifest, and revoked the epoch up to which it may not.
	held    string
	revoked int64
	deeds   map[string]*deed
	runs    []wire.Request
	asked   []wire.Resolve
	fault   Fault
}

type deed struct {
	hash   string
	answer wire.Answer
}

// Fault is what goes wrong at the next calls.
type Fault struct {
	// Silent devices answer nothing: connections are cut before the request is read.
	Silent bool
	// LoseAnswer cuts the connection after the deed was done.
	LoseAnswer bool
	// LoseDeeds cuts the connection when asked about a deed.
	LoseDeeds bool
	// Refuse with this reason.
	Refuse wire.Reason
	// State that a deed ends in, instead of Succeeded.
	State wire.State
	// Result of a deed.
	Result string
	// WrongKey signs with a key that nobody knows.
	WrongKey bool
	// Clock is added to the device's time.
	Clock time.Duration
	// Program is the SHA-256 of every program now, instead of the package's.
	Program string
	// Misplaced: a question about what calls would run is answered with the answers in another order.
	Misplaced bool
	// Unasked: such questions are not answered at all, everything else is.
	Unasked bool
	// Executable is where every program's name leads, instead of to itself.
	Executable string
	// WouldRefuse the calls that are asked about.
	WouldRefuse wire.Reason
	// Deaf devices hold no manifest when they are called, and listen to nobody.
	Deaf bool
	// Telling, when set, is called before a status is told.
	Telling func()
	// Gate, when set, is waited for before a deed runs, or such a question is answered.
	Gate <-chan struct{}
}

// New device with paths under /srv free to read and to write with approval.
func New(t testing.TB, name string, request, approvalKey ed25519.PublicKey) *Device {
	t.Helper()
	m, err := manifest.Parse([]byte(fmt.Sprintf(`
v: 1
device: %s
privilege: User
epoch: 1
expiresAt: %s
keys: {request: [%q], approval: [%q]}
paths:
  fs.read: [{glob: /srv/**, approval: None}]
  fs.write: [{glob: /srv/**, approval: Required}]
commands:
- {argv: [/usr/bin/df, -h], approval: None}
- {argv: [/usr/bin/touch, "{f}"], slots: {f: {type: path, glob: /srv/**}}, approval: Required}
limits: {writeBytes: 65536, outputBytes: 4194304, timeoutSeconds: 60}`, name, time.Now().Add(24*time.Hour).UTC().Format(time.RFC3339), dsse.EncodeKey(request), dsse.EncodeKey(approvalKey))))
	if err != nil {
		t.Fatal(err)
	}
	var keys [2]ed25519.PrivateKey
	for i := range keys {
		if _, keys[i], err = ed25519.GenerateKey(nil); err != nil {
			t.Fatal(err)
		}
	}
	envelope, err := m.Sign(keys[1], time.Now())
	if err != nil {
		t.Fatal(err)
	}
	digest, err := m.Digest()
	if err != nil {
		t.Fatal(err)
	}
	d := &Device{Name: name, Key: keys[0], Root: keys[1], Manifest: m, Digest: digest, Envelope: envelope, held: digest, t: t, request: request, approval: approvalKey, deeds: map[string]*deed{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/call", d.call)
	mux.HandleFunc("GET /v1/deeds/{id}", d.ask)
	mux.HandleFunc("GET /v1/status", d.status)
	mux.HandleFunc("POST /v1/resolve", d.resolve)
	mux.HandleFunc("POST /v1/manifests", d.bring)
	mux.HandleFunc("POST /v1/revoke", d.revoke)
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	d.URL = srv.URL
	return d
}

// Set what goes wrong from now on.
func (d *Device) Set(f Fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = f
}

// Runs are the requests that ran, in order.
func (d *Device) Runs() []wire.Request {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]wire.Request{}, d.runs...)
}

// Asked are the questions about what calls would run, in order.
func (d *Device) Asked() []wire.Resolve {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]wire.Resolve{}, d.asked...)
}

// Approved counts the deeds that ran with an approval.
func (d *Device) Approved() int {
	n := 0
	for _, r := range d.Runs() {
		if r.Approved != nil {
			n++
		}
	}
	return n
}

func (d *Device) faults() Fault {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fault
}

func (d *Device) now() int64 { return time.Now().Add(d.faults().Clock).Unix() }

func cutOff() { panic(http.ErrAbortHandler) }

func (d *Device) call(w http.ResponseWriter, req *http.Request) {
	f := d.faults()
	if f.Silent {
		cutOff()
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, wire.MaxRequest))
	if err != nil {
		cutOff()
	}
	var r wire.Request
	if _, err := dsse.Verify(body, dsse.TypeRequest, []ed25519.PublicKey{d.request}, &r); err != nil {
		d.answer(w, wire.Answer{State: wire.Refused, Reason: wire.BadSignature, Message: err.Error()})
		return
	}
	if f.Deaf {
		d.answer(w, wire.Answer{State: wire.Refused, Reason: wire.NoManifest, Message: "none is held"})
		return
	}
	if f.Gate != nil {
		<-f.Gate
	}
	a := d.do(r, f)
	if f.LoseAnswer {
		cutOff()
	}
	d.answer(w, a)
}

func (d *Device) do(r wire.Request, f Fault) wire.Answer {
	a := wire.Answer{Deed: r.Deed, CallHash: r.Call().Hash()}
	refuse := func(reason wire.Reason) wire.Answer {
		a.State, a.Reason, a.Message = wire.Refused, reason, "refused by the test's device"
		return a
	}
	switch {
	case f.Refuse != "":
		return refuse(f.Refuse)
	case r.ManifestDigest != d.Holds():
		return refuse(wire.OtherManifest)
	case d.Manifest.Epoch <= d.Revoked():
		return refuse(wire.Revoked)
	case d.now() >= r.ExpiresAt:
		return refuse(wire.Expired)
	case r.ExpiresAt-r.At > wire.MaxWindowSeconds:
		return refuse(wire.WindowTooLong)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if before, ok := d.deeds[r.Deed]; ok {
		if before.hash != a.CallHash {
			a.CallHash = before.hash
			return refuse(wire.DeedConflict)
		}
		return before.answer
	}
	v, err := d.Manifest.Check(r.Capability, r.Args)
	if err != nil {
		return refuse(wire.NotAllowed)
	}
	if v.Approval == manifest.Required && !d.covered(r) {
		return refuse(wire.NotCovered)
	}
	if v.Signature == manifest.PersonSignature && !d.consented(r) {
		return refuse(wire.NeedsSignature)
	}
	if want := d.executable(r); want != "" && want != program(f) {
		return refuse(wire.ExecutableChanged)
	}
	d.runs = append(d.runs, r)
	a.State, a.Result, a.AuditRow, a.AuditHash = wire.Succeeded, `{"ok":true}`, int64(len(d.runs)), strings.Repeat("a", 64)
	if f.State != "" {
		a.State, a.Message = f.State, "as the test wants it"
	}
	if f.Result != "" {
		a.Result = f.Result
	}
	d.deeds[r.Deed] = &deed{a.CallHash, a}
	return a
}

func (d *Device) covered(r wire.Request) bool {
	if r.Approved == nil {
		return false
	}
	s, err := approval.Verify(r.Approved.Statement, []ed25519.PublicKey{d.approval})
	return err == nil && s.GateUID == r.Approved.GateUID && s.Covers(r.Approved.Step, r.Approved.Attempt, r.Call(), time.Now().Unix()) == nil
}

func (d *Device) consented(r wire.Request) bool {
	s, err := approval.Verify(r.Approved.Statement, []ed25519.PublicKey{d.approval})
	if err != nil {
		return false
	}
	c, err := s.Consented(r.Approved.Signature, d.Manifest.Keys.PersonKeys())
	return err == nil && c.Ended(time.Now().Unix()) == nil
}

func (d *Device) ask(w http.ResponseWriter, req *http.Request) {
	f := d.faults()
	if f.Silent || f.LoseDeeds {
		cutOff()
	}
	if _, ok := d.query(w, req); !ok {
		return
	}
	id := req.PathValue("id")
	d.mu.Lock()
	got, ok := d.deeds[id]
	d.mu.Unlock()
	if !ok {
		d.answer(w, wire.Answer{Deed: id, State: wire.NotSeen})
		return
	}
	d.answer(w, got.answer)
}

func (d *Device) status(w http.ResponseWriter, req *http.Request) {
	f := d.faults()
	if f.Silent {
		cutOff()
	}
	if f.Telling != nil {
		f.Telling()
	}
	q, ok := d.query(w, req)
	if !ok {
		return
	}
	d.tell(w, q)
}

func (d *Device) tell(w http.ResponseWriter, q wire.Query) {
	s := wire.Status{V: wire.Version, Device: d.Name, Nonce: q.Nonce, Manifests: []wire.HeldManifest{}, RevokedEpoch: d.Revoked(), Now: d.now(), Version: "test"}
	if d.Holds() != "" {
		s.Manifests = append(s.Manifests, wire.HeldManifest{Privilege: d.Manifest.Privilege, Epoch: d.Manifest.Epoch, Digest: d.Digest, ExpiresAt: d.Manifest.ExpiresAt})
	}
	d.send(w, wire.TypeStatus, s)
}

// Holds is the digest of the manifest that the device holds; empty when it has forgotten it.
func (d *Device) Holds() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.held
}

// Forget the manifest, as a machine does whose state is new. It answers OtherManifest until the manifest is brought again.
func (d *Device) Forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held = ""
}

// Revoked is the epoch that the device was told.
func (d *Device) Revoked() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.revoked
}

// bring takes the very manifest of this device, and no other.
func (d *Device) bring(w http.ResponseWriter, req *http.Request) {
	body, q, ok := d.change(w, req)
	if !ok {
		return
	}
	if err := d.Manifest.OpenAs(string(body), []ed25519.PublicKey{d.Root.Public().(ed25519.PublicKey)}); err != nil {
		d.answer(w, wire.Answer{State: wire.Refused, Reason: wire.BadSignature, Message: err.Error()})
		return
	}
	d.mu.Lock()
	d.held = d.Digest
	d.mu.Unlock()
	d.tell(w, q)
}

func (d *Device) revoke(w http.ResponseWriter, req *http.Request) {
	body, q, ok := d.change(w, req)
	if !ok {
		return
	}
	r, _, err := wire.OpenRevocation(body, []ed25519.PublicKey{d.request})
	if err != nil || r.Device != d.Name {
		d.answer(w, wire.Answer{State: wire.Refused, Reason: wire.BadSignature, Message: fmt.Sprintf("revocation of %s: %v", r.Device, err)})
		return
	}
	d.mu.Lock()
	d.revoked = max(d.revoked, r.Epoch)
	d.mu.Unlock()
	d.tell(w, q)
}

// change of what the device holds: its body and its query.
func (d *Device) change(w http.ResponseWriter, req *http.Request) (body []byte, q wire.Query, ok bool) {
	if d.faults().Silent {
		cutOff()
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, wire.MaxRequest))
	if err != nil {
		cutOff()
	}
	q, ok = d.query(w, req)
	return body, q, ok
}

func (d *Device) query(w http.ResponseWriter, req *http.Request) (wire.Query, bool) {
	var q wire.Query
	b, err := base64.RawURLEncoding.DecodeString(req.Header.Get(wire.QueryHeader))
	if err == nil {
		_, err = dsse.Verify(b, dsse.TypeQuery, []ed25519.PublicKey{d.request}, &q)
	}
	if err != nil || q.Path != req.URL.Path || q.Device != d.Name {
		http.Error(w, "bad query", http.StatusBadRequest)
		return q, false
	}
	return q, true
}

func (d *Device) answer(w http.ResponseWriter, a wire.Answer) {
	a.V, a.Device, a.Now = wire.Version, d.Name, d.now()
	d.send(w, dsse.TypeAnswer, a)
}

func (d *Device) send(w http.ResponseWriter, kind string, payload any) {
	key := d.Key
	if d.faults().WrongKey {
		_, key, _ = ed25519.GenerateKey(nil) // the system's randomness does not fail
	}
	b, err := dsse.Sign(key, kind, payload)
	if err != nil {
		d.t.Errorf("sign: %v", err)
		cutOff()
	}
	_, _ = w.Write(b) // a caller that went away is one of the faults
}
