// Package server answers what comes over the wire. Each request is judged in the order of wire's reasons; what passes is written down,
// run, written down again and answered, in that order. A person's machine depends on this package being boring.
package server

import (
	"context"
	"crypto/ed25519"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"nisse.io/nisse/device/audit"
	"nisse.io/nisse/device/clock"
	"nisse.io/nisse/device/deeds"
	"nisse.io/nisse/device/manifests"
	"nisse.io/nisse/device/store"
	"nisse.io/nisse/device/wire/chain"
	"nisse.io/nisse/hosttools/confine"
)

// Options of a server.
type Options struct {
	// Device is the name of the Device object.
	Device string
	// Root key that manifests must be signed by.
	Root ed25519.PublicKey
	// Key that signs answers.
	Key ed25519.PrivateKey
	// Store for writing; the caller closes it after Close.
	Store *store.Store
	Now   func() time.Time
	Log   *slog.Logger
	// Busy is how many calls may run at once.
	Busy int
	// Bounds of the deed table.
	Bounds deeds.Bounds
	// Version of nisse-device.
	Version string
	// Env of commands; command.Environment when nil.
	Env []string
	// User of manifests that name none; this process's own when empty.
	User string
	// Never holds files and directories that no rule of any manifest opens.
	Never []string
	// SealAfter is how long a row may be in the audit without a checkpoint.
	SealAfter time.Duration
	// Rest is called when rows that had waited SealAfter were sealed: mostly, the device has nothing more to do.
	Rest func()
	// Metrics are counted in; never nil.
	Metrics *Metrics
}

// Server of one device.
type Server struct {
	Options
	table deeds.Table
	slots chan struct{}
	// strangers bounds the log lines about requests that anybody can send.
	strangers *rate.Limiter

	// stop ends commands that run, when the server closes.
	stop   context.Context
	cancel context.CancelCauseFunc
	calls  sync.WaitGroup

	// mu is held while a request is judged and its intent written, while an outcome is written, and while the store is read: who is told
	// that a deed was not seen may rely on it.
	mu    sync.Mutex
	clock clock.Clock
	// manifests as they count now.
	manifests manifests.Set
	// revokedOnDisk is behind manifests.Revoked while that could not be written; a restart would forget the difference.
	revokedOnDisk int64
	// running deeds of this process.
	running map[string]run
	// unrecorded outcomes could not be written when they came. Their deeds stay Running until they are; a restart makes them Unknown.
	unrecorded []outcome
	// broken says why nothing may be added to the audit: the chain does not verify.
	broken *chain.Finding
	// sealed is how many rows the newest checkpoint has, and sealer the timer that makes the next one; nil when none is due.
	sealed int64
	sealer *time.Timer
	// auditFault is why the last write failed; empty when it did not.
	auditFault string
	closed     bool
}

// New server. Deeds that had begun when the device stopped become Unknown, in the audit and in the table, before it returns. A chain
// that does not verify is no error: reads go on, what needs approval is refused, and Status says why.
func New(ctx context.Context, o Options) (*Server, error) {
	held, strange, err := manifests.Load(ctx, o.Store.DB(), o.Device, o.Root)
	if err != nil {
		return nil, err
	}
	for _, err := range strange {
		o.Log.Warn("manifest.strange", slog.String("error", err.Error()))
	}
	c, err := clock.Load(ctx, o.Store.DB())
	if err != nil {
		return nil, fmt.Errorf("clock: %w", err)
	}
	s := &Server{Options: o, table: deeds.Table{Bounds: o.Bounds}, slots: make(chan struct{}, o.Busy), strangers: rate.NewLimiter(1, 5),
		clock: c, manifests: held, revokedOnDisk: held.Revoked, running: map[string]run{}}
	s.stop, s.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	s.Metrics.holds(held)
	_, err = audit.Verify(ctx, o.Store.DB())
	var finding *chain.Finding
	if errors.As(err, &finding) {
		s.breaks(finding)
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	if err := s.settle(ctx); err != nil {
		return nil, fmt.Errorf("record what was running when the device stopped: %w", err)
	}
	sealed, err := audit.Sealed(ctx, o.Store.DB())
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sealed = sealed.Rows
	s.seal(s.stop) // a disk that takes nothing is no reason not to begin
	return s, nil
}

// Close refuses new calls, kills running commands, and returns when every outcome is written.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel(errStopping)
	s.calls.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.flush(context.Background()); err != nil {
		return fmt.Errorf("%d outcomes could not be recorded and will be Unknown: %w", len(s.unrecorded), err)
	}
	s.seal(context.Background()) // if that fails, the next start does it
	if s.sealer != nil {
		s.sealer.Stop()
	}
	return nil
}

// holds is what the device holds at this moment.
func (s *Server) holds() manifests.Set {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.manifests
}

// problems that keep the device from doing all it should. The lock is held.
func (s *Server) problems(now int64) []string {
	var all []string
	if p := s.clock.Problem(now); p != "" {
		all = append(all, p)
	}
	if s.broken != nil {
		all = append(all, s.broken.Error()+"; nothing runs that needs approval, nor for agents of privilege Elevated")
	}
	if s.auditFault != "" {
		all = append(all, "the audit cannot be written, and until it can nothing runs that needs approval, nor for agents of privilege Elevated: "+s.auditFault)
	}
	for _, h := range s.manifests.All() {
		if _, err := confine.Lookup(h.User); err != nil {
			all = append(all, fmt.Sprintf("nothing runs under the %s manifest: %s", h.Privilege, err))
		}
		if missing := confine.Missing(); missing != "" && len(h.Commands) > 0 {
			all = append(all, fmt.Sprintf("commands of the %s manifest: %s", h.Privilege, missing))
		}
	}
	if s.manifests.Revoked > s.revokedOnDisk {
		all = append(all, fmt.Sprintf("the revocation of epoch %d counts, but it could not be written; a restart would forget it", s.manifests.Revoked))
	}
	if n := len(s.unrecorded); n > 0 {
		all = append(all, fmt.Sprintf("%d outcomes wait to be recorded", n))
	}
	return all
}

// errBroken is why nothing is written to a chain that does not verify.
var errBroken = errors.New("the audit chain does not verify")

// write in one transaction, outcomes that wait first. The lock is held.
func (s *Server) write(ctx context.Context, do func(*sql.Tx) error) error {
	if s.broken != nil {
		return fmt.Errorf("%w: %w", errBroken, s.broken)
	}
	err := s.flush(ctx)
	if err == nil && do != nil {
		err = s.Store.Tx(ctx, do)
	}
	switch {
	case err == nil:
		s.auditFault = ""
		s.sealSoon(ctx)
	case !errors.Is(err, deeds.ErrFull) && !errors.Is(err, errBroken):
		s.auditFault = err.Error()
		s.Metrics.auditFaults.Inc()
		s.Log.Error("audit.fault", slog.String("error", err.Error()))
	}
	return err
}
