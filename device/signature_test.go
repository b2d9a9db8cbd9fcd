package device_test

import (
	"crypto/ed25519"
	"strings"
	"testing"

	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/internal/approval"
	"nisse.io/nisse/internal/deed"
	"nisse.io/nisse/internal/manifest"
)

// signing is a world whose manifest demands the own signature of lucas or ada for some files.
func signing(t *testing.T) (w *world, lucas, ada ed25519.PrivateKey) {
	t.Helper()
	w, lucas, ada = newWorld(t), key(9), key(10)
	w.hold(func(m *manifest.Manifest) {
		m.Keys.Persons = map[string][]string{"lucas": {text(key(11)), text(lucas)}, "ada": {text(ada)}}
		signed := manifest.PathRule{Glob: w.files + "/signed-*", Rule: manifest.Rule{Approval: manifest.Required, Signature: manifest.PersonSignature}}
		m.Paths[manifest.FSWrite] = append([]manifest.PathRule{signed}, m.Paths[manifest.FSWrite]...)
		m.Commands[0].Signature = manifest.PersonSignature
	})
	return w, lucas, ada
}

// consented request for the first step of a statement, with what a person signed.
func (w *world) consented(s approval.Statement, c approval.Call, by ed25519.PrivateKey, consent approval.Consent) wire.Request {
	r := w.approved(s, 1, c)
	env, err := consent.Sign(by)
	must(w.t, err)
	r.Approved.Signature = env
	return r
}

func TestPersonSignature(t *testing.T) {
	w, lucas, _ := signing(t)
	first, second := w.write("signed-a", "x"), w.write("b", "y")
	s := w.statement("gate", first, second)
	consent := s.Consent("lucas", w.now.Load()+600)
	r := w.consented(s, first, lucas, consent)
	a, _ := w.ask(r)
	w.want(a, wire.Succeeded, "")
	if got := w.content("signed-a"); got != "x" {
		t.Errorf("it wrote %q", got)
	}
	if a, _ = w.ask(w.approved(s, 2, second)); a.State != wire.Succeeded { // what demands none runs by the statement alone
		t.Errorf("the other step: %+v", a)
	}
	if _, err := w.resolve(first); err != nil {
		t.Errorf("what would run is not told: %v", err)
	}
}

