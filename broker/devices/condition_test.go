package devices

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/device/wire"
)

// What a look found out is written although another wrote the status since the Device was read, and nothing of the other's is lost.
// What was found out about a Device that has been changed since is not written as if it were about that one.
func TestALookIsWrittenBesideOthers(t *testing.T) {
	r := newRig(t)
	read := r.d.DeepCopy()
	r.d.Status.AuditKept = &v1alpha1.KeptAudit{Rows: 7, Root: "a", At: metav1.Now()}
	r.must(r.api.Status().Update(t.Context(), r.d))
	r.must(r.registry.Ready(t.Context(), read))
	now := func() *v1alpha1.Device {
		d := &v1alpha1.Device{}
		r.must(r.api.Get(t.Context(), client.ObjectKeyFromObject(r.d), d))
		return d
	}
	d := now()
	if d.Status.ObservedGeneration != d.Generation || d.Status.AuditKept == nil || d.Status.AuditKept.Rows != 7 {
		t.Errorf("got %+v", d.Status)
	}

	stale := d.DeepCopy()
	d.Spec.RevokedEpoch = 1
	r.must(r.api.Update(t.Context(), d))
	r.registry.note(t.Context(), stale, seen{err: ErrUntrusted})
	if got := now(); got.ResourceVersion != d.ResourceVersion {
		t.Errorf("written: %+v", got.Status)
	}
}

// A device that answers and runs nothing, because all it holds is revoked, does not look like one that runs what it is asked.
func TestARevokedDeviceSaysSo(t *testing.T) {
	holds := func(confirmed int64, epochs ...int64) seen {
		s := seen{Status: wire.Status{RevokedEpoch: confirmed}}
		for _, e := range epochs {
			s.Manifests = append(s.Manifests, wire.HeldManifest{Epoch: e})
		}
		return s
	}
	for name, tc := range map[string]struct {
		s       seen
		ordered int64
		want    string
	}{
		"never revoked":      {holds(0, 10), 0, v1alpha1.ReasonAnswering},
		"all of it":          {holds(10, 10, 9), 10, v1alpha1.ReasonRevoked},
		"one signed anew":    {holds(10, 9, 11), 10, v1alpha1.ReasonAnswering},
		"not confirmed yet":  {holds(0, 10), 10, v1alpha1.ReasonRevocationPending},
		"nothing to be held": {holds(10), 10, v1alpha1.ReasonRevoked},
	} {
		t.Run(name, func(t *testing.T) {
			if c := online(tc.s, tc.ordered); c.Status != metav1.ConditionTrue || c.Reason != tc.want {
				t.Errorf("%s %s, want True %s: %s", c.Status, c.Reason, tc.want, c.Message)
			}
		})
	}
}
