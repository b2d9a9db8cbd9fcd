package lead_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"k8s.io/client-go/rest"

	"nisse.io/nisse/internal/lead"
)

// A restarted container is the holder that it was; two processes that are in no pod are two.
func TestIdentity(t *testing.T) {
	t.Setenv(lead.InPod, "10.0.0.1")
	pod := lead.Identity()
	if host, err := os.Hostname(); err != nil || pod != host || lead.Identity() != pod {
		t.Errorf("in a pod: %q, then %q; the host is %q, %v", pod, lead.Identity(), host, err)
	}
	t.Setenv(lead.InPod, "")
	if one, other := lead.Identity(), lead.Identity(); one == other || one == pod {
		t.Errorf("outside: %q and %q", one, other)
	}
}

// One request that hangs does not cost the place: it is given up in time for another.
func TestAHungRequestIsGivenUp(t *testing.T) {
	asked := make(chan struct{}, 16)
	done := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		select {
		case <-r.Context().Done():
		case <-done:
		}
	}))
	defer server.Close()
	defer close(done)
	lock, err := lead.Lock(&rest.Config{Host: server.URL}, "system", "lease", "me")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), lead.Renew)
	defer cancel()
	_, _, err = lock.Get(ctx)
	if err == nil || ctx.Err() != nil {
		t.Errorf("the request ended with %v, the time to renew with %v", err, ctx.Err())
	}
	if len(asked) == 0 {
		t.Error("nobody was asked")
	}
}

// Who renews late has lost before another takes over.
func TestNobodyActsBesideAnother(t *testing.T) {
	if lead.Renew+lead.Retry >= lead.Duration {
		t.Errorf("a holder may go on for %s, and loses its place after %s", lead.Renew+lead.Retry, lead.Duration)
	}
}
