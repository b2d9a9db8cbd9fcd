package faults

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/test/stack"
)

// The model goes away in the middle: people are told once what is missing, and the work goes on when it is back. A runtime that dies
// meanwhile changes nothing.
func TestModelAway(t *testing.T) {
	t.Parallel()
	s := stack.Start(t, stack.Options{})
	planned(s)
	s.Model.Stop(t)
	s.Say("approve rev-1")
	lasts(s, 30*time.Second)
	s.Hear("nisse-ops", `I have had no answer for \d+s: .*I keep asking`)
	if n := s.Ran("fs.write"); n != 0 {
		t.Errorf("fs.write ran %d times without a model", n)
	}
	s.Kill("agentruntime")
	s.Model.Restart(t)
	s.Revive("agentruntime")
	s.Closed(api.ResultDone)
	once(s)
	told(s, map[string]int{"I have had no answer": 1})
}

// The homeserver dies for half a minute before a gate could be shown: it is shown afterwards, once.
func TestHomeserverAwayWhenAGateOpens(t *testing.T) {
	t.Parallel()
	s := stack.Start(t, stack.Options{OwnHome: true})
	s.Say("Write the disk usage of the machine into " + s.Files + "/report.txt")
	s.Wait(stack.Patience, "the item exists", func(ctx context.Context) error { _, err := s.Item(ctx); return err })
	s.Home.Kill(t)
	g := s.OpenGate(api.GatePlan, 1)
	lasts(s, 30*time.Second)
	s.Home.Restart(t)
	s.Hear("nisse-gates", `approve rev-1`)
	if err := s.Decide(g, "by-kubectl", nil); err != nil {
		t.Fatal(err)
	}
	s.Closed(api.ResultDone)
	told(s, map[string]int{"Plan rev-1 of ops for": 1, "disk usage is in": 1, "rev-1 approved by lucas": 1})
	once(s)
}

// The homeserver dies for half a minute while a gate waits for its answer and words are sent.
func TestHomeserverAway(t *testing.T) {
	t.Parallel()
	s := stack.Start(t, stack.Options{OwnHome: true})
	g, _ := planned(s)
	for range 5 {
		s.Say("status")
	}
	s.Home.Kill(t) // some answers are on their way, some are sent and nobody knows yet
	died := time.Now()
	if err := s.Decide(g, "by-kubectl", nil); err != nil {
		t.Fatal(err)
	}
	s.Closed(api.ResultDone)
	lasts(s, time.Until(died.Add(30*time.Second))) // with all of the answer's story to tell when it is over
	s.Home.Restart(t)
	s.Hear("nisse-ops", `disk usage is in`)
	told(s, map[string]int{"Plan rev-1 of ops for": 1, "disk usage is in": 1, "rev-1 approved by lucas": 1})
	told(s, map[string]int{"↳ lucas: status": 5})
	once(s)
}

// Case 7: the API server is away when the decision arrives. The decision is kept and counts once, and so is what else is said.
func TestAPIServerAway(t *testing.T) {
	t.Parallel()
	s := stack.Start(t, stack.Options{})
	g, _ := planned(s)
	s.API.Cut(t)
	s.Say("approve rev-1")
	s.Say("what is in " + s.Files + "?")
	lasts(s, 30*time.Second)
	if err := s.Admin.Get(t.Context(), client.ObjectKeyFromObject(g), g); err != nil || !g.Open() {
		t.Fatalf("the gate was decided through a cut line: %+v, %v", g.Status, err)
	}
	s.API.Mend(t)
	s.AllClosed(2)
	once(s)
	var approvals api.ApprovalList
	if err := s.Admin.List(t.Context(), &approvals, client.InNamespace(s.Namespace)); err != nil || len(approvals.Items) != 1 {
		t.Errorf("%d approvals, %v", len(approvals.Items), err)
	}
}

// The broker is away when the plan is approved.
func TestBrokerAway(t *testing.T) {
	t.Parallel()
	s := stack.Start(t, stack.Options{})
	planned(s)
	s.Kill("broker")
	s.Say("approve rev-1")
	s.Hear("nisse-gates", `(?i)approved by lucas`)
	lasts(s, 20*time.Second)
	s.Revive("broker")
	s.Closed(api.ResultDone)
	once(s)
}

// Case 24: more messages than one sync holds while the gateway was away, the decision among them: all are seen, in order, once.
func TestGatewayAwayForManyMessages(t *testing.T) {
	t.Parallel()
	s := stack.Start(t, stack.Options{})
	_, root := planned(s)
	s.Kill("agentruntime") // it comes back once all is in its mailbox, so that it has read all before it finishes
	s.Kill("gateway")
	var want []string
	for i := range 60 {
		if i == 30 {
			s.SayIn(root, "approve rev-1")
			continue
		}
		word := fmt.Sprintf("remark %02d.", i)
		want = append(want, word)
		s.SayIn(root, word)
	}
	s.Revive("gateway")
	s.Wait(stack.Patience, "the gateway has dealt with all of it", func(context.Context) error {
		log, err := os.ReadFile(filepath.Join(s.Dir, "gateway.log"))
		if n := strings.Count(string(log), `"event":"message.handled"`); err != nil || n < 1+60 {
			return fmt.Errorf("%d messages, %w", n, err)
		}
		return nil
	})
	s.Revive("agentruntime")
	s.Closed(api.ResultDone)
	once(s)
	s.AllClosed(1)
	if diff := cmp.Diff(want, remarks(s)); diff != "" {
		t.Errorf("what the model was shown of the person's words (-said +shown):\n%s", diff)
	}
}

// remarks that the last request to the model shows, in its order.
func remarks(s *stack.Stack) []string {
	requests := s.Model.Requests()
	body := string(requests[len(requests)-1].Body)
	var found []string
	for at := strings.Index(body, "remark "); at >= 0; at = strings.Index(body, "remark ") {
		end := min(at+len("remark 00."), len(body))
		found = append(found, body[at:end])
		body = body[end:]
	}
	return found
}

// Everything dies at once, right after the person has decided, and comes back.
func TestEverythingDies(t *testing.T) {
	t.Parallel()
	s := stack.Start(t, stack.Options{OwnHome: true})
	planned(s)
	s.Say("approve rev-1")
	s.Home.Kill(t)
	for _, c := range stack.Components {
		s.Kill(c)
	}
	s.Model.Stop(t)
	s.Model.Restart(t)
	s.Home.Restart(t)
	for _, c := range slices.Backward(stack.Components) { // the order of their return must not matter
		s.Revive(c)
	}
	if s.EndOrUnknown() {
		return // the device died inside the deed: a person is asked, see package crash
	}
	once(s)
}
