package e2e

import (
	"fmt"
	"testing"

	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/test/e2e/rig"
)

// A pod that is killed in the middle of a story changes nothing of how it ends: the deed is done once, and nothing is said twice.
func TestKilledPodsLoseAndDoubleNothing(t *testing.T) {
	r := rig.Open(t)
	for _, c := range []rig.Component{rig.AgentPod, rig.Broker, rig.Gateway, rig.Manager} {
		t.Run(fmt.Sprintf("%s after the request", c), func(t *testing.T) {
			s := r.Ask(t, "e2e-kill.txt", "")
			r.Kill(t, c)
			s.Gate(api.GatePlan, 1)
			s.Hear(rig.Gates, `rev-1`)
			s.NothingRan()
			s.Say("approve rev-1")
			ends(s)
		})
		t.Run(fmt.Sprintf("%s while the gate waits", c), func(t *testing.T) {
			s := r.Ask(t, "e2e-kill.txt", "")
			s.Gate(api.GatePlan, 1)
			s.Hear(rig.Gates, `rev-1`)
			r.Kill(t, c)
			s.Say("approve rev-1")
			ends(s)
		})
		t.Run(fmt.Sprintf("%s after the approval", c), func(t *testing.T) {
			s := r.Ask(t, "e2e-kill.txt", "")
			s.Gate(api.GatePlan, 1)
			s.Hear(rig.Gates, `rev-1`)
			s.Say("approve rev-1")
			r.Kill(t, c)
			ends(s)
		})
	}
	r.AuditIsWhole(t)
}

func ends(s *rig.Story) {
	s.T.Helper()
	s.Closed(api.ResultDone)
	s.Hear(rig.Account, `(?i)disk usage is in`)
	s.RanOnce()
	s.SaidOnce()
}
