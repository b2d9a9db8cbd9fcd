package devices

import (
	"context"
	"net/http"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/broker/replica"
	"nisse.io/nisse/internal/testrig"
)

// Nothing that a look does for the audit keeps a revocation waiting: neither a checkpoint nor rows that a device gives slowly.
func TestARevocationWaitsForNoAudit(t *testing.T) {
	for _, path := range []string{"/v1/checkpoint", "/v1/audit"} {
		t.Run(path, func(t *testing.T) {
			r := newRig(t)
			store, err := replica.Open(t.TempDir(), 1<<20)
			r.must(err)
			r.registry.Replicate(store)
			r.act(3)
			r.registry.now = time.Now
			asked := make(chan struct{}, 1)
			r.slow, r.instead = path, func(_ http.ResponseWriter, q *http.Request) {
				select {
				case asked <- struct{}{}:
				default:
				}
				<-q.Context().Done()
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- r.registry.Run(ctx) }()
			<-asked
			began := time.Now()
			r.must(r.api.Get(ctx, client.ObjectKeyFromObject(r.d), r.d))
			r.d.Spec.RevokedEpoch = time.Now().Unix()
			r.must(r.api.Update(ctx, r.d))
			r.registry.rounds.wake("web1")
			testrig.Until(t, "the revocation", func() bool {
				var d v1alpha1.Device
				r.must(r.api.Get(ctx, client.ObjectKeyFromObject(r.d), &d))
				return d.Status.RevokedEpoch == r.d.Spec.RevokedEpoch
			})
			if took := time.Since(began); took > statusTimeout/2 {
				t.Errorf("it was confirmed after %s", took)
			}
			stop()
			r.must(<-ended)
			if r.d.Status.Audit != nil && r.d.Status.Audit.Reply == "" {
				t.Errorf("what was broken off is told as the device's silence: %+v", r.d.Status.Audit)
			}
		})
	}
}
