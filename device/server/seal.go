package server

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"time"

	"nisse.io/nisse/device/audit"
	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/device/wire/chain"
	"nisse.io/nisse/internal/checkpoint"
	"nisse.io/nisse/internal/crashpoint"
	"nisse.io/nisse/internal/telemetry"
)

// sealRows is how many rows may be in the audit without a checkpoint.
const sealRows = 100

// sealSoon makes a checkpoint when enough rows have come, and else sees to it that one is made in time. At rest there is no timer. The lock is held.
func (s *Server) sealSoon(ctx context.Context) {
	end, err := audit.End(ctx, s.Store.DB())
	s.Metrics.unsealed.Set(float64(max(0, end.Rows-s.sealed)))
	switch {
	case err != nil || end.Rows-s.sealed >= sealRows:
		s.seal(ctx)
	case end.Rows > s.sealed:
		s.sealLater()
	}
}

func (s *Server) sealLater() {
	if s.sealer != nil || s.closed {
		return
	}
	s.sealer = time.AfterFunc(s.SealAfter, func() {
		s.sealNow()
		s.Rest()
	})
}

func (s *Server) sealNow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sealer = nil
	if !s.closed {
		s.seal(s.stop)
	}
}

// seal all rows. What cannot be written now is tried again; deeds do not wait for it, for the rows themselves are on disk. The lock is held.
func (s *Server) seal(ctx context.Context) {
	if end, err := audit.End(ctx, s.Store.DB()); s.broken != nil || err == nil && end.Rows == s.sealed {
		return
	}
	var made audit.Seal
	crashpoint.Hit("device.seal.before")
	err := s.Store.Tx(ctx, func(tx *sql.Tx) (err error) {
		made, err = audit.MakeSeal(ctx, tx, s.Now(), s.Device, s.Key)
		crashpoint.Hit("device.seal.written")
		return err
	})
	crashpoint.Hit("device.seal.after")
	var finding *chain.Finding
	switch {
	case errors.As(err, &finding):
		s.breaks(finding)
	case err != nil:
		s.Metrics.auditFaults.Inc()
		s.Log.Error("audit.not_sealed", slog.String("error", err.Error()))
		s.sealLater()
	case made.Rows > s.sealed:
		s.sealed = made.Rows
		s.Metrics.unsealed.Set(0)
		telemetry.Changed(ctx, s.Log, "audit.sealed", telemetry.Event{Cause: s.Device}, slog.Int64("rows", made.Rows), slog.String("root", made.Root.String()))
	}
}

// breaks off writing to an audit that does not verify.
func (s *Server) breaks(f *chain.Finding) {
	s.broken = f.Bounded() // it may quote what somebody wrote into the audit
	s.Metrics.broken.Set(1)
	s.Log.Error("audit.broken", slog.String("error", f.Error()))
}

// Checkpoint answers GET /v1/checkpoint?since=N.
func (s *Server) Checkpoint(ctx context.Context, header, path string) ([]byte, error) {
	q, _, answer, err := s.query(header, path)
	if answer != nil || err != nil {
		return answer, err
	}
	since, err := number(path, "since")
	if err != nil {
		return nil, err
	}
	known, err := root(path)
	if err != nil {
		return nil, err
	}
	ctx = context.WithoutCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	sealed, err := audit.Sealed(ctx, s.Store.DB())
	if err != nil {
		return s.refusedQuery(wire.AuditUnwritable, err.Error())
	}
	r := checkpoint.Reply{Device: s.Device, Nonce: q.Nonce, Since: since, Known: known, Checkpoint: sealed.Note, Now: s.Now().Unix()}
	if since > 0 && since < sealed.Rows && s.broken == nil {
		err := s.Store.Tx(ctx, func(tx *sql.Tx) (err error) {
			r.Proof, err = audit.Prove(ctx, tx, sealed, since)
			return err
		})
		var finding *chain.Finding
		switch {
		case errors.As(err, &finding):
			s.breaks(finding)
		case err != nil:
			return s.refusedQuery(wire.AuditUnwritable, err.Error())
		}
	}
	r.Finding = s.broken
	return r.Sign(s.Key)
}
