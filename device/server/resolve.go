package server

import (
	"errors"
	"fmt"

	"nisse.io/nisse/device/capability"
	"nisse.io/nisse/device/clock"
	"nisse.io/nisse/device/manifests"
	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/internal/manifest"
)

// Resolve answers POST /v1/resolve: what calls would run. Nothing runs and nothing is recorded; who approves the calls approves these
// bytes, and the device compares them when they run.
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
		return s.refusedQuery(wire.OtherManifest, fmt.Sprintf("this device does not hold manifest %s, which the calls were made for", r.ManifestDigest))
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
	if len(r.Calls) == 0 || len(r.Calls) > wire.MaxResolve {
		return s.refusedQuery(wire.BadArgs, fmt.Sprintf("a question is about 1 to %d calls, this one about %d", wire.MaxResolve, len(r.Calls)))
	}
	select { // programs are read to be hashed, which costs as much as a call
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		return s.refusedQuery(wire.Busy, fmt.Sprintf("%d calls are running, which is the most; ask again", cap(s.slots)))
	}
	resolved := wire.Resolved{Device: s.Device, Nonce: r.Nonce, Calls: make([]wire.ResolvedCall, len(r.Calls)), Now: s.Now().Unix()}
	resolver := capability.Runner{Manifest: h.Manifest, User: s.User, Env: s.Env, Never: s.Never}.Resolver()
	for n, c := range r.Calls {
		resolved.Calls[n] = s.resolve(h, resolver, c)
		resolved.Calls[n].CallHash = r.Call(n).Hash()
	}
	return wire.SignResolved(s.Key, resolved)
}

// resolve one call, or tell why it would be refused.
func (s *Server) resolve(h *manifests.Held, resolver *capability.Resolver, c wire.AskedCall) wire.ResolvedCall {
	refuse := func(reason wire.Reason, message string) wire.ResolvedCall {
		return wire.ResolvedCall{Reason: reason, Message: message}
	}
	v, err := h.Check(c.Capability, c.Args)
	switch {
	case errors.Is(err, manifest.ErrNotAllowed):
		return refuse(wire.NotAllowed, err.Error())
	case err != nil:
		return refuse(wire.BadArgs, err.Error())
	}
	got, refused := resolver.Resolve(v)
	switch {
	case refused.State == wire.Refused:
		return refuse(refused.Reason, refused.Message)
	case refused.State != "": // a program that is not there, or cannot be read
		return refuse(wire.Unavailable, refused.Message)
	}
	return wire.ResolvedCall{Executable: got.Executable, SHA256: got.SHA256, User: got.User, Confined: got.Confined}
}
