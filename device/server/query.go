package server

import (
	"context"
	"crypto/ed25519"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"nisse.io/nisse/device/audit"
	"nisse.io/nisse/device/clock"
	"nisse.io/nisse/device/deeds"
	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/internal/checkpoint"
)

// query authenticates a GET, and who brings a manifest, whose own request keys count as well. A refusal comes back as an answer.
func (s *Server) query(header, path string, brought ...ed25519.PublicKey) (q wire.Query, by ed25519.PublicKey, answer []byte, err error) {
	reason, message := wire.Reason(""), ""
	now := s.Now().Unix()
	s.mu.Lock()
	c := clock.Clock{Floor: s.clock.Floor} // what was told binds deeds; a query only asks
	trusted := append(s.manifests.RequestKeys(), brought...)
	s.mu.Unlock()
	if len(trusted) == 0 {
		answer, err = s.noManifest()
		return wire.Query{}, nil, answer, err
	}
	q, by, err = wire.OpenQuery(header, trusted)
	switch {
	case errors.Is(err, wire.ErrVersion):
		reason, message = wire.BadVersion, err.Error()
	case err != nil:
		answer, err = s.unauthentic(err)
		return wire.Query{}, nil, answer, err
	case q.Device != s.Device:
		reason, message = wire.OtherDevice, fmt.Sprintf("this is device %s, the query is for %s", s.Device, q.Device)
	case q.Path != path:
		reason, message = wire.BadArgs, fmt.Sprintf("the query is signed for %s, it was sent to %s", q.Path, path)
	case c.Believed(now):
		// A clock that is not believed answers all the same, so that people can see that it is the trouble.
		reason, message = c.Judge(now, q.At, q.ExpiresAt)
	}
	if reason == "" {
		return q, by, nil, nil
	}
	answer, err = s.refusedQuery(reason, message)
	return wire.Query{}, nil, answer, err
}

// Deed answers GET /v1/deeds/{id}, and with wire.WithProgress behind it tells what a call that runs has written so far.
func (s *Server) Deed(ctx context.Context, header, path, id string) ([]byte, error) {
	if _, _, answer, err := s.query(header, path); answer != nil || err != nil {
		return answer, err
	}
	ctx = context.WithoutCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if running, ok := s.running[id]; ok {
		a := s.runs(id, running.callHash, "it has begun and not ended")
		if strings.HasSuffix(path, wire.WithProgress) {
			a.Progress = running.live.Text()
		}
		return wire.SignAnswer(s.Key, a)
	}
	waiting := s.flushWaiting(ctx)
	d, found, err := deeds.Get(ctx, s.Store.DB(), id)
	switch {
	case err != nil:
		return s.refusedQuery(wire.AuditUnwritable, "the deed table cannot be read: "+err.Error())
	case found && d.State == wire.Running && waiting != nil:
		return s.runningAnswer(id, d.CallHash, "it has run, but how it ended cannot be recorded yet: "+waiting.Error())
	case found && d.State == wire.Running:
		// Only a chain that does not verify leaves such a deed behind: how it ended may not be written any more.
		return s.runningAnswer(id, d.CallHash, "it had begun when the device stopped, and the audit must be repaired before that can be settled")
	case found:
		return d.Answer, nil
	}
	return s.notSeen(ctx, id)
}

// notSeen says that a deed never came, as of now. Whoever hears it past the request's end takes it for proof that it will not run, so
// the device first makes sure that it cannot, even if its clock is set back. The lock is held.
func (s *Server) notSeen(ctx context.Context, id string) ([]byte, error) {
	now := s.clock.Latest(s.Now().Unix())
	if told := s.clock.Tell(now); told != s.clock {
		err := s.Store.Tx(ctx, func(tx *sql.Tx) error { return told.Save(ctx, tx) })
		if err != nil {
			return s.refusedQuery(wire.AuditUnwritable, "it was not seen, but that cannot be promised: "+err.Error())
		}
		s.clock = told
	}
	return wire.SignAnswer(s.Key, wire.Answer{Device: s.Device, Deed: id, State: wire.NotSeen, Now: now})
}

// refusedQuery, or change: no deed is named.
func (s *Server) refusedQuery(reason wire.Reason, message string) ([]byte, error) {
	return wire.SignAnswer(s.Key, wire.Answer{Device: s.Device, State: wire.Refused, Reason: reason, Message: message, Now: s.Now().Unix()})
}

// Status answers GET /v1/status.
func (s *Server) Status(ctx context.Context, header, path string) ([]byte, error) {
	q, _, answer, err := s.query(header, path)
	if answer != nil || err != nil {
		return answer, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status(ctx, q)
}

// status as of now, for q. The lock is held.
func (s *Server) status(ctx context.Context, q wire.Query) ([]byte, error) {
	_ = s.flushWaiting(ctx) // if it fails, problems says so
	now := s.Now().Unix()
	st := wire.Status{Device: s.Device, Nonce: q.Nonce, Manifests: s.manifests.Wire(), RevokedEpoch: s.revokedOnDisk, Now: now, Version: s.Version, Problems: s.problems(now)}
	end, err := audit.End(ctx, s.Store.DB())
	if err != nil {
		st.Problems = append(st.Problems, "the audit cannot be read: "+err.Error())
	}
	st.AuditRows, st.AuditHead = end.Rows, end.Head
	if st.AuditLine, err = audit.Line(ctx, s.Store.DB()); err != nil {
		st.Problems = append(st.Problems, "the audit cannot be read: "+err.Error())
	}
	return wire.SignStatus(s.Key, st)
}

// Audit answers GET /v1/audit?after=N.
func (s *Server) Audit(ctx context.Context, header, path string) ([]byte, error) {
	q, _, answer, err := s.query(header, path)
	if answer != nil || err != nil {
		return answer, err
	}
	after, err := number(path, "after")
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rows, more, err := audit.Page(ctx, s.Store.DB(), after)
	if err != nil {
		return s.refusedQuery(wire.AuditUnwritable, err.Error())
	}
	if rows == nil {
		rows = []string{}
	}
	return wire.SignAuditPage(s.Key, wire.AuditPage{Device: s.Device, Nonce: q.Nonce, Rows: rows, More: more})
}

// root that the query of a path says is known; empty when it says none.
func root(path string) (string, error) {
	u, err := url.Parse(path)
	if err != nil {
		return "", err
	}
	known := u.Query().Get("root")
	if known == "" {
		return "", nil
	}
	if _, err := checkpoint.ParseRoot(known); err != nil {
		return "", fmt.Errorf("root: %w", err)
	}
	return known, nil
}

// number of rows in the query of a path.
func number(path, name string) (int64, error) {
	u, err := url.Parse(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(u.Query().Get(name), 10, 64)
	if err != nil || n < 0 || n >= 1<<53 {
		return 0, fmt.Errorf("%s must be a number of rows, 0 for none", name)
	}
	return n, nil
}
