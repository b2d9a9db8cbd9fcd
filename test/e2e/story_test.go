// Package e2e tests the whole product on a real cluster with a real homeserver. hack/e2e.sh brings them up and runs it.
package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/testrig/person"
	"nisse.io/nisse/test/e2e/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }

// The main job, decided by words in the room.
func TestApprovedInTheRoom(t *testing.T) {
	s := rig.Open(t).Ask(t, "e2e-room.txt", "")
	gate := s.Gate(api.GatePlan, 1)
	s.Hear(rig.Gates, `(?s)rev-1.*fs\.write.*e2e-room\.txt`)
	s.NothingRan()
	s.Say("approve rev-1")
	item := s.Closed(api.ResultDone)
	s.RanOnce()
	s.SaidOnce()
	s.Hear(rig.Gates, `(?i)approved by lucas`)
	s.Hear(rig.Account, `(?i)disk usage is in`)
	s.AuditIsWhole(t)

	if err := s.Admin.Get(t.Context(), client.ObjectKeyFromObject(gate), gate); err != nil {
		t.Fatal(err)
	}
	if gate.Status.Outcome != api.GateApproved || len(gate.Status.Decisions) != 1 || gate.Status.Statement == "" {
		t.Errorf("the gate does not tell who decided: %+v", gate.Status)
	}
	if item.Status.WaitingFor != "" {
		t.Errorf("a closed item waits for %q", item.Status.WaitingFor)
	}
}

// The same decision by kubectl: a person with a certificate of their own, no administrator; and what they may not do.
func TestApprovedByKubectl(t *testing.T) {
	r := rig.Open(t)
	lucas, mallory := r.As(t, "lucas"), r.As(t, "mallory")
	s := r.Ask(t, "e2e-kubectl.txt", "")
	gate := s.Gate(api.GatePlan, 1)

	for name, refused := range map[string]struct {
		as      client.Client
		change  func(*api.Approval)
		because string
	}{
		"somebody without a right": {mallory, func(a *api.Approval) { a.Spec.Approver = "mallory" }, "cannot create resource"},
		"in another's name":        {lucas, func(a *api.Approval) { a.Spec.Approver = "anna" }, "your own username"},
		"as the chat":              {lucas, func(a *api.Approval) { a.Spec.Approver = "matrix:@you:" + rig.Server }, "your own username"},
	} {
		t.Run(name, func(t *testing.T) {
			a := rig.Decision(gate, gate.Name+"-forged", "lucas")
			refused.change(a)
			if err := refused.as.Create(t.Context(), a); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), refused.because) {
				t.Errorf("want a refusal that says %q, got %v", refused.because, err)
			}
		})
	}
	if err := lucas.Create(t.Context(), &api.Gate{ObjectMeta: gate.ObjectMeta, Spec: gate.Spec}); !apierrors.IsForbidden(err) {
		t.Errorf("a person made a gate: %v", err)
	}
	s.NothingRan()

	if err := lucas.Create(t.Context(), rig.Decision(gate, gate.Name+"-by-lucas", "lucas")); err != nil {
		t.Fatal(err)
	}
	s.Closed(api.ResultDone)
	s.RanOnce()
	s.SaidOnce()
}

// A rejection's words lead to another plan; the first can no longer be approved, and the person is told why.
func TestRejectedThenReplaced(t *testing.T) {
	s := rig.Open(t).Ask(t, "e2e-rejected.txt", "")
	s.Gate(api.GatePlan, 1)
	s.Hear(rig.Gates, `rev-1`)
	s.Say("reject use " + rig.Files + "/e2e-daily.txt instead")
	s.Gate(api.GatePlan, 2)
	s.Hear(rig.Gates, `Plan rev-2`)
	s.Say("approve rev-1")
	s.Hear(rig.Gates, `(?i)rev-1.*(rejected|replaced|decided)`)
	s.NothingRan()
	s.Path = rig.Files + "/e2e-daily.txt"
	s.Say("approve rev-2")
	s.Closed(api.ResultDone)
	s.RanOnce()
}

