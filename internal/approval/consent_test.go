package approval

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"strings"
	"testing"

	"nisse.io/nisse/internal/dsse"
)

func personKey(seed byte) (ed25519.PrivateKey, []ed25519.PublicKey) {
	k := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
	return k, []ed25519.PublicKey{k.Public().(ed25519.PublicKey)}
}

func TestConsent(t *testing.T) {
	key, public := personKey(7)
	s, _, _ := statement(t)
	s.Resolved = []string{"", strings.Repeat("0a", 32)}
	env, err := s.Consent("lucas", 900).Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Consented(env, map[string][]ed25519.PublicKey{"ada": nil, "lucas": public})
	if err != nil || c.Person != "lucas" || c.ExpiresAt != 900 {
		t.Fatalf("%+v, %v", c, err)
	}
	if err := c.Ended(899); err != nil {
		t.Errorf("in its time: %v", err)
	}
	if err := c.Ended(900); !errors.Is(err, ErrNoConsent) {
		t.Errorf("at its end: %v", err)
	}
}

// A plan of as many steps as one may have, each with a program, can be signed.
func TestLargestConsent(t *testing.T) {
	key, public := personKey(7)
	s := Statement{GateUID: strings.Repeat("g", 64), Digest: "sha256:" + strings.Repeat("d", 64), Approvers: []string{strings.Repeat("p", 63)}}
	for range 50 {
		s.Calls, s.Attempts, s.Resolved = append(s.Calls, strings.Repeat("c", 64)), append(s.Attempts, 16), append(s.Resolved, strings.Repeat("e", 64))
	}
	env, err := s.Consent(s.Approvers[0], 1<<50).Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Consented(env, map[string][]ed25519.PublicKey{s.Approvers[0]: public}); err != nil || len(env) > MaxConsent {
		t.Errorf("%d bytes: %v", len(env), err)
	}
}

// Every field of a consent is bound: what a person signed is good for that, and for nothing that differs anywhere.
func TestConsentBindsEveryField(t *testing.T) {
	key, public := personKey(7)
	other, others := personKey(8)
	persons := map[string][]ed25519.PublicKey{"lucas": public, "ada": others}
	good, _, _ := statement(t)
	good.Resolved = []string{"", strings.Repeat("0a", 32)}
	resign := func(change func(*Consent)) string {
		c := good.Consent("lucas", 900)
		change(&c)
		env, err := dsse.Sign(key, dsse.TypeConsent, c)
		if err != nil {
			t.Fatal(err)
		}
		return string(env)
	}
	env := resign(func(*Consent) {})
	as := func(by ed25519.PrivateKey, kind string, payload any) string {
		e, err := dsse.Sign(by, kind, payload)
		if err != nil {
			t.Fatal(err)
		}
		return string(e)
	}
	if _, err := good.Consented(env, persons); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		envelope string
		change   func(*Statement)
		persons  map[string][]ed25519.PublicKey
	}{
		"nothing":                      {envelope: ""},
		"no envelope":                  {envelope: "{}"},
		"one byte more than there may": {envelope: env + strings.Repeat(" ", MaxConsent-len(env)+1)},
		"no person has a key":          {envelope: env, persons: map[string][]ed25519.PublicKey{}},
		"another's key, in her name":   {envelope: as(other, dsse.TypeConsent, good.Consent("lucas", 900))},
		"another payload type":         {envelope: as(key, dsse.TypeStatement, good.Consent("lucas", 900))},
		"an unknown field": {envelope: as(key, dsse.TypeConsent, struct {
			Consent
			More int `json:"more"`
		}{good.Consent("lucas", 900), 1})},
		"version":            {envelope: resign(func(c *Consent) { c.V = 2 })},
		"person":             {envelope: resign(func(c *Consent) { c.Person = "ada" })},
		"gate":               {envelope: resign(func(c *Consent) { c.GateUID = "h" })},
		"digest":             {envelope: resign(func(c *Consent) { c.Digest = "sha256:e" })},
		"calls, order":       {envelope: resign(func(c *Consent) { c.Calls = []string{c.Calls[1], c.Calls[0]} })},
		"calls, one less":    {envelope: resign(func(c *Consent) { c.Calls = c.Calls[:1] })},
		"attempts":           {envelope: resign(func(c *Consent) { c.Attempts = []int32{1, 2} })},
		"resolved":           {envelope: resign(func(c *Consent) { c.Resolved = []string{"", strings.Repeat("0b", 32)} })},
		"resolved, not":      {envelope: resign(func(c *Consent) { c.Resolved = nil })},
		"statement's gate":   {envelope: env, change: func(s *Statement) { s.GateUID = "h" }},
		"statement's digest": {envelope: env, change: func(s *Statement) { s.Digest = "sha256:e" }},
		"statement's calls":  {envelope: env, change: func(s *Statement) { s.Calls = []string{s.Calls[0], s.Calls[0]} }},
		"statement's tries":  {envelope: env, change: func(s *Statement) { s.Attempts = []int32{2, 1} }},
		"statement's bytes":  {envelope: env, change: func(s *Statement) { s.Resolved = nil }},
		"approved by others": {envelope: env, change: func(s *Statement) { s.Approvers = []string{"ada"} }},
	} {
		t.Run(name, func(t *testing.T) {
			s, trusted := good, persons
			if tc.change != nil {
				tc.change(&s)
			}
			if tc.persons != nil {
				trusted = tc.persons
			}
			if c, err := s.Consented(tc.envelope, trusted); !errors.Is(err, ErrNoConsent) {
				t.Errorf("accepted: %+v, %v", c, err)
			}
		})
	}
}
