package opening

import (
	"fmt"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/manifest"
)

// weigh a plan by the rules of its steps: its gate has the highest tier of them, and whoever decides is told what cannot be undone.
// A plan as a whole is never of tier Low, which is for single calls.
func weigh(p v1alpha1.PlanSpec, rules []Step) (v1alpha1.Tier, []string, error) {
	steps := p.Steps
	if len(rules) != len(steps) {
		return "", nil, fmt.Errorf("%d rules for %d steps", len(rules), len(steps))
	}
	tier, flags := v1alpha1.TierStandard, []string(nil)
	if p.Call && rules[0].Approval != manifest.None && rules[0].TierOf() == manifest.Low {
		tier = v1alpha1.TierLow
	}
	for i, r := range rules {
		if r.Approval == manifest.None {
			continue
		}
		if r.TierOf() == manifest.High {
			tier = v1alpha1.TierHigh
		}
		if r.Irreversible {
			flags = append(flags, fmt.Sprintf("step %d cannot be undone, says the manifest of %s", i+1, steps[i].Device))
		}
	}
	return tier, flags, nil
}
