package broker

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/test/apitest"
)

// Whoever enrols a device, or mends what it pins, sees within seconds whether it is right; the regular look comes too late for that.
func TestNewAndChangedDevicesAreLookedAtSoon(t *testing.T) {
	r := newRig(t, options{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.broker.registry.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-ended)
	})
	online := func(d *v1alpha1.Device, reason string) func(context.Context) error {
		return func(ctx context.Context) error {
			if err := r.api.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
				return err
			}
			c := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionOnline)
			switch {
			case c == nil:
				return errors.New("nobody has looked")
			case c.Reason != reason || c.ObservedGeneration != d.Generation:
				return fmt.Errorf("it is %s at generation %d, want %s at %d", c.Reason, c.ObservedGeneration, reason, d.Generation)
			}
			return nil
		}
	}
	web1 := &v1alpha1.Device{ObjectMeta: r.meta("web1")}
	apitest.Wait(t, soon, online(web1, v1alpha1.ReasonAnswering))

	// The same machine under another name: its manifest is not for that one, and its key is pinned wrongly at first.
	web2 := &v1alpha1.Device{ObjectMeta: r.meta("web2"), Spec: web1.Spec}
	web2.Spec.PublicKey = dsse.EncodeKey(public(newKey(t)))
	r.create(web2)
	apitest.Wait(t, soon, online(web2, v1alpha1.ReasonKeyMismatch))
	web2.Spec.PublicKey = web1.Spec.PublicKey
	must(t, r.api.Update(t.Context(), web2))
	apitest.Wait(t, soon, online(web2, v1alpha1.ReasonKeyMismatch))
}
