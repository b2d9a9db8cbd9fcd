package stack

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"maunium.net/go/mautrix/id"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/testrig/person"
)

// Patience for one thing to happen; generous, for shared machines.
const Patience = 90 * time.Second

// Say something in the room's main timeline and return the event's ID.
func (s *Stack) Say(text string) id.EventID {
	s.T.Helper()
	e, err := s.You.Say(s.T.Context(), id.RoomID(s.Room), text, person.Where{})
	s.must(err)
	return e
}

// SayIn says something in the thread of an item, given the event it began with.
func (s *Stack) SayIn(thread id.EventID, text string) id.EventID {
	s.T.Helper()
	e, err := s.You.Say(s.T.Context(), id.RoomID(s.Room), text, person.Where{Thread: thread})
	s.must(err)
	return e
}

// Hear waits for a message of an account that matches a pattern.
func (s *Stack) Hear(account, pattern string) person.Message {
	s.T.Helper()
	ctx, cancel := context.WithTimeout(s.T.Context(), Patience)
	defer cancel()
	m, err := s.You.WaitFor(ctx, id.RoomID(s.Room), person.Want{Sender: id.UserID(s.UserID(account)), Text: regexp.MustCompile(pattern)})
	if err != nil {
		s.Dump()
		s.T.Fatalf("waiting for %s to say %q: %v", account, pattern, err)
	}
	return m
}

// Item is the only work item that has not closed, or the newest.
func (s *Stack) Item(ctx context.Context) (*api.WorkItem, error) {
	var l api.WorkItemList
	if err := s.Admin.List(ctx, &l, client.InNamespace(s.Namespace)); err != nil {
		return nil, err
	}
	var found *api.WorkItem
	for i := range l.Items {
		w := &l.Items[i]
		if w.Status.State != api.WorkItemClosed || found == nil {
			found = w
		}
	}
	if found == nil {
		return nil, fmt.Errorf("there is no work item")
	}
	return found, nil
}

// OpenGate waits for a gate without an outcome and returns it.
func (s *Stack) OpenGate(kind api.GateKind, revision int32) *api.Gate {
	s.T.Helper()
	var found *api.Gate
	s.Wait(Patience, fmt.Sprintf("an open %s gate of rev-%d", kind, revision), func(ctx context.Context) error {
		var l api.GateList
		if err := s.Admin.List(ctx, &l, client.InNamespace(s.Namespace)); err != nil {
			return err
		}
		for i := range l.Items {
			if g := &l.Items[i]; g.Open() && g.Spec.Kind == kind && g.Spec.Revision == revision {
				found = g
				return nil
			}
		}
		return fmt.Errorf("%d gates, none of them", len(l.Items))
	})
	return found
}

// Decide makes an Approval as the person, by kubectl's way.
func (s *Stack) Decide(g *api.Gate, name string, change func(*api.Approval)) error {
	a := &api.Approval{Spec: api.ApprovalSpec{Gate: api.GateRef{Name: g.Name, UID: string(g.UID)}, Digest: g.Spec.Digest,
		Decision: api.DecisionApprove, Approver: Kubernetes, Channel: api.Channel{Kind: api.ChannelKubernetes}}}
	a.Namespace, a.Name = s.Namespace, name
	if change != nil {
		change(a)
	}
	return s.As(Kubernetes, "system:masters").Create(s.T.Context(), a)
}

// Closed waits until the newest item has closed with a result.
func (s *Stack) Closed(result api.Result) *api.WorkItem {
	s.T.Helper()
	var item *api.WorkItem
	s.Wait(Patience, "item closed as "+string(result), func(ctx context.Context) error {
		w, err := s.Item(ctx)
		if err != nil {
			return err
		}
		if w.Status.State != api.WorkItemClosed || w.Status.Outcome == nil || w.Status.Outcome.Result != result {
			return fmt.Errorf("%s is %s, waiting for %q, %+v", w.Name, w.Status.State, w.Status.WaitingFor, w.Status.Outcome)
		}
		item = w
		return nil
	})
	return item
}

// File of the device's directory, or an error that says it is not there.
func (s *Stack) File(name string) (string, error) {
	b, err := os.ReadFile(filepath.Join(s.Files, name))
	return string(b), err
}

