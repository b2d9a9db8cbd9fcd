package devices

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/canonical"
	"nisse.io/nisse/internal/clock"
	"nisse.io/nisse/internal/manifest"
	"nisse.io/nisse/internal/sanitize"
	"nisse.io/nisse/internal/telemetry"
)

const (
	// interval between two looks at a device that nobody calls.
	interval = 30 * time.Second
	// notice is how soon a device that is new or was changed is looked at: whoever enrolled it is waiting. It costs a look at a
	// cache, not a call.
	notice = time.Second
	// statusTimeout of one look.
	statusTimeout = 5 * time.Second
)

// ErrManifest is wrapped when the device holds another manifest than the Device pins.
var ErrManifest = errors.New("the device holds another manifest than the one that was reviewed")

// API lists Devices and writes their conditions.
type API interface {
	List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error
	Status() client.StatusWriter
}

// Registry knows the devices.
type Registry struct {
	client *Client
	api    API
	ns     string
	log    *slog.Logger
	now    func() time.Time

	mu        sync.Mutex
	manifests map[string]*manifest.Manifest // by digest: a digest's manifest never changes
	silent    map[string]time.Time          // since when a device has not answered

	looked map[types.UID]look // the latest look at each device; Run's alone
}

// look at a device, as it was then.
type look struct {
	generation int64
	at         time.Time
}

// NewRegistry of the devices in a namespace. api is read from (a cache will do) and given the Online conditions.
func NewRegistry(c *Client, api API, namespace string, log *slog.Logger, now func() time.Time) *Registry {
	return &Registry{client: c, api: api, ns: namespace, log: log, now: now, manifests: map[string]*manifest.Manifest{}, silent: map[string]time.Time{}, looked: map[types.UID]look{}}
}

// Manifest that the Device pins. It is asked for once per digest; nil and a sentence for people when that cannot be done now.
func (r *Registry) Manifest(ctx context.Context, d *v1alpha1.Device) (*manifest.Manifest, string) {
	if m := r.known(d.Spec.ManifestDigest); m != nil {
		return m, ""
	}
	if err := r.Probe(ctx, d); err != nil {
		return nil, r.Away(d.Name, err)
	}
	return r.known(d.Spec.ManifestDigest), ""
}

func (r *Registry) known(digest string) *manifest.Manifest {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.manifests[digest]
}

// Probe asks the device for its status now. nil means that it answers, holds its key and the pinned manifest.
func (r *Registry) Probe(ctx context.Context, d *v1alpha1.Device) error {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	err := r.ask(ctx, d)
	if errors.Is(ctx.Err(), context.Canceled) {
		return err // the asker went away; that says nothing about the device
	}
	r.mu.Lock()
	if err == nil {
		delete(r.silent, d.Name)
	} else if _, ok := r.silent[d.Name]; !ok {
		r.silent[d.Name] = r.now()
		if c := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionOnline); c != nil && c.Status == metav1.ConditionFalse {
			r.silent[d.Name] = c.LastTransitionTime.Time // it was silent before this broker began
		}
	}
	r.mu.Unlock()
	r.note(ctx, d, err)
	return err
}

func (r *Registry) ask(ctx context.Context, d *v1alpha1.Device) error {
	t, err := TargetOf(d)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUntrusted, err)
	}
	s, err := r.client.Status(ctx, t)
	if err != nil {
		return err
	}
	digest := canonical.DigestBytes([]byte(s.Manifest))
	if digest != d.Spec.ManifestDigest {
		return fmt.Errorf("%w: it holds %s, the Device pins %s", ErrManifest, digest, d.Spec.ManifestDigest)
	}
	m, err := manifest.Parse([]byte(s.Manifest))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrManifest, err)
	}
	if m.Device != d.Name {
		return fmt.Errorf("%w: it is for device %q", ErrManifest, m.Device)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.manifests[digest] = m
	return nil
}

// Away says for people that a device cannot be used now, and since when.
func (r *Registry) Away(name string, err error) string {
	switch {
	case errors.Is(err, ErrManifest):
		return fmt.Sprintf("%s cannot be used: %v.", name, err)
	case errors.Is(err, ErrUntrusted):
		return fmt.Sprintf("%s cannot be used: what answers at its address does not hold its key.", name)
	}
	r.mu.Lock()
	since, ok := r.silent[name]
	r.mu.Unlock()
	if !ok {
		return fmt.Sprintf("%s does not answer; I have not tried again.", name)
	}
	return fmt.Sprintf("%s has not answered for %s (since %s); I have not tried again.", name, ago(r.now().Sub(since)), clock.Tell(since.UTC(), r.now()))
}

func ago(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	}
	return fmt.Sprintf("%d h", int(d.Hours()))
}

// note writes the Online condition when it changes.
func (r *Registry) note(ctx context.Context, d *v1alpha1.Device, err error) {
	c := metav1.Condition{Type: v1alpha1.ConditionOnline, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAnswering, ObservedGeneration: d.Generation,
		Message: "The device answers with the pinned manifest."}
	switch {
	case err == nil:
	case errors.Is(err, ErrManifest):
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonManifestMismatch, err.Error()
	case errors.Is(err, ErrUntrusted):
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonKeyMismatch, err.Error()
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1alpha1.ReasonUnreachable, err.Error()
	}
	c.Message = sanitize.Line(c.Message, 1000)
	if old := meta.FindStatusCondition(d.Status.Conditions, c.Type); old != nil && old.Status == c.Status && old.Reason == c.Reason && old.ObservedGeneration == c.ObservedGeneration {
		return
	}
	base := d.DeepCopy()
	changed := d.DeepCopy()
	meta.SetStatusCondition(&changed.Status.Conditions, c)
	changed.Status.ObservedGeneration = d.Generation
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statusTimeout)
	defer cancel()
	if err := r.api.Status().Patch(ctx, changed, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})); err != nil {
		r.log.Debug("device.condition_not_written", "device", d.Name, "err", err) // a conflict: the next look sees the newer object
		return
	}
	telemetry.Changed(ctx, r.log, "device.online_changed", telemetry.Event{Cause: d.Name}, slog.String("reason", c.Reason))
}

// Run looks at every device now and then, and at a new or changed one soon, until the context ends.
func (r *Registry) Run(ctx context.Context) error {
	tick := time.NewTicker(notice)
	defer tick.Stop()
	for {
		r.lookAround(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (r *Registry) lookAround(ctx context.Context) {
	var all v1alpha1.DeviceList
	if err := r.api.List(ctx, &all, client.InNamespace(r.ns)); err != nil {
		r.log.Warn("device.list_failed", "err", err)
		return
	}
	latest := make(map[types.UID]look, len(all.Items)) // devices that are gone are forgotten
	var wg sync.WaitGroup
	for i := range all.Items {
		d := &all.Items[i]
		last, seen := r.looked[d.UID]
		if seen && last.generation == d.Generation && r.now().Sub(last.at) < interval {
			latest[d.UID] = last
			continue
		}
		latest[d.UID] = look{generation: d.Generation, at: r.now()}
		wg.Go(func() { _ = r.Probe(ctx, d) }) // the condition tells
	}
	wg.Wait()
	r.looked = latest
}
