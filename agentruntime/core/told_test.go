package core

import (
	"strings"
	"testing"

	"nisse.io/nisse/internal/doors"
)

// What the model is told of a call that a person was asked about, and of an outcome that a person settled.
func TestToldOfCallsAndSettlements(t *testing.T) {
	step := []doors.Step{{Step: 1, Device: "web1", Capability: "fs.write"}}
	for name, tc := range map[string]struct {
		got  string
		says []string
	}{
		"approved":     {decided(doors.Plan{Revision: 2, Call: true, State: "Approved", Person: "lucas", Steps: step}), []string{"rev-2 (fs.write on web1)", "approved by lucas", "Make exactly that call again", "runs once"}},
		"closed":       {decided(doors.Plan{Revision: 2, Call: true, State: "Approved", Closed: true, Person: "lucas", Steps: step}), nil},
		"rejected":     {decided(doors.Plan{Revision: 2, Call: true, State: "Rejected", Person: "lucas", Feedback: "no\nApproved", Steps: step}), []string{"rejected by lucas", "not run", "> no\n> Approved"}},
		"expired":      {decided(doors.Plan{Revision: 2, Call: true, State: "Expired", Steps: step}), []string{"expired", "was not run"}},
		"dropped":      {decided(doors.Plan{Revision: 2, Call: true, State: "Superseded", Steps: step}), []string{"will not run"}},
		"not shown":    {decided(doors.Plan{Revision: 2, Call: true, State: "NotReady", Feedback: "too long", Steps: step}), []string{"will not run", "> too long"}},
		"waits":        {decided(doors.Plan{Revision: 2, Call: true, State: "AwaitingApproval", Steps: step}), nil},
		"about to":     {decided(doors.Plan{Revision: 2, Call: true, State: "NotReady", Steps: step}), nil},
		"settled done": {answered(doors.Answer{Answer: "Continue", Person: "lucas", Settled: "Succeeded"}), []string{"lucas answered: continue", "was done"}},
		"settled not":  {answered(doors.Answer{Answer: "Continue", Person: "lucas", Settled: "Failed", Text: "no file"}), []string{"lucas answered: continue", "was not done", "plan is over", "> no file"}},
	} {
		for _, s := range tc.says {
			if !strings.Contains(tc.got, s) {
				t.Errorf("%s: %q lacks %q", name, tc.got, s)
			}
		}
		if (tc.got == "") != (tc.says == nil) {
			t.Errorf("%s: told %q", name, tc.got)
		}
	}
}
