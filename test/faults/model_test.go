package faults

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/test/stack"
)

// Whatever a model answers, the turn ends: the model comes to its senses and finishes, or a person is asked. Nothing runs of what
// was not approved, and the next request is taken up.
func TestModelsThatGoWrong(t *testing.T) {
	t.Parallel()
	s := stack.Start(t, stack.Options{Scenario: "test/scriptedmodel/scenarios/faults.yaml"})
	large := strings.Repeat("two megabytes of this\n", 2<<20/22)
	if err := os.WriteFile(filepath.Join(s.Files, "large.txt"), []byte(large), 0o600); err != nil {
		t.Fatal(err)
	}
	const goesOn = "Went on after"
	const asks = "fs.write .*: waits for the approval" // and a person reads the call, and may approve it
	for _, c := range []struct {
		fault string
		// says is what a person reads in the room. The item is closed if the model goes on by itself, and waits for the person if not.
		says string
		// told is what the item's progress message, or a message of its own, says of what was wrong; a regular expression.
		told string
	}{
		{"unknown tool", goesOn, `✗ launch_missiles: not run, there is no tool "launch_missiles"`},
		{"dotted tool", goesOn, `✗ fs\.list: not run, there is no tool "fs\.list"`},
		{"malformed arguments", goesOn, `✗ fs_list: not run, the arguments are not JSON`},
		{"arguments are a list", goesOn, `✗ fs_list: not run, the arguments are not a JSON object`},
		{"more arguments", goesOn, `✗ fs_list: not run, the arguments do not fit the tool: /: additional properties 'force' not allowed`},
		{"extra fields", goesOn, `✗ fs_list: not run, the arguments do not fit the tool: /: additional properties 'confidence' not allowed`},
		{"duplicate ids", goesOn, `✗ fs_stat: not run, two calls had one id, and only the first was taken`},
		{"duplicate keys", goesOn, `✗ .*duplicate`},
		{"float", goesOn, `✗ fs_read: not run, the arguments do not fit the tool: /limit`},
		{"huge integer", goesOn, `✗ .*9007199254740993`},
		{"empty answer", goesOn, `✗ the model's answer was empty \(asked again\)`},
		{"no choices", goesOn, `✗ the model's answer held no choice \(asked again\)`},
		{"length", goesOn, `✗ the model's answer was cut at the limit of its length`},
		{"huge text", goesOn, `All work and no play`},
		{"large result", goesOn, `✓ web1 fs\.read path=\S*large\.txt \(cut\)`},
		{"other device", goesOn, `✗ fs_list: not run, the arguments do not fit the tool: /device`},
		{"write without plan", asks, `⏳ web1 fs\.write .*: waits for the approval of rev-1`},
		{"zero steps", goesOn, `✗ submit_plan: .*steps`},
		{"many steps", goesOn, `✗ submit_plan: .*steps`},
		{"large plan", goesOn, `✗ submit_plan: .*16`},
		{"path outside", goesOn, `✗ submit_plan: refused, .*[Ss]tep 1`},
		{"endless loop", `same call \(fs_list\) for the 5th time, so I stopped\. Say how to go on`, `✓ web1 fs\.list`},
		{"always empty", `3 answers in a row that I could not use, so I stopped\. Say how to go on`, `✗ the model's answer was empty`},
		{"never a tool that exists", `3 answers in a row that I could not use, so I stopped\. Say how to go on`, `✗ launch_missiles: not run`},
		{"never good JSON", `3 answers in a row that I could not use, so I stopped\. Say how to go on`, `✗ fs_list: not run, the arguments are not JSON`},
		{"bad request", `I cannot go on: the model at 127\.0\.0\.1:\d+ answers 400`, `I cannot go on`},
		{"unauthorised", `I cannot use my model: .*401.* key needs mending`, `I cannot use my model`},
	} {
		t.Logf("fault: %s", c.fault) // no subtest: what fails here fails the stack
		root := s.Say("fault: " + c.fault)
		hear(s, "nisse-ops", c.says, root)
		hear(s, "nisse-ops", c.told, root)
		item := newest(s, string(root))
		if c.says != goesOn {
			if c.fault == "unauthorised" { // it goes on by itself once the key is good
				unusable(s, item, "401")
			} else {
				waits := api.WorkItemAwaitingInput
				if c.says == asks {
					waits = api.WorkItemAwaitingApproval
				}
				s.Wait(stack.Patience, "the item waits for a person", func(ctx context.Context) error {
					if err := s.Admin.Get(ctx, client.ObjectKeyFromObject(item), item); err != nil {
						return err
					}
					if item.Status.State != waits {
						return fmt.Errorf("it is %s", item.Status.State)
					}
					return nil
				})
			}
			end(s, item)
		}
		closed(s, item)
	}
	if jobs := s.Jobs(); len(jobs) != 0 {
		t.Errorf("something ran: %+v", jobs)
	}
	var plans api.PlanList
	if err := s.Admin.List(t.Context(), &plans, client.InNamespace(s.Namespace)); err != nil || len(plans.Items) != 1 || !plans.Items[0].Spec.Call {
		t.Errorf("%d plans, want the one call that a person was asked about; %v", len(plans.Items), err)
	}
	if n := s.Ran("fs.write"); n != 0 {
		t.Errorf("fs.write ran %d times", n)
	}
	entries, err := os.ReadDir(s.Files)
	if err != nil || len(entries) != 1 {
		t.Errorf("the device's files: %v, %v", entries, err)
	}
}

// newest is the item that began with an event.
func newest(s *stack.Stack, event string) *api.WorkItem {
	s.T.Helper()
	var found *api.WorkItem
	s.Wait(stack.Patience, "the item of "+event, func(ctx context.Context) error {
		var l api.WorkItemList
		if err := s.Admin.List(ctx, &l, client.InNamespace(s.Namespace)); err != nil {
			return err
		}
		for i := range l.Items {
			if m := l.Items[i].Spec.Source.Matrix; m != nil && m.EventID == event {
				found = &l.Items[i]
				return nil
			}
		}
		return fmt.Errorf("%d items, none of it", len(l.Items))
	})
	return found
}

// end an item as a person does who has had enough of it.
func end(s *stack.Stack, item *api.WorkItem) {
	s.T.Helper()
	if err := s.Admin.Patch(s.T.Context(), item, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"close":true}}`))); err != nil {
		s.T.Fatal(err)
	}
}

func closed(s *stack.Stack, item *api.WorkItem) {
	s.T.Helper()
	s.Wait(stack.Patience, "the item is closed", func(ctx context.Context) error {
		if err := s.Admin.Get(ctx, client.ObjectKeyFromObject(item), item); err != nil {
			return err
		}
		if item.Status.State != api.WorkItemClosed {
			return fmt.Errorf("it is %s and waits for %q", item.Status.State, item.Status.WaitingFor)
		}
		return nil
	})
}
