package judge

import (
	"time"

	"nisse.io/nisse/internal/approval"
	"nisse.io/nisse/internal/manifest"
)

// Signature of a Person that goes with a step to the device, or why it may not be sent without one. It is empty where the rule demands none.
// The device judges the same; to ask here first keeps the step from being used up by a refusal.
func Signature(f Force, a Allowed, step int32, now time.Time) (string, *Decision) {
	s := f.Plan.Spec.Steps[step-1]
	v, err := a.Check(s.Capability, s.Args)
	if err != nil || v.Signature != manifest.PersonSignature {
		return "", nil // what is not allowed is refused by who looks at that
	}
	keys, none := a.Keys.PersonKeys(), approval.ErrNoConsent
	for _, d := range f.Gate.Status.Decisions {
		c, err := f.Statement.Consented(d.Signature, keys)
		if err == nil {
			err = c.Ended(now.Unix())
		}
		if err == nil {
			return d.Signature, nil
		}
		none = err
	}
	return "", refuse(NeedsSignature, "Step %d of rev-%d runs on %s only with a person's own signature, and its gate has none that is good for it: %v. Nothing was run. Submit another plan, for a person to sign.",
		step, f.Plan.Spec.Revision, s.Device, none)
}
