package manifest

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"time"

	"nisse.io/nisse/internal/dsse"
)

// Why a manifest that the cluster keeps is not in force, beside ErrOtherText.
var (
	// ErrUnsigned: nobody signed it yet.
	ErrUnsigned = errors.New("it is not signed")
	// ErrInvalid: it says something that no device would take.
	ErrInvalid = errors.New("it is not valid")
	// ErrOtherKey: another key than the device's root key signed it.
	ErrOtherKey = errors.New("the device's root key did not sign it")
	// ErrRevoked: its epoch was revoked.
	ErrRevoked = errors.New("it was revoked")
	// ErrEnded: its time is over.
	ErrEnded = errors.New("its time is over")
)

// Kept is a manifest as the cluster keeps it, beside what its Device says.
type Kept struct {
	// Text without the signature, in JSON.
	Text []byte
	// Signature is the envelope by the root key; empty while there is none.
	Signature string
	// RootKey of the device, in base64.
	RootKey string
	// Revoked is the epoch up to which the device's manifests are dead.
	Revoked int64
}

// InForce returns the manifest when the root key signed this very text, its time is not over and it was not revoked. Otherwise the error
// says which of that it is, and the manifest comes with it as far as it could be read.
func (k Kept) InForce(now time.Time) (*Manifest, error) {
	if k.Signature == "" {
		return nil, ErrUnsigned
	}
	m, err := parseJSON(k.Text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	root, err := dsse.ParseKey(k.RootKey)
	if err != nil {
		return m, fmt.Errorf("%w: the root key that the Device names: %w", ErrOtherKey, err)
	}
	switch err := m.OpenAs(k.Signature, []ed25519.PublicKey{root}); {
	case errors.Is(err, ErrOtherText):
		return m, err
	case err != nil:
		return m, fmt.Errorf("%w: %w", ErrOtherKey, err)
	}
	end, err := m.Expiry()
	switch {
	case err != nil:
		return m, fmt.Errorf("%w: %w", ErrInvalid, err)
	case m.Epoch <= k.Revoked:
		return m, fmt.Errorf("%w: its epoch is %d, and everything up to %d is revoked", ErrRevoked, m.Epoch, k.Revoked)
	case !now.Before(end):
		return m, fmt.Errorf("%w: it ended at %s", ErrEnded, m.ExpiresAt)
	}
	return m, nil
}
