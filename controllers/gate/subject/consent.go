package subject

import (
	"crypto/ed25519"
	"fmt"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/approval"
	"nisse.io/nisse/internal/dsse"
)

// Consent that a Person gave by a signature to what a gate asks.
func Consent(g *v1alpha1.Gate, p *v1alpha1.Plan, person, signature string) (approval.Consent, error) {
	keys := map[string][]ed25519.PublicKey{}
	for _, s := range g.Spec.Signers {
		for _, text := range s.Keys {
			k, err := dsse.ParseKey(text)
			if err != nil {
				return approval.Consent{}, fmt.Errorf("a key of %s at gate %s: %w", s.Person, g.Name, err)
			}
			keys[s.Person] = append(keys[s.Person], k)
		}
	}
	return Statement(g, p, []string{person}, g.Spec.ExpiresAt.Time).Consented(signature, keys)
}
