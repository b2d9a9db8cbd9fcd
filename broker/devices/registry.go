package devices

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/internal/clock"
	"nisse.io/nisse/internal/sanitize"
	"nisse.io/nisse/internal/telemetry"
)

// statusTimeout of one look.
const statusTimeout = 5 * time.Second

// ErrManifest is wrapped when a device answers and does not take the manifest that the cluster has for it.
var ErrManifest = errors.New("the device does not take its manifest")

// API reads Devices and their manifests (a cache will do) and writes the conditions of Devices.
type API interface {
	client.Reader
	Status() client.StatusWriter
}

// Signed is a manifest as the root key signed it.
type Signed struct {
	// Name of its object.
	Name     string
	Digest   string
	Envelope string
}

// Registry knows the devices, brings them their manifests, and tells them what was revoked.
type Registry struct {
	client *Client
	api    API
	ns     string
	log    *slog.Logger
	now    func() time.Time

	mu     sync.Mutex
	silent map[string]time.Time // since when a device has not answered
	holds  map[string][]string  // digests that a device held when it last told
	rows   map[string]int64     // of a device's audit, when it last told
	asked  map[string]time.Time // when a device was last asked for a checkpoint
	missed map[string]int       // how often in turn it gave none

	lag        lag
	replicas   replicas
	handshakes handshakes

	rounds rounds
}

// NewRegistry of the devices in a namespace.
func NewRegistry(c *Client, api API, namespace string, log *slog.Logger, now func() time.Time, metrics prometheus.Registerer) *Registry {
	return &Registry{client: c, api: api, ns: namespace, log: log, now: now, silent: map[string]time.Time{}, holds: map[string][]string{}, rows: map[string]int64{},
		asked: map[string]time.Time{}, missed: map[string]int{}, lag: newLag(metrics), replicas: newReplicas(metrics), handshakes: newHandshakes(metrics)}
}

// Ready asks the device for its status now, tells it what was revoked, and brings the manifests that it lacks. nil means that it answers,
// holds its key, and would run something under every manifest wanted.
func (r *Registry) Ready(ctx context.Context, d *v1alpha1.Device, want ...Signed) error {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	s := r.look(ctx, d, want)
	if errors.Is(ctx.Err(), context.Canceled) {
		return cmp.Or(s.err, ctx.Err()) // the asker went away; that says nothing about the device
	}
	r.remember(d, s)
	r.note(ctx, d, s)
	if s.err != nil {
		return s.err
	}
	for _, w := range want {
		if err := s.refused[w.Name]; err != nil {
			return fmt.Errorf("%w %s: %w", ErrManifest, w.Name, err)
		}
	}
	return nil
}

// Heard does something with a device, and once more if the device did not listen for want of a manifest, and got one then. A device that
// did not listen has recorded nothing.
func (r *Registry) Heard(ctx context.Context, d *v1alpha1.Device, do func() error, want ...Signed) error {
	err := do()
	if !deaf(err) {
		return err
	}
	if err := r.Ready(ctx, d, want...); err != nil {
		return err
	}
	return do()
}

// Holds tells whether the device held a manifest when it last told what it holds.
func (r *Registry) Holds(device, digest string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.holds[device], digest)
}

// Doubt what the device holds: it said of a call that it does not hold the call's manifest, or that it is dead.
func (r *Registry) Doubt(device string) {
	r.mu.Lock()
	delete(r.holds, device)
	r.mu.Unlock()
	r.rounds.wake(device)
}

// seen is what one look at a device found out.
type seen struct {
	// err when it does not answer, or does not listen.
	err error
	wire.Status
	// refused manifests, by name.
	refused map[string]error
	// revoking failed.
	revoking error
	// anchoring failed.
	anchoring error
}

