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
	for _, c := range []struct {
		fault string
		// says is what a person reads in the room. The item is closed if the model goes on by itself, and waits for the person if not.
		says string
	}{
		{"unknown tool", goesOn},
		{"dotted tool", goesOn},
		{"malformed arguments", goesOn},
		{"arguments are a list", goesOn},
		{"more arguments", goesOn},
		{"extra fields", goesOn},
		{"duplicate ids", goesOn},
		{"duplicate keys", goesOn},
		{"float", goesOn},
		{"huge integer", goesOn},
		{"empty answer", goesOn},
		{"huge text", goesOn},
		{"large result", goesOn},
		{"other device", goesOn},
		{"write without plan", goesOn},
		{"zero steps", goesOn},
		{"many steps", goesOn},
		{"large plan", goesOn},
		{"path outside", goesOn},
		{"endless loop", `same call \(fs_list\) for the 5th time, so I stopped\. Say how to go on`},
		{"always empty", `3 answers in a row that I could not use, so I stopped\. Say how to go on`},
		{"never a tool that exists", `3 answers in a row that I could not use, so I stopped\. Say how to go on`},
		{"never good JSON", `3 answers in a row that I could not use, so I stopped\. Say how to go on`},
		{"bad request", `I cannot go on: the model at 127\.0\.0\.1:\d+ answers 400`},
		{"unauthorised", `I cannot use my model: .*401.* key needs mending`},
	} {
		t.Logf("fault: %s", c.fault) // no subtest: what fails here fails the stack
		root := s.Say("fault: " + c.fault)
		hear(s, "nisse-ops", c.says, root)
		item := newest(s, string(root))
		if c.says != goesOn {
			if c.fault != "unauthorised" { // it goes on by itself once the key is good
				s.Wait(stack.Patience, "the item waits for a person", func(ctx context.Context) error {
					if err := s.Admin.Get(ctx, client.ObjectKeyFromObject(item), item); err != nil {
						return err
					}
					if item.Status.State != api.WorkItemAwaitingInput {
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
	if err := s.Admin.List(t.Context(), &plans, client.InNamespace(s.Namespace)); err != nil || len(plans.Items) != 0 {
		t.Errorf("%d plans, %v", len(plans.Items), err)
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
