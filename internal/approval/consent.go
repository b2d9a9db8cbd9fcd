package approval

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"maps"
	"slices"

	"nisse.io/nisse/internal/dsse"
)

// Consent is a Person's own word that these calls, in this order, may run for this gate until then. The Person's key signs it, which no
// cluster holds: where a manifest demands one, whoever stole the cluster's keys still cannot run the call. It says the same as the
// manager's Statement, to the byte of every call, and counts beside it, never instead of it.
type Consent struct {
	V int `json:"v"`
	// Person who signs, by the name that manifest and statement have for them.
	Person  string `json:"person"`
	GateUID string `json:"gateUID"`
	// Digest of the gate, as whoever signed computed it from what they were shown.
	Digest string `json:"digest"`
	// ExpiresAt in Unix seconds. No call begins at or after it.
	ExpiresAt int64 `json:"expiresAt"`
	// Calls, Attempts and Resolved as in Statement.
	Calls    []string `json:"calls"`
	Attempts []int32  `json:"attempts"`
	Resolved []string `json:"resolved,omitempty"`
}

// MaxConsent is the largest envelope of a Consent, in bytes; a plan of as many steps as one may have makes half of it.
const MaxConsent = 16384

// ErrNoConsent is wrapped when no Person's own signature stands behind a call.
var ErrNoConsent = errors.New("no person's own signature covers this")

// Consent that a Person would give to what the statement says.
func (s Statement) Consent(person string, expiresAt int64) Consent {
	return Consent{V: Version, Person: person, GateUID: s.GateUID, Digest: s.Digest, ExpiresAt: expiresAt, Calls: s.Calls, Attempts: s.Attempts, Resolved: s.Resolved}
}

// Sign the consent with the Person's key.
func (c Consent) Sign(key ed25519.PrivateKey) (string, error) {
	c.V = Version
	b, err := dsse.Sign(key, dsse.TypeConsent, c)
	return string(b), err
}

// Consented verifies an envelope by the keys of Persons, each under its own name, and that it says what the statement says, to one of those
// who approved. The consent ends by itself: see Ended.
func (s Statement) Consented(envelope string, persons map[string][]ed25519.PublicKey) (Consent, error) {
	c, err := openConsent(envelope, persons)
	switch {
	case err != nil:
		return Consent{}, err
	case c.V != Version:
		return Consent{}, fmt.Errorf("%w: it is of version %d, want %d", ErrNoConsent, c.V, Version)
	case c.GateUID != s.GateUID:
		return Consent{}, fmt.Errorf("%w: it is for gate %s", ErrNoConsent, c.GateUID)
	case c.Digest != s.Digest:
		return Consent{}, fmt.Errorf("%w: it is for what has digest %s", ErrNoConsent, c.Digest)
	case !slices.Equal(c.Calls, s.Calls) || !slices.Equal(c.Attempts, s.Attempts):
		return Consent{}, fmt.Errorf("%w: it is for other calls", ErrNoConsent)
	case !slices.Equal(c.Resolved, s.Resolved):
		return Consent{}, fmt.Errorf("%w: it is for other programs", ErrNoConsent)
	case !slices.Contains(s.Approvers, c.Person):
		return Consent{}, fmt.Errorf("%w: %s signed it and is not among those who approved", ErrNoConsent, c.Person)
	}
	return c, nil
}

// Ended tells why no call begins on this consent any more, as of now (Unix seconds); nil while one may.
func (c Consent) Ended(now int64) error {
	if now >= c.ExpiresAt {
		return fmt.Errorf("%w: it ended %d s ago", ErrNoConsent, now-c.ExpiresAt)
	}
	return nil
}

func openConsent(envelope string, persons map[string][]ed25519.PublicKey) (Consent, error) {
	if envelope == "" {
		return Consent{}, fmt.Errorf("%w: none was given", ErrNoConsent)
	}
	if len(envelope) > MaxConsent {
		return Consent{}, fmt.Errorf("%w: it has %d bytes, %d at most", ErrNoConsent, len(envelope), MaxConsent)
	}
	refused := dsse.ErrRefused
	for _, name := range slices.Sorted(maps.Keys(persons)) {
		var c Consent
		if _, err := dsse.Verify([]byte(envelope), dsse.TypeConsent, persons[name], &c); err != nil {
			refused = err
			continue
		}
		if c.Person != name {
			return Consent{}, fmt.Errorf("%w: a key of %s signed it in the name of %s", ErrNoConsent, name, c.Person)
		}
		return c, nil
	}
	return Consent{}, fmt.Errorf("%w: no key of a person who may sign has made it: %w", ErrNoConsent, refused)
}