// Whoever has every key of the cluster, and no key of a person, runs nothing of what demands one: each of these has the manager's own
// signature on its statement and the broker's own on its request. A refusal is final, and the machine is as it was.
func TestStolenClusterWithoutThePersonsKey(t *testing.T) {
	none := func(*approval.Consent) {}
	for name, tc := range map[string]struct {
		by     func(w *world, lucas, ada ed25519.PrivateKey) ed25519.PrivateKey
		change func(*approval.Consent)
		// statement as the thief wants it, after the person has signed.
		statement func(*approval.Statement)
		bend      func(*wire.Approved)
		says      string
	}{
		"no signature":                  {bend: func(a *wire.Approved) { a.Signature = "" }, says: "none was given"},
		"one byte of it":                {bend: func(a *wire.Approved) { a.Signature = flip(a.Signature) }},
		"words":                         {bend: func(a *wire.Approved) { a.Signature = "lucas says yes" }},
		"the statement as signature":    {bend: func(a *wire.Approved) { a.Signature = a.Statement }},
		"too large":                     {bend: func(a *wire.Approved) { a.Signature += strings.Repeat(" ", approval.MaxConsent) }},
		"by the approval key":           {by: func(w *world, _, _ ed25519.PrivateKey) ed25519.PrivateKey { return w.approve }},
		"by the request key":            {by: func(w *world, _, _ ed25519.PrivateKey) ed25519.PrivateKey { return w.request }},
		"by a key that nobody knows":    {by: func(*world, ed25519.PrivateKey, ed25519.PrivateKey) ed25519.PrivateKey { return key(12) }},
		"by another person, as lucas":   {by: func(_ *world, _, ada ed25519.PrivateKey) ed25519.PrivateKey { return ada }, says: "in the name of lucas"},
		"by another person, as herself": {by: func(_ *world, _, ada ed25519.PrivateKey) ed25519.PrivateKey { return ada }, change: func(c *approval.Consent) { c.Person = "ada" }, says: "not among those who approved"},
		"of a person of no manifest":    {change: func(c *approval.Consent) { c.Person = "eve" }},
		"for another gate":              {change: func(c *approval.Consent) { c.GateUID = "other" }, says: "for gate other"},
		"for another digest":            {change: func(c *approval.Consent) { c.Digest = "sha256:e" }},
		"for another call":              {change: func(c *approval.Consent) { c.Calls = []string{strings.Repeat("0", 64)} }, says: "other calls"},
		"for fewer attempts":            {statement: func(s *approval.Statement) { s.Attempts = []int32{2} }, says: "other calls"},
		"for one call of two":           {statement: func(s *approval.Statement) { s.Calls, s.Attempts = append(s.Calls, s.Calls[0]), []int32{1, 1} }},
		"for another program":           {statement: func(s *approval.Statement) { s.Resolved = []string{strings.Repeat("a", 64)} }, says: "other programs"},
		"over":                          {change: func(c *approval.Consent) { c.ExpiresAt = began }, says: "it ended "},
	} {
		t.Run(name, func(t *testing.T) {
			w, lucas, ada := signing(t)
			c := w.write("signed-a", "x")
			s := w.statement("gate", c)
			consent := s.Consent("lucas", w.now.Load()+600)
			if tc.change == nil {
				tc.change = none
			}
			tc.change(&consent)
			if tc.statement != nil {
				tc.statement(&s)
			}
			by := lucas
			if tc.by != nil {
				by = tc.by(w, lucas, ada)
			}
			r := w.consented(s, c, by, consent)
			if tc.bend != nil {
				tc.bend(r.Approved)
			}
			for range 2 { // again after the device came back
				a, _ := w.ask(r)
				w.want(a, wire.Refused, wire.NeedsSignature)
				if a.Reason.Transient() || a.Deed != r.Deed || !strings.Contains(a.Message, tc.says) || !strings.Contains(a.Message, "kubectl nisse approve") {
					t.Errorf("not final, or not helpful: %+v", a)
				}
				w.restart()
			}
			if got := w.content("signed-a"); got != "" {
				t.Errorf("it wrote %q", got)
			}
			if seen := w.seen(r.Deed); seen.State != wire.Refused || seen.Reason != wire.NeedsSignature {
				t.Errorf("it keeps %+v", seen)
			}
		})
	}
}

// What a person signed cannot be used for anything else, nor twice: a thief who has it and the cluster's keys does what was signed, once.
func TestSignatureIsForOneDeed(t *testing.T) {
	w, lucas, _ := signing(t)
	c := w.exec("append", w.files+"/signed-a")
	s := w.statement("gate", c)
	consent := s.Consent("lucas", w.now.Load()+600)
	r := w.consented(s, c, lucas, consent)
	a, _ := w.ask(r)
	w.want(a, wire.Succeeded, "")
	a, _ = w.ask(r) // the stored answer
	w.want(a, wire.Succeeded, "")
	more := s
	more.Attempts = []int32{2}
	again := w.consented(more, c, lucas, consent)
	again.Approved.Attempt, again.Deed = 2, deed.Approved("gate", 1, 2)
	a, _ = w.ask(again)
	w.want(a, wire.Refused, wire.NeedsSignature)
	other := s
	other.GateUID = "gate2"
	a, _ = w.ask(w.consented(other, c, lucas, consent))
	w.want(a, wire.Refused, wire.NeedsSignature)
	if got := w.content("signed-a"); got != "x" {
		t.Errorf("it ran as often as %q", got)
	}
}
