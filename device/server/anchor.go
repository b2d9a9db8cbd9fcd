package server

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"

	"nisse.io/nisse/device/audit"
	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/internal/checkpoint"
	"nisse.io/nisse/internal/crashpoint"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/telemetry"
)

// Anchor answers POST /v1/anchor: begin a new line of an audit that is broken, as the root key orders.
func (s *Server) Anchor(ctx context.Context, header, path string, body []byte) ([]byte, error) {
	ctx = context.WithoutCancel(ctx)
	if err := envelope(body); err != nil {
		return nil, err
	}
	q, _, answer, err := s.query(header, path)
	if answer != nil || err != nil {
		return answer, err
	}
	a, err := checkpoint.OpenAnchor(string(body), s.Device, s.Root)
	switch {
	case errors.Is(err, checkpoint.ErrOtherDevice):
		return s.refusedQuery(wire.OtherDevice, fmt.Sprintf("this is device %s; %s", s.Device, err))
	case err != nil:
		return s.unauthentic(fmt.Errorf("not an order of this device's root key: %w", err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if reason, message := s.anchor(ctx, a, string(body)); reason != "" {
		s.Log.Warn("audit.anchor_refused", slog.Int64("line", a.Line), slog.String("reason", string(reason)), slog.String("message", message))
		return s.refusedQuery(reason, message)
	}
	return s.status(ctx, q)
}

// anchor the audit, unless that was done by this very order, or a later one, or nothing is wrong with it. The lock is held.
func (s *Server) anchor(ctx context.Context, a checkpoint.Anchor, order string) (wire.Reason, string) {
	line, err := audit.Line(ctx, s.Store.DB())
	switch {
	case err != nil:
		return wire.AuditUnwritable, err.Error()
	case a.Line == line:
		return "", "" // it was carried out; who brought it did not hear
	case a.Line < line:
		return wire.OlderAnchor, fmt.Sprintf("the audit is at line %d already, the order is for line %d", line, a.Line)
	}
	found := s.broken
	err = s.Store.Tx(ctx, func(tx *sql.Tx) error {
		if found == nil {
			// The device itself sees nothing wrong; it may still lack what others have kept of it.
			has, err := audit.Contains(ctx, tx, a.Kept())
			var f *checkpoint.Finding
			switch {
			case errors.As(err, &f):
				found = f
			case err != nil:
				return err
			case has:
				return errIntact
			}
		}
		crashpoint.Hit("device.anchor.before")
		return audit.Begin(ctx, tx, s.Now(), a, order)
	})
	crashpoint.Hit("device.anchor.after")
	switch {
	case errors.Is(err, errIntact):
		return wire.AuditIntact, fmt.Sprintf("the audit is in order, and has the %d rows that were kept of it; there is nothing to begin anew", a.Rows)
	case err != nil:
		return wire.AuditUnwritable, "the audit cannot be anchored: " + err.Error()
	}
	s.broken, s.auditFault, s.sealed = nil, "", 0
	s.Metrics.broken.Set(0)
	telemetry.Changed(ctx, s.Log, "audit.anchored", telemetry.Event{Cause: dsse.KeyID(s.Root)}, slog.Int64("line", a.Line), slog.Int64("before", a.Before), slog.String("reason", a.Reason))
	// What had begun before the line ended, and does not run any more, ends now. If that cannot be written, the next start does it.
	if err := s.settle(ctx); err != nil {
		s.Log.Error("audit.fault", slog.String("error", err.Error()))
	}
	if err := s.flush(ctx); err != nil {
		s.Log.Error("audit.fault", slog.String("error", err.Error()))
	}
	s.seal(ctx)
	return "", ""
}

var errIntact = errors.New("the audit is in order")
