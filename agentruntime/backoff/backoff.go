// Package backoff spaces attempts: each wait is twice as long as the one before, up to a limit, with some chance in it so that
// many agents do not come back at the same moment.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff of one thing that is tried again and again. The zero value is not useful; see New.
type Backoff struct {
	first, limit, next time.Duration
}

// New begins with first and ends at limit.
func New(first, limit time.Duration) *Backoff {
	return &Backoff{first: first, limit: limit, next: first}
}

// Reset after a success.
func (b *Backoff) Reset() { b.next = b.first }

// Wait before the next attempt, for at least as long as the other side asked for. It returns early with ctx's error.
func (b *Backoff) Wait(ctx context.Context, atLeast time.Duration) error {
	d := b.next
	b.next = min(2*b.next, b.limit)
	d = max(d/2+rand.N(d/2+1), atLeast)
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
