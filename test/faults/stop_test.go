package faults

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/test/stack"
)

// What is asked for and stopped before the cluster has heard of either never begins, and begins when the person says so.
func TestStopBeforeTheItemExists(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ cut, mend func(*stack.Stack) }{
		"the gateway is down": {
			cut:  func(s *stack.Stack) { s.Kill("gateway") },
			mend: func(s *stack.Stack) { s.Revive("gateway") },
		},
		"the API server is away": {
			cut: func(s *stack.Stack) { s.API.Cut(s.T) },
			mend: func(s *stack.Stack) {
				s.Wait(stack.Patience, "the gateway has both in its inbox", func(context.Context) error {
					log, err := os.ReadFile(filepath.Join(s.Dir, "gateway.log"))
					if n := strings.Count(string(log), `"event":"message.stored"`); err != nil || n < 2 {
						return fmt.Errorf("%d messages, %w", n, err)
					}
					return nil
				})
				s.API.Mend(s.T)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := stack.Start(t, stack.Options{})
			tc.cut(s)
			s.Say("Write the disk usage of the machine into " + s.Files + "/report.txt")
			s.Say("stop")
			tc.mend(s)
			s.OpenGate(api.GateHalt, 0)
			s.Hear("nisse-gates", `(?is)stopped.*continue.*replan.*abandon`)
			if n := len(s.Model.Requests()); n != 0 {
				t.Errorf("the model was asked %d times", n)
			}
			if c := s.Conversation(); strings.Contains(c, "Nothing is running") {
				t.Errorf("the room was told that nothing runs:\n%s", c)
			}
			s.Say("continue")
			s.OpenGate(api.GatePlan, 1)
			s.Hear("nisse-gates", `approve rev-1`)
			s.Say("approve rev-1")
			s.Closed(api.ResultDone)
			once(s)
		})
	}
}
