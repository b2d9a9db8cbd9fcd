package policy

import (
	"fmt"
	"strings"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/gate/subject"
	"nisse.io/nisse/controllers/person/identity"
	"nisse.io/nisse/internal/sanitize"
)

// SignatureSuffices wants the approver's own signature over these very steps, where the gate names signers. It keeps a decision that the
// devices would not run on from counting; what keeps a thief out is that they look for themselves.
func SignatureSuffices(in Input) (string, string, bool) {
	g, a := in.Gate, in.Approval
	if len(g.Spec.Signers) == 0 || a.Spec.Decision != v1alpha1.DecisionApprove {
		return "", "", false
	}
	how := fmt.Sprintf("kubectl nisse approve %s -n %s --key <file>", g.Name, g.Namespace)
	if a.Spec.Signature == "" {
		return v1alpha1.ReasonSignatureRequired, fmt.Sprintf("%s takes the own signature of %s, which no message in a room can carry: run `%s` where the key is kept. It waits on.",
			thing(g), strings.Join(signers(g), " or "), how), true
	}
	found := identity.Resolve(in.People, a.Spec.Approver)
	if len(found) != 1 || in.Plan == nil {
		return v1alpha1.ReasonSignatureInvalid, "Whose signature this is, or what it is of, cannot be told any more.", true
	}
	consent, err := subject.Consent(g, in.Plan, found[0], a.Spec.Signature)
	if err == nil {
		err = consent.Ended(a.CreationTimestamp.Unix())
	}
	if err == nil {
		return "", "", false
	}
	return v1alpha1.ReasonSignatureInvalid, fmt.Sprintf("The signature does not count: %s. Sign as %s, with the clock right, by `%s`.",
		sanitize.Line(err.Error(), 300), strings.Join(signers(g), " or "), how), true
}

func signers(g *v1alpha1.Gate) []string {
	var all []string
	for _, s := range g.Spec.Signers {
		all = append(all, s.Person)
	}
	return all
}
