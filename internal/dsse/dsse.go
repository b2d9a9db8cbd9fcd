// Package dsse signs and verifies DSSE envelopes with ed25519. Each payload type is bound into the signature, so that an
// envelope made for one purpose can never serve another.
package dsse

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"

	"filippo.io/edwards25519"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"nisse.io/nisse/internal/canonical"
)

// Payload types. A verifier names the one it expects.
const (
	// TypeStatement is the manager's "these calls were approved".
	TypeStatement = "application/vnd.nisse.statement.v1+json"
	// TypeConsent is a Person's own "I want these calls to run".
	TypeConsent = "application/vnd.nisse.consent.v1+json"
	// TypeRequest is the broker's "please do this".
	TypeRequest = "application/vnd.nisse.request.v1+json"
	// TypeAnswer is the device's "this is what happened".
	TypeAnswer = "application/vnd.nisse.answer.v1+json"
	// TypeQuery is the broker's "what do you know of this deed".
	TypeQuery = "application/vnd.nisse.query.v1+json"
	// TypeManifest is the root key's "this device lets agents do that".
	TypeManifest = "application/vnd.nisse.manifest.v1+json"
	// TypeRevocation is the broker's "no manifest up to this epoch counts any more".
	TypeRevocation = "application/vnd.nisse.revocation.v1+json"
)

// MaxEnvelope is the largest envelope that is decoded at all.
const MaxEnvelope = 8 << 20

// ErrRefused is wrapped by every failed verification.
var ErrRefused = errors.New("signature refused")

// KeyID of a public key: the first 16 hex digits of its SHA-256.
func KeyID(pub ed25519.PublicKey) string { return canonical.Hex(pub)[:16] }

type key struct {
	private ed25519.PrivateKey
	public  ed25519.PublicKey
}

func (k key) Sign(_ context.Context, data []byte) ([]byte, error) {
	return ed25519.Sign(k.private, data), nil
}

func (k key) Verify(_ context.Context, data, sig []byte) error {
	if len(k.public) != ed25519.PublicKeySize || !ed25519.Verify(k.public, data, sig) {
		return ErrRefused
	}
	return nil
}

func (k key) KeyID() (string, error)   { return KeyID(k.public), nil }
func (k key) Public() crypto.PublicKey { return k.public }

// Sign returns an envelope around the canonical form of payload.
func Sign(private ed25519.PrivateKey, payloadType string, payload any) ([]byte, error) {
	b, err := canonical.Marshal(payload)
	if err != nil {
		return nil, fmt.Errorf("sign %s: %w", payloadType, err)
	}
	s, err := dsse.NewEnvelopeSigner(key{private, private.Public().(ed25519.PublicKey)})
	if err != nil {
		return nil, fmt.Errorf("sign %s: %w", payloadType, err)
	}
	e, err := s.SignPayload(context.Background(), payloadType, b)
	if err != nil {
		return nil, fmt.Errorf("sign %s: %w", payloadType, err)
	}
	return json.Marshal(e)
}

// Verify checks that envelope is of payloadType, signed by one of trusted, and canonical; it then decodes the payload into out,
// refusing fields that out does not know. It returns the key that signed. No trusted key means nobody is trusted.
func Verify(envelope []byte, payloadType string, trusted []ed25519.PublicKey, out any) (ed25519.PublicKey, error) {
	if len(envelope) > MaxEnvelope {
		return nil, fmt.Errorf("%w: envelope of %d bytes is larger than %d", ErrRefused, len(envelope), MaxEnvelope)
	}
	if len(trusted) == 0 {
		return nil, fmt.Errorf("%w: no key is trusted for %s", ErrRefused, payloadType)
	}
	var e dsse.Envelope
	if err := canonical.Strict(envelope, &e); err != nil {
		return nil, fmt.Errorf("%w: not an envelope: %w", ErrRefused, err)
	}
	if e.PayloadType != payloadType {
		return nil, fmt.Errorf("%w: payload type %q where %q is wanted", ErrRefused, e.PayloadType, payloadType)
	}
	keys := make([]dsse.Verifier, len(trusted))
	for i, t := range trusted {
		keys[i] = key{public: t}
	}
	v, err := dsse.NewEnvelopeVerifier(keys...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	accepted, payload, err := v.VerifyAndDecode(context.Background(), &e)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if !canonical.Equal(payload) {
		return nil, fmt.Errorf("%w: payload is not canonical JSON", ErrRefused)
	}
	if err := canonical.Strict(payload, out); err != nil {
		return nil, fmt.Errorf("%w: payload: %w", ErrRefused, err)
	}
	return accepted[0].Public.(ed25519.PublicKey), nil
}

// EncodeKey writes a public key as people pass it around: standard base64 of its 32 bytes.
func EncodeKey(pub ed25519.PublicKey) string { return base64.StdEncoding.EncodeToString(pub) }

// ParseKey reads what EncodeKey wrote. Keys under which anybody can sign are refused: 32 zero bytes, as a placeholder may have, are one.
func ParseKey(s string) (ed25519.PublicKey, error) {
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil || len(b) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("public key %q is not base64 of 32 bytes", s)
	}
	point, err := new(edwards25519.Point).SetBytes(b)
	if err != nil {
		return nil, fmt.Errorf("public key %q is not an ed25519 key: %w", s, err)
	}
	if new(edwards25519.Point).MultByCofactor(point).Equal(edwards25519.NewIdentityPoint()) == 1 {
		return nil, fmt.Errorf("public key %q is worthless: signatures under it can be made without a private key", s)
	}
	return b, nil
}

// ParsePrivateKey reads an ed25519 private key in PEM (PKCS #8), as `openssl genpkey -algorithm ed25519` writes it.
func ParsePrivateKey(pemBytes []byte) (ed25519.PrivateKey, error) {
	block, _ := pem.Decode(pemBytes)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, errors.New("not a PEM block of type PRIVATE KEY")
	}
	k, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("private key: %w", err)
	}
	priv, ok := k.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("private key is %T, want ed25519", k)
	}
	return priv, nil
}

// EncodePrivateKey writes what ParsePrivateKey reads.
func EncodePrivateKey(private ed25519.PrivateKey) ([]byte, error) {
	b, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, fmt.Errorf("private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: b}), nil
}
