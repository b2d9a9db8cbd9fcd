package dispatch

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
)

// resolveEvery is how often jobs without an end are looked at, the first time at the start: that is the restart's recovery. A job that
// stays open is looked at less and less often, down to once in resolveSeldom: its device is away, and each look holds the item.
const (
	resolveEvery  = 5 * time.Second
	resolveSeldom = time.Minute
	// resolveAtOnce jobs, so that one silent device does not keep the others' waiting.
	resolveAtOnce = 8
)

// Run settles jobs that have not ended until the context ends. jobs may be a cache: what it lists is read live before it is acted on.
func (d *Dispatcher) Run(ctx context.Context, jobs client.Reader) error {
	tick := time.NewTicker(resolveEvery)
	defer tick.Stop()
	looked := backoff{}
	for {
		d.resolve(ctx, jobs, func(j *v1alpha1.DeviceJob) bool { return looked.due(j.UID, d.Now()) })
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// backoff from jobs that stay open, by UID.
type backoff map[types.UID]struct {
	next time.Time
	wait time.Duration
}

// due tells whether to look at the job now, and if so doubles the time until the next look.
func (p backoff) due(uid types.UID, now time.Time) bool {
	for k, v := range p {
		if now.Sub(v.next) > 2*resolveSeldom { // it has ended, or it would have been looked at
			delete(p, k)
		}
	}
	v := p[uid]
	if now.Before(v.next) {
		return false
	}
	v.wait = min(max(2*v.wait, resolveEvery), resolveSeldom)
	v.next = now.Add(v.wait)
	p[uid] = v
	return true
}

// Resolve looks once at every job that has not ended.
func (d *Dispatcher) Resolve(ctx context.Context, jobs client.Reader) {
	d.resolve(ctx, jobs, func(*v1alpha1.DeviceJob) bool { return true })
}

func (d *Dispatcher) resolve(ctx context.Context, jobs client.Reader, due func(*v1alpha1.DeviceJob) bool) {
	var all v1alpha1.DeviceJobList
	if err := jobs.List(ctx, &all, client.InNamespace(d.Namespace)); err != nil {
		d.Log.Warn("devicejob.list_failed", "err", err)
		return
	}
	open := 0
	var looks errgroup.Group
	looks.SetLimit(resolveAtOnce)
	for i := range all.Items {
		j := &all.Items[i]
		if j.Status.State != "" || !j.DeletionTimestamp.IsZero() {
			continue
		}
		open++
		if !due(j) {
			continue
		}
		looks.Go(func() error {
			if err := d.settleListed(ctx, j); err != nil && ctx.Err() == nil {
				d.Log.Warn("devicejob.not_settled", "job", j.Name, "err", err)
			}
			return nil
		})
	}
	_ = looks.Wait() // none returns an error
	d.Meter.Pending(open)
}

// settleListed settles one job, unless whoever holds its item is at it already.
func (d *Dispatcher) settleListed(ctx context.Context, listed *v1alpha1.DeviceJob) error {
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
