package testrig

import (
	"context"
	"testing"
)

func TestUntilLooksAgain(t *testing.T) {
	looks := 0
	Until(t, "the third look", func() bool { looks++; return looks == 3 })
	if looks != 3 {
		t.Errorf("%d looks", looks)
	}
}

func TestItEndsWithItsTime(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	looks := 0
	if within(ctx, func() bool {
		if looks++; looks == 2 {
			cancel()
		}
		return false
	}) {
		t.Error("what never came was found")
	}
	if looks < 2 {
		t.Errorf("%d looks", looks)
	}
}
