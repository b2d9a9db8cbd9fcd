// Package story plays whole conversations against the whole product, as a person in the room lives them.
package story

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/test/stack"
)

func TestMain(m *testing.M) {
	stack.Main(m)
}

func request(s *stack.Stack) string {
	return "Write the disk usage of the machine into " + s.Files + "/report.txt"
}

// The main job: words in the room, a plan, a typed approval, exactly that, once, audited.
func TestApprovedInTheRoom(t *testing.T) {
	t.Parallel()
	s := stack.Start(t, stack.Options{})
	s.Say(request(s))
	gate := s.Hear("nisse-gates", `(?s)rev-1.*fs\.write.*report\.txt.*approve rev-1`)
	if _, err := s.File("report.txt"); !os.IsNotExist(err) {
		t.Fatalf("something ran before it was approved: %v", err)
	}
	if g := s.OpenGate(api.GatePlan, 1); !strings.Contains(gate.Body, strings.SplitN(g.Spec.Message, "\n", 2)[0]) {
		t.Errorf("the room shows another text than the object: %q, %q", gate.Body, g.Spec.Message)
	}
	s.Say("approve rev-1")
	s.Hear("nisse-ops", `(?i)disk usage is in`)
	item := s.Closed(api.ResultDone)
	if o := item.Status.Outcome; o.Steps != "1/1" || o.Undone != "" {
		t.Errorf("the outcome says %+v", o)
	}
	text, err := s.File("report.txt")
	if err != nil || !strings.Contains(text, "Filesystem") {
		t.Errorf("the report is %q, %v", text, err)
	}
	if n := s.Ran("fs.write"); n != 1 {
		t.Errorf("fs.write ran %d times", n)
	}
	jobs := s.Jobs()
	if len(jobs) != 1 || jobs[0].Status.State != api.JobSucceeded || jobs[0].Spec.WorkItem.Name != item.Name {
		t.Errorf("jobs: %+v", jobs)
	}
	s.Hear("nisse-gates", `(?i)approved by lucas`)
	if out := s.Run("nisse-device", "audit", "verify", "--config", s.DeviceConfig()); !strings.Contains(out, "whole") {
		t.Errorf("audit verify: %s", out)
	}
}

