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
	"nisse.io/nisse/internal/names"
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

// World of an agent's call to a device (empty: to none) for an item (empty: the active one). What does not exist is nil in it.
func (r Reader) World(ctx context.Context, agent, item, device string) (judge.World, error) {
	guess, privilege, err := r.guess(ctx, agent, item)
	if err != nil {
		return judge.World{}, err
	}
	var w, of judge.World
	all, reading := errgroup.WithContext(ctx)
	all.Go(func() error {
		a := &v1alpha1.Agent{}
		found, err := r.get(reading, agent, a)
		if found {
			w.Agent = a
		}
		return err
	})
	if device != "" {
		all.Go(func() error {
			d := &v1alpha1.Device{}
			found, err := r.get(reading, device, d)
			if found {
				w.Device = d
			}
			return err
		})
		all.Go(func() (err error) {
			w.Manifest, err = r.Manifest(reading, privilege, device)
			return err
		})
	}
	if guess != "" {
		all.Go(func() error { return r.item(reading, guess, &of) })
	}
	err = all.Wait()
	if err == nil && item == "" && w.Agent != nil && w.Agent.Status.ActiveWorkItem != guess {
		of = judge.World{}
		if item = w.Agent.Status.ActiveWorkItem; item != "" {
			err = r.item(ctx, item, &of)
		}
	}
	if err == nil && device != "" && w.Agent != nil && w.Agent.Spec.Privilege != privilege {
		w.Manifest, err = r.Manifest(ctx, w.Agent.Spec.Privilege, device)
	}
	if err != nil {
		return judge.World{}, fmt.Errorf("read what the call is judged by: %w", err)
	}
	w.Now, w.ApprovalKeys = r.Now(), r.ApprovalKeys // after reading: a slow API server must not make an approval last longer
	if w.Agent == nil {
		return judge.World{Now: w.Now, ApprovalKeys: w.ApprovalKeys}, nil
	}
	w.Item, w.Plans, w.Gates, w.Jobs = of.Item, of.Plans, of.Gates, of.Jobs
	return w, nil
}

// guess the item that the call is about, and the agent's privilege, so that what depends on them can be read beside the agent and not
// after it. What the agent says, read live, decides.
func (r Reader) guess(ctx context.Context, agent, item string) (string, v1alpha1.Privilege, error) {
	a := &v1alpha1.Agent{}
	if err := r.Known.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: agent}, a); err != nil {
		return item, "", client.IgnoreNotFound(err)
	}
	if item == "" {
		item = a.Status.ActiveWorkItem
	}
	return item, a.Spec.Privilege, nil
}

// Manifest of a device for agents of a privilege, whatever it is worth; nil when there is none.
func (r Reader) Manifest(ctx context.Context, p v1alpha1.Privilege, device string) (*v1alpha1.DeviceManifest, error) {
	m := &v1alpha1.DeviceManifest{}
	found, err := r.get(ctx, names.Manifest(device, string(p)), m)
	if !found {
		return nil, err
	}
	return m, err
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
