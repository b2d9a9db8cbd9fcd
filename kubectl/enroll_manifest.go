package kubectl

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"nisse.io/nisse/api/v1alpha1"
	sample "nisse.io/nisse/config/device"
	"nisse.io/nisse/internal/manifest"
	"nisse.io/nisse/internal/names"
)

const (
	// life of the User manifest that a device starts with.
	life = 365 * 24 * time.Hour
	day  = 24 * time.Hour
	// mostDays of an Elevated one.
	mostDays = int(manifest.MaxElevatedLife / day)
)

// validElevated tells what is wrong with the flags of the Elevated manifest.
func (e *enrolment) validElevated(given func(flag string) bool) error {
	switch {
	case !e.elevated && (given("elevated-days") || given("elevated-user")):
		return fmt.Errorf("--elevated-days and --elevated-user are about the Elevated manifest: say --elevated too")
	case e.days < 1 || e.days > mostDays:
		return fmt.Errorf("--elevated-days %d: 1 to %d; what may be done as root is looked at again every quarter", e.days, mostDays)
	case e.user == "":
		return fmt.Errorf("--elevated-user is empty: name an account of the machine, such as root")
	}
	return nil
}

// manifests that the device starts with; made where an enrolment begins, or asked for, and never changed.
func (e *enrolment) manifests(ctx context.Context, d *v1alpha1.Device) ([]*v1alpha1.DeviceManifest, error) {
	// Whoever finishes an enrolment may have taken one away on purpose.
	user, err := e.manifest(ctx, v1alpha1.PrivilegeUser, e.url != "")
	if err != nil {
		return nil, err
	}
	elevated, err := e.manifest(ctx, v1alpha1.PrivilegeElevated, e.elevated)
	if err != nil {
		return nil, err
	}
	var all []*v1alpha1.DeviceManifest
	for _, m := range []*v1alpha1.DeviceManifest{user, elevated} {
		if m != nil {
			all = append(all, m)
		}
	}
	return all, nil
}

// manifest of a privilege as it is, or as it is made if it is to be; nil otherwise.
func (e *enrolment) manifest(ctx context.Context, p v1alpha1.Privilege, wanted bool) (*v1alpha1.DeviceManifest, error) {
	m := &v1alpha1.DeviceManifest{}
	name := names.Manifest(e.name, string(p))
	err := e.Get(ctx, client.ObjectKey{Namespace: e.namespace, Name: name}, m)
	switch {
	case err == nil:
		e.tell("devicemanifest", name, "unchanged", "")
		return m, nil
	case !apierrors.IsNotFound(err):
		return nil, err
	case !wanted:
		return nil, nil
	}
	var keys corev1.ConfigMap
	if err := e.Get(ctx, client.ObjectKey{Namespace: e.system, Name: "nisse-public-keys"}, &keys); err != nil {
		return nil, fmt.Errorf("the public keys of the installation: %w; is Nisse installed in %s?", err, e.system)
	}
	text, lasts := sample.Manifest, life
	if p == v1alpha1.PrivilegeElevated {
		text, lasts = sample.ElevatedManifest, time.Duration(e.days)*day
	}
	if err := yaml.UnmarshalStrict(text, m); err != nil {
		return nil, fmt.Errorf("the starting manifest: %w", err)
	}
	m.ObjectMeta = metav1.ObjectMeta{Namespace: e.namespace, Name: name}
	m.Spec.Device, m.Spec.ExpiresAt = e.name, e.now.Add(lasts).UTC().Format(time.RFC3339)
	if p == v1alpha1.PrivilegeElevated {
		m.Spec.User = e.user
	}
	m.Spec.Keys = v1alpha1.ManifestKeys{Request: []string{keys.Data["request"]}, Approval: []string{keys.Data["approval"]}}
	how := ", unsigned"
	if e.sign != nil {
		if err := e.signed(&m.Spec); err != nil {
			return nil, err
		}
		how = ", signed, until " + m.Spec.ExpiresAt
	}
	if err := e.Create(ctx, m); err != nil {
		return nil, err
	}
	e.made = append(e.made, p)
	e.tell("devicemanifest", name, "created", how)
	return m, nil
}

func (e *enrolment) signed(s *v1alpha1.DeviceManifestSpec) error {
	s.Epoch = 1
	text, err := s.Text()
	if err != nil {
		return err
	}
	m, err := manifest.Parse(text)
	if err != nil {
		return fmt.Errorf("the starting manifest: %w", err)
	}
	if s.Signature, err = m.Sign(e.sign, e.now); err != nil {
		return fmt.Errorf("the starting manifest: %w", err)
	}
	s.Epoch = m.Epoch
	return nil
}
