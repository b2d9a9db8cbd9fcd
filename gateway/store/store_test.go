package store

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"nisse.io/nisse/gateway/routing"
)

func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func update(t *testing.T, s *Store, f func(*Tx) error) {
	t.Helper()
	if err := s.Update(t.Context(), f); err != nil {
		t.Fatal(err)
	}
}

func TestOneGatewayADirectory(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if _, err := Open(t.Context(), dir); !errors.Is(err, ErrLocked) {
		t.Fatalf("a second one: %v", err)
	}
	epoch := s.Epoch()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if again := open(t, dir); again.Epoch() != epoch || epoch == "" {
		t.Errorf("epoch %q, then %q", epoch, again.Epoch())
	}
	if other := open(t, t.TempDir()); other.Epoch() == epoch {
		t.Error("two stores of one epoch")
	}
}

func TestPrivateAndDurable(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	for _, name := range []string{fileName, fileName + "-wal"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %s; it holds access tokens", name, info.Mode())
		}
	}
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1"} {
		var got string
		if err := s.db.QueryRow("PRAGMA " + pragma).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %s (%v), want %s", pragma, got, err, want)
		}
	}
}

func TestNewerStoreIsLeftAlone(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if _, err := s.db.Exec("PRAGMA user_version = 99"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), dir); err == nil {
		t.Error("opened a store of a version it does not know")
	}
}

func TestFailedUpdateLeavesNothing(t *testing.T) {
	s := open(t, t.TempDir())
	if err := s.KeepSession(t.Context(), Session{UserID: "@a:x", Token: "t"}, false); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	err := s.Update(t.Context(), func(tx *Tx) error {
		if _, err := tx.AddInbound(Inbound{EventID: "$1", Agent: "ops", Route: routing.Route{Kind: routing.Words}}); err != nil {
			return err
		}
		if err := tx.SetSince("@a:x", "s1"); err != nil {
			return err
		}
		return broken
	})
	if !errors.Is(err, broken) {
		t.Fatal(err)
	}
	if known, err := s.Known(t.Context(), "$1"); known || err != nil {
		t.Errorf("the message was kept: %v, %v", known, err)
	}
	if since, err := s.Since(t.Context(), "@a:x"); since != "" || err != nil {
		t.Errorf("the token moved to %q, %v", since, err)
	}
}

