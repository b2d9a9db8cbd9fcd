// Package signed makes the DeviceManifests of tests, as kubectl nisse manifest sign does.
package signed

import (
	"crypto/ed25519"
	"encoding/json"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/manifest"
	"nisse.io/nisse/internal/names"
)

// Manifest of a text, which need have no epoch and no end, and the object that keeps it in a namespace.
func Manifest(t testing.TB, root ed25519.PrivateKey, namespace, text string) (*v1alpha1.DeviceManifest, *manifest.Manifest) {
	t.Helper()
	m, err := manifest.Parse([]byte(text + "\nepoch: 1\nexpiresAt: " + time.Now().Add(24*time.Hour).UTC().Format(time.RFC3339) + "\n"))
	must(t, err)
	envelope, err := m.Sign(root, time.Now())
	must(t, err)
	o, err := Object(namespace, m, envelope)
	must(t, err)
	return o, m
}

// Object that keeps a manifest which was signed already.
func Object(namespace string, m *manifest.Manifest, envelope string) (*v1alpha1.DeviceManifest, error) {
	o := &v1alpha1.DeviceManifest{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: names.Manifest(m.Device, string(m.Privilege))}}
	b, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, &o.Spec); err != nil {
		return nil, err
	}
	o.Spec.Signature = envelope
	return o, nil
}

// Again signs an object as it stands now.
func Again(t testing.TB, root ed25519.PrivateKey, o *v1alpha1.DeviceManifest) {
	t.Helper()
	text, err := o.Spec.Text()
	must(t, err)
	m, err := manifest.Parse(text)
	must(t, err)
	o.Spec.Signature, err = m.Sign(root, time.Now())
	must(t, err)
	o.Spec.Epoch = m.Epoch
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
