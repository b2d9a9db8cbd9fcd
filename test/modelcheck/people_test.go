package modelcheck

import (
	"fmt"

	api "nisse.io/nisse/api/v1alpha1"
)

// person does what the item waits for.
func (h *house) person() {
	for i := range h.cluster.gates {
		g := &h.cluster.gates[i]
		if !g.Open() {
			continue
		}
		if g.LetsRun() {
			d := api.DecisionApprove
			if h.chance(h.hard) {
				d = api.DecisionReject
			}
			h.note("lucas: %s of %s", d, g.Name)
			h.vote(i, "lucas@example.org", d)
			return
		}
		answer := api.AnswerContinue
		switch {
		case h.chance(h.hard / 3):
			answer = api.AnswerAbandon
		case h.chance(h.hard):
			answer = api.AnswerReplan
		}
		h.note("lucas: %s to %s", answer, g.Name)
		h.vote(i, "lucas@example.org", api.DecisionApprove)
		a := &h.cluster.approvals[len(h.cluster.approvals)-1]
		if a.Spec.Answer = answer; answer == api.AnswerAbandon {
			a.Spec.Decision = api.DecisionReject
		}
		return
	}
	if h.cluster.item.Asking() && h.room.answered == "" {
		h.room.post(fmt.Sprintf("an answer %d", h.next()))
	}
}

// difficult people say stop in the middle, or have more to say.
func (h *house) difficult() {
	switch {
	case !h.chance(h.hard) || h.cluster.item.Over():
	case h.chance(0.5):
		h.note("lucas: stop")
		h.cluster.item.Spec.Stop = &api.StopRequest{ID: fmt.Sprint("stop", h.next()), By: "lucas"}
	default:
		h.room.post(fmt.Sprintf("and another thing %d", h.next()))
	}
}
