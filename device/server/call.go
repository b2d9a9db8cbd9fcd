package server

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"nisse.io/nisse/device/audit"
	"nisse.io/nisse/device/capability"
	"nisse.io/nisse/device/deeds"
	"nisse.io/nisse/device/manifests"
	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/device/wire/chain"
	"nisse.io/nisse/hosttools/command"
	"nisse.io/nisse/internal/crashpoint"
	"nisse.io/nisse/internal/manifest"
)

// intent of a call that is about to run.
type intent struct {
	request wire.Request
	// held is the manifest that it runs under.
	held *manifests.Held
	row  chain.Row
	// executable that was approved.
	executable string
	// live is what it has written so far.
	live    *command.Tail
	started time.Time
	// ctx ends, with the cause, when what runs is to be killed.
	ctx context.Context
}

// run of a deed in this process.
type run struct {
	callHash string
	epoch    int64 // of its manifest
	live     *command.Tail
	cancel   context.CancelCauseFunc
}

// What ends a run before its time, in the words that end "it was killed because".
var (
	errStopping = errors.New("the device was stopping")
	errRevoked  = errors.New("its manifest was revoked")
)

// Call answers the body of POST /v1/call. An error means that the body could not be read; everything else is an answer.
func (s *Server) Call(ctx context.Context, body []byte) ([]byte, error) {
	// Who asked may go away; what was begun is finished and written down all the same.
	ctx = context.WithoutCancel(ctx)
	if err := envelope(body); err != nil {
		return nil, err
	}
	held := s.holds()
	if len(held.All()) == 0 {
		return s.noManifest()
	}
	r, by, err := wire.OpenRequest(body, held.RequestKeys())
	h := held.Get(r.ManifestDigest)
	switch {
	case errors.Is(err, wire.ErrVersion):
		return s.refuse(ctx, r, verdict{reason: wire.BadVersion, message: err.Error()})
	case err != nil:
		return s.unauthentic(err)
	case h != nil && !h.Trusts(by):
		return s.unauthentic(errors.New("the key that signed it is not one of the manifest's that it names"))
	case r.Device != s.Device:
		return s.refuse(ctx, r, verdict{reason: wire.OtherDevice, message: fmt.Sprintf("this is device %s, the call is for %s", s.Device, r.Device)})
	}
	in, v, audited, answer, err := s.begin(ctx, r, h)
	if answer != nil || err != nil {
		return answer, err
	}
	defer s.calls.Done()
	defer func() { <-s.slots }()
	crashpoint.Hit("device.run.before")
	out := s.run(in, v)
	crashpoint.Hit("device.run.after")
	s.Metrics.seconds.WithLabelValues(r.Capability).Observe(s.Now().Sub(in.started).Seconds())
	return s.finish(ctx, in, out, audited)
}

// run what was begun, unless it is to be killed before it starts.
func (s *Server) run(in intent, v manifest.Verdict) capability.Outcome {
	if err := context.Cause(in.ctx); err != nil {
		return capability.Outcome{State: wire.Failed, Message: "it did not run because " + err.Error()}
	}
	return capability.Runner{Manifest: in.held.Manifest, User: s.User, Env: s.Env, Never: s.Never, Executable: in.executable, Live: in.live}.Run(in.ctx, in.request.Capability, v)
}

