package gate

import (
	"fmt"
	"slices"
	"time"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/gate/opening"
	"nisse.io/nisse/controllers/gate/render"
	"nisse.io/nisse/internal/clock"
)

// unanswerable tells why nobody can answer a Halt gate any more although there are people who could: those whom it asks have lost the
// right, and others have it. A plan's gate ends by itself in a while; this one would hold the work for a year, and stopping it once more
// asks nobody while it is open. Where nobody has the right at all it stays, for whoever gets it back. The item's status names those who
// may, so a change of them has the gate looked at again.
func (s *scope) unanswerable(now time.Time) string {
	if s.gate.Spec.Kind != v1alpha1.GateHalt || s.agent == nil {
		return ""
	}
	may := opening.Approvers(s.agent)
	if len(may) == 0 || slices.ContainsFunc(s.gate.Spec.Approvers, func(name string) bool { return slices.Contains(may, name) }) {
		return ""
	}
	return fmt.Sprintf("The question was dropped at %s: nobody whom it asked may answer it any more. Nothing runs; say stop again, and %s can answer.",
		clock.Tell(now.UTC(), s.gate.CreationTimestamp.Time), render.Names(may))
}
