package lead_test

import (
	"os"
	"testing"

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

// Who renews late has lost before another takes over.
func TestNobodyActsBesideAnother(t *testing.T) {
	if lead.Renew+lead.Retry >= lead.Duration {
		t.Errorf("a holder may go on for %s, and loses its place after %s", lead.Renew+lead.Retry, lead.Duration)
	}
}
