package gate

import (
	"bytes"
	"crypto/ed25519"
	"strings"
	"testing"
	"time"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/controllertest"
	"nisse.io/nisse/controllers/gate/opening"
	"nisse.io/nisse/controllers/gate/subject"
	"nisse.io/nisse/internal/approval"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/manifest"
)

// signedGate is one that takes lucas' own signature, which the key makes.
func (b *bench) signedGate(p *v1alpha1.Plan) (*v1alpha1.Gate, ed25519.PrivateKey) {
	b.T.Helper()
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{21}, ed25519.SeedSize))
	rule := manifest.Rule{Approval: manifest.Required, Signature: manifest.PersonSignature}
	b.Read(b.Item)
	g, err := opening.Plan(p, b.Item, b.Agent, []opening.Step{{Rule: rule, Persons: map[string][]string{"lucas": {dsse.EncodeKey(key.Public().(ed25519.PublicKey))}}}}, b.now)
	if err != nil {
		b.T.Fatal(err)
	}
	b.Create(g)
	return g, key
}

// A word in the room does not close a gate that takes a signature: it is told so, and the gate waits on until the signature comes. What ends
// earlier, the window or the signature, ends the statement.
func TestGateThatTakesASignature(t *testing.T) {
	for name, tc := range map[string]struct{ signed, lasts time.Duration }{
		"signed for less than the window": {20 * time.Minute, 20 * time.Minute},
		"signed for more":                 {20 * time.Hour, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			p := b.Plan(1, controllertest.Report)
			g, key := b.signedGate(p)
			word := b.Approval(g, "lucas", v1alpha1.DecisionApprove, nil)
			b.must(g)
			b.outcome(g, "")
			b.refused(word, v1alpha1.ReasonSignatureRequired)

			end := b.now.Add(tc.signed)
			consent := subject.Statement(g, p, []string{"lucas"}, end).Consent("lucas", end.Unix())
			forged := consent
			forged.GateUID = "another"
			sign := func(c approval.Consent) string {
				env, err := c.Sign(key)
				if err != nil {
					t.Fatal(err)
				}
				return env
			}
			bad := b.Approval(g, "lucas", v1alpha1.DecisionApprove, func(s *v1alpha1.ApprovalSpec) { s.Signature = sign(forged) })
			b.must(g)
			b.outcome(g, "")
			b.refused(bad, v1alpha1.ReasonSignatureInvalid)

			good := b.Approval(g, "lucas", v1alpha1.DecisionApprove, func(s *v1alpha1.ApprovalSpec) { s.Signature = sign(consent) })
			b.must(g)
			b.outcome(g, v1alpha1.GateApproved)
			b.refused(good, "")
			if len(g.Status.Decisions) != 1 || g.Status.Decisions[0].Signature != good.Spec.Signature {
				t.Errorf("decisions %+v", g.Status.Decisions)
			}
			s, err := approval.Verify(g.Status.Statement, []ed25519.PublicKey{b.key})
			if err != nil {
				t.Fatal(err)
			}
			if want := b.now.Add(tc.lasts).Unix(); s.ExpiresAt < want-1 || s.ExpiresAt > want+1 {
				t.Errorf("it ends %d, want about %d", s.ExpiresAt, want)
			}
		})
	}
}

// The API server takes no signature that is none, and none where nothing is approved.
func TestFormOfASignature(t *testing.T) {
	b := newBench(t)
	p := b.Plan(1, controllertest.Report)
	g, key := b.signedGate(p)
	env, err := subject.Statement(g, p, []string{"lucas"}, b.now).Consent("lucas", b.now.Unix()).Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*v1alpha1.ApprovalSpec){
		"words":                   func(s *v1alpha1.ApprovalSpec) { s.Signature = "lucas says yes" },
		"of another payload type": func(s *v1alpha1.ApprovalSpec) { s.Signature = strings.Replace(env, "consent", "statement", 1) },
		"a word behind it":        func(s *v1alpha1.ApprovalSpec) { s.Signature = env + "x" },
		"too long": func(s *v1alpha1.ApprovalSpec) {
			s.Signature = strings.Replace(env, `"payload":"`, `"payload":"`+strings.Repeat("A", approval.MaxConsent), 1)
		},
		"on a rejection": func(s *v1alpha1.ApprovalSpec) { s.Decision, s.Signature = v1alpha1.DecisionReject, env },
	} {
		t.Run(name, func(t *testing.T) {
			a := &v1alpha1.Approval{Spec: v1alpha1.ApprovalSpec{Gate: v1alpha1.GateRef{Name: g.Name, UID: string(g.UID)}, Digest: g.Spec.Digest, Decision: v1alpha1.DecisionApprove,
				Approver: "lucas", Channel: v1alpha1.Channel{Kind: v1alpha1.ChannelKubernetes}}}
			a.Namespace, a.GenerateName = g.Namespace, "signed-"
			change(&a.Spec)
			if err := b.Admin.Create(t.Context(), a); err == nil {
				t.Error("it was taken")
			}
		})
	}
}
