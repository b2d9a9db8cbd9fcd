package devices

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycoordinationv1 "k8s.io/client-go/applyconfigurations/coordination/v1"
	applymetav1 "k8s.io/client-go/applyconfigurations/meta/v1"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/names"
)

const (
	// renewEvery is the most often that a device's Lease is renewed while it goes on answering.
	renewEvery = time.Minute
	// leaseSeconds after its renewal a Lease has lapsed: twice as long, for a look or a write may fail once.
	leaseSeconds = 120
	// leaseWriter owns the fields that are written. It takes them from whoever has written them meanwhile.
	leaseWriter = "nisse-broker"
)

// Leases of the devices' namespace, where people and other programs read when each device proved last that it holds its key. Nothing is
// decided by them.
type Leases interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*coordinationv1.Lease, error)
	Apply(ctx context.Context, lease *applycoordinationv1.LeaseApplyConfiguration, opts metav1.ApplyOptions) (*coordinationv1.Lease, error)
}

// Renew the Leases of devices from now on. Call it before Run.
func (r *Registry) Renew(l Leases) { r.handshakes.leases = l }

// handshakes with devices: statuses that a device's key has signed for the question that was asked.
type handshakes struct {
	leases Leases // nil: none are kept
	gauge  *prometheus.GaugeVec
	mu     *sync.Mutex
	by     map[string]handshake
}

// handshake with one device.
type handshake struct {
	// last one; zero while the device is away.
	last time.Time
	// told by the Lease; zero when the next one is to be told at once.
	told time.Time
	// of whom the Lease tells.
	of holder
	// read tells that the Lease was read, which may be from before this broker began.
	read bool
}

// holder of a key.
type holder struct {
	device types.UID
	key    string
}

// due tells whether the Lease is to be renewed. A time that is yet to come is nothing that was told here, or the clock was put back.
func (s handshake) due(of holder) bool {
	age := s.last.Sub(s.told)
	return !s.last.IsZero() && (s.of != of || age < 0 || age >= renewEvery)
}

func newHandshakes(r prometheus.Registerer) handshakes {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "nisse_device_last_handshake_timestamp_seconds",
		Help: "When a device proved last that it holds its key, in Unix seconds."}, []string{"device"})
	r.MustRegister(g)
	return handshakes{gauge: g, mu: &sync.Mutex{}, by: map[string]handshake{}}
}

// change what is known of a device.
func (h handshakes) change(device string, how func(*handshake)) handshake {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.by[device]
	how(&s)
	h.by[device] = s
	return s
}

func (h handshakes) forget(device string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.by, device)
	h.gauge.DeleteLabelValues(device)
}

// see a device answer, or that it is away.
func (h handshakes) see(device string, answers bool, now time.Time) {
	h.change(device, func(s *handshake) {
		if !answers {
			s.last, s.told = time.Time{}, time.Time{} // when it comes back, that is told at once
			return
		}
		s.last = now
		h.tell(device, now)
	})
}

func (h handshakes) tell(device string, at time.Time) {
	h.gauge.WithLabelValues(device).Set(float64(at.UnixMicro()) / 1e6)
}

// renew a device's Lease, if it has proven its key since that was told last, and not too often.
func (r *Registry) renew(ctx context.Context, d *v1alpha1.Device) {
	t, err := TargetOf(d)
	if err != nil || r.handshakes.leases == nil {
		return // its Online condition tells
	}
	writing, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	if err := r.handshakes.renew(writing, d, holder{d.UID, dsse.KeyID(t.Key)}, r.now()); err != nil && ctx.Err() == nil {
		r.log.Warn("device.lease_not_renewed", "device", d.Name, "lease", names.Lease(d.Name), "err", err)
	}
}

func (h handshakes) renew(ctx context.Context, d *v1alpha1.Device, of holder, now time.Time) error {
	h.mu.Lock()
	s := h.by[d.Name]
	h.mu.Unlock()
	if !s.read {
		var err error
		if s, err = h.recall(ctx, d, of, now); err != nil {
			return err
		}
	}
	if !s.due(of) {
		return nil
	}
	owner := applymetav1.OwnerReference().WithAPIVersion(v1alpha1.GroupVersion.String()).WithKind("Device").WithName(d.Name).WithUID(d.UID)
	lease := applycoordinationv1.Lease(names.Lease(d.Name), d.Namespace).WithOwnerReferences(owner).
		WithSpec(applycoordinationv1.LeaseSpec().WithHolderIdentity(of.key).WithLeaseDurationSeconds(leaseSeconds).WithRenewTime(metav1.NewMicroTime(s.last)))
	if _, err := h.leases.Apply(ctx, lease, metav1.ApplyOptions{FieldManager: leaseWriter, Force: true}); err != nil {
		return fmt.Errorf("renew: %w", err)
	}
	h.change(d.Name, func(is *handshake) {
		if !is.last.IsZero() { // it may have gone away meanwhile
			is.told, is.of = s.last, of
		}
	})
	return nil
}

// recall what the Lease tells from before this broker began: of a device that is away nothing else does, and of one that answers it need
// not be written again within the minute.
func (h handshakes) recall(ctx context.Context, d *v1alpha1.Device, of holder, now time.Time) (handshake, error) {
	l, err := h.leases.Get(ctx, names.Lease(d.Name), metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return handshake{}, fmt.Errorf("read: %w", err)
	}
	return h.change(d.Name, func(s *handshake) {
		s.read = true
		if err != nil || l.Spec.RenewTime == nil || l.Spec.RenewTime.After(now) || l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity != of.key ||
			!slices.ContainsFunc(l.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == of.device }) {
			return
		}
		s.told, s.of = l.Spec.RenewTime.Time, of
		if s.last.IsZero() {
			h.tell(d.Name, s.told)
		}
	}), nil
}
