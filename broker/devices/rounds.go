package devices

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/manifest"
	"nisse.io/nisse/internal/names"
)

const (
	// interval between two looks at a device that nobody calls.
	interval = 30 * time.Second
	// pressing is the interval while a revocation is not confirmed: the device may come back at any moment.
	pressing = 3 * time.Second
)

// rounds are the looks at devices, each device's one after the other and none waiting for another's.
type rounds struct {
	mu sync.Mutex
	// waiting devices and how to wake their rounds. nil until Run.
	waiting map[string]chan struct{}
	// busy devices, with what can wait and how to break it off.
	busy  map[string]context.CancelFunc
	begin func(device string, woken <-chan struct{})
}

// wake the round of a device, or begin it.
func (o *rounds) wake(device string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.begin == nil {
		return
	}
	woken, ok := o.waiting[device]
	if !ok {
		woken = make(chan struct{}, 1)
		o.waiting[device] = woken
		o.begin(device, woken)
	}
	select {
	case woken <- struct{}{}:
	default: // a token lies there already
	}
	if stop := o.busy[device]; stop != nil {
		stop()
	}
}

// unlessWoken does what can wait with a device, and breaks it off when its round is woken: a revocation may have come, and a device gives its
// audit as slowly as it likes.
func (o *rounds) unlessWoken(ctx context.Context, device string, do func(context.Context)) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	o.mu.Lock()
	woken := len(o.waiting[device]) > 0
	if !woken {
		o.busy[device] = stop
	}
	o.mu.Unlock()
	if woken {
		return
	}
	do(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.busy, device)
}

// end the round of a device that is gone, unless it was woken meanwhile.
func (o *rounds) end(device string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.waiting[device]) > 0 {
		return false
	}
	delete(o.waiting, device)
	return true
}

// Watch wakes rounds by the informers of a cache: a device that is new, a revocation or a manifest is looked after at once.
func (r *Registry) Watch(ctx context.Context, c ctrlcache.Informers) error {
	for _, o := range []client.Object{&v1alpha1.Device{}, &v1alpha1.DeviceManifest{}} {
		i, err := c.GetInformer(ctx, o)
		if err != nil {
			return fmt.Errorf("watch %T: %w", o, err)
		}
		_, err = i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) { r.rounds.wake(deviceOf(o)) },
			UpdateFunc: func(before, after any) {
				if changed(before, after) {
					r.rounds.wake(deviceOf(after))
				}
			},
			DeleteFunc: func(o any) {
				if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
					o = gone.Obj
				}
				r.rounds.wake(deviceOf(o))
			},
		})
		if err != nil {
			return fmt.Errorf("watch %T: %w", o, err)
		}
	}
	return nil
}

// changed tells whether an object says something else than before; its status is the product's own.
func changed(before, after any) bool {
	b, ok := before.(client.Object)
	a, is := after.(client.Object)
	return !ok || !is || b.GetUID() != a.GetUID() || b.GetGeneration() != a.GetGeneration()
}

func deviceOf(o any) string {
	switch o := o.(type) {
	case *v1alpha1.Device:
		return o.Name
	case *v1alpha1.DeviceManifest:
		return o.Spec.Device
	}
	return ""
}

// Run looks at every device now and then, and at once when it or a manifest of it changes, until the context ends.
func (r *Registry) Run(ctx context.Context) error {
	var all sync.WaitGroup
	r.rounds.mu.Lock()
	r.rounds.waiting, r.rounds.busy = map[string]chan struct{}{}, map[string]context.CancelFunc{}
	r.rounds.begin = func(device string, woken <-chan struct{}) {
		if ctx.Err() == nil {
			all.Go(func() { r.tend(ctx, device, woken) })
		}
	}
	r.rounds.mu.Unlock()
	for {
		var devices v1alpha1.DeviceList
		if err := r.api.List(ctx, &devices, client.InNamespace(r.ns)); err == nil {
			for i := range devices.Items {
				r.rounds.wake(devices.Items[i].Name)
			}
			break
		} else if ctx.Err() == nil {
			r.log.Warn("device.list_failed", "err", err)
		}
		if !sleep(ctx, nil, pressing) {
			break
		}
	}
	<-ctx.Done()
	r.rounds.mu.Lock()
	r.rounds.begin = nil
	r.rounds.mu.Unlock()
	all.Wait()
	return nil
}

// tend looks at one device until it or the context is gone.
func (r *Registry) tend(ctx context.Context, device string, woken <-chan struct{}) {
	defer r.lag.forget(device)
	defer r.client.Forget(device)
	defer r.replicas.forget(device)
	defer r.handshakes.forget(device)
	for wait := time.Duration(0); sleep(ctx, woken, wait); {
		wait = interval
		d := &v1alpha1.Device{}
		err := r.api.Get(ctx, client.ObjectKey{Namespace: r.ns, Name: device}, d)
		switch {
		case apierrors.IsNotFound(err):
			if r.rounds.end(device) {
				return
			}
			continue
		case err != nil:
			continue
		}
		err = r.Ready(ctx, d)
		if err != nil && d.Spec.RevokedEpoch > d.Status.RevokedEpoch {
			wait = pressing
		}
		r.rounds.unlessWoken(ctx, device, func(ctx context.Context) {
			r.renew(ctx, d)
			if err == nil {
				r.audit(ctx, d)
			}
		})
	}
}

// sleep until woken or for a time; false when the context ended.
func sleep(ctx context.Context, woken <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-woken:
	case <-t.C:
	}
	return ctx.Err() == nil
}

// inForce are the manifests to bring to a device: those wanted, and those that the cluster has in force for it.
func (r *Registry) inForce(ctx context.Context, d *v1alpha1.Device, want []Signed) []Signed {
	all := slices.Clone(want)
	for _, p := range []v1alpha1.Privilege{v1alpha1.PrivilegeUser, v1alpha1.PrivilegeElevated} {
		name := names.Manifest(d.Name, string(p))
		if slices.ContainsFunc(want, func(s Signed) bool { return s.Name == name }) {
			continue // the wanted one was read live
		}
		var m v1alpha1.DeviceManifest
		if err := r.api.Get(ctx, client.ObjectKey{Namespace: d.Namespace, Name: name}, &m); err != nil {
			if !apierrors.IsNotFound(err) {
				r.log.Warn("device.manifest_not_read", "manifest", name, "err", err)
			}
			continue
		}
		text, err := m.Spec.Text()
		if err != nil {
			continue // nothing that anybody could have signed
		}
		signed, err := manifest.Kept{Text: text, Signature: m.Spec.Signature, RootKey: d.Spec.RootKey, Revoked: d.Spec.RevokedEpoch}.InForce(r.now())
		if err != nil {
			continue // the DeviceManifest's own conditions tell
		}
		digest, err := signed.Digest()
		if err != nil {
			continue
		}
		all = append(all, Signed{Name: name, Digest: digest, Envelope: m.Spec.Signature})
	}
	return all
}
