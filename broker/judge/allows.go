package judge

import (
	"cmp"
	"errors"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/manifest"
	"nisse.io/nisse/internal/names"
	"nisse.io/nisse/internal/sanitize"
)

// Allowed is what a device allows the agents of one privilege, by a manifest that is in force.
type Allowed struct {
	*manifest.Manifest
	Digest string
	// Envelope as the root key made it, for a device that does not hold it.
	Envelope string
}

// Allows returns what the device allows this agent, or why that is nothing. Neither the object's status nor its name is believed: only
// what the root key signed.
func Allows(w World) (Allowed, *Decision) {
	privilege := cmp.Or(w.Agent.Spec.Privilege, v1alpha1.PrivilegeUser)
	name := names.Manifest(w.Device.Name, string(privilege))
	if w.Manifest == nil || !w.Manifest.DeletionTimestamp.IsZero() {
		return Allowed{}, refuse(NoManifest, "%s allows agents of privilege %s nothing: there is no DeviceManifest %s. Somebody has to write and sign one.", w.Device.Name, privilege, name)
	}
	text, err := w.Manifest.Spec.Text()
	if err != nil {
		return Allowed{}, refuse(ManifestInvalid, "The DeviceManifest %s cannot be read: %v.", name, err)
	}
	kept := manifest.Kept{Text: text, Signature: w.Manifest.Spec.Signature, RootKey: w.Device.Spec.RootKey, Revoked: w.Device.Spec.RevokedEpoch}
	m, err := kept.InForce(w.Now)
	switch {
	case err == nil:
	case errors.Is(err, manifest.ErrUnsigned):
		return Allowed{}, refuse(ManifestUnsigned, "Nothing runs on %s: its DeviceManifest %s is not signed yet. Whoever holds the root key has to sign it.", w.Device.Name, name)
	case errors.Is(err, manifest.ErrOtherText):
		return Allowed{}, refuse(ManifestUnsigned, "Nothing runs on %s: its DeviceManifest %s was changed after it was signed. Whoever holds the root key has to sign it again.", w.Device.Name, name)
	case errors.Is(err, manifest.ErrOtherKey):
		return Allowed{}, refuse(ManifestUntrusted, "Nothing runs on %s: the signature of its DeviceManifest %s is not of the device's root key.", w.Device.Name, name)
	case errors.Is(err, manifest.ErrRevoked):
		return Allowed{}, refuse(ManifestRevoked, "Nothing runs on %s: its manifests were revoked. It comes back when %s is signed anew.", w.Device.Name, name)
	case errors.Is(err, manifest.ErrEnded):
		return Allowed{}, refuse(ManifestExpired, "Nothing runs on %s: its DeviceManifest %s ended at %s. Give it a later end and sign it again.", w.Device.Name, name, m.ExpiresAt)
	default:
		return Allowed{}, refuse(ManifestInvalid, "Nothing runs on %s: its DeviceManifest %s is not valid: %s.", w.Device.Name, name, sanitize.Line(err.Error(), 400))
	}
	if m.Device != w.Device.Name || m.Privilege != manifest.Privilege(privilege) {
		return Allowed{}, refuse(ManifestUntrusted, "Nothing runs on %s: what is signed as %s is for agents of privilege %s on %s.", w.Device.Name, name, m.Privilege, m.Device)
	}
	digest, err := m.Digest()
	if err != nil {
		return Allowed{}, refuse(ManifestInvalid, "The DeviceManifest %s cannot be read: %v.", name, err)
	}
	return Allowed{Manifest: m, Digest: digest, Envelope: w.Manifest.Spec.Signature}, nil
}

// Listed tells what the manifest says of the call.
func Listed(c Call, a Allowed) (manifest.Verdict, *Decision) {
	v, err := a.Check(c.Capability, c.Args)
	switch {
	case errors.Is(err, manifest.ErrNotAllowed):
		return v, refuse(NotListed, "%s does not allow this: %v.", c.Device, err)
	case err != nil:
		return v, refuse(BadArguments, "The arguments cannot be used: %v.", err)
	}
	return v, nil
}
