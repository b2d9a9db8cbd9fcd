package dispatch

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
)

// resolveEvery is how often jobs without an end are looked at, the first time at the start: that is the restart's recovery.
const resolveEvery = 5 * time.Second

// Run settles jobs that have not ended until the context ends. jobs may be a cache: what it lists is read live before it is acted on.
func (d *Dispatcher) Run(ctx context.Context, jobs client.Reader) error {
	tick := time.NewTicker(resolveEvery)
	defer tick.Stop()
	for {
		d.Resolve(ctx, jobs)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Resolve looks once at every job that has not ended.
func (d *Dispatcher) Resolve(ctx context.Context, jobs client.Reader) {
	var all v1alpha1.DeviceJobList
	if err := jobs.List(ctx, &all, client.InNamespace(d.Namespace)); err != nil {
		d.Log.Warn("devicejob.list_failed", "err", err)
		return
	}
	open := 0
	for i := range all.Items {
		j := &all.Items[i]
		if j.Status.State != "" || !j.DeletionTimestamp.IsZero() {
			continue
		}
		open++
		if err := d.resolve(ctx, j); err != nil && ctx.Err() == nil {
			d.Log.Warn("devicejob.not_settled", "job", j.Name, "err", err)
		}
	}
	d.Meter.Pending(open)
}

func (d *Dispatcher) resolve(ctx context.Context, listed *v1alpha1.DeviceJob) error {
	// Whoever holds the lock is at it already.
	now, cancel := context.WithCancel(ctx)
	cancel()
	unlock, ok := d.Locks.Lock(now, listed.Spec.WorkItem.UID)
	if !ok {
		return nil
	}
	defer unlock()
	j := &v1alpha1.DeviceJob{}
	if err := d.Live.API.Get(ctx, client.ObjectKeyFromObject(listed), j); err != nil {
		return client.IgnoreNotFound(err)
	}
	_, err := d.settle(ctx, j, false)
	return err
}
