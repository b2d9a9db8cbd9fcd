package podauth

import (
	"net"
	"net/http"
	"sync"

	"golang.org/x/time/rate"
)

// Reviews that one address may cause: a pod with a good token needs one every MaxAge, and whoever guesses tokens must not use up what
// the door may ask of the API server.
const (
	reviewsPerSecond = 5
	reviewsAtOnce    = 50
	maxAddresses     = 4096
)

// limits of reviews by address.
type limits struct {
	mu sync.Mutex
	by map[string]*rate.Limiter
}

// take tells whether the request's address may cause another review.
func (l *limits) take(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by == nil {
		l.by = map[string]*rate.Limiter{}
	}
	if l.by[host] == nil {
		if len(l.by) >= maxAddresses {
			for k, v := range l.by {
				if v.Tokens() >= reviewsAtOnce { // as good as new
					delete(l.by, k)
				}
			}
		}
		l.by[host] = rate.NewLimiter(reviewsPerSecond, reviewsAtOnce)
	}
	return l.by[host].Allow()
}