func TestInboxTakesOnce(t *testing.T) {
	s := open(t, t.TempDir())
	m := Inbound{EventID: "$1", Account: "@a:x", Agent: "ops", Room: "!r", Sender: "@l:x", At: time.UnixMilli(1700000000123).UTC(), Thread: "$0",
		Raw: json.RawMessage(`{"a":1}`), Route: routing.Route{Kind: routing.Words, Person: "lucas", WorkItem: "wi-1", Text: "ä\x00"}}
	silent := Inbound{EventID: "$2", Raw: json.RawMessage(`{}`), Route: routing.Route{Kind: routing.Silence}}
	for n, want := range []bool{true, false} {
		update(t, s, func(tx *Tx) error {
			added, err := tx.AddInbound(m)
			if added != want {
				t.Errorf("time %d: added %v", n, added)
			}
			if err != nil {
				return err
			}
			_, err = tx.AddInbound(silent)
			return err
		})
	}
	m.Seq, m.Raw = 1, nil // kept, and not read again
	got, err := s.Waiting(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Inbound{m}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	update(t, s, func(tx *Tx) error { return tx.Finish("$1", "") })
	if got, err := s.Waiting(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("still waiting: %v, %v", got, err)
	}
}

func TestOutboxOrderAndReferences(t *testing.T) {
	s := open(t, t.TempDir())
	ctx := t.Context()
	say := func(o Outbound) {
		t.Helper()
		o.Agent = "ops"
		if o.Content == nil {
			o.Content = json.RawMessage(`{"body":"x"}`)
		}
		update(t, s, func(tx *Tx) error { return tx.Send(o) })
	}
	unsent := func(sender string) []string {
		t.Helper()
		all, err := s.Unsent(ctx, sender)
		if err != nil {
			t.Fatal(err)
		}
		ids := []string{}
		for _, o := range all {
			ids = append(ids, o.ID+"@"+o.Room+"/"+o.Thread+"/"+o.Original)
		}
		return ids
	}
	check := func(sender string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(append([]string{}, want...), unsent(sender)); diff != "" {
			t.Errorf("%s -want +got:\n%s", sender, diff)
		}
	}
	say(Outbound{ID: "root", Sender: ByAgent("ops"), WorkItem: "wi-1"})
	say(Outbound{ID: "gate", Sender: ByApprovals, ThreadOf: "root", WorkItem: "wi-1"})
	say(Outbound{ID: "end", Sender: ByApprovals, Replaces: "gate", ThreadOf: "root"})
	check(ByAgent("ops")) // its room is not known
	if err := s.SetRoom(ctx, "ops", "#ops:x", "!r"); err != nil {
		t.Fatal(err)
	}
	check(ByAgent("ops"), "root@!r//")
	check(ByApprovals)
	update(t, s, func(tx *Tx) error { return tx.AddThread(Thread{WorkItem: "wi-1", Agent: "ops", RootOf: "root"}) })

	changed := s.Changed(TopicOutbox(ByApprovals))
	if err := s.Sent(ctx, "root", "!r", "$root"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
	default:
		t.Error("nobody told the approvals account that its thread is there")
	}
	check(ByApprovals, "gate@!r/$root/")
	if th, ok, err := s.Thread(ctx, "wi-1"); err != nil || !ok || th.Root != "$root" || th.Room != "!r" {
		t.Errorf("thread %+v, %v, %v", th, ok, err)
	}
	if err := s.SetRoom(ctx, "ops", "#ops:x", "!other"); err != nil { // what belongs to a thread stays in its room
		t.Fatal(err)
	}
	if err := s.Sent(ctx, "gate", "!r", "$gate"); err != nil {
		t.Fatal(err)
	}
	if err := s.Sent(ctx, "gate", "!r", "$late"); err != nil { // the first event counts
		t.Fatal(err)
	}
	check(ByApprovals, "end@!r/$root/$gate")
	update(t, s, func(tx *Tx) error {
		for event, want := range map[string]string{"$root": "wi-1", "$gate": "wi-1", "$late": "", "": ""} {
			if item, err := tx.ItemOf("ops", event); err != nil || item != want {
				t.Errorf("%q belongs to %q, %v", event, item, err)
			}
		}
		return nil
	})
}

func TestOutboxConflict(t *testing.T) {
	s := open(t, t.TempDir())
	o := Outbound{ID: "1", Sender: "a", Content: json.RawMessage(`{"body":"x"}`), Whole: "x y"}
	update(t, s, func(tx *Tx) error { return errors.Join(tx.Send(o), tx.Send(o)) })
	for name, change := range map[string]func(*Outbound){
		"other words":  func(o *Outbound) { o.Content = json.RawMessage(`{"body":"z"}`) },
		"other whole":  func(o *Outbound) { o.Whole = "x z" },
		"other item":   func(o *Outbound) { o.WorkItem = "wi-2" },
		"other sender": func(o *Outbound) { o.Sender = "b" },
	} {
		t.Run(name, func(t *testing.T) {
			other := o
			change(&other)
			if err := s.Update(t.Context(), func(tx *Tx) error { return tx.Send(other) }); !errors.Is(err, ErrConflict) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestShownMeansAllParts(t *testing.T) {
	s := open(t, t.TempDir())
	noon := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	shown := func(whole, some bool, last time.Time) {
		t.Helper()
		update(t, s, func(tx *Tx) error {
			got, err := tx.Shown("gate/u_1/part/")
			if diff := cmp.Diff(Showing{Whole: whole, Some: some, At: last}, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			return err
		})
	}
	shown(false, false, time.Time{})
	update(t, s, func(tx *Tx) error {
		for _, id := range []string{"gate/u_1/part/0", "gate/u_1/part/1", "gate/ux1/part/0"} { // no pattern of LIKE
			if err := tx.Send(Outbound{ID: id, Sender: ByApprovals, Content: json.RawMessage(`{}`)}); err != nil {
				return err
			}
		}
		return tx.Seen("gate/u_1/part/0", noon)
	})
	shown(false, true, noon)
	update(t, s, func(tx *Tx) error { return tx.Seen("gate/u_1/part/1", noon.Add(time.Second)) })
	shown(true, true, noon.Add(time.Second))
	update(t, s, func(tx *Tx) error { return tx.Seen("gate/u_1/part/1", noon.Add(time.Hour)) }) // read again, perhaps by another history
	shown(true, true, noon.Add(time.Second))
}

func TestMailboxSequence(t *testing.T) {
	s := open(t, t.TempDir())
	update(t, s, func(tx *Tx) error {
		for _, l := range []Letter{{Agent: "a", EventID: "$1"}, {Agent: "b", EventID: "$1"}, {Agent: "a", EventID: "$2"}, {Agent: "a", EventID: "$1"}, {Agent: "a", EventID: "$3"}} {
			if err := tx.AddLetter(l); err != nil {
				return err
			}
		}
		return nil
	})
	got, err := s.Letters(t.Context(), "a", 1, 10)
	if err != nil {
		t.Fatal(err)
	}
	var seqs []int64
	var ids []string
	for _, m := range got {
		seqs, ids = append(seqs, m.Seq), append(ids, m.ID)
	}
	if diff := cmp.Diff([]int64{2, 3}, seqs); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"$2", "$3"}, ids); diff != "" {
		t.Error(diff)
	}
}

func TestProgressVersions(t *testing.T) {
	s := open(t, t.TempDir())
	add := func(id, news string) error {
		return s.Update(context.Background(), func(tx *Tx) error {
			_, err := tx.AddProgress(id, "ops", "wi-1", news, func(old string) string { return old + "|" + news })
			return err
		})
	}
	for _, err := range []error{add("1", "a"), add("2", "b"), add("1", "a")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := add("2", "c"); !errors.Is(err, ErrConflict) {
		t.Errorf("%v", err)
	}
	stale, err := s.Stale(t.Context())
	if err != nil || len(stale) != 1 || stale[0].Text != "|a|b" || stale[0].Version != 2 {
		t.Fatalf("%+v, %v", stale, err)
	}
	update(t, s, func(tx *Tx) error { return tx.ProgressShown("wi-1", 2, "p", time.Now()) })
	if stale, err := s.Stale(t.Context()); err != nil || len(stale) != 0 {
		t.Errorf("%+v, %v", stale, err)
	}
}
