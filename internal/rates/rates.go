// Package rates holds what runs away: token buckets by key.
package rates

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Buckets by key. A key's limits may change from call to call, as an Agent's spec does.
type Buckets struct {
	now func() time.Time

	mu sync.Mutex
	by map[string]*rate.Limiter
}

// New returns empty buckets.
func New(now func() time.Time) *Buckets {
	return &Buckets{now: now, by: map[string]*rate.Limiter{}}
}

// maxKeys that are remembered; keys come from agents and items that exist, so this is only reached by very many of them.
const maxKeys = 4096

// Take one token of the key, whose bucket gets perSecond tokens and holds burst. When there is none, it tells how long until there is.
func (b *Buckets) Take(key string, perSecond float64, burst int) (wait time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	l := b.by[key]
	if l == nil {
		if len(b.by) >= maxKeys {
			b.forgetFull(now)
		}
		l = rate.NewLimiter(rate.Limit(perSecond), burst)
		b.by[key] = l
	}
	if l.Limit() != rate.Limit(perSecond) {
		l.SetLimitAt(now, rate.Limit(perSecond))
	}
	if l.Burst() != burst {
		l.SetBurstAt(now, burst)
	}
	r := l.ReserveN(now, 1)
	if d := r.DelayFrom(now); d > 0 {
		r.CancelAt(now)
		return d, false
	}
	return 0, true
}

// forgetFull drops buckets that are full: a new one is just the same.
func (b *Buckets) forgetFull(now time.Time) {
	for k, l := range b.by {
		if l.TokensAt(now) >= float64(l.Burst()) {
			delete(b.by, k)
		}
	}
}
