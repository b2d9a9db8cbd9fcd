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

// maxUnderWay is how many requests of one agent a door works on at once, open streams and patient looks among them. A runtime has six at
// most; each may hold a body for as long as its call takes, which costs the broker some 2 MB where the body is as large as it may be.
const maxUnderWay = 24

// underWay are the requests that a door works on, by agent.
type underWay struct {
	mu sync.Mutex
	by map[string]int
}

func (u *underWay) begin(agent string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.by[agent] >= maxUnderWay {
		return false
	}
	if u.by == nil {
		u.by = map[string]int{}
	}
	u.by[agent]++
	return true
}

func (u *underWay) end(agent string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.by[agent]--; u.by[agent] == 0 {
		delete(u.by, agent)
	}
}

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
