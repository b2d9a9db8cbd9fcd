package stack

import (
	"crypto/ed25519"
	"os"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/names"
	"nisse.io/nisse/test/signed"
)

// Key is one of the stack's signing keys: root, approval or request.
func (s *Stack) Key(name string) ed25519.PrivateKey {
	s.T.Helper()
	pem, err := os.ReadFile(filepath.Join(s.Dir, "keys", name+".pem"))
	s.must(err)
	key, err := dsse.ParsePrivateKey(pem)
	s.must(err)
	return key
}

// Manifest of the device for a privilege, as it is kept now.
func (s *Stack) Manifest(p api.Privilege) *api.DeviceManifest {
	s.T.Helper()
	m := &api.DeviceManifest{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: names.Manifest(Device, string(p))}}
	s.must(s.Admin.Get(s.T.Context(), client.ObjectKeyFromObject(m), m))
	return m
}

// Allow changes what the device allows agents of privilege User, and signs it where sign says so.
func (s *Stack) Allow(sign bool, change func(*api.DeviceManifestSpec)) *api.DeviceManifest {
	s.T.Helper()
	m := s.Manifest(api.PrivilegeUser)
	before := m.DeepCopy()
	change(&m.Spec)
	if sign {
		signed.Again(s.T, s.Key("root"), m)
	}
	s.must(s.Admin.Patch(s.T.Context(), m, client.MergeFrom(before)))
	return m
}

// Revoke all that the device was allowed until now, as kubectl nisse device revoke does.
func (s *Stack) Revoke() {
	s.T.Helper()
	d := &api.Device{}
	s.must(s.Admin.Get(s.T.Context(), client.ObjectKey{Namespace: s.Namespace, Name: Device}, d))
	before := d.DeepCopy()
	d.Spec.RevokedEpoch = s.Manifest(api.PrivilegeUser).Spec.Epoch
	s.must(s.Admin.Patch(s.T.Context(), d, client.MergeFrom(before)))
}
