package modelcheck

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/gate/opening"
	"nisse.io/nisse/controllers/gate/subject"
	"nisse.io/nisse/controllers/workitem/workflow"
	"nisse.io/nisse/internal/manifest"
)

// keepGates drops the gates whose question no longer stands, and opens the one that is missing.
func (h *house) keepGates() {
	c := h.cluster
	for i := range c.gates {
		if g := &c.gates[i]; g.Open() && subject.Superseded(g, &c.item, c.plans, h.now) != "" {
			g.Status.Outcome = api.GateSuperseded
		}
	}
	if c.item.Over() || slices.ContainsFunc(c.gates, func(g api.Gate) bool { return g.Open() }) {
		return
	}
	var g *api.Gate
	var err error
	latest := subject.Latest(&c.item, c.plans)
	if held := subject.Held(&c.item); held != nil {
		if !h.hasGate(subject.HaltGate(c.item.Name, *held)) {
			g, err = opening.Halt(&c.item, &h.agent, *held, h.now)
		}
	} else if latest != nil && latest.Spec.Revision > c.item.Status.ClosedRevision && !h.hasGate(latest.Name) {
		g, err = opening.Plan(latest, &c.item, &h.agent, slices.Repeat([]opening.Step{{Rule: manifest.Rule{Approval: manifest.Required}}}, len(latest.Spec.Steps)), h.now)
	}
	h.must(err)
	if g != nil {
		g.UID, g.CreationTimestamp = types.UID(fmt.Sprint("gate", h.next())), stamp(h)
		c.gates = append(c.gates, *g)
		h.note("gate %s is open", g.Name)
	}
}

func (h *house) hasGate(name string) bool {
	return slices.ContainsFunc(h.cluster.gates, func(g api.Gate) bool { return g.Name == name })
}

// move the item to where its facts put it.
func (h *house) move() {
	it, c := &h.cluster.item, h.cluster
	if it.Status.State == api.WorkItemClosed {
		return
	}
	latest := subject.Latest(it, c.plans)
	f := workflow.Facts{Active: h.agent.Status.ActiveWorkItem == it.Name}
	if held := subject.Held(it); held != nil {
		name := subject.HaltGate(it.Name, *held)
		if i := slices.IndexFunc(c.gates, func(g api.Gate) bool { return g.Name == name && len(g.Status.Decisions) > 0 }); i >= 0 {
			answer := c.gates[i].Status.Decisions[0].Answer
			h.note("%s is answered with %s", name, answer)
			f.Abandoned = answer == api.AnswerAbandon
			if answer == api.AnswerReplan && latest != nil {
				it.Status.ClosedRevision = latest.Spec.Revision
			}
			if held.Stop != "" {
				it.Status.AnsweredStop = held.Stop
			}
			if held.Halt != "" {
				it.Status.AnsweredHalt = held.Halt
			}
		}
	}
	f.Held, f.Asking = subject.Held(it) != nil, it.Asking()
	f.Finished = it.Status.Runtime != nil && it.Status.Runtime.Finished != nil
	f.PlanOpen = latest != nil && latest.Spec.Revision > it.Status.ClosedRevision && !h.hasGate(latest.Name) ||
		slices.ContainsFunc(c.gates, func(g api.Gate) bool { return g.LetsRun() && g.Open() })
	state, effects, err := workflow.Advance(api.WorkflowOperations, it.Status.State, f)
	h.must(err)
	if state != it.Status.State {
		h.note("the item is %s", state)
	}
	it.Status.State = state
	for e, result := range map[workflow.Effect]api.Result{workflow.RecordDone: api.ResultDone, workflow.RecordAbandoned: api.ResultAbandoned, workflow.RecordClosed: api.ResultClosed} {
		if slices.Contains(effects, e) {
			it.Status.Outcome = &api.Outcome{Result: result, At: stamp(h)}
			h.agent.Status.ActiveWorkItem = ""
			if latest != nil {
				it.Status.ClosedRevision = latest.Spec.Revision
			}
		}
	}
}
