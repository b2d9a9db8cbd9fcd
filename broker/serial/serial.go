// Package serial lets one thing at a time happen to a work item.
package serial

import (
	"context"
	"sync"
)

// Keys are locks by key. The zero value is ready.
type Keys struct {
	mu    sync.Mutex
	locks map[string]*lock
	turns uint64
}

type lock struct {
	free  chan struct{} // holds one token while nobody has the lock
	users int           // holders and waiters; the entry goes with the last
}

// Lock waits for the key until the context ends. ok tells whether it was got; unlock it then, once.
func (k *Keys) Lock(ctx context.Context, key string) (unlock func(), ok bool) {
	k.mu.Lock()
	if k.locks == nil {
		k.locks = map[string]*lock{}
	}
	l := k.locks[key]
	if l == nil {
		l = &lock{free: make(chan struct{}, 1)}
		l.free <- struct{}{}
		k.locks[key] = l
	}
	l.users++
	k.mu.Unlock()

	got := func() (func(), bool) {
		k.turn()
		return func() { k.turn(); l.free <- struct{}{}; k.leave(key, l) }, true
	}
	select {
	case <-l.free:
		return got()
	default:
	}
	select {
	case <-l.free:
		return got()
	case <-ctx.Done():
		k.leave(key, l)
		return nil, false
	}
}

// Turns counts how often any key was got or given back. Whoever finds it one higher after Lock than before what they did without
// the lock has had nobody beside them: whoever held the key meanwhile must have got it or given it back.
func (k *Keys) Turns() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.turns
}

func (k *Keys) turn() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.turns++
}

func (k *Keys) leave(key string, l *lock) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(k.locks, key)
	}
}