// The same decision by kubectl, and one by somebody who may not.
func TestApprovedByKubectl(t *testing.T) {
	t.Parallel()
	s := stack.Start(t, stack.Options{})
	s.Say(request(s))
	g := s.OpenGate(api.GatePlan, 1)
	a := &api.Approval{Spec: api.ApprovalSpec{Gate: api.GateRef{Name: g.Name, UID: string(g.UID)}, Digest: g.Spec.Digest, Decision: api.DecisionApprove,
		Approver: "mallory@example.org", Channel: api.Channel{Kind: api.ChannelKubernetes}}}
	a.Namespace, a.Name = s.Namespace, "by-mallory"
	if err := s.As("mallory@example.org", "system:masters").Create(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	s.RefusedApproval("by-mallory")
	if err := s.Decide(g, "by-lucas", nil); err != nil {
		t.Fatal(err)
	}
	s.Closed(api.ResultDone)
	if n := s.Ran("fs.write"); n != 1 {
		t.Errorf("fs.write ran %d times", n)
	}
}

// A rejection's words lead to rev-2; the old revision can no longer be approved, and the person is told.
func TestRejectedThenReplaced(t *testing.T) {
	t.Parallel()
	s := stack.Start(t, stack.Options{})
	s.Say(request(s))
	s.OpenGate(api.GatePlan, 1)
	s.Hear("nisse-gates", `approve rev-1`)
	s.Say("reject use " + s.Files + "/daily.txt instead")
	s.OpenGate(api.GatePlan, 2)
	s.Hear("nisse-gates", `approve rev-2`)
	s.Say("approve rev-1")
	s.Hear("nisse-gates", `(?i)rev-1.*(rejected|replaced|decided)`)
	if _, err := s.File("report.txt"); !os.IsNotExist(err) {
		t.Fatalf("rev-1 ran: %v", err)
	}
	s.Say("approve rev-2")
	s.Closed(api.ResultDone)
	if _, err := s.File("daily.txt"); err != nil {
		t.Error(err)
	}
	if _, err := s.File("report.txt"); !os.IsNotExist(err) {
		t.Errorf("rev-1 ran: %v", err)
	}
}

// A call that differs by one character halts; replan makes a new plan that must be approved anew.
func TestMismatchHaltsAndReplans(t *testing.T) {
	t.Parallel()
	s := stack.Start(t, stack.Options{})
	s.Say(request(s) + " off-by-one")
	s.OpenGate(api.GatePlan, 1)
	s.Hear("nisse-gates", `approve rev-1`)
	s.Say("approve rev-1")
	s.OpenGate(api.GateHalt, 0)
	s.Hear("nisse-gates", `(?is)stopped.*continue.*replan.*abandon`)
	entries, err := os.ReadDir(s.Files)
	if err != nil || len(entries) != 0 {
		t.Fatalf("something ran: %v, %v", entries, err)
	}
	s.Say("replan")
	s.OpenGate(api.GatePlan, 2)
	s.Hear("nisse-gates", `approve rev-2`)
	s.Say("approve rev-2")
	s.Closed(api.ResultDone)
	if n := s.Ran("fs.write"); n != 1 {
		t.Errorf("fs.write ran %d times", n)
	}
}

func TestMismatchThenAbandon(t *testing.T) {
	t.Parallel()
	s := stack.Start(t, stack.Options{})
	s.Say(request(s) + " off-by-one")
	s.OpenGate(api.GatePlan, 1)
	s.Hear("nisse-gates", `approve rev-1`)
	s.Say("approve rev-1")
	s.OpenGate(api.GateHalt, 0)
	s.Hear("nisse-gates", `abandon`)
	s.Say("abandon")
	item := s.Closed(api.ResultAbandoned)
	if n := s.Ran("fs.write"); n != 0 {
		t.Errorf("fs.write ran %d times", n)
	}
	if o := item.Status.Outcome; o.Steps != "0/1" || o.Undone != "Of rev-1, which was approved, step 1 was not run." {
		t.Errorf("the outcome says %+v", o)
	}
	s.Hear("nisse-gates", `^This work has ended\. Of rev-1, which was approved, step 1 was not run\.$`)
}

// Stop holds whatever the agent does. Here the plan is approved while the broker is away, and the person says stop before it is back:
// nothing of the approved plan runs, then or later.
func TestStopHoldsAnApprovedPlan(t *testing.T) {
	t.Parallel()
	s := stack.Start(t, stack.Options{})
	s.Say(request(s))
	g := s.OpenGate(api.GatePlan, 1)
	s.Hear("nisse-gates", `approve rev-1`)
	s.Kill("broker")
	if err := s.Decide(g, "before-the-stop", nil); err != nil {
		t.Fatal(err)
	}
	s.Outcome(g, api.GateApproved)
	s.Say("stop")
	halt := s.OpenGate(api.GateHalt, 0)
	s.Revive("broker")
	s.Hear("nisse-gates", `(?is)continue.*replan.*abandon`)
	if err := s.Decide(halt, "end-it", func(a *api.Approval) { a.Spec.Decision, a.Spec.Answer = api.DecisionReject, api.AnswerAbandon }); err != nil {
		t.Fatal(err)
	}
	s.Closed(api.ResultAbandoned)
	if n := s.Ran("fs.write"); n != 0 {
		t.Errorf("fs.write ran %d times", n)
	}
}

// Stop before anything was decided: the open plan is put aside, and continue lets the agent ask again.
func TestStopThenContinue(t *testing.T) {
	t.Parallel()
	s := stack.Start(t, stack.Options{})
	s.Say(request(s))
	g := s.OpenGate(api.GatePlan, 1)
	s.Hear("nisse-gates", `approve rev-1`)
	s.Say("stop")
	halt := s.OpenGate(api.GateHalt, 0)
	s.Outcome(g, api.GateSuperseded)
	if err := s.Decide(halt, "go-on", func(a *api.Approval) { a.Spec.Answer = api.AnswerContinue }); err != nil {
		t.Fatal(err)
	}
	s.Outcome(halt, api.GateApproved)
	if n := s.Ran("fs.write"); n != 0 {
		t.Errorf("fs.write ran %d times", n)
	}
}

// A second request waits its turn, the person is told so, and then it is done.
func TestSecondRequestIsQueued(t *testing.T) {
	t.Parallel()
	s := stack.Start(t, stack.Options{})
	s.Say(request(s))
	s.OpenGate(api.GatePlan, 1)
	s.Say("what is in " + s.Files + "?")
	s.Hear("nisse-ops", `(?i)queued`)
	s.Hear("nisse-gates", `approve rev-1`)
	s.Say("approve rev-1")
	s.AllClosed(2)
	var states []string
	for _, j := range s.Jobs() {
		states = append(states, string(j.Status.State))
	}
	if diff := cmp.Diff([]string{"Succeeded"}, states); diff != "" {
		t.Error(diff)
	}
}

// Strangers and people without the right change nothing.
func TestOtherPeople(t *testing.T) {
	t.Parallel()
	s := stack.Start(t, stack.Options{})
	mallory := s.Visitor("mallory")
	mallory("Write something")
	s.Say(request(s))
	s.OpenGate(api.GatePlan, 1)
	s.Hear("nisse-gates", `approve rev-1`)
	mallory("approve rev-1")
	mallory("stop")
	s.Say("approve rev-1")
	s.Closed(api.ResultDone)
	s.AllClosed(1)
}