// begin judges a request, which names the manifest h or one that is not held, and writes its intent. It returns an answer when there is nothing to run.
func (s *Server) begin(ctx context.Context, r wire.Request, h *manifests.Held) (in intent, allowed manifest.Verdict, audited bool, answer []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.Now()
	v, err := s.judge(ctx, r, h, now.Unix())
	switch {
	case err != nil && unwritten(r, h) && s.freeUnseen(r, h, now.Unix(), &v):
		// The table cannot be read. A read may go on; at worst it is read twice.
	case err != nil:
		s.auditFault = err.Error()
		answer, err = s.transient(r, wire.AuditUnwritable, "the deed table cannot be read: "+err.Error())
		return intent{}, allowed, false, answer, err
	case v.running:
		message := "it has begun and not ended"
		if ferr := s.flushWaiting(ctx); ferr != nil {
			message = "it has run, but how it ended cannot be recorded yet: " + ferr.Error()
		} else if d, ok, gerr := deeds.Get(ctx, s.Store.DB(), r.Deed); gerr == nil && ok && d.State != wire.Running {
			return intent{}, allowed, false, d.Answer, nil
		}
		answer, err = s.runningAnswer(r.Deed, r.Call().Hash(), message)
		return intent{}, allowed, false, answer, err
	case v.stored != nil:
		return intent{}, allowed, false, v.stored, nil
	case v.reason != "":
		answer, err = s.refuseLocked(ctx, r, v)
		return intent{}, allowed, false, answer, err
	}
	if s.closed {
		answer, err = s.transient(r, wire.Busy, "the device is stopping; ask again")
		return intent{}, allowed, false, answer, err
	}
	select {
	case s.slots <- struct{}{}:
	default:
		answer, err = s.transient(r, wire.Busy, fmt.Sprintf("%d calls are running, which is the most; ask again", cap(s.slots)))
		return intent{}, allowed, false, answer, err
	}
	in = intent{request: r, held: h, row: rowOf(r), executable: v.executable, live: &command.Tail{}, started: now}
	in.row.Kind, in.row.Approvers = chain.Intent, v.approvers
	reason, message := s.intend(ctx, in, now)
	if reason != "" && (reason != wire.AuditUnwritable || !unwritten(r, h)) {
		<-s.slots
		answer, err = s.transient(r, reason, message)
		return intent{}, allowed, false, answer, err
	}
	runs, cancel := context.WithCancelCause(s.stop)
	in.ctx = runs
	s.running[r.Deed] = run{callHash: in.row.CallHash, epoch: h.Epoch, live: in.live, cancel: cancel}
	s.calls.Add(1)
	return in, v.allowed, reason == "", nil, nil
}

// intend writes the intent: the audit's row, the deed and the clock's floor in one transaction. The lock is held.
func (s *Server) intend(ctx context.Context, in intent, now time.Time) (wire.Reason, string) {
	seen := s.clock.Accept(now.Unix(), in.request.At)
	believed := now.Unix()
	if !s.clock.Believed(believed) {
		believed = 0
	}
	crashpoint.Hit("device.intent.before")
	err := s.write(ctx, func(tx *sql.Tx) error {
		end, err := audit.Append(ctx, tx, now, in.row)
		if err != nil {
			return err
		}
		d := deeds.Deed{ID: in.request.Deed, CallHash: in.row.CallHash, Approved: in.request.Approved != nil, State: wire.Running, ExpiresAt: in.request.ExpiresAt, IntentRow: end.Rows}
		if err := s.table.Add(ctx, tx, believed, d); err != nil {
			return err
		}
		if seen != s.clock {
			return seen.Save(ctx, tx)
		}
		return nil
	})
	crashpoint.Hit("device.intent.after")
	switch {
	case errors.Is(err, deeds.ErrFull):
		return wire.TableFull, err.Error() + "; it empties itself as deeds grow old, or give the device a larger one"
	case err != nil:
		return wire.AuditUnwritable, "the audit cannot be written, so nothing runs that needs approval, nor for agents of privilege Elevated: " + err.Error()
	}
	s.clock = seen
	logChange(ctx, s.Log, "deed.begun", in.row)
	return "", ""
}

// unwritten tells whether a request may run though it cannot be written down: a look, and not for an agent of privilege Elevated, of whose
// calls everything is to be known.
func unwritten(r wire.Request, h *manifests.Held) bool {
	return r.Approved == nil && h != nil && h.Privilege != manifest.Elevated
}

// freeUnseen judges a free call without the deed table.
func (s *Server) freeUnseen(r wire.Request, h *manifests.Held, now int64, v *verdict) bool {
	allowed, by, reason, message := s.weigh(r, h, now, false)
	*v = verdict{allowed: allowed, approved: by, reason: reason, message: message}
	return reason == ""
}

