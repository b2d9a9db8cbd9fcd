// Package identity finds the Person behind an authenticated name. A name that leads to other than exactly one Person leads to
// nobody: two people behind one decision would be one person too many.
package identity

import (
	"slices"
	"strings"

	"nisse.io/nisse/api/v1alpha1"
)

// MatrixPrefix stands before a Matrix user ID in Approval.spec.approver. Admission keeps it to the gateway.
const MatrixPrefix = "matrix:"

// Resolve returns the names of the Persons that an approver is, sorted; one name means that it is somebody.
func Resolve(people []v1alpha1.Person, approver string) []string {
	var found []string
	for i := range people {
		if slices.Contains(Names(&people[i]), approver) {
			found = append(found, people[i].Name)
		}
	}
	slices.Sort(found)
	return found
}

// Names lists every approver name a Person goes by. Names are compared exactly, never folded or trimmed.
func Names(p *v1alpha1.Person) []string {
	var all []string
	if m := p.Spec.Identities.Matrix; m != "" {
		all = append(all, MatrixPrefix+m)
	}
	for _, k := range p.Spec.Identities.Kubernetes {
		// The CRD refuses such names; a Person made before that rule must not turn a chat identity into a Kubernetes one.
		if !strings.HasPrefix(k, MatrixPrefix) && !strings.HasPrefix(k, "system:") {
			all = append(all, k)
		}
	}
	return all
}

// Shared returns the names of p that other Persons claim as well, each with those others, sorted by name.
func Shared(people []v1alpha1.Person, p *v1alpha1.Person) []Claim {
	var shared []Claim
	for _, name := range Names(p) {
		others := slices.DeleteFunc(Resolve(people, name), func(n string) bool { return n == p.Name })
		if len(others) > 0 {
			shared = append(shared, Claim{Name: name, By: others})
		}
	}
	slices.SortFunc(shared, func(a, b Claim) int { return strings.Compare(a.Name, b.Name) })
	return shared
}

// Claim is one identity and the other Persons who claim it.
type Claim struct {
	Name string
	By   []string
}
