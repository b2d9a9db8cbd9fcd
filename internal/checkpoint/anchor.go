package checkpoint

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"nisse.io/nisse/internal/dsse"
)

// TypeAnchor is the payload type of an Anchor's envelope.
const TypeAnchor = "application/vnd.nisse.anchor.v1+json"

// Anchor is the root key's order to begin a new line of an audit that is broken. Nothing is repaired: what is there is put aside as it is, by the
// device and by who keeps checkpoints, and the new line begins with a row that holds this order.
type Anchor struct {
	V      int    `json:"v"`
	Device string `json:"device"`
	// Line that begins: above every line before it. Signing sets Unix seconds, so that an order cannot be carried out a second time.
	Line int64 `json:"line"`
	// Before is the line that ends, and Rows and Root what was kept of it: zeros when nothing was. A device that has all of that has nothing to
	// repair, and refuses.
	Before int64  `json:"before"`
	Rows   int64  `json:"rows"`
	Root   string `json:"root"`
	// Trouble and Row of what was found.
	Trouble Trouble `json:"trouble"`
	Row     int64   `json:"row"`
	// Reason that the person gave.
	Reason string `json:"reason"`
	// At in Unix seconds, by the signer's clock.
	At int64 `json:"at"`
}

// Bounds of an order: it is kept in a row, whose arguments are cut above 4 KiB, in an object and in a ConfigMap.
const (
	maxAnchor = 3500
	maxReason = 300
)

// Kept of the line that ends.
func (a Anchor) Kept() Checkpoint {
	root, _ := ParseRoot(a.Root) // valid has looked
	return Checkpoint{Line: a.Before, Rows: a.Rows, Root: root}
}

func (a Anchor) valid() error {
	root, err := ParseRoot(a.Root)
	switch {
	case a.V != Version:
		return fmt.Errorf("version %d, want %d", a.V, Version)
	case a.Line <= a.Before || a.Before < 0 || a.Line >= 1<<53:
		return fmt.Errorf("line %d cannot follow line %d", a.Line, a.Before)
	case a.Rows < 0 || err != nil || a.Rows == 0 && root != Checkpoint{}.Root:
		return fmt.Errorf("it does not say what was kept of line %d", a.Before)
	case utf8.RuneCountInString(a.Reason) > maxReason:
		return fmt.Errorf("the reason is longer than %d characters", maxReason)
	}
	return nil
}

// Sign an order. V is set.
func (a Anchor) Sign(root ed25519.PrivateKey) (string, error) {
	a.V = Version
	if err := a.valid(); err != nil {
		return "", fmt.Errorf("order to anchor the audit: %w", err)
	}
	env, err := dsse.Sign(root, TypeAnchor, a)
	if err == nil && len(env) > maxAnchor {
		err = fmt.Errorf("order to anchor the audit: it has %d bytes, %d are allowed; shorten the reason", len(env), maxAnchor)
	}
	return string(env), err
}

// OpenAnchor verifies that a root key has ordered this device.
func OpenAnchor(envelope, device string, root ed25519.PublicKey) (Anchor, error) {
	var a Anchor
	if len(envelope) > maxAnchor {
		return Anchor{}, fmt.Errorf("%w: an order of %d bytes", dsse.ErrRefused, len(envelope))
	}
	if _, err := dsse.Verify([]byte(envelope), TypeAnchor, []ed25519.PublicKey{root}, &a); err != nil {
		return Anchor{}, err
	}
	if err := a.valid(); err != nil {
		return Anchor{}, fmt.Errorf("%w: order to anchor the audit: %w", dsse.ErrRefused, err)
	}
	if a.Device != device {
		return Anchor{}, fmt.Errorf("%w: %q, not %q", ErrOtherDevice, a.Device, device)
	}
	return a, nil
}

// ReadAnchor without a key, and the hint that it bears of which key signed it: for people, on the machine itself.
func ReadAnchor(envelope string) (a Anchor, keyID string, err error) {
	var e struct {
		Payload    []byte
		Signatures []struct{ KeyID string }
	}
	if err := json.Unmarshal([]byte(envelope), &e); err != nil {
		return Anchor{}, "", err
	}
	if len(e.Signatures) > 0 {
		keyID = e.Signatures[0].KeyID
	}
	if err := json.Unmarshal(e.Payload, &a); err != nil {
		return Anchor{}, "", err
	}
	return a, keyID, a.valid()
}
