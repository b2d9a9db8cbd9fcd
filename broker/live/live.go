// Package live reads, from the API server and not from a cache, what a call is judged by: a cache may not have heard yet of the
// stop, the rejection or the later revision that forbids it.
package live

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/broker/judge"
)

// Reader of one namespace.
type Reader struct {
	// API reads live. A cache here would break what this package is for.
	API client.Reader
	// Known may lag. It is asked for what never changes, and for names to read live; see item.go.
	Known     client.Reader
	Namespace string
	// ApprovalKeys whose statements count.
	ApprovalKeys []ed25519.PublicKey
	Now          func() time.Time
}

// World of an agent's call to a device (empty: to none) for an item (empty: the active one). What does not exist is nil in it;
// the manifest is left to the caller.
func (r Reader) World(ctx context.Context, agent, item, device string) (judge.World, error) {
	w := judge.World{Now: r.Now(), ApprovalKeys: r.ApprovalKeys}
	a := &v1alpha1.Agent{}
	found, err := r.get(ctx, agent, a)
	if err != nil || !found {
		return w, err
	}
	w.Agent = a
	if item == "" {
		item = a.Status.ActiveWorkItem
	}
	g, ctx := errgroup.WithContext(ctx)
	if device != "" {
		g.Go(func() error {
			d := &v1alpha1.Device{}
			found, err := r.get(ctx, device, d)
			if found {
				w.Device = d
			}
			return err
		})
	}
	if item != "" {
		g.Go(func() error { return r.item(ctx, item, &w) })
	}
	if err := g.Wait(); err != nil {
		return judge.World{}, fmt.Errorf("read what the call is judged by: %w", err)
	}
	w.Now = r.Now() // after reading: a slow API server must not make an approval last longer
	return w, nil
}

// ofItem leaves out the jobs of a namesake that was deleted and whose jobs are not collected yet.
func ofItem(jobs []v1alpha1.DeviceJob, uid string) []v1alpha1.DeviceJob {
	kept := jobs[:0]
	for _, j := range jobs {
		if j.Spec.WorkItem.UID == uid {
			kept = append(kept, j)
		}
	}
	return kept
}

func (r Reader) get(ctx context.Context, name string, into client.Object) (bool, error) {
	err := r.API.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: name}, into)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read %s: %w", name, err)
	}
	return true, nil
}
