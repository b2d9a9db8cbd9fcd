package devices

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/test/apitest"
)

// leases of the rig's namespace, as cfg's user.
func (r *rig) leases(cfg *rest.Config) Leases {
	r.t.Helper()
	kube, err := kubernetes.NewForConfig(cfg)
	r.must(err)
	return kube.CoordinationV1().Leases(r.d.Namespace)
}

// away or back: what is asked for the device's status gets no answer.
func (r *rig) away(is bool) {
	r.slow, r.instead = "/v1/status", nil
	if is {
		r.instead = func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	}
}

// told is a look at the device some time after the last, and what its Lease says then; nil when there is none.
func (r *rig) told(after time.Duration) *coordinationv1.Lease {
	r.t.Helper()
	r.now = r.now.Add(after)
	if err := r.registry.Ready(r.t.Context(), r.d); (err != nil) != (r.instead != nil) {
		r.t.Fatalf("a look at a device that is away (%v): %v", r.instead != nil, err)
	}
	r.registry.renew(r.t.Context(), r.d)
	l := &coordinationv1.Lease{}
	err := r.api.Get(r.t.Context(), client.ObjectKey{Namespace: r.d.Namespace, Name: "device-web1"}, l)
	if apierrors.IsNotFound(err) {
		return nil
	}
	r.must(err)
	return l
}

// again is a registry that begins where another has ended.
func (r *rig) again(l Leases) *Registry {
	now := func() time.Time { return r.now }
	g := NewRegistry(NewClient(key(1), time.Now), r.api, r.d.Namespace, slog.New(slog.NewTextHandler(io.Discard, nil)), now, prometheus.NewRegistry())
	g.Renew(l)
	return g
}

func metric(r *Registry) float64 {
	return testutil.ToFloat64(r.handshakes.gauge.WithLabelValues("web1"))
}

// A device's Lease tells when it proved last that it holds its key: once a minute while it does, not at all while it is away, at once when it
// comes back. What somebody else writes there lasts until then.
func TestALeaseTellsTheLastHandshake(t *testing.T) {
	r := newRig(t)
	r.now = r.now.Truncate(time.Microsecond)
	cfg, _ := apitest.Start(t)
	r.registry.Renew(r.leases(cfg))
	began := r.now

	l := r.told(0)
	if l == nil {
		t.Fatal("there is no Lease")
	}
	holder, seconds, at := dsse.KeyID(public(3)), int32(leaseSeconds), metav1.NewMicroTime(began)
	if d := cmp.Diff(coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &at}, l.Spec); d != "" {
		t.Errorf("the Lease (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]metav1.OwnerReference{{APIVersion: "nisse.io/v1alpha1", Kind: "Device", Name: "web1", UID: r.d.UID}}, l.OwnerReferences); d != "" {
		t.Errorf("it does not go with the Device alone (-want +got):\n%s", d)
	}

	foreign := func(patch string) func() {
		return func() {
			r.must(r.api.Patch(t.Context(), l, client.RawPatch("application/merge-patch+json", []byte(patch))))
		}
	}
	for _, c := range []struct {
		name   string
		before func()
		after  time.Duration
		// told at that time after the beginning.
		told time.Duration
	}{
		{"half a minute later", nil, 30 * time.Second, 0},
		{"a little less than a minute later", nil, 29 * time.Second, 0},
		{"a minute later", nil, time.Second, time.Minute},
		{"away", func() { r.away(true) }, 10 * time.Second, time.Minute},
		{"back before the minute is over", func() { r.away(false) }, 10 * time.Second, 80 * time.Second},
		{"there", nil, 30 * time.Second, 80 * time.Second},
		{"away for long", func() { r.away(true) }, time.Hour, 80 * time.Second},
		{"back after long", func() { r.away(false) }, time.Second, time.Hour + 111*time.Second},
		{"another writes", foreign(`{"metadata":{"labels":{"a":"b"}},"spec":{"holderIdentity":"x","renewTime":"2100-01-01T00:00:00.000000Z"}}`), time.Minute, time.Hour + 171*time.Second},
		{"another deletes", func() { r.must(r.api.Delete(t.Context(), l)) }, time.Minute, time.Hour + 231*time.Second},
	} {
		if c.before != nil {
			c.before()
		}
		was := l.ResourceVersion
		if l = r.told(c.after); l == nil {
			t.Fatalf("%s: there is no Lease", c.name)
		}
		if got := l.Spec.RenewTime.Sub(began); got != c.told || *l.Spec.HolderIdentity != holder || len(l.OwnerReferences) != 1 {
			t.Errorf("%s: told %s after the beginning, want %s: %+v", c.name, got, c.told, l)
		}
		if written := l.ResourceVersion != was; written != (c.told == r.now.Sub(began)) {
			t.Errorf("%s: written %v", c.name, written)
		}
		// The metric has each handshake, the Lease one a minute.
		if is := metric(r.registry) == float64(r.now.UnixMicro())/1e6; is != (r.instead == nil) {
			t.Errorf("%s: the metric is of now: %v", c.name, is)
		}
	}

	// A Device that takes another's place takes its Lease.
	r.must(r.api.Delete(t.Context(), r.d))
	r.d.ResourceVersion, r.d.UID = "", ""
	r.must(r.api.Create(t.Context(), r.d))
	if l = r.told(time.Second); !l.Spec.RenewTime.Time.Equal(r.now) || len(l.OwnerReferences) != 1 || l.OwnerReferences[0].UID != r.d.UID {
		t.Errorf("of the Device that was made anew: %+v", l)
	}
}

