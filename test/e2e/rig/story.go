package rig

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"maunium.net/go/mautrix/id"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/testrig/person"
)

// Story is one request in the room and what comes of it.
type Story struct {
	*Rig
	T testing.TB
	// Root is the event of the request.
	Root id.EventID
	// Path of the file that is asked for.
	Path string
}

// Ask for a report into a file of the device's directory; more words may follow.
func (r *Rig) Ask(t testing.TB, file, more string) *Story {
	t.Helper()
	s := &Story{Rig: r, T: t, Path: filepath.Join(Files, file)}
	if err := os.Remove(s.Path); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(s.Path) })
	text := strings.TrimSpace("Write the disk usage of the machine into " + s.Path + " " + more)
	var err error
	if s.Root, err = r.You.Say(t.Context(), r.Room, text, person.Where{}); err != nil {
		t.Fatal(err)
	}
	return s
}

// Say something in the story's thread.
func (s *Story) Say(text string) {
	s.T.Helper()
	if _, err := s.You.Say(s.T.Context(), s.Room, text, person.Where{Thread: s.Root}); err != nil {
		s.T.Fatal(err)
	}
}

// Hear waits for words of an account in the story's thread.
func (s *Story) Hear(from id.UserID, pattern string) person.Message {
	s.T.Helper()
	ctx, cancel := context.WithTimeout(s.T.Context(), Patience)
	defer cancel()
	m, err := s.You.WaitFor(ctx, s.Room, person.Want{Sender: from, Thread: s.Root, Text: regexp.MustCompile(pattern)})
	if err != nil {
		s.Dump(s.T)
		s.T.Fatal(err)
	}
	return m
}

// Item that the request became.
func (s *Story) Item(ctx context.Context) (*api.WorkItem, error) {
	var l api.WorkItemList
	if err := s.Admin.List(ctx, &l, client.InNamespace(Namespace)); err != nil {
		return nil, err
	}
	var found []*api.WorkItem
	for i := range l.Items {
		if m := l.Items[i].Spec.Source.Matrix; m != nil && m.EventID == s.Root.String() {
			found = append(found, &l.Items[i])
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("%d work items came of one message", len(found))
	}
	return found[0], nil
}

// Gate waits until a gate of the story is open and shown in the room.
func (s *Story) Gate(kind api.GateKind, revision int32) *api.Gate {
	s.T.Helper()
	var gate *api.Gate
	s.Wait(s.T, fmt.Sprintf("an open %s gate of rev-%d", kind, revision), Patience, func(ctx context.Context) error {
		item, err := s.Item(ctx)
		if err != nil {
			return err
		}
		var l api.GateList
		if err := s.Admin.List(ctx, &l, client.InNamespace(Namespace), client.MatchingLabels{api.LabelWorkItem: item.Name}); err != nil {
			return err
		}
		for i := range l.Items {
			if g := &l.Items[i]; g.Open() && g.Spec.Kind == kind && g.Spec.Revision == revision {
				gate = g
				return nil
			}
		}
		return fmt.Errorf("%s is %q, waiting for %q, with %d gates, none of them", item.Name, item.Status.State, item.Status.WaitingFor, len(l.Items))
	})
	return gate
}

// Closed waits until the story's item is over.
func (s *Story) Closed(result api.Result) *api.WorkItem {
	s.T.Helper()
	var item *api.WorkItem
	s.Wait(s.T, "the item is closed as "+string(result), 2*Patience, func(ctx context.Context) error {
		var err error
		if item, err = s.Item(ctx); err != nil {
			return err
		}
		if item.Status.Outcome == nil || item.Status.Outcome.Result != result {
			return fmt.Errorf("%s is %q, waiting for %q, outcome %+v", item.Name, item.Status.State, item.Status.WaitingFor, item.Status.Outcome)
		}
		return nil
	})
	return item
}

// Jobs of the story's item.
func (s *Story) Jobs() []api.DeviceJob {
	s.T.Helper()
	item, err := s.Item(s.T.Context())
	if err != nil {
		s.T.Fatal(err)
	}
	var l api.DeviceJobList
	if err := s.Admin.List(s.T.Context(), &l, client.InNamespace(Namespace), client.MatchingLabels{api.LabelWorkItem: item.Name}); err != nil {
		s.T.Fatal(err)
	}
	return l.Items
}

// RanOnce fails unless the file was written exactly once, by exactly one job, and the device's audit says the same.
func (s *Story) RanOnce() {
	s.T.Helper()
	text, err := os.ReadFile(s.Path)
	if err != nil || !strings.Contains(string(text), "Filesystem") {
		s.T.Errorf("the report is %q: %v", text, err)
	}
	jobs := s.Jobs()
	if len(jobs) != 1 || jobs[0].Status.State != api.JobSucceeded {
		s.T.Fatalf("want one job that succeeded, there are %+v", jobs)
	}
	if n := s.Writes(s.T, jobs[0].Spec.WorkItem.Name); n != 1 {
		s.T.Errorf("by the device's audit the file was written %d times", n)
	}
}

// NothingRan fails if the file was touched.
func (s *Story) NothingRan() {
	s.T.Helper()
	if _, err := os.Stat(s.Path); !os.IsNotExist(err) {
		s.T.Errorf("the file is there: %v", err)
	}
	item, err := s.Item(s.T.Context())
	if err != nil {
		s.T.Fatal(err)
	}
	if n := s.Writes(s.T, item.Name); n != 0 {
		s.T.Errorf("by the device's audit the file was written %d times", n)
	}
}

// SaidOnce fails if an account said the same twice in the story's thread.
func (s *Story) SaidOnce() {
	s.T.Helper()
	c, err := s.You.Conversation(s.T.Context(), s.Room)
	if err != nil {
		s.T.Fatal(err)
	}
	said := map[string]int{}
	var all []string
	for _, m := range c.Messages {
		if m.Thread != s.Root {
			continue
		}
		line := m.Sender.String() + ": " + m.Body
		all = append(all, line)
		said[line]++
	}
	for line, n := range said {
		if n > 1 {
			s.T.Errorf("said %d times: %s\nin\n%s", n, line, strings.Join(all, "\n"))
		}
	}
}

// Unanswered fails if an account of Nisse's said something in the main timeline or in the story's thread after somebody first spoke, or
// put an emoji on their words.
func (s *Story) Unanswered(who id.UserID) {
	s.T.Helper()
	c, err := s.You.Conversation(s.T.Context(), s.Room)
	if err != nil {
		s.T.Fatal(err)
	}
	spoke := false
	for _, m := range c.Messages {
		switch {
		case m.Sender == who:
			spoke = true
			if len(m.Reacted) > 0 {
				s.T.Errorf("%q was met with %v", m.Body, m.Reacted)
			}
		case spoke && m.Sender != s.You.UserID() && (m.Thread == "" || m.Thread == s.Root):
			s.T.Errorf("%s was answered by %s: %s", who, m.Sender, m.Body)
		}
	}
	if !spoke {
		s.T.Errorf("%s said nothing", who)
	}
}
