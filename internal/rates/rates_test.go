package rates

import (
	"testing"
	"time"
)

func TestTake(t *testing.T) {
	now := time.Unix(0, 0)
	b := New(func() time.Time { return now })
	for i := range 3 {
		if _, ok := b.Take("ops", 1, 3); !ok {
			t.Fatalf("token %d of 3 was not there", i+1)
		}
	}
	wait, ok := b.Take("ops", 1, 3)
	if ok || wait != time.Second {
		t.Fatalf("fourth: %v %v, want to wait 1 s", wait, ok)
	}
	if _, ok := b.Take("dev", 1, 3); !ok {
		t.Error("another key waits")
	}
	now = now.Add(time.Second)
	if _, ok := b.Take("ops", 1, 3); !ok {
		t.Error("no token after a second: refusals must cost none")
	}
	if _, ok := b.Take("ops", 1, 3); ok {
		t.Error("two tokens after a second")
	}
	now = now.Add(time.Hour)
	b.Take("ops", 1, 1) // the limit was lowered
	if _, ok := b.Take("ops", 1, 1); ok {
		t.Error("a lowered limit does not hold")
	}
}

func TestManyKeysAreForgotten(t *testing.T) {
	now := time.Unix(0, 0)
	b := New(func() time.Time { return now })
	for i := range maxKeys + 1 {
		b.Take(string(rune(i+1)), 1, 2)
		now = now.Add(time.Second)
	}
	if len(b.by) > maxKeys/2 {
		t.Errorf("%d keys remembered", len(b.by))
	}
}