// A broker that begins tells of a device that is away what the one before it has told, and writes no sooner than that one would have.
func TestABrokerThatBeginsKnowsTheLease(t *testing.T) {
	r := newRig(t)
	r.now = r.now.Truncate(time.Microsecond)
	cfg, _ := apitest.Start(t)
	leases := r.leases(cfg)
	r.registry.Renew(leases)
	first, began := r.told(0), float64(r.now.UnixMicro())/1e6

	r.registry = r.again(leases)
	if l := r.told(30 * time.Second); l.ResourceVersion != first.ResourceVersion {
		t.Errorf("written twice within a minute: %+v", l)
	}
	r.registry = r.again(leases)
	r.away(true)
	if l := r.told(time.Hour); l.ResourceVersion != first.ResourceVersion || metric(r.registry) != began {
		t.Errorf("of a device that is away the metric says %f, want %f: %+v", metric(r.registry), began, l)
	}
	for name, patch := range map[string]string{
		"another key":      `{"spec":{"holderIdentity":"x"}}`,
		"time to come":     `{"spec":{"renewTime":"2100-01-01T00:00:00.000000Z"}}`,
		"no time":          `{"spec":{"renewTime":null}}`,
		"another's object": `{"metadata":{"ownerReferences":null}}`,
	} {
		t.Run(name, func(t *testing.T) {
			defer func(was *testing.T) { r.t = was }(r.t)
			r.t = t
			r.away(false)
			l := r.told(time.Hour)
			r.must(r.api.Patch(t.Context(), l, client.RawPatch("application/merge-patch+json", []byte(patch))))
			r.registry = r.again(leases)
			r.away(true)
			r.told(time.Second)
			if got := metric(r.registry); got != 0 {
				t.Errorf("the metric says %f", got)
			}
			r.away(false)
			if l = r.told(time.Second); l.Spec.RenewTime == nil || !l.Spec.RenewTime.Time.Equal(r.now) || len(l.OwnerReferences) != 1 {
				t.Errorf("it is not told at once: %+v", l)
			}
		})
	}
}

// A Lease that cannot be written keeps nothing from being done, and is written as soon as it can be.
func TestALeaseThatCannotBeWritten(t *testing.T) {
	r := newRig(t)
	cfg, _ := apitest.Start(t)
	r.registry.Renew(r.leases(apitest.Config(cfg, "nobody")))
	if l := r.told(0); l != nil {
		t.Fatalf("nobody wrote %+v", l)
	}
	r.registry.Renew(r.leases(cfg))
	if l := r.told(time.Second); l == nil {
		t.Error("it is not written at once")
	}
}

// A look of the rounds renews the Lease.
func TestRoundsRenewLeases(t *testing.T) {
	r := newRig(t)
	cfg, _ := apitest.Start(t)
	r.registry.Renew(r.leases(cfg))
	r.registry.now = time.Now
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.registry.Run(ctx) }()
	apitest.Wait(t, time.Minute, func(ctx context.Context) error {
		return r.api.Get(ctx, client.ObjectKey{Namespace: r.d.Namespace, Name: "device-web1"}, &coordinationv1.Lease{})
	})
	stop()
	r.must(<-ended)
}
