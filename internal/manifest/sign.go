package manifest

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"nisse.io/nisse/internal/dsse"
)

// ErrOtherText is wrapped when an envelope is authentic and holds another manifest than the one it was shown with.
var ErrOtherText = errors.New("the manifest was changed after it was signed")

// Sign the manifest with a root key, for its privilege's longest life at most. The epoch is the time in seconds, or one above the epoch
// before when the clock has not passed that: it must rise, or a device would take the new text for the old one played back.
func (m *Manifest) Sign(root ed25519.PrivateKey, now time.Time) (string, error) {
	signed := *m
	signed.Epoch = max(m.Epoch+1, now.Unix())
	if err := errors.Join(signed.validate(), signed.Lasting(now)); err != nil {
		return "", fmt.Errorf("manifest: %w", err)
	}
	e, err := dsse.Sign(root, dsse.TypeManifest, signed)
	if err != nil {
		return "", err
	}
	m.Epoch = signed.Epoch
	return string(e), nil
}

// Open an envelope that one of the root keys signed.
func Open(envelope string, roots []ed25519.PublicKey) (*Manifest, error) {
	var m Manifest
	if _, err := dsse.Verify([]byte(envelope), dsse.TypeManifest, roots, &m); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	if err := m.validate(); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	return &m, nil
}

// OpenAs opens an envelope and checks that it holds this very manifest. An envelope that another key made has no text to compare; the
// error tells the two apart (ErrOtherText, dsse.ErrRefused).
func (m *Manifest) OpenAs(envelope string, roots []ed25519.PublicKey) error {
	signed, err := Open(envelope, roots)
	if err != nil {
		return err
	}
	return m.same(signed)
}

func (m *Manifest) same(other *Manifest) error {
	a, err := m.Digest()
	if err != nil {
		return err
	}
	b, err := other.Digest()
	if err != nil {
		return err
	}
	if a != b {
		return fmt.Errorf("%w: it is %s, the signature is of %s", ErrOtherText, a, b)
	}
	return nil
}

// Payload of an envelope without looking at who signed it, to show or to compare; nothing may be done on its word.
func Payload(envelope string) ([]byte, error) {
	var e struct {
		Payload string `json:"payload"`
	}
	if err := json.Unmarshal([]byte(envelope), &e); err != nil {
		return nil, fmt.Errorf("manifest: not an envelope: %w", err)
	}
	return base64.StdEncoding.DecodeString(e.Payload)
}
