package podauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"nisse.io/nisse/internal/doors"
)

type contextKey struct{}

type caller struct {
	identity Identity
	token    string
}

// From tells who speaks, inside a handler that Require wraps.
func From(ctx context.Context) (Identity, bool) {
	c, ok := ctx.Value(contextKey{}).(caller)
	return c.identity, ok
}

// With returns a context in which id speaks; Require makes the same, and tests of handlers may.
func With(ctx context.Context, id Identity) context.Context {
	return context.WithValue(ctx, contextKey{}, caller{identity: id})
}

// Require lets only agents' current pods through, and of one agent no more than a few requests at once. Others get 401, 429 when their
// address tries too many tokens or the agent's requests under way are enough, or 503 when the API server cannot be asked, with a
// doors.Problem as body.
func (a *Authenticator) Require(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := Bearer(r)
		if _, known := a.recall(token); !known && token != "" && !a.limits.take(r) {
			w.Header().Set("Retry-After", "1")
			Problem(w, http.StatusTooManyRequests, "RateLimited", "too many tokens from one address; send the pod's own")
			return
		}
		id, err := a.Authenticate(r.Context(), token)
		if err != nil {
			WriteProblem(w, err)
			return
		}
		if !a.underWay.begin(id.Agent) {
			w.Header().Set("Retry-After", "1")
			Problem(w, http.StatusTooManyRequests, "RateLimited", fmt.Sprintf("%d requests of agent %s are under way already; wait for one to end", maxUnderWay, id.Agent))
			return
		}
		defer a.underWay.end(id.Agent)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), contextKey{}, caller{id, token})))
	})
}

// Bearer token of a request; empty when there is none.
func Bearer(r *http.Request) string {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// WriteProblem answers a request that Authenticate refused. The connection ends with it, for nobody knows whose it is.
func WriteProblem(w http.ResponseWriter, err error) {
	if errors.Is(err, ErrRefused) {
		w.Header().Set("WWW-Authenticate", "Bearer")
		Problem(w, http.StatusUnauthorized, "Unauthenticated", err.Error())
		return
	}
	w.Header().Set("Connection", "close")
	Problem(w, http.StatusServiceUnavailable, "Unavailable", "the API server cannot be asked about this token now; try again")
}

// Problem answers a request at a door with why it came to nothing. Who is not known, or asks too much, does not keep the connection: it
// would count among those that its address, and all addresses together, may have open.
func Problem(w http.ResponseWriter, status int, reason, message string) {
	if status == http.StatusUnauthorized || status == http.StatusTooManyRequests {
		w.Header().Set("Connection", "close")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(doors.Problem{Reason: reason, Message: message}) // the caller is gone; nothing to add
}

// Watch returns a context for an open stream of a handler that Require wraps: it ends, with the reason as its cause, once the
// token is no longer good or nobody can be asked whether it is. The token is looked at every MaxAge. Call cancel when the stream
// ends.
func (a *Authenticator) Watch(ctx context.Context) (watched context.Context, cancel context.CancelFunc) {
	return a.watch(ctx, MaxAge)
}

func (a *Authenticator) watch(ctx context.Context, every time.Duration) (context.Context, context.CancelFunc) {
	watched, cancel := context.WithCancelCause(ctx)
	c, _ := ctx.Value(contextKey{}).(caller) // without Require: no token, refused at the first look
	go func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-watched.Done():
				return
			case <-tick.C:
			}
			id, err := a.fresh(watched, c.token)
			if err == nil && id != c.identity {
				err = errors.New("the token now speaks for another pod")
			}
			if err != nil {
				cancel(err)
				return
			}
		}
	}()
	return watched, func() { cancel(context.Canceled) }
}
