package policy

import (
	"bytes"
	"crypto/ed25519"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/gate/subject"
	"nisse.io/nisse/internal/dsse"
)

func signerKey(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
}

func signer(person string, seed byte) v1alpha1.GateSigner {
	return v1alpha1.GateSigner{Person: person, Keys: []string{dsse.EncodeKey(signerKey(seed).Public().(ed25519.PublicKey))}}
}

// demanding is an Input whose gate takes lucas' or nora's own signature, with one of lucas' that is good for what change makes of it.
func demanding(t *testing.T, seed byte, change func(g *v1alpha1.Gate, p *v1alpha1.Plan, person *string, end *time.Time)) Input {
	t.Helper()
	in := valid()
	in.Gate.Namespace = "nisse"
	in.Gate.Spec.Signers = []v1alpha1.GateSigner{signer("lucas", 1), signer("nora", 2)}
	in.Plan = &v1alpha1.Plan{ObjectMeta: metav1.ObjectMeta{Name: "wi-1-rev-1"}, Spec: v1alpha1.PlanSpec{Steps: []v1alpha1.PlanStep{{Device: "web1", Capability: "fs.write", Args: `{"content":"","path":"/srv/a"}`}}}}
	g, p, person, end := in.Gate.DeepCopy(), in.Plan.DeepCopy(), "lucas", expiry
	if change != nil {
		change(g, p, &person, &end)
	}
	envelope, err := subject.Statement(g, p, []string{person}, end).Consent(person, end.Unix()).Sign(signerKey(seed))
	if err != nil {
		t.Fatal(err)
	}
	in.Approval.Spec.Signature = envelope
	return in
}

func TestSignatureSuffices(t *testing.T) {
	type change = func(g *v1alpha1.Gate, p *v1alpha1.Plan, person *string, end *time.Time)
	for _, tc := range []struct {
		name string
		seed byte
		// signed is what was signed instead of what the gate asks.
		signed change
		spoil  func(*Input)
		reason string
		says   string
	}{
		{name: "lucas' own", seed: 1},
		{name: "at tier High", seed: 1, spoil: func(in *Input) { in.Gate.Spec.Tier = v1alpha1.TierHigh }},
		{name: "a rejection needs none", seed: 1, spoil: func(in *Input) {
			in.Approval.Spec.Decision, in.Approval.Spec.Signature = v1alpha1.DecisionReject, ""
		}},
		{name: "a rejection in the room needs none", seed: 1, spoil: func(in *Input) {
			chat(in.Approval, "@lucas:example.org", v1alpha1.EvidenceTyped)
			in.Approval.Spec.Decision, in.Approval.Spec.Signature = v1alpha1.DecisionReject, ""
		}},
		{name: "none", seed: 1, spoil: func(in *Input) { in.Approval.Spec.Signature = "" }, reason: v1alpha1.ReasonSignatureRequired, says: "kubectl nisse approve wi-1-rev-1 -n nisse --key"},
		{name: "a word in the room", seed: 1, spoil: func(in *Input) {
			chat(in.Approval, "@lucas:example.org", v1alpha1.EvidenceTyped)
			in.Approval.Spec.Signature = ""
		}, reason: v1alpha1.ReasonSignatureRequired, says: "the own signature of lucas or nora"},
		{name: "the code in the room", seed: 1, spoil: func(in *Input) {
			chat(in.Approval, "@lucas:example.org", v1alpha1.EvidenceTypedCode)
			in.Gate.Spec.Tier, in.Approval.Spec.Signature = v1alpha1.TierHigh, ""
		}, reason: v1alpha1.ReasonSignatureRequired},
		{name: "a word in the room at tier High", seed: 1, spoil: func(in *Input) {
			chat(in.Approval, "@lucas:example.org", v1alpha1.EvidenceTyped)
			in.Gate.Spec.Tier, in.Approval.Spec.Signature = v1alpha1.TierHigh, ""
		}, reason: v1alpha1.ReasonSignatureRequired},
		{name: "by a key that is nobody's", seed: 3, reason: v1alpha1.ReasonSignatureInvalid},
		{name: "by nora's key in lucas' name", seed: 2, reason: v1alpha1.ReasonSignatureInvalid},
		{name: "nora's, brought by lucas", seed: 2, signed: func(_ *v1alpha1.Gate, _ *v1alpha1.Plan, person *string, _ *time.Time) { *person = "nora" }, reason: v1alpha1.ReasonSignatureInvalid, says: "not among those who approved"},
		{name: "lucas', brought by maria", seed: 1, spoil: func(in *Input) { in.Approval.Spec.Approver = "maria" }, reason: v1alpha1.ReasonSignatureInvalid},
		{name: "of another gate", seed: 1, signed: func(g *v1alpha1.Gate, _ *v1alpha1.Plan, _ *string, _ *time.Time) { g.UID = "gate-0" }, reason: v1alpha1.ReasonSignatureInvalid, says: "for gate gate-0"},
		{name: "of another digest", seed: 1, signed: func(g *v1alpha1.Gate, _ *v1alpha1.Plan, _ *string, _ *time.Time) {
			g.Spec.Digest = "sha256:" + strings.Repeat("e", 64)
		}, reason: v1alpha1.ReasonSignatureInvalid},
		{name: "of other calls", seed: 1, signed: func(_ *v1alpha1.Gate, p *v1alpha1.Plan, _ *string, _ *time.Time) { p.Spec.Steps[0].Args = "{}" }, reason: v1alpha1.ReasonSignatureInvalid, says: "other calls"},
		{name: "over when it came", seed: 1, signed: func(_ *v1alpha1.Gate, _ *v1alpha1.Plan, _ *string, end *time.Time) {
			*end = expiry.Add(-5 * time.Minute)
		}, reason: v1alpha1.ReasonSignatureInvalid, says: "it ended"},
		{name: "the plan is gone", seed: 1, spoil: func(in *Input) { in.Plan = nil }, reason: v1alpha1.ReasonSignatureInvalid},
		{name: "a key of the gate that is none", seed: 1, spoil: func(in *Input) { in.Gate.Spec.Signers[0].Keys = []string{"AAAA"} }, reason: v1alpha1.ReasonSignatureInvalid},
		{name: "who may not approve is told that first", seed: 1, spoil: func(in *Input) { in.Approval.Spec.Approver = "nora" }, reason: v1alpha1.ReasonMayNotApprove},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := demanding(t, tc.seed, tc.signed)
			if tc.spoil != nil {
				tc.spoil(&in)
			}
			_, reason, message := Judge(in)
			if reason != tc.reason || !strings.Contains(message, tc.says) {
				t.Errorf("%q: %s; want %q", reason, message, tc.reason)
			}
		})
	}
}

// What counts keeps its signature, for the broker to send; a gate that asked for none keeps none.
func TestDecideKeepsTheSignature(t *testing.T) {
	in := demanding(t, 1, nil)
	unasked := in.Gate.DeepCopy()
	unasked.Spec.Signers = nil
	for name, tc := range map[string]struct {
		gate *v1alpha1.Gate
		want string
	}{"asked for": {in.Gate, in.Approval.Spec.Signature}, "not asked for": {unasked, ""}} {
		t.Run(name, func(t *testing.T) {
			v := Decide(tc.gate, in.Plan, in.Agent, in.People, []v1alpha1.Approval{*in.Approval}, expiry.Add(-time.Minute))
			if v.Outcome != v1alpha1.GateApproved || len(v.Decisions) != 1 || v.Decisions[0].Signature != tc.want {
				t.Errorf("got %+v", v)
			}
		})
	}
}
