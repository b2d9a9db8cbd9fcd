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

// One turn more than before means that nobody else had the key meanwhile, nor gave it back.
func TestTurns(t *testing.T) {
	lock := func(k *Keys, key string) func() {
		t.Helper()
		unlock, ok := k.Lock(t.Context(), key)
		if !ok {
			t.Fatal("not locked")
		}
		return unlock
	}
	for _, tc := range []struct {
		name        string
		before      func(*Keys) (meanwhile func())
		undisturbed bool
	}{
		{"alone", func(*Keys) func() { return func() {} }, true},
		{"after somebody who had ended", func(k *Keys) func() { lock(k, "a")(); return func() {} }, true},
		{"somebody had it meanwhile", func(k *Keys) func() { return func() { lock(k, "a")() } }, false},
		{"somebody had it already and gave it back", func(k *Keys) func() { return lock(k, "a") }, false},
		{"somebody had another, which is taken for this one", func(k *Keys) func() { return func() { lock(k, "b")() } }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var k Keys
			meanwhile := tc.before(&k)
			turns := k.Turns()
			meanwhile()
			defer lock(&k, "a")()
			if got := k.Turns() == turns+1; got != tc.undisturbed {
				t.Errorf("undisturbed: %t", got)
			}
		})
	}
}