// flushWaiting outcomes, when there are any and the chain allows it. The lock is held.
func (s *Server) flushWaiting(ctx context.Context) error {
	if len(s.unrecorded) == 0 {
		return nil
	}
	return s.write(ctx, nil)
}

func (s *Server) refuse(ctx context.Context, r wire.Request, v verdict) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refuseLocked(ctx, r, v)
}

// refuseLocked writes a refusal into the audit and, when it is final, into the deed table, so that the same request stays refused: who
// was told so may rely on it. Where that cannot be written, the refusal is given as one that is not final.
func (s *Server) refuseLocked(ctx context.Context, r wire.Request, v verdict) ([]byte, error) {
	now := s.Now()
	believed := now.Unix()
	if !s.clock.Believed(believed) {
		believed = 0
	}
	row := rowOf(r)
	row.Kind, row.State, row.Reason = chain.Refused, string(wire.Refused), string(v.reason)
	a := wire.Answer{Device: s.Device, Deed: r.Deed, CallHash: row.CallHash, State: wire.Refused, Reason: v.reason, Message: v.message, Now: now.Unix()}
	final := !v.reason.Transient() && v.reason != wire.BadVersion && v.reason != wire.OtherDevice && v.reason != wire.DeedConflict
	var env []byte
	err := s.write(ctx, func(tx *sql.Tx) error {
		end, err := audit.Append(ctx, tx, now, row)
		if err != nil {
			return err
		}
		a.AuditRow, a.AuditHash = end.Rows, end.Head
		if env, err = wire.SignAnswer(s.Key, a); err != nil || !final {
			return err
		}
		return s.table.Add(ctx, tx, believed, deeds.Deed{ID: r.Deed, CallHash: row.CallHash, Approved: r.Approved != nil, State: wire.Refused, Answer: env, ExpiresAt: r.ExpiresAt, IntentRow: end.Rows})
	})
	if err == nil {
		s.changed(ctx, "deed.refused", row, a)
		return env, nil
	}
	if final && r.Approved != nil {
		reason := wire.AuditUnwritable
		if errors.Is(err, deeds.ErrFull) {
			reason = wire.TableFull
		}
		return s.transient(r, reason, fmt.Sprintf("it would be refused (%s: %s), but that cannot be recorded: %s", v.reason, v.message, err))
	}
	a.AuditRow, a.AuditHash, a.Message = 0, "", join(v.message, unaudited)
	s.Metrics.answered(r.Capability, a)
	return wire.SignAnswer(s.Key, a)
}

// transient refusals leave no trace but in logs and metrics: the same request may come again and run.
func (s *Server) transient(r wire.Request, reason wire.Reason, message string) ([]byte, error) {
	a := wire.Answer{Device: s.Device, Deed: r.Deed, CallHash: r.Call().Hash(), State: wire.Refused, Reason: reason, Message: message, Now: s.Now().Unix()}
	s.Metrics.answered(r.Capability, a)
	s.Log.Warn("deed.postponed", slog.String("agent", r.Agent), slog.String("task_id", r.CorrelationID), slog.String("cause", r.Deed), slog.String("reason", string(reason)), slog.String("message", message))
	return wire.SignAnswer(s.Key, a)
}

// unauthentic requests could be anybody's: they name no deed in the answer and leave no row, for strangers could fill the disk.
func (s *Server) unauthentic(err error) ([]byte, error) {
	if s.strangers.Allow() {
		s.Log.Warn("request.unauthentic", slog.String("error", err.Error()))
	}
	return s.nobody(wire.BadSignature, err.Error())
}

// noManifest is what a device says that holds none: it knows no key that it could believe.
func (s *Server) noManifest() ([]byte, error) {
	return s.nobody(wire.NoManifest, "this device holds no manifest yet; bring it one that its root key signed")
}

// nobody is told which deed a refusal is of, because nobody known has asked for it.
func (s *Server) nobody(reason wire.Reason, message string) ([]byte, error) {
	a := wire.Answer{Device: s.Device, State: wire.Refused, Reason: reason, Message: message, Now: s.Now().Unix()}
	s.Metrics.answered("", a)
	return wire.SignAnswer(s.Key, a)
}
