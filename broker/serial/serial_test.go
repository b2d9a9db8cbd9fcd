package serial

import (
	"context"
	"sync"
	"testing"
)

func TestOneAtATime(t *testing.T) {
	var k Keys
	var wg sync.WaitGroup
	n := 0 // unguarded but for the lock: the race detector tells
	for range 50 {
		wg.Go(func() {
			unlock, ok := k.Lock(t.Context(), "item")
			if !ok {
				t.Error("not locked")
				return
			}
			n++
			unlock()
		})
	}
	wg.Wait()
	if n != 50 || len(k.locks) != 0 {
		t.Errorf("n = %d, %d entries left", n, len(k.locks))
	}
}

func TestWaitEndsWithTheContext(t *testing.T) {
	var k Keys
	unlock, _ := k.Lock(t.Context(), "a")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, ok := k.Lock(ended, "a"); ok {
		t.Error("got a lock that is held")
	}
	if u, ok := k.Lock(ended, "b"); !ok {
		t.Error("another key waits")
	} else {
		u()
	}
	unlock()
	if u, ok := k.Lock(ended, "a"); !ok {
		t.Error("a free lock was not given")
	} else {
		u()
	}
}
