package server

import (
	"context"
	"crypto/ed25519"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"

	"nisse.io/nisse/device/audit"
	"nisse.io/nisse/device/manifests"
	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/device/wire/chain"
	"nisse.io/nisse/internal/canonical"
	"nisse.io/nisse/internal/crashpoint"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/telemetry"
)

// Offline is who brings a manifest at the machine itself.
const Offline = "offline"

// Bring answers POST /v1/manifests.
func (s *Server) Bring(ctx context.Context, header, path string, body []byte) ([]byte, error) {
	ctx = context.WithoutCancel(ctx)
	if err := envelope(body); err != nil {
		return nil, err
	}
	h, err := manifests.Open(string(body), s.Root)
	switch {
	case errors.Is(err, dsse.ErrRefused):
		return s.unauthentic(fmt.Errorf("not a manifest of this device's root key: %w", err))
	case err != nil: // the root key signed what is no manifest here
		return s.nobody(wire.BadArgs, err.Error())
	}
	q, by, answer, err := s.query(header, path, h.RequestKeys()...)
	if answer != nil || err != nil {
		return answer, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if reason, message := s.hold(ctx, h, dsse.KeyID(by)); reason != "" {
		s.Log.Warn("manifest.refused", slog.String("cause", h.Digest), slog.String("reason", string(reason)), slog.String("message", message))
		return s.refusedQuery(reason, message)
	}
	return s.status(ctx, q)
}

// Install a manifest at the machine itself, by its envelope.
func (s *Server) Install(ctx context.Context, envelope string) (wire.HeldManifest, error) {
	h, err := manifests.Open(envelope, s.Root)
	if err != nil {
		return wire.HeldManifest{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if reason, message := s.hold(context.WithoutCancel(ctx), h, Offline); reason != "" {
		return wire.HeldManifest{}, &wire.RefusedError{Reason: reason, Message: message}
	}
	return h.Wire(), nil
}

// hold a manifest from now on. The lock is held.
func (s *Server) hold(ctx context.Context, h *manifests.Held, by string) (wire.Reason, string) {
	now := s.Now()
	if !s.clock.Believed(now.Unix()) { // by such a clock, a manifest that has ended long ago seems to last
		return wire.NotYet, s.clock.Problem(now.Unix())
	}
	next, changed, reason, message := s.manifests.Accept(h, s.Device, s.clock.Known(now.Unix()))
	if reason != "" || !changed {
		return reason, message
	}
	w := h.Wire()
	row, err := changeRow(chain.Manifest, struct {
		wire.HeldManifest
		By string `json:"by"`
	}{w, by})
	if err != nil {
		return wire.BadArgs, err.Error()
	}
	crashpoint.Hit("device.manifest.before")
	err = s.write(ctx, func(tx *sql.Tx) error {
		_, err := audit.Append(ctx, tx, now, row)
		return errors.Join(err, h.Save(ctx, tx))
	})
	crashpoint.Hit("device.manifest.after")
	if err != nil {
		return wire.AuditUnwritable, "the manifest cannot be recorded: " + err.Error()
	}
	s.manifests = next
	s.Metrics.holds(next)
	telemetry.Changed(ctx, s.Log, "manifest.installed", telemetry.Event{Cause: w.Digest}, slog.String("privilege", string(w.Privilege)), slog.Int64("epoch", w.Epoch),
		slog.String("expires_at", w.ExpiresAt), slog.String("by", by))
	return "", ""
}

// Revoke answers POST /v1/revoke.
func (s *Server) Revoke(ctx context.Context, header, path string, body []byte) ([]byte, error) {
	ctx = context.WithoutCancel(ctx)
	if err := envelope(body); err != nil {
		return nil, err
	}
	q, _, answer, err := s.query(header, path)
	if answer != nil || err != nil {
		return answer, err
	}
	r, by, err := wire.OpenRevocation(body, s.holds().RequestKeys())
	switch {
	case errors.Is(err, wire.ErrVersion):
		return s.refusedQuery(wire.BadVersion, err.Error())
	case err != nil:
		return s.unauthentic(err)
	case r.Device != s.Device:
		return s.refusedQuery(wire.OtherDevice, fmt.Sprintf("this is device %s, the revocation is for %s", s.Device, r.Device))
	case r.Epoch < 1:
		return s.refusedQuery(wire.BadArgs, fmt.Sprintf("epoch %d: want a positive number", r.Epoch))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.revoke(ctx, r, by); err != nil {
		return s.refusedQuery(wire.AuditUnwritable, "the revocation counts from now on, but it cannot be written, and a restart would forget it; ask again: "+err.Error())
	}
	return s.status(ctx, q)
}

// revoke counts at once, whatever can be written. An error means that it is not on disk. The lock is held.
func (s *Server) revoke(ctx context.Context, r wire.Revocation, by ed25519.PublicKey) error {
	now := s.Now()
	s.manifests = s.manifests.Revoke(r.Epoch, s.clock.Known(now.Unix()))
	epoch := s.manifests.Revoked
	if epoch <= s.revokedOnDisk {
		return nil
	}
	s.Metrics.holds(s.manifests)
	killed := 0
	for _, running := range s.running {
		if running.epoch <= epoch {
			running.cancel(errRevoked)
			killed++
		}
	}
	row, err := changeRow(chain.Revoked, struct {
		Epoch int64  `json:"epoch"`
		At    int64  `json:"at"`
		By    string `json:"by"`
	}{epoch, r.At, dsse.KeyID(by)})
	if err != nil {
		return err
	}
	save := func(tx *sql.Tx) error { return manifests.SaveRevoked(ctx, tx, epoch) }
	crashpoint.Hit("device.revoke.before")
	err = s.write(ctx, func(tx *sql.Tx) error {
		_, err := audit.Append(ctx, tx, now, row)
		return errors.Join(err, save(tx))
	})
	audited := err == nil
	if !audited { // what cannot be told by the chain must count all the same
		err = s.Store.Tx(ctx, save)
	}
	crashpoint.Hit("device.revoke.after")
	if err != nil {
		return err
	}
	s.revokedOnDisk = epoch
	telemetry.Changed(ctx, s.Log, "manifests.revoked", telemetry.Event{Cause: dsse.KeyID(by)}, slog.Int64("epoch", epoch), slog.Int("killed", killed), slog.Bool("audited", audited))
	return nil
}

func changeRow(kind chain.Kind, what any) (chain.Row, error) {
	b, err := canonical.Marshal(what)
	return chain.Row{Kind: kind, Args: string(b)}, err
}
