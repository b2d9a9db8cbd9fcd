package opening

import (
	"fmt"
	"slices"
	"strings"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/gate/subject"
	"nisse.io/nisse/internal/manifest"
)

// maxSignerKeys of one Person that a gate can name.
const maxSignerKeys = 8

// Step is what a device's manifest says of a step.
type Step struct {
	manifest.Rule
	// Persons and their keys, by the manifest that the rule is of.
	Persons map[string][]string
}

// signers are those approvers whose own signature every step takes that demands one, with the keys that do for all of them; nil when no step
// demands any. One person decides, so one person must be able to sign for all of it.
func signers(steps []Step, approvers []string) ([]v1alpha1.GateSigner, error) {
	var demanding []int
	for i, s := range steps {
		if s.Signature == manifest.PersonSignature {
			demanding = append(demanding, i)
		}
	}
	if len(demanding) == 0 {
		return nil, nil
	}
	var all []v1alpha1.GateSigner
	for _, person := range slices.Sorted(slices.Values(approvers)) {
		keys := slices.Clone(steps[demanding[0]].Persons[person])
		for _, i := range demanding[1:] {
			keys = slices.DeleteFunc(keys, func(k string) bool { return !slices.Contains(steps[i].Persons[person], k) })
		}
		if len(keys) > maxSignerKeys {
			return nil, fmt.Errorf("%w: a manifest names %d keys of %s, and a gate shows %d at most", subject.ErrNotReady, len(keys), person, maxSignerKeys)
		}
		if len(keys) > 0 {
			all = append(all, v1alpha1.GateSigner{Person: person, Keys: keys})
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: %s the own signature of a person, and none of those who may approve (%s) has a key that all of their manifests name under keys.persons",
			subject.ErrNotReady, numbered(demanding), strings.Join(approvers, ", "))
	}
	return all, nil
}

// numbered steps, as the subject of a sentence with "demand".
func numbered(steps []int) string {
	if len(steps) == 1 {
		return fmt.Sprintf("step %d demands", steps[0]+1)
	}
	names := make([]string, len(steps))
	for i, s := range steps {
		names[i] = fmt.Sprint(s + 1)
	}
	return "steps " + strings.Join(names, ", ") + " demand"
}
