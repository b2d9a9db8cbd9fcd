package server

import (
	"errors"
	"fmt"

	"nisse.io/nisse/device/capability"
	"nisse.io/nisse/device/clock"
	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/internal/manifest"
)

// Resolve answers POST /v1/resolve: what a call would run. Nothing runs and nothing is recorded; who approves the call approves these
// bytes, and the device compares them when it runs.
func (s *Server) Resolve(body []byte) ([]byte, error) {
	if err := envelope(body); err != nil {
		return nil, err
	}
	held := s.holds()
	if len(held.All()) == 0 {
		return s.noManifest()
	}
	r, by, err := wire.OpenResolve(body, held.RequestKeys())
	h := held.Get(r.ManifestDigest)
	switch {
	case errors.Is(err, wire.ErrVersion):
		return s.refusedQuery(wire.BadVersion, err.Error())
	case err != nil:
		return s.unauthentic(err)
	case h != nil && !h.Trusts(by):
		return s.unauthentic(errors.New("the key that signed it is not one of the manifest's that it names"))
	case r.Device != s.Device:
		return s.refusedQuery(wire.OtherDevice, fmt.Sprintf("this is device %s, the question is for %s", s.Device, r.Device))
	case h == nil:
		return s.refusedQuery(wire.OtherManifest, fmt.Sprintf("this device does not hold manifest %s, which the call was made for", r.ManifestDigest))
	}
	now := s.Now().Unix()
	s.mu.Lock()
	c := clock.Clock{Floor: s.clock.Floor}
	reason, message := s.manifests.Dead(h, s.clock.Known(now))
	s.mu.Unlock()
	if reason == "" {
		reason, message = c.Judge(now, r.At, r.ExpiresAt)
	}
	if reason != "" {
		return s.refusedQuery(reason, message)
	}
	v, err := h.Check(r.Capability, r.Args)
	switch {
	case errors.Is(err, manifest.ErrPersonSignature):
		return s.refusedQuery(wire.NeedsSignature, err.Error())
	case errors.Is(err, manifest.ErrNotAllowed):
		return s.refusedQuery(wire.NotAllowed, err.Error())
	case err != nil:
		return s.refusedQuery(wire.BadArgs, err.Error())
	}
	select { // a program is read to be hashed, which costs as much as a call
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		return s.refusedQuery(wire.Busy, fmt.Sprintf("%d calls are running, which is the most; ask again", cap(s.slots)))
	}
	got, refused := capability.Runner{Manifest: h.Manifest, Env: s.Env, Never: s.Never}.Resolve(v)
	switch {
	case refused.State == wire.Refused:
		return s.refusedQuery(refused.Reason, refused.Message)
	case refused.State != "": // a program that is not there, or cannot be read
		return s.refusedQuery(wire.Unavailable, refused.Message)
	}
	return wire.SignResolved(s.Key, wire.Resolved{Device: s.Device, Nonce: r.Nonce, CallHash: r.Call().Hash(),
		Executable: got.Executable, SHA256: got.SHA256, User: got.User, Confined: got.Confined, Now: s.Now().Unix()})
}