// Jobs of the namespace.
func (s *Stack) Jobs() []api.DeviceJob {
	s.T.Helper()
	var l api.DeviceJobList
	s.must(s.Admin.List(s.T.Context(), &l, client.InNamespace(s.Namespace)))
	return l.Items
}

// Ran counts the audit's outcomes of a capability, that is: how often the machine was really changed.
func (s *Stack) Ran(capability string) int {
	s.T.Helper()
	n := 0
	for _, line := range strings.Split(s.Run("nisse-device", "audit", "show", "--config", s.DeviceConfig()), "\n") {
		if strings.Contains(line, capability) && strings.Contains(line, "outcome") && strings.Contains(line, "Succeeded") {
			n++
		}
	}
	return n
}

// Conversation of the room as the person sees it.
func (s *Stack) Conversation() string {
	s.T.Helper()
	c, err := s.You.Conversation(s.T.Context(), id.RoomID(s.Room))
	s.must(err)
	var b strings.Builder
	s.must(c.Print(&b))
	return b.String()
}

// RefusedApproval waits until an approval is marked as one that does not count.
func (s *Stack) RefusedApproval(name string) {
	s.T.Helper()
	s.Wait(Patience, "approval "+name+" is refused", func(ctx context.Context) error {
		var a api.Approval
		if err := s.Admin.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, &a); err != nil {
			return err
		}
		if a.Status.Reason == "" || a.Status.Message == "" {
			return fmt.Errorf("status is %+v", a.Status)
		}
		return nil
	})
}

// AllClosed waits until there are n items and all have closed.
func (s *Stack) AllClosed(n int) {
	s.T.Helper()
	s.Wait(2*Patience, fmt.Sprintf("%d items closed", n), func(ctx context.Context) error {
		var l api.WorkItemList
		if err := s.Admin.List(ctx, &l, client.InNamespace(s.Namespace)); err != nil {
			return err
		}
		closed := 0
		for _, w := range l.Items {
			if w.Status.State == api.WorkItemClosed {
				closed++
			}
		}
		if len(l.Items) != n || closed != n {
			return fmt.Errorf("%d items, %d closed", len(l.Items), closed)
		}
		return nil
	})
}

// Visitor joins the room as somebody else and returns how they speak.
func (s *Stack) Visitor(name string) func(text string) {
	s.T.Helper()
	p := s.Home.Login(s.T, name+s.suffix, password)
	_, err := p.Join(s.T.Context(), s.Room)
	s.must(err)
	return func(text string) {
		s.T.Helper()
		_, err := p.Say(s.T.Context(), id.RoomID(s.Room), text, person.Where{})
		s.must(err)
	}
}

// EndOrUnknown waits until the item is done, or a job's outcome is Unknown and a person is asked about it. It tells which.
func (s *Stack) EndOrUnknown() (unknown bool) {
	s.T.Helper()
	s.Wait(2*Patience, "done, or unknown and a person asked", func(ctx context.Context) error {
		w, err := s.Item(ctx)
		if err != nil {
			return err
		}
		if w.Status.State == api.WorkItemClosed && w.Status.Outcome != nil && w.Status.Outcome.Result == api.ResultDone {
			unknown = false
			return nil
		}
		if w.Halted() && w.Status.Runtime.Halt.Reason == api.HaltOutcomeUnknown && w.Status.State == api.WorkItemAwaitingInput {
			unknown = true
			return nil
		}
		return fmt.Errorf("%s is %s, waiting for %q", w.Name, w.Status.State, w.Status.WaitingFor)
	})
	return unknown
}

// Outcome waits until a gate has one.
func (s *Stack) Outcome(g *api.Gate, want api.GateOutcome) {
	s.T.Helper()
	s.Wait(Patience, "gate "+g.Name+" "+string(want), func(ctx context.Context) error {
		var now api.Gate
		if err := s.Admin.Get(ctx, client.ObjectKeyFromObject(g), &now); err != nil {
			return err
		}
		if now.Status.Outcome != want {
			return fmt.Errorf("its outcome is %q", now.Status.Outcome)
		}
		return nil
	})
}
