package judge

import (
	"bytes"
	"crypto/ed25519"
	"strings"
	"testing"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/approval"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/manifest"
)

func ownKey(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
}

// demanding is a world in which rev-2 (write a) is approved and the device's manifest demands lucas' own signature for it. change bends what
// was signed by the key.
func demanding(t *testing.T, by ed25519.PrivateKey, change func(*approval.Consent)) *World {
	t.Helper()
	w := world()
	m := mustManifest()
	m.Keys.Persons = map[string][]string{"lucas": {dsse.EncodeKey(ownKey(21).Public().(ed25519.PublicKey))}}
	m.Paths[manifest.FSWrite][0].Signature = manifest.PersonSignature
	w.Manifest = mustSign(m, rootKey)
	step := write("a")
	step.ManifestDigest = mustDigest(m)
	w.plan(2, step)
	w.approve(1)
	s, err := approval.Verify(w.Gates[1].Status.Statement, w.ApprovalKeys)
	if err != nil {
		t.Fatal(err)
	}
	c := s.Consent("lucas", s.ExpiresAt)
	change(&c)
	envelope, err := c.Sign(by)
	if err != nil {
		t.Fatal(err)
	}
	w.Gates[1].Status.Decisions = []v1alpha1.GateDecision{{Person: "lucas", Decision: v1alpha1.DecisionApprove, Signature: envelope}}
	return w
}

func TestSignature(t *testing.T) {
	asIs := func(*approval.Consent) {}
	for name, tc := range map[string]struct {
		by     ed25519.PrivateKey
		change func(*approval.Consent)
		world  func(*World)
		reason string
		says   string
	}{
		"his own": {by: ownKey(21), change: asIs},
		"behind one of none": {by: ownKey(21), change: asIs, world: func(w *World) {
			w.Gates[1].Status.Decisions = append([]v1alpha1.GateDecision{{Person: "vera"}}, w.Gates[1].Status.Decisions...)
		}},
		"none":             {by: ownKey(21), change: asIs, world: func(w *World) { w.Gates[1].Status.Decisions[0].Signature = "" }, reason: NeedsSignature, says: "none was given"},
		"no decision":      {by: ownKey(21), change: asIs, world: func(w *World) { w.Gates[1].Status.Decisions = nil }, reason: NeedsSignature},
		"by another key":   {by: ownKey(22), change: asIs, reason: NeedsSignature},
		"by the manager":   {by: key, change: asIs, reason: NeedsSignature},
		"for another gate": {by: ownKey(21), change: func(c *approval.Consent) { c.GateUID = "x" }, reason: NeedsSignature},
		"for other calls":  {by: ownKey(21), change: func(c *approval.Consent) { c.Calls = []string{"x"} }, reason: NeedsSignature, says: "other calls"},
		"over":             {by: ownKey(21), change: func(c *approval.Consent) { c.ExpiresAt = now.Unix() }, reason: NeedsSignature, says: "it ended"},
	} {
		t.Run(name, func(t *testing.T) {
			w := demanding(t, tc.by, tc.change)
			if tc.world != nil {
				tc.world(w)
			}
			d := Judge(call(write("a")), *w)
			if want := map[bool]Verdict{true: Run, false: Refuse}[tc.reason == ""]; d.Verdict != want || d.Reason != tc.reason || !strings.Contains(d.Message, tc.says) {
				t.Errorf("%s %s %q, want %s %s", d.Verdict, d.Reason, d.Message, want, tc.reason)
			}
			f, no := InForce(*w)
			if no != nil {
				t.Fatal(no.Message)
			}
			signature, no := Signature(f, d.Allowed, 1, w.Now)
			if sent := signature != "" && no == nil; sent != (tc.reason == "") {
				t.Errorf("would send %q, %+v", signature, no)
			}
		})
	}
	w := world()
	f, _ := InForce(*w)
	a, _ := Allows(*w)
	if signature, no := Signature(f, a, 1, w.Now); signature != "" || no != nil {
		t.Errorf("a step that demands none: %q, %+v", signature, no)
	}
}
