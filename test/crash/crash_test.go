// Package crash kills each process with SIGKILL at each persisted boundary, before and after the write, in the middle of the story,
// and then compares effects: the machine changed exactly once, no message or decision was lost or counted twice. Later boundaries
// are added as rows.
package crash

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/test/stack"
)

func TestMain(m *testing.M) {
	stack.Main(m)
}

// end is how a story may end after a crash.
type end int

const (
	// once: it ran exactly once and the item closed as done.
	once end = iota
	// onceOrUnknown: a crash inside the deed itself; it ran once or not, the job says Unknown, and a person is asked.
	onceOrUnknown
)

// deedNth is which of the story's calls at the device is the approved deed: two that only read come before it.
const deedNth = 3

func TestKillAtEveryBoundary(t *testing.T) {
	for _, c := range []struct {
		component string
		point     string
		end       end
		// nth time the point is reached; the first when 0.
		nth int
	}{
		{"gateway", "gateway.inbox", once, 0},
		{"gateway", "gateway.route", once, 0},
		{"gateway", "gateway.workitem", once, 0},
		{"gateway", "gateway.approval", once, 0},
		{"gateway", "gateway.outbox", once, 0},
		{"manager", "manager.gate", once, 0},
		{"manager", "manager.outcome", once, 0},
		{"manager", "manager.settle", onceOrUnknown, 0},
		{"broker", "broker.plan", once, 0},
		{"broker", "broker.job", once, 0},
		{"broker", "broker.dispatch", once, 0},
		{"broker", "broker.result", once, 0},
		{"nisse-device", "device.intent", once, deedNth},
		{"nisse-device", "device.run", onceOrUnknown, deedNth},
		{"nisse-device", "device.outcome", onceOrUnknown, deedNth},
		{"agentruntime", "runtime.inbox", once, 0},
		{"agentruntime", "runtime.intent", once, 0},
		{"agentruntime", "runtime.outcome", once, 0},
	} {
		for _, when := range []string{"before", "after"} {
			t.Run(c.point+"."+when, func(t *testing.T) {
				t.Parallel()
				want := c.end
				switch c.point + "." + when {
				case "device.intent.after", "device.run.before":
					want = onceOrUnknown // recorded as begun, and then nobody saw
				case "device.outcome.after":
					want = once // recorded as ended: the answer is in the table
				}
				story(t, c.component, fmt.Sprintf("%s.%s:%d", c.point, when, max(c.nth, 1)), want)
			})
		}
	}
}

func story(t *testing.T, component, point string, want end) {
	crash := map[string]string{component: point}
	settles := strings.HasPrefix(point, "manager.settle")
	if settles { // there is nothing to settle unless nobody saw how it ended
		crash["nisse-device"] = fmt.Sprint("device.run.before:", deedNth)
	}
	s := stack.Start(t, stack.Options{Crash: crash})
	s.Say("Write the disk usage of the machine into " + s.Files + "/report.txt")
	s.Hear("nisse-gates", `approve rev-1`)
	s.Say("approve rev-1")

	unknown := s.EndOrUnknown()
	if s.Crashes(component) == 0 && !settles {
		t.Fatalf("%s never reached %s: the test proves nothing", component, point)
	}
	if unknown && want != onceOrUnknown {
		t.Fatalf("the outcome is Unknown where it could be proved")
	}
	if n := s.Ran("fs.write"); n > 1 || (n == 0 && !unknown) {
		t.Errorf("fs.write ran %d times (unknown is %v)", n, unknown)
	}
	if _, err := os.Stat(s.Files + "/report.txt"); err != nil && !unknown {
		t.Errorf("the file is not there: %v", err)
	}
	if jobs := s.Jobs(); len(jobs) != 1 {
		t.Errorf("%d jobs for one step", len(jobs))
	}
	counted(t, s)
	// What a gate says before and after it is decided.
	said := []string{"Plan rev-1 of ops for", "disk usage is in"}
	if unknown {
		goOn(s, settles || strings.HasPrefix(point, "device.outcome"))
		s.Hear("nisse-gates", `continued by lucas`)
		said = []string{"Plan rev-1 of ops for", "ops has stopped in", "continued by lucas", "I did not write it again"}
	}
	if s.Crashes(component) == 0 {
		t.Errorf("%s never reached %s: the test proves nothing", component, point)
	}
	if out := s.Run("nisse-device", "audit", "verify", "--config", s.DeviceConfig()); !strings.Contains(out, "whole") {
		t.Errorf("audit verify: %s", out)
	}
	s.Hear("nisse-ops", said[len(said)-1]) // stored before the item closed, and on its way to the room
	// Each thing is said once: the request made one item, each gate was shown once, the result was told once.
	c := s.Conversation()
	for _, phrase := range said {
		if n := strings.Count(c, phrase); n != 1 {
			t.Errorf("%q is in the room %d times:\n%s", phrase, n, c)
		}
	}
}

// goOn answers what the halt asks, in the room or by settling the job, and waits for the end. What nobody can tell of stays untold, but for
// what the person says: nothing is tried again.
func goOn(s *stack.Stack, settle bool) {
	s.T.Helper()
	ran := s.Ran("fs.write")
	job := s.Jobs()[0].Name
	s.Hear("nisse-gates", `(?is)nobody can prove.*kubectl nisse job settle `+job+` -n `+s.Namespace+` --as Failed.*continue: the step counts as done.*replan.*abandon`)
	if settle {
		g := s.OpenGate(api.GateHalt, 0)
		if err := s.Decide(g, "settled", func(a *api.Approval) {
			a.Spec.Answer, a.Spec.Settle, a.Spec.Text = api.AnswerContinue, api.SettledSucceeded, "I looked"
		}); err != nil {
			s.T.Fatal(err)
		}
	} else {
		s.Say("continue")
	}
	s.Closed(api.ResultDone)
	if n := s.Ran("fs.write"); n != ran {
		s.T.Errorf("fs.write ran %d times before continue, and %d after", ran, n)
	}
	s.Wait(stack.Patience, "the job to be settled", func(context.Context) error {
		jobs := s.Jobs()
		if len(jobs) != 1 || jobs[0].Status.State != api.JobUnknown || jobs[0].Status.Settled == nil {
			return fmt.Errorf("jobs: %+v", jobs)
		}
		if by := jobs[0].Status.Settled; by.As != api.SettledSucceeded || by.Person != "lucas" || (by.Reason == "I looked") != settle {
			s.T.Errorf("settled: %+v", by)
		}
		return nil
	})
}

// counted checks that the one decision counted once.
func counted(t *testing.T, s *stack.Stack) {
	t.Helper()
	var gates api.GateList
	if err := s.Admin.List(t.Context(), &gates, client.InNamespace(s.Namespace)); err != nil {
		t.Fatal(err)
	}
	for _, g := range gates.Items {
		if g.Spec.Kind != api.GatePlan {
			continue
		}
		if g.Status.Outcome != api.GateApproved || len(g.Status.Decisions) != 1 {
			b, _ := json.MarshalIndent(g.Status, "", " ")
			t.Errorf("gate %s: %s", g.Name, b)
		}
	}
	var items api.WorkItemList
	if err := s.Admin.List(t.Context(), &items, client.InNamespace(s.Namespace)); err != nil {
		t.Fatal(err)
	}
	if len(items.Items) != 1 {
		t.Errorf("%d work items for one request", len(items.Items))
	}
}