func (r *Registry) look(ctx context.Context, d *v1alpha1.Device, want []Signed) seen {
	s := seen{refused: map[string]error{}}
	t, err := TargetOf(d)
	if errors.Is(err, ErrNotEnrolled) {
		s.err = err
		return s
	}
	if err != nil {
		s.err = fmt.Errorf("%w: %w", ErrUntrusted, err)
		return s
	}
	if s.Status, s.err = r.client.Status(ctx, t); s.err != nil && !deaf(s.err) {
		return s
	}
	r.revoke(ctx, t, d, &s) // before anything new comes
	for _, m := range r.inForce(ctx, d, want) {
		if s.err == nil && s.Holds(m.Digest) {
			continue
		}
		now, err := r.client.Bring(ctx, t, m.Envelope)
		switch {
		case err == nil:
			s.Status, s.err = now, nil
			telemetry.Changed(ctx, r.log, "device.manifest_brought", telemetry.Event{Cause: d.Name}, slog.String("manifest", m.Name), slog.String("digest", m.Digest))
		case Refusal(err) != nil:
			s.refused[m.Name] = err
		default:
			s.err = err
			return s
		}
	}
	r.revoke(ctx, t, d, &s) // again for a device that did not listen before
	r.anchor(ctx, t, d, &s)
	return s
}

// revoke tells a device that listens what was revoked, unless it knows.
func (r *Registry) revoke(ctx context.Context, t Target, d *v1alpha1.Device, s *seen) {
	if s.err != nil || s.RevokedEpoch >= d.Spec.RevokedEpoch {
		return
	}
	before := s.RevokedEpoch
	now, err := r.client.Revoke(ctx, t, d.Spec.RevokedEpoch)
	if s.revoking = err; err != nil {
		return
	}
	if s.Status = now; now.RevokedEpoch > before {
		telemetry.Changed(ctx, r.log, "device.revoked", telemetry.Event{Cause: d.Name}, slog.Int64("epoch", d.Spec.RevokedEpoch), slog.Int64("confirmed", now.RevokedEpoch))
	}
}

func (r *Registry) remember(d *v1alpha1.Device, s seen) {
	r.handshakes.see(d.Name, s.err == nil, r.now())
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.holds, d.Name)
	if s.err == nil {
		r.rows[d.Name] = s.AuditRows
		for _, m := range s.Manifests {
			if s.Holds(m.Digest) {
				r.holds[d.Name] = append(r.holds[d.Name], m.Digest)
			}
		}
	}
	if s.err == nil || Refusal(s.err) != nil {
		delete(r.silent, d.Name)
	} else if _, ok := r.silent[d.Name]; !ok {
		r.silent[d.Name] = r.now()
		if c := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionOnline); c != nil && c.Status == metav1.ConditionFalse {
			r.silent[d.Name] = c.LastTransitionTime.Time // it was silent before this broker began
		}
	}
}

// Away says for people that a device cannot be used now, and since when.
func (r *Registry) Away(name string, err error) string {
	no := Refusal(err)
	switch {
	case errors.Is(err, ErrManifest):
		return fmt.Sprintf("%s cannot be used: %s.", name, sanitize.Line(err.Error(), 600))
	case errors.Is(err, ErrNotEnrolled):
		return fmt.Sprintf("%s cannot be used: its enrolment is not finished.", name)
	case errors.Is(err, ErrInsecure):
		return fmt.Sprintf("%s cannot be used: there is no safe way to it; its Device says why.", name)
	case errors.Is(err, ErrUntrusted):
		return fmt.Sprintf("%s cannot be used: what answers at its address does not hold its key.", name)
	case no != nil && no.Reason == wire.NoManifest:
		return fmt.Sprintf("%s cannot be used: it holds no manifest, and there is none in force to bring.", name)
	case no != nil:
		return fmt.Sprintf("%s cannot be used: %s.", name, sanitize.Line(no.Error(), 600))
	}
	r.mu.Lock()
	since, ok := r.silent[name]
	r.mu.Unlock()
	if !ok || r.now().Sub(since) < brief {
		return fmt.Sprintf("%s does not answer; I have not tried again.", name)
	}
	return fmt.Sprintf("%s has not answered for %s (since %s); I have not tried again.", name, ago(r.now().Sub(since)), clock.Tell(since.UTC(), r.now()))
}

// brief is a silence whose length tells nobody anything.
const brief = 5 * time.Second

func ago(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	}
	return fmt.Sprintf("%d h", int(d.Hours()))
}
