package e2e

import (
	"testing"

	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/test/e2e/rig"
)

// A pod that is killed in the middle of a story changes nothing of how it ends: the deed is done once, and nothing is said twice. Each kill
// hits three stories of three agents: one was asked for a moment ago, one waits for a decision, one was approved a moment ago.
func TestKilledPodsLoseAndDoubleNothing(t *testing.T) {
	crew := rig.Crew(t)
	for _, c := range []rig.Component{rig.AgentPod, rig.Broker, rig.Gateway, rig.Manager} {
		t.Run(string(c), func(t *testing.T) {
			waits := crew[1].Ask(t, "e2e-kill-waits.txt", "")
			approved := crew[2].Ask(t, "e2e-kill-approved.txt", "")
			shown(waits)
			shown(approved)
			asked := crew[0].Ask(t, "e2e-kill-asked.txt", "")
			approved.Say("approve rev-1")
			if c == rig.AgentPod {
				approved.Kill(t, c)
				asked.Kill(t, c)
			}
			waits.Kill(t, c) // of what is no agent's, the one that all share
			waits.Say("approve rev-1")

			t.Run("after the request", func(t *testing.T) {
				asked.T = t
				shown(asked)
				asked.NothingRan()
				asked.Say("approve rev-1")
				ends(asked)
			})
			t.Run("while the gate waits", func(t *testing.T) {
				waits.T = t
				ends(waits)
			})
			t.Run("after the approval", func(t *testing.T) {
				approved.T = t
				ends(approved)
			})
		})
	}
	crew[0].AuditIsWhole(t)
}

// shown waits until the story's plan is in the room.
func shown(s *rig.Story) {
	s.T.Helper()
	s.Gate(api.GatePlan, 1)
	s.Hear(rig.Gates, `rev-1`)
}

func ends(s *rig.Story) {
	s.T.Helper()
	s.Closed(api.ResultDone)
	s.Hear(s.Account, `(?i)disk usage is in`)
	s.RanOnce()
	s.SaidOnce()
}
