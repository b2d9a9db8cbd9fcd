package rig

import (
	"context"
	"encoding/json"
	"testing"

	"maunium.net/go/mautrix/id"

	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/testrig/person"
)

// Worker is the rig with one of the crew's agents, for some machines alone and with every tool; it is gone with the test.
func (r *Rig) Worker(t testing.TB, name string, p api.Privilege, tools []string, machines ...*Machine) *Rig {
	t.Helper()
	w := *r
	w.Agent, w.Account = name, id.UserID("@nisse-"+name+":"+Server)
	err := w.addAgent(t.Context(), func(s *api.AgentSpec) {
		many := int32(200)
		s.Privilege, s.Tools.Allow, s.Devices = p, append(tools, "submit_plan"), nil
		s.Limits = &api.Limits{ToolCallsPerTurn: &many, ToolCallsPerMinute: &many}
		for _, m := range machines {
			s.Devices = append(s.Devices, m.Name)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.remove(context.WithoutCancel(t.Context()), name); err != nil {
			t.Error(err)
		}
	})
	return &w
}

// AwaitAgent waits until the rig's agent is ready and in its room.
func (r *Rig) AwaitAgent(t testing.TB) {
	t.Helper()
	r.Wait(t, "agent "+r.Agent+" is ready", 2*Patience, func(ctx context.Context) error { return r.AgentReady(ctx, r.Agent) })
}

// Step of a plan.
type Step struct {
	Device     string `json:"device"`
	Capability string `json:"capability"`
	Args       any    `json:"args"`
}

// AskExactly for a plan of the person's own.
func (r *Rig) AskExactly(t testing.TB, steps []Step) *Story {
	t.Helper()
	plan, err := json.Marshal(map[string]any{"reason": "To see all of it done.", "steps": steps})
	if err != nil {
		t.Fatal(err)
	}
	s := &Story{Rig: r, T: t}
	if s.Root, err = r.You.Say(t.Context(), r.Room, "Do exactly this plan: "+string(plan), person.Where{}); err != nil {
		t.Fatal(err)
	}
	return s
}
