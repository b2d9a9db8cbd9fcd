package server

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"nisse.io/nisse/device/audit"
	"nisse.io/nisse/device/capability"
	"nisse.io/nisse/device/deeds"
	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/device/wire/chain"
	"nisse.io/nisse/internal/canonical"
	"nisse.io/nisse/internal/crashpoint"
	"nisse.io/nisse/internal/dsse"
)

// outcome of a deed whose intent is written.
type outcome struct {
	row    chain.Row
	answer wire.Answer
	at     time.Time
}

// record outcomes: the audit's row and the deed's answer in one transaction. It returns the signed answer.
func record(ctx context.Context, tx *sql.Tx, key ed25519.PrivateKey, o outcome) ([]byte, error) {
	end, err := audit.Append(ctx, tx, o.at, o.row)
	if err != nil {
		return nil, err
	}
	o.answer.AuditRow, o.answer.AuditHash = end.Rows, end.Head
	env, err := wire.SignAnswer(key, o.answer)
	if err != nil {
		return nil, err
	}
	return env, deeds.Finish(ctx, tx, o.answer.Deed, o.answer.State, env)
}

// flush outcomes that could not be written before. The lock is held.
func (s *Server) flush(ctx context.Context) error {
	for len(s.unrecorded) > 0 {
		o := s.unrecorded[0]
		err := s.Store.Tx(ctx, func(tx *sql.Tx) error {
			// A commit that reported an error may have happened.
			d, _, err := deeds.Get(ctx, tx, o.answer.Deed)
			if err != nil || d.State != wire.Running {
				return err
			}
			_, err = record(ctx, tx, s.Key, o)
			return err
		})
		if err != nil {
			return err
		}
		s.unrecorded = s.unrecorded[1:]
		s.changed(ctx, "deed.done", o.row, o.answer)
	}
	return nil
}

// settle what was running when the device stopped, and is not known to this process: nobody knows how it ended.
func (s *Server) settle(ctx context.Context) error {
	open, err := deeds.Open(ctx, s.Store.DB())
	if err != nil {
		return err
	}
	for _, d := range open {
		if s.alive(d.ID) {
			continue
		}
		row, err := audit.Intent(ctx, s.Store.DB(), d.IntentRow, d.ID)
		if err != nil {
			return err
		}
		started := row.At
		row.Kind, row.State, row.Reason, row.ResultHash = chain.Outcome, string(wire.Unknown), "", ""
		now := s.Now()
		o := outcome{row: row, at: now, answer: wire.Answer{Device: s.Device, Deed: d.ID, CallHash: d.CallHash, State: wire.Unknown, StartedAt: started,
			Message: "the device stopped while this ran; nobody knows how it ended, and it will not run again", Now: now.Unix()}}
		err = s.Store.Tx(ctx, func(tx *sql.Tx) error {
			_, err := record(ctx, tx, s.Key, o)
			return err
		})
		if err != nil {
			return err
		}
		s.changed(ctx, "deed.unknown", row, o.answer)
	}
	return nil
}

// alive deeds run in this process, or have ended and wait to be recorded.
func (s *Server) alive(deed string) bool {
	if _, runs := s.running[deed]; runs {
		return true
	}
	return slices.ContainsFunc(s.unrecorded, func(o outcome) bool { return o.answer.Deed == deed })
}

// finish a call that ran: write its outcome, then answer. audited is false for a free call whose intent could not be written.
func (s *Server) finish(ctx context.Context, in intent, ran capability.Outcome, audited bool) ([]byte, error) {
	done := s.Now()
	o := outcome{row: in.row, at: done, answer: wire.Answer{Device: s.Device, Deed: in.request.Deed, CallHash: in.row.CallHash,
		State: ran.State, Reason: ran.Reason, Message: ran.Message, StartedAt: nanos(in.started), FinishedAt: nanos(done), Now: done.Unix()}}
	if err := fit(&o.answer, ran, in.held.Limits.OutputBytes); err != nil {
		o.answer.Result, o.answer.Message = "", join(ran.Message, err.Error())
	}
	o.row.Kind, o.row.State, o.row.Reason = chain.Outcome, string(ran.State), string(ran.Reason)
	if o.answer.Result != "" {
		o.row.ResultHash = canonical.Hex([]byte(o.answer.Result))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[in.request.Deed].cancel(nil) // it has ended; this frees what the context holds
	delete(s.running, in.request.Deed)
	if !audited {
		o.answer.Message = join(o.answer.Message, unaudited)
		return wire.SignAnswer(s.Key, o.answer)
	}
	var env []byte
	crashpoint.Hit("device.outcome.before")
	err := s.write(ctx, func(tx *sql.Tx) (err error) {
		env, err = record(ctx, tx, s.Key, o)
		return err
	})
	crashpoint.Hit("device.outcome.after")
	if err == nil {
		s.changed(ctx, "deed.done", o.row, o.answer)
		return env, nil
	}
	s.unrecorded = append(s.unrecorded, o)
	if in.request.Approved == nil {
		o.answer.Message = join(o.answer.Message, unaudited)
		return wire.SignAnswer(s.Key, o.answer)
	}
	// Nobody is told how it ended before that is on disk, for a restart would say Unknown.
	return s.runningAnswer(in.request.Deed, in.row.CallHash, "it has run, but how it ended cannot be recorded yet: "+err.Error())
}

const unaudited = "this call is not in the device's audit, which cannot be written at the moment"

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}

// fit renders the result into the answer, keeping less and less of its content until the envelope can be read by who gets it: JSON in
// JSON in base64 may take ten times the bytes.
func fit(a *wire.Answer, ran capability.Outcome, keep int) error {
	if ran.Result == nil {
		return nil
	}
	const room = dsse.MaxEnvelope*3/4 - 64<<10
	result := ran.Result(keep)
	for keep > 0 {
		size, err := quotedSize(result)
		if err != nil {
			return fmt.Errorf("result: %w", err)
		}
		if size <= room {
			break
		}
		keep = min(keep/2, int(int64(keep)*room/int64(size)))
		result = ran.Result(keep)
	}
	b, err := canonical.Marshal(result)
	a.Result = string(b)
	return err
}

// quotedSize of a result as a string in an answer. JSON holds no control characters, so that quotes and backslashes alone grow.
func quotedSize(result any) (int, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(result); err != nil {
		return 0, err
	}
	return b.Len() + bytes.Count(b.Bytes(), []byte{'"'}) + bytes.Count(b.Bytes(), []byte{'\\'}), nil
}

func nanos(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

// runs is the answer about a deed that has not ended; it is never stored.
func (s *Server) runs(deed, callHash, message string) wire.Answer {
	return wire.Answer{Device: s.Device, Deed: deed, CallHash: callHash, State: wire.Running, Message: message, Now: s.Now().Unix()}
}

func (s *Server) runningAnswer(deed, callHash, message string) ([]byte, error) {
	return wire.SignAnswer(s.Key, s.runs(deed, callHash, message))
}

func (s *Server) changed(ctx context.Context, name string, row chain.Row, a wire.Answer) {
	s.Metrics.answered(row.Capability, a)
	logChange(ctx, s.Log, name, row, slog.String("state", string(a.State)), slog.String("reason", string(a.Reason)), slog.Int64("row", a.AuditRow))
}