// A call that differs from what was approved by one character does not run; replan makes a plan that is decided anew.
func TestMismatchHaltsAndReplans(t *testing.T) {
	s := rig.Open(t).Ask(t, "e2e-halt.txt", "off-by-one")
	s.Gate(api.GatePlan, 1)
	s.Hear(rig.Gates, `rev-1`)
	s.Say("approve rev-1")
	s.Gate(api.GateHalt, 0)
	s.Hear(rig.Gates, `(?is)continue.*replan.*abandon`)
	s.NothingRan()
	s.Say("replan")
	s.Gate(api.GatePlan, 2)
	s.Hear(rig.Gates, `Plan rev-2`) // nobody approves what was not shown
	s.Say("approve rev-2")
	s.Closed(api.ResultDone)
	s.RanOnce()
}

// A call that differs does not run, and abandon ends the work there.
func TestMismatchThenAbandon(t *testing.T) {
	s := rig.Open(t).Ask(t, "e2e-mismatch.txt", "off-by-one")
	s.Gate(api.GatePlan, 1)
	s.Hear(rig.Gates, `rev-1`)
	s.Say("approve rev-1")
	s.Gate(api.GateHalt, 0)
	s.Hear(rig.Gates, `(?is)continue.*replan.*abandon`)
	s.Say("abandon")
	s.Closed(api.ResultAbandoned)
	s.NothingRan()
	if jobs := s.Jobs(); len(jobs) != 0 {
		t.Errorf("jobs: %+v", jobs)
	}
	s.SaidOnce()
}

// Work is stopped while it waits for a decision, another request waits behind it and the person is told so, and after continue both come
// to their end. Somebody whom the agent does not know says approve and stop, and is met with silence.
func TestStopThenContinueWhileAnotherWaits(t *testing.T) {
	r := rig.Open(t)
	mallory := r.Stranger(t, "mallory")
	s := r.Ask(t, "e2e-first.txt", "")
	first := s.Gate(api.GatePlan, 1)
	s.Hear(rig.Gates, `rev-1`)
	for _, words := range []string{"approve rev-1", "stop"} {
		for _, where := range []person.Where{{}, {Thread: s.Root}} {
			if _, err := mallory.Say(t.Context(), r.Room, words, where); err != nil {
				t.Fatal(err)
			}
		}
	}
	second := r.Ask(t, "e2e-second.txt", "")
	second.Hear(rig.Account, `(?i)queued`) // so the stranger's words, which came before, have been read
	s.Unanswered(mallory.UserID())

	s.Say("stop")
	s.Gate(api.GateHalt, 0)
	s.Hear(rig.Gates, `(?is)continue.*replan.*abandon`)
	s.NothingRan()
	if err := r.Admin.Get(t.Context(), client.ObjectKeyFromObject(first), first); err != nil || first.Status.Outcome != api.GateSuperseded {
		t.Errorf("the plan that a stranger approved is %q: %v", first.Status.Outcome, err)
	}
	s.Say("continue")
	s.Gate(api.GatePlan, 2)
	s.Hear(rig.Gates, `rev-2`)
	s.Say("approve rev-2")
	for _, s := range []*rig.Story{s, second} {
		if s == second {
			s.Gate(api.GatePlan, 1)
			s.Hear(rig.Gates, `rev-1`)
			s.Say("approve rev-1")
		}
		s.Closed(api.ResultDone)
		s.RanOnce()
		s.SaidOnce()
	}
}

// An item made with kubectl, by a person, is worked on like one from the room.
func TestWorkGivenByKubectl(t *testing.T) {
	r := rig.Open(t)
	lucas := r.As(t, "lucas")
	item := &api.WorkItem{Spec: api.WorkItemSpec{Agent: rig.Agent, Title: "Look", Request: "what is in " + rig.Files + "?", Source: api.Source{Kind: api.SourceKubernetes}}}
	item.Namespace, item.GenerateName = rig.Namespace, "wi-"
	if err := lucas.Create(t.Context(), item); err != nil {
		t.Fatal(err)
	}
	r.Wait(t, "the item is closed", rig.Patience, func(ctx context.Context) error {
		if err := lucas.Get(ctx, client.ObjectKeyFromObject(item), item); err != nil {
			return err
		}
		if item.Status.State != api.WorkItemClosed {
			return fmt.Errorf("it is %q, waiting for %q", item.Status.State, item.Status.WaitingFor)
		}
		return nil
	})
	if item.Status.Outcome.Result != api.ResultDone {
		t.Errorf("outcome %+v", item.Status.Outcome)
	}
}
