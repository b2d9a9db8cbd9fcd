package podauth

import (
	"fmt"
	"net/http"

	"nisse.io/nisse/internal/rates"
)

// Rate at which one agent's pod may ask something of a door.
type Rate struct {
	Buckets   *rates.Buckets
	PerSecond float64
	AtOnce    int
	// Message for who asks more often.
	Message string
}

// Admit tells who asks, inside a handler that Require wraps. Where nobody has said whose pod it is, or it asks too often, it answers the
// request itself, and the handler has nothing left to do.
func (r Rate) Admit(w http.ResponseWriter, req *http.Request) (Identity, bool) {
	id, ok := From(req.Context())
	if !ok {
		Problem(w, http.StatusUnauthorized, "Unauthenticated", "nobody said whose pod this is")
		return Identity{}, false
	}
	if wait, ok := r.Buckets.Take(id.Agent, r.PerSecond, r.AtOnce); !ok {
		w.Header().Set("Retry-After", fmt.Sprint(int(wait.Seconds())+1))
		Problem(w, http.StatusTooManyRequests, "RateLimited", r.Message)
		return Identity{}, false
	}
	return id, true
}
