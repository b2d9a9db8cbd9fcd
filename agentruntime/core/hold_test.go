package core

import (
	"testing"
	"time"

	"nisse.io/nisse/agentruntime/reducer"
	"nisse.io/nisse/internal/doors"
)

// What the platform told is answered when the cluster has followed, except that a decision on a plan counts from its outcome on.
func TestHeldForTheItemsState(t *testing.T) {
	plan := func(state string, closed bool) *doors.Plan {
		return &doors.Plan{Name: "p", Revision: 1, State: state, Closed: closed}
	}
	for name, tt := range map[string]struct {
		item doors.Item
		want bool
	}{
		"working":                                {doors.Item{State: "Working"}, false},
		"open":                                   {doors.Item{State: "Open"}, true},
		"the plan waits":                         {doors.Item{State: "AwaitingApproval", Plan: plan("AwaitingApproval", false)}, true},
		"approved, the state follows":            {doors.Item{State: "AwaitingApproval", Plan: plan("Approved", false)}, false},
		"rejected, the state follows":            {doors.Item{State: "AwaitingApproval", Plan: plan("Rejected", false)}, false},
		"approved and closed since":              {doors.Item{State: "AwaitingApproval", Plan: plan("Approved", true)}, true},
		"approved, but a person said stop":       {doors.Item{State: "AwaitingApproval", Plan: plan("Approved", false), Stopped: true}, true},
		"approved, but halted":                   {doors.Item{State: "AwaitingApproval", Plan: plan("Approved", false), Halt: &doors.Halt{ID: "h"}}, true},
		"approved, and another question is open": {doors.Item{State: "AwaitingInput", Plan: plan("Approved", false)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := &Core{Parts: Parts{Now: time.Now, Settle: time.Minute}}
			if got := c.held(tt.item, &reducer.Item{}, reducer.AskModel{}); got != tt.want {
				t.Errorf("held %v, want %v", got, tt.want)
			}
		})
	}
}
