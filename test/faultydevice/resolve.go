package faultydevice

import (
	"cmp"
	"crypto/ed25519"
	"encoding/json"
	"io"
	"net/http"
	"slices"

	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/internal/approval"
	"nisse.io/nisse/internal/manifest"
)

// Program is the SHA-256 of every program of a device of this package, and User who it runs as.
const (
	Program = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	User    = "nobody"
)

func program(f Fault) string { return cmp.Or(f.Program, Program) }

// resolve tells what calls would run: a program is where its name says, unless a fault says otherwise.
func (d *Device) resolve(w http.ResponseWriter, req *http.Request) {
	f := d.faults()
	body, err := io.ReadAll(io.LimitReader(req.Body, wire.MaxRequest))
	if f.Silent || err != nil {
		cutOff()
	}
	r, _, err := wire.OpenResolve(body, []ed25519.PublicKey{d.request})
	if err != nil || r.Device != d.Name {
		d.answer(w, wire.Answer{State: wire.Refused, Reason: wire.BadSignature, Message: "refused by the test's device"})
		return
	}
	d.mu.Lock()
	d.asked = append(d.asked, r)
	d.mu.Unlock()
	if f.Unasked {
		cutOff()
	}
	if f.Gate != nil {
		<-f.Gate
	}
	if reason := d.deaf(r, f); reason != "" {
		d.answer(w, wire.Answer{State: wire.Refused, Reason: reason, Message: "refused by the test's device"})
		return
	}
	answer := wire.Resolved{V: wire.Version, Device: d.Name, Nonce: r.Nonce, Now: d.now()}
	for n := range r.Calls {
		answer.Calls = append(answer.Calls, wouldRun(r.Call(n), f))
	}
	if f.Misplaced {
		slices.Reverse(answer.Calls)
	}
	d.send(w, wire.TypeResolved, answer)
}

// deaf tells why a question is not answered.
func (d *Device) deaf(r wire.Resolve, f Fault) wire.Reason {
	switch {
	case f.Refuse != "":
		return f.Refuse
	case d.Holds() == "":
		return wire.NoManifest
	case r.ManifestDigest != d.Holds():
		return wire.OtherManifest
	case d.Manifest.Epoch <= d.Revoked():
		return wire.Revoked
	}
	return ""
}

func wouldRun(c approval.Call, f Fault) wire.ResolvedCall {
	out := wire.ResolvedCall{CallHash: c.Hash()}
	if f.WouldRefuse != "" {
		out.Reason, out.Message = f.WouldRefuse, "as the test wants it"
		return out
	}
	out.User = User
	var args manifest.ExecArgs
	if c.Capability == manifest.Exec && json.Unmarshal([]byte(c.Args), &args) == nil && len(args.Argv) > 0 {
		out.Executable, out.SHA256 = cmp.Or(f.Executable, args.Argv[0]), program(f)
	}
	return out
}

// executable that a request's statement names; empty when it names none.
func (d *Device) executable(r wire.Request) string {
	if r.Approved == nil {
		return ""
	}
	s, err := approval.Verify(r.Approved.Statement, []ed25519.PublicKey{d.approval})
	if err != nil {
		return ""
	}
	return s.Executable(r.Approved.Step)
}
