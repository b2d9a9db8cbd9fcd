// Package device is the last line of defence on a machine: it does what an authentic request says if a manifest of the machine's root key allows it
// and, where that wants a person's approval, if a statement of approval covers this very call; once; and keeps a chain of what it did.
package device

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"nisse.io/nisse/device/deeds"
	"nisse.io/nisse/device/server"
	"nisse.io/nisse/device/store"
)

// Options of a device. What is zero gets a default, but for the first four.
type Options struct {
	// Dir holds the state: manifests, audit, deeds, clock.
	Dir string
	// Device is the name of the Device object.
	Device string
	// RootKey that manifests must be signed by.
	RootKey ed25519.PublicKey
	// Key that signs answers.
	Key ed25519.PrivateKey
	// Now is the clock; time.Now.
	Now func() time.Time
	// Log; silent.
	Log *slog.Logger
	// Busy is how many calls may run at once; 8.
	Busy int
	// Bounds of the deed table; deeds.DefaultBounds.
	Bounds deeds.Bounds
	// Env of commands; command.Environment.
	Env []string
	// User of manifests that name none; this process's own when empty.
	User string
	// Never holds files and directories that no rule of any manifest opens; Dir is one of them always.
	Never []string
	// SealAfter is how long a row may be in the audit without a checkpoint; a minute.
	SealAfter time.Duration
	// Rest is called when a while after the last call its rows were sealed, for who wants to use a time at which little is done; nothing.
	Rest func()
	// Version that Status shows.
	Version string
	// Registry for metrics; one of its own.
	Registry prometheus.Registerer
	// Fault, for tests, fails writes to the state: it is asked before each commit.
	Fault func() error
}

// Device in this process.
type Device struct {
	*server.Server
	store *store.Store
}

// New device and the handler of its wire. Close it.
func New(ctx context.Context, o Options) (*Device, http.Handler, error) {
	if o.Device == "" || len(o.RootKey) != ed25519.PublicKeySize {
		return nil, nil, errors.New("the device has no name or no root key")
	}
	if len(o.Key) != ed25519.PrivateKeySize {
		return nil, nil, errors.New("the device has no key; make one with nisse-device init")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.NewJSONHandler(io.Discard, nil))
	}
	if o.Busy == 0 {
		o.Busy = 8
	}
	if o.Bounds == (deeds.Bounds{}) {
		o.Bounds = deeds.DefaultBounds
	}
	if o.SealAfter == 0 {
		o.SealAfter = time.Minute
	}
	if o.Rest == nil {
		o.Rest = func() {}
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	st, err := store.Open(ctx, o.Dir)
	if err != nil {
		return nil, nil, err
	}
	st.Fault = o.Fault
	never, err := real(append([]string{o.Dir}, o.Never...))
	if err != nil {
		return nil, nil, errors.Join(err, st.Close())
	}
	s, err := server.New(ctx, server.Options{Device: o.Device, Root: o.RootKey, Key: o.Key, Store: st, Now: o.Now, Log: o.Log, Busy: o.Busy, Bounds: o.Bounds, Env: o.Env, User: o.User,
		Never: never, SealAfter: o.SealAfter, Rest: o.Rest, Version: o.Version, Metrics: server.NewMetrics(o.Registry, o.Device)})
	if err != nil {
		return nil, nil, errors.Join(err, st.Close())
	}
	return &Device{Server: s, store: st}, s.Handler(), nil
}

// real names of paths, as the kernel has them.
func real(paths []string) ([]string, error) {
	var all []string
	for _, p := range paths {
		r, err := filepath.EvalSymlinks(p)
		if err == nil {
			r, err = filepath.Abs(r)
		}
		if err != nil {
			return nil, fmt.Errorf("keep %s closed: %w", p, err)
		}
		all = append(all, r)
	}
	return all, nil
}

// Close refuses new calls, kills running commands, writes what is to be written, and lets go of the state.
func (d *Device) Close() error {
	if err := errors.Join(d.Server.Close(), d.store.Close()); err != nil {
		return fmt.Errorf("close device: %w", err)
	}
	return nil
}
