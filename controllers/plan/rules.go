package plan

import (
	"cmp"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/gate/opening"
	"nisse.io/nisse/controllers/gate/subject"
	"nisse.io/nisse/internal/manifest"
	"nisse.io/nisse/internal/names"
)

// rules that the devices' manifests have, with the keys of Persons, for the steps of a plan, in order. They are read live, and only those that are in force and that
// the steps name count: what a person is shown must be judged by what the devices will judge by.
func (r *Reconciler) rules(ctx context.Context, p *v1alpha1.Plan, item *v1alpha1.WorkItem, agent *v1alpha1.Agent) ([]opening.Step, error) {
	if err := subject.Check(p, item, agent); err != nil {
		return nil, err
	}
	known := map[string]*manifest.Manifest{}
	rules := make([]opening.Step, len(p.Spec.Steps))
	for i, s := range p.Spec.Steps {
		m, ok := known[s.Device]
		if !ok {
			var err error
			if m, err = r.inForce(ctx, p.Namespace, s.Device, agent.Spec.Privilege); err != nil {
				return nil, err
			}
			known[s.Device] = m
		}
		digest, err := m.Digest()
		if err != nil {
			return nil, err
		}
		if digest != s.ManifestDigest {
			return nil, fmt.Errorf("%w: what %s allows has changed since step %d was written", subject.ErrNotReady, s.Device, i+1)
		}
		v, err := m.Check(s.Capability, s.Args)
		if err != nil {
			return nil, fmt.Errorf("%w: step %d: %w", subject.ErrNotReady, i+1, err)
		}
		rules[i] = opening.Step{Rule: v.Rule, Persons: m.Keys.Persons}
	}
	return rules, nil
}

func (r *Reconciler) inForce(ctx context.Context, namespace, device string, p v1alpha1.Privilege) (*manifest.Manifest, error) {
	p = cmp.Or(p, v1alpha1.PrivilegeUser)
	name := names.Manifest(device, string(p))
	var d v1alpha1.Device
	var m v1alpha1.DeviceManifest
	// In this order, always: a message that differs from pass to pass is a write each time.
	for _, o := range []struct {
		name string
		into client.Object
	}{{device, &d}, {name, &m}} {
		err := r.Live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: o.name}, o.into)
		switch {
		case apierrors.IsNotFound(err):
			return nil, fmt.Errorf("%w: %s does not exist", subject.ErrNotReady, o.name)
		case err != nil:
			return nil, fmt.Errorf("read %s: %w", o.name, err)
		}
	}
	text, err := m.Spec.Text()
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", subject.ErrNotReady, name, err)
	}
	kept, err := manifest.Kept{Text: text, Signature: m.Spec.Signature, RootKey: d.Spec.RootKey, Revoked: d.Spec.RevokedEpoch}.InForce(r.Now())
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %s: %w", subject.ErrNotReady, name, err)
	case kept.Device != device || string(kept.Privilege) != string(p):
		return nil, fmt.Errorf("%w: what is signed as %s is for agents of privilege %s on %s", subject.ErrNotReady, name, kept.Privilege, kept.Device)
	}
	return kept, nil
}
