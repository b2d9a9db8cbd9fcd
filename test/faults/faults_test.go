// Package faults takes away, one after the other, everything that the product leans on, and gives it models, objects and words that
// nobody should have to deal with. Whatever happens, a person reads in the room or in a condition what is wrong, nothing that was
// said is lost, and nothing runs twice or unapproved.
package faults

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"maunium.net/go/mautrix/id"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/testrig/person"
	"nisse.io/nisse/test/stack"
)

func TestMain(m *testing.M) {
	stack.Main(m)
}

// planned asks for the report and waits until its plan is shown.
func planned(s *stack.Stack) (*api.Gate, id.EventID) {
	s.T.Helper()
	root := s.Say("Write the disk usage of the machine into " + s.Files + "/report.txt")
	g := s.OpenGate(api.GatePlan, 1)
	s.Hear("nisse-gates", `approve rev-1`)
	return g, root
}

// once checks that the approved step ran once, that one decision counted, and that the room was told each thing once.
func once(s *stack.Stack) {
	s.T.Helper()
	if n := s.Ran("fs.write"); n != 1 {
		s.T.Errorf("fs.write ran %d times", n)
	}
	if jobs := s.Jobs(); len(jobs) != 1 || jobs[0].Status.State != api.JobSucceeded {
		s.T.Errorf("jobs: %+v", jobs)
	}
	var gates api.GateList
	if err := s.Admin.List(s.T.Context(), &gates, client.InNamespace(s.Namespace)); err != nil {
		s.T.Fatal(err)
	}
	for _, g := range gates.Items {
		if g.Spec.Kind == api.GatePlan && (g.Status.Outcome != api.GateApproved || len(g.Status.Decisions) != 1) {
			s.T.Errorf("gate %s: %+v", g.Name, g.Status)
		}
	}
	told(s, map[string]int{"Plan rev-1 of ops for": 1, "disk usage is in": 1})
	if out := s.Run("nisse-device", "audit", "verify", "--config", s.DeviceConfig()); !strings.Contains(out, "whole") {
		s.T.Errorf("audit verify: %s", out)
	}
}

// told waits until the room holds each phrase at least as often as it should, and then fails if one is there more often.
func told(s *stack.Stack, want map[string]int) {
	s.T.Helper()
	var c string
	s.Wait(stack.Patience, fmt.Sprintf("the room holds %v", want), func(context.Context) error {
		c = s.Conversation()
		for phrase, n := range want {
			if got := strings.Count(c, phrase); got < n {
				return fmt.Errorf("%q is there %d times:\n%s", phrase, got, c)
			}
		}
		return nil
	})
	for phrase, n := range want {
		if got := strings.Count(c, phrase); got != n {
			s.T.Errorf("%q is in the room %d times, not %d:\n%s", phrase, got, n, c)
		}
	}
}

// lasts is how long an outage goes on; nothing may run in it.
func lasts(s *stack.Stack, d time.Duration) {
	s.T.Helper()
	ran := s.Ran("fs.write")
	end := time.Now().Add(d)
	s.Wait(d+stack.Patience, "the outage ends", func(context.Context) error {
		if n := s.Ran("fs.write"); n != ran {
			s.T.Fatalf("fs.write ran %d times during the outage", n-ran)
		}
		if left := time.Until(end); left > 0 {
			return fmt.Errorf("%s left", left)
		}
		return nil
	})
}

// hear waits for a message that comes after an event.
func hear(s *stack.Stack, account, pattern string, after id.EventID) person.Message {
	s.T.Helper()
	ctx, cancel := context.WithTimeout(s.T.Context(), stack.Patience)
	defer cancel()
	m, err := s.You.WaitFor(ctx, id.RoomID(s.Room), person.Want{Sender: id.UserID(s.UserID(account)), Text: regexp.MustCompile(pattern), After: after})
	if err != nil {
		s.Dump()
		s.T.Fatalf("waiting for %s to say %q: %v", account, pattern, err)
	}
	return m
}
