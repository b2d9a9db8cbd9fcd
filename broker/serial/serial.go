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

	select {
	case <-l.free:
		return func() { l.free <- struct{}{}; k.leave(key, l) }, true
	default:
	}
	select {
	case <-l.free:
		return func() { l.free <- struct{}{}; k.leave(key, l) }, true
	case <-ctx.Done():
		k.leave(key, l)
		return nil, false
	}
}

func (k *Keys) leave(key string, l *lock) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(k.locks, key)
	}
}
