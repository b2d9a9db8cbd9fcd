package story

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/approval"
	"nisse.io/nisse/test/stack"
)

// One call that needs approval, without a plan: the room shows that call, and it runs once when it was approved, whoever dies in between.
// One that is rejected, stopped or approved too late does not.
func TestOneCallByItself(t *testing.T) {
	t.Parallel()
	s := stack.Start(t, stack.Options{})
	put := func(name string) *api.Gate {
		t.Helper()
		s.Say(`Put "hello" into ` + s.Files + "/" + name)
		s.Hear("nisse-gates", `(?s)Call rev-1 of ops.*fs\.write.*`+name+`.*hello.*approve rev-1`)
		g := s.OpenGate(api.GateCall, 1)
		if _, err := s.File(name); !os.IsNotExist(err) {
			t.Fatalf("something ran before it was approved: %v", err)
		}
		return g
	}
	code := func(g *api.Gate) string { return approval.Code(g.Spec.Digest, string(g.UID)) }

	put("note.txt")
	s.Kill("broker")
	s.Kill("agentruntime")
	s.Revive("broker")
	s.Say("approve rev-1")
	s.Hear("nisse-gates", `rev-1 approved by lucas`)
	s.Revive("agentruntime")
	s.Hear("nisse-ops", `It is in .*note\.txt`)
	item := s.Closed(api.ResultDone)
	if text, err := s.File("note.txt"); err != nil || text != "hello" {
		t.Errorf("the file holds %q, %v", text, err)
	}
	jobs := s.Jobs()
	if len(jobs) != 1 || jobs[0].Status.State != api.JobSucceeded || jobs[0].Spec.WorkItem.Name != item.Name {
		t.Errorf("jobs: %+v", jobs)
	}

	g := put("rejected.txt")
	s.Say("reject " + code(g) + " not today")
	s.Hear("nisse-ops", `Nothing was written`)
	s.AllClosed(2)
	s.Outcome(g, api.GateRejected)

	g = put("stopped.txt")
	s.Say("stop")
	s.Outcome(g, api.GateSuperseded)
	s.Hear("nisse-gates", `(?s)ops has stopped in.*stopped\.txt`)
	s.Say("approve " + code(g))
	s.Say("abandon")
	s.AllClosed(3)

	if n := s.Ran("fs.write"); n != 1 {
		t.Errorf("fs.write ran %d times", n)
	}
	for _, name := range []string{"rejected.txt", "stopped.txt"} {
		if _, err := s.File(name); !os.IsNotExist(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What may not be undone wants its code, also when it is a single call, and kubectl approves it as any other gate.
func TestOneCallByKubectl(t *testing.T) {
	t.Parallel()
	s := stack.Start(t, stack.Options{})
	s.Allow(true, func(m *api.DeviceManifestSpec) { m.Paths.Write[0].Irreversible = true })
	s.Say(`Put "hello" into ` + s.Files + "/note.txt")
	g := s.OpenGate(api.GateCall, 1)
	if g.Spec.Tier != api.TierHigh || !strings.Contains(g.Spec.Message, "cannot be undone") {
		t.Errorf("tier %s: %s", g.Spec.Tier, g.Spec.Message)
	}
	s.Hear("nisse-gates", `(?s)Call rev-1.*Reply  approve `+approval.Code(g.Spec.Digest, string(g.UID)))
	s.Say("approve rev-1")
	s.Hear("nisse-gates", `wants its code`)
	if err := s.Decide(g, "by-lucas", nil); err != nil {
		t.Fatal(err)
	}
	s.Closed(api.ResultDone)
	if n := s.Ran("fs.write"); n != 1 {
		t.Errorf("fs.write ran %d times", n)
	}
	s.Wait(stack.Patience, "the plan to say so", func(ctx context.Context) error {
		var p api.Plan
		if err := s.Admin.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: g.Name}, &p); err != nil {
			return err
		}
		if !p.Spec.Call || p.Status.State != api.PlanApproved {
			return fmt.Errorf("%+v", p.Status)
		}
		return nil
	})
}
