package controllertest

import (
	"bytes"
	"crypto/ed25519"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/gate/opening"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/manifest"
	"nisse.io/nisse/test/signed"
)

// RootKey of the device.
var RootKey = private(7)

func private(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
}

func public(seed byte) ed25519.PublicKey { return private(seed).Public().(ed25519.PublicKey) }

// allowed on the device: reading and writing below /srv, the writing with approval, and in /srv/gone for good.
var allowed, envelope, ManifestDigest = sign()

func sign() (*manifest.Manifest, string, string) {
	request, approval := dsse.EncodeKey(public(8)), dsse.EncodeKey(public(9))
	write := manifest.PathRule{Glob: "/srv/**", Rule: manifest.Rule{Approval: manifest.Required}}
	gone := manifest.PathRule{Glob: "/srv/gone/**", Rule: manifest.Rule{Approval: manifest.Required, Irreversible: true}}
	m := &manifest.Manifest{V: manifest.Version, Device: "web1", Privilege: manifest.User, ExpiresAt: time.Now().Add(300 * 24 * time.Hour).UTC().Format(time.RFC3339),
		Keys:   manifest.Keys{Request: []string{request}, Approval: []string{approval}},
		Paths:  map[string][]manifest.PathRule{manifest.FSWrite: {gone, write}, manifest.FSRead: {{Glob: "/srv/**", Rule: manifest.Rule{Approval: manifest.None}}}},
		Limits: manifest.Limits{WriteBytes: 65536, OutputBytes: 65536, TimeoutSeconds: 60}}
	envelope, err := m.Sign(RootKey, time.Now().Add(-time.Hour))
	if err != nil {
		panic(err)
	}
	digest, err := m.Digest()
	if err != nil {
		panic(err)
	}
	return m, envelope, digest
}

// Device of the agents, and the signed manifest of what it allows.
func Device(namespace string) []client.Object {
	key := dsse.EncodeKey(public(7))
	m, err := signed.Object(namespace, allowed, envelope)
	if err != nil {
		panic(err)
	}
	return []client.Object{
		&v1alpha1.Device{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web1"}, Spec: v1alpha1.DeviceSpec{URL: "https://192.0.2.1:7070", PublicKey: key, RootKey: key}}, m,
	}
}

// Rules of n steps that need approval.
func Rules(n int) []opening.Step {
	return slices.Repeat([]opening.Step{{Rule: manifest.Rule{Approval: manifest.Required}}}, n)
}
