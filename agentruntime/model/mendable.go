package model

import (
	"context"
	"sync"

	"nisse.io/nisse/internal/doors"
)

// Mendable asks the model that the configuration named when the process began, and goes on with what it names now once that one
// cannot be used. A pod is replaced when its work allows; work that waits for a model would wait for ever for the pod that knows the
// mended one. A model that answers is kept: work that began with it ends with it.
type Mendable struct {
	read func() (doors.Model, error)
	make func(doors.Model) Model

	mu   sync.Mutex
	cfg  doors.Model
	asks Model
}

// NewMendable of the endpoint cfg. read tells what the configuration names now.
func NewMendable(cfg doors.Model, read func() (doors.Model, error), of func(doors.Model) Model) *Mendable {
	return &Mendable{read: read, make: of, cfg: cfg, asks: of(cfg)}
}

// Ask the model; after a failure, ask the one that the configuration names now if that is another.
func (m *Mendable) Ask(ctx context.Context, r Request) (Answer, error) {
	asked := m.current()
	answer, err := asked.Ask(ctx, r)
	if err == nil || ctx.Err() != nil {
		return answer, err
	}
	mended, changed := m.mend(asked)
	if !changed {
		return answer, err
	}
	return mended.Ask(ctx, r)
}

func (m *Mendable) current() Model {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asks
}

// mend takes up the configuration as it is now, and tells whether that makes another model than the one that failed.
func (m *Mendable) mend(failed Model) (now Model, changed bool) {
	cfg, err := m.read()
	m.mu.Lock()
	defer m.mu.Unlock()
	// A configuration that cannot be read now will be read at the next failure; what failed says more than that.
	if err == nil && !same(cfg, m.cfg) {
		m.cfg, m.asks = cfg, m.make(cfg)
	}
	return m.asks, m.asks != failed
}

func same(a, b doors.Model) bool {
	return a.URL == b.URL && a.Model == b.Model && a.TimeoutSeconds == b.TimeoutSeconds && equal(a.MaxTokens, b.MaxTokens) && equal(a.TemperatureMilli, b.TemperatureMilli)
}

func equal(a, b *int32) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }
