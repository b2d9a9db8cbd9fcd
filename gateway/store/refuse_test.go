package store

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// said puts messages into the outbox, in this order.
func said(t *testing.T, s *Store, all ...Outbound) {
	t.Helper()
	update(t, s, func(tx *Tx) error {
		for _, o := range all {
			o.Agent, o.WorkItem, o.Content = "ops", "wi-1", json.RawMessage(`{"body":"x"}`)
			if o.Sender == "" {
				o.Sender = ByAgent("ops")
			}
			if err := tx.Send(o); err != nil {
				return err
			}
		}
		return nil
	})
}

// sayable is what a sender can say now: where, in which thread and as an edit of what.
func sayable(t *testing.T, s *Store, sender string) []string {
	t.Helper()
	all, err := s.Unsent(t.Context(), sender)
	if err != nil {
		t.Fatal(err)
	}
	ids := []string{}
	for _, o := range all {
		ids = append(ids, o.ID+"@"+o.Room+"/"+o.Thread+"/"+o.Original)
	}
	return ids
}

// refuse a message as a homeserver does that has other words for it each time.
func refuse(t *testing.T, s *Store, id string) (failed bool) {
	t.Helper()
	var before int
	if err := s.db.QueryRowContext(t.Context(), "SELECT refusals FROM outbox WHERE id = ?", id).Scan(&before); err != nil {
		t.Fatal(err)
	}
	reason := fmt.Sprintf("M_TOO_LARGE: no, for the %d. time", before+1)
	failed, err := s.Refused(t.Context(), id, reason, 1, time.UnixMilli(1), Outbound{ID: "hidden/" + id, Sender: ByApprovals, Agent: "ops", Content: json.RawMessage(fmt.Sprintf(`{"body":%q}`, reason))})
	if err != nil {
		t.Fatal(err)
	}
	return failed
}

func progressOf(t *testing.T, s *Store, texts ...string) {
	t.Helper()
	for _, text := range texts {
		update(t, s, func(tx *Tx) error {
			_, err := tx.AddProgress("id/"+text, "ops", "wi-1", text, func(string) string { return text })
			return err
		})
	}
}

// What waits for the event of a message that has failed for good would wait for ever.
func TestNothingWaitsForWhatFailed(t *testing.T) {
	root := Outbound{ID: "root"}
	inThread := func(id string) Outbound { return Outbound{ID: id, ThreadOf: "root"} }
	gate := Outbound{ID: "gate/u/part/0", Sender: ByApprovals, ThreadOf: "root", Must: true}
	edit := func(id, of string) Outbound { return Outbound{ID: id, Replaces: of} }
	for name, tc := range map[string]struct {
		sent, unsent      []Outbound
		refused           []string
		agents, approvals []string
		dropped           []string
	}{
		"the root of a thread": {
			nil, []Outbound{root, inThread("say"), gate},
			[]string{"root"}, []string{"say@!r//"}, []string{"gate/u/part/0@!r//"}, []string{"root"},
		},
		"a message with edits": {
			nil, []Outbound{{ID: "progress"}, edit("2", "progress"), edit("3", "progress"), edit("4", "progress")},
			[]string{"progress"}, []string{"4@!r//"}, nil, []string{"progress"},
		},
		"and the edit that took its place": {
			nil, []Outbound{{ID: "progress"}, edit("2", "progress")},
			[]string{"progress", "2"}, nil, nil, []string{"2", "progress"},
		},
		"an edit": {
			[]Outbound{{ID: "progress"}}, []Outbound{edit("2", "progress"), {ID: "say"}},
			[]string{"2"}, []string{"say@!r//"}, nil, []string{"2"},
		},
		"root and progress within its thread": {
			nil, []Outbound{root, inThread("progress"), {ID: "2", ThreadOf: "root", Replaces: "progress"}},
			[]string{"root", "progress"}, []string{"2@!r//"}, nil, []string{"progress", "root"},
		},
		"a message that was to be a thread's": {
			[]Outbound{root}, []Outbound{inThread("1"), inThread("2")},
			[]string{"1"}, []string{"2@!r/$root/"}, nil, []string{"1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir)
			if err := s.SetRoom(t.Context(), "ops", "#ops:x", "!r"); err != nil {
				t.Fatal(err)
			}
			for _, o := range tc.sent {
				said(t, s, o)
				if err := s.Sent(t.Context(), o.ID, "!r", "$"+o.ID); err != nil {
					t.Fatal(err)
				}
			}
			said(t, s, tc.unsent...)
			for _, id := range tc.refused {
				if _, err := s.Sending(t.Context(), id, "!r"); err != nil {
					t.Fatal(err)
				}
				if !refuse(t, s, id) {
					t.Errorf("%s is kept", id)
				}
			}
			if err := s.Close(); err != nil { // and all of it holds when the process dies now
				t.Fatal(err)
			}
			s = open(t, dir)
			if diff := cmp.Diff(append([]string{}, tc.agents...), sayable(t, s, ByAgent("ops"))); diff != "" {
				t.Errorf("the agent: -want +got:\n%s", diff)
			}
			if diff := cmp.Diff(append([]string{}, tc.approvals...), sayable(t, s, ByApprovals)); diff != "" {
				t.Errorf("approvals: -want +got:\n%s", diff)
			}
			if diff := cmp.Diff(tc.dropped, column(t, s, "SELECT id FROM outbox WHERE state = 'failed' ORDER BY 1")); diff != "" {
				t.Errorf("failed: -want +got:\n%s", diff)
			}
			if n, err := s.Unanswered(t.Context(), ByAgent("ops")); n != len(tc.agents) || err != nil {
				t.Errorf("the door counts %d that wait (%v), want %d", n, err, len(tc.agents))
			}
		})
	}
}

// What may be let through later is tried again for a while, and nothing waits for its event meanwhile.
func TestRefusedForAWhile(t *testing.T) {
	s := open(t, t.TempDir())
	said(t, s, Outbound{ID: "root", Room: "!r"}, Outbound{ID: "edit", Replaces: "root", Room: "!r"}, Outbound{ID: "gate/u", Sender: ByApprovals, ThreadOf: "root", Must: true, Room: "!r"})
	for n := 1; n < 3; n++ {
		failed, err := s.Refused(t.Context(), "root", "M_FORBIDDEN: spam", 3, time.UnixMilli(1), Outbound{ID: "hidden/root", Sender: ByApprovals, Agent: "ops", Content: json.RawMessage(`{}`)})
		if failed || err != nil {
			t.Fatalf("failed at the %d. time (%v)", n, err)
		}
		if diff := cmp.Diff([]string{"root@!r//"}, sayable(t, s, ByAgent("ops"))); diff != "" {
			t.Errorf("the agent: -want +got:\n%s", diff)
		}
		if diff := cmp.Diff([]string{"gate/u@!r//"}, sayable(t, s, ByApprovals)); diff != "" {
			t.Errorf("approvals: -want +got:\n%s", diff)
		}
	}
	if failed, err := s.Refused(t.Context(), "root", "M_FORBIDDEN: spam", 3, time.UnixMilli(1), Outbound{}); !failed || err != nil {
		t.Errorf("kept after the last time (%v)", err)
	}
	if diff := cmp.Diff([]string{"edit@!r//"}, sayable(t, s, ByAgent("ops"))); diff != "" {
		t.Errorf("in the end: -want +got:\n%s", diff)
	}
}

// A failure in the midst of freeing leaves the message as it was, to be asked about again.
func TestFailingIsOneTransaction(t *testing.T) {
	s := open(t, t.TempDir())
	said(t, s, Outbound{ID: "root"}, Outbound{ID: "say", ThreadOf: "root"})
	if _, err := s.db.Exec("CREATE TRIGGER broken BEFORE UPDATE OF thread_of ON outbox BEGIN SELECT RAISE(ABORT, 'broken'); END"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Refused(t.Context(), "root", "no", 1, time.Now(), Outbound{}); err == nil {
		t.Fatal("no error")
	}
	if got := column(t, s, "SELECT state FROM outbox WHERE id = 'root'"); got[0] != "new" {
		t.Errorf("the root is %s, and what follows it waits", got[0])
	}
}

// A message that came back from the room before its refusal was noted stands there: its thread and its edits stay its own.
func TestRefusedButSeen(t *testing.T) {
	s := open(t, t.TempDir())
	said(t, s, Outbound{ID: "root", Room: "!r"})
	if err := s.Sent(t.Context(), "root", "!r", "$root"); err != nil {
		t.Fatal(err)
	}
	said(t, s, Outbound{ID: "say", ThreadOf: "root"}, Outbound{ID: "edit", Replaces: "root", Room: "!r"})
	if refuse(t, s, "root") {
		t.Error("what stands in the room has failed")
	}
	if diff := cmp.Diff([]string{"say@!r/$root/", "edit@!r//$root"}, sayable(t, s, ByAgent("ops"))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// The thread of an item whose root failed is no thread: what comes later stands outside as well.
func TestThreadWithoutRoot(t *testing.T) {
	s := open(t, t.TempDir())
	said(t, s, Outbound{ID: "root", Room: "!r"})
	update(t, s, func(tx *Tx) error { return tx.AddThread(Thread{WorkItem: "wi-1", Agent: "ops", RootOf: "root"}) })
	if _, err := s.Sending(t.Context(), "root", "!r"); err != nil {
		t.Fatal(err)
	}
	said(t, s, Outbound{ID: "gate", Sender: ByApprovals, ThreadOf: "root"})
	changed := s.Changed(TopicOutbox(ByApprovals))
	refuse(t, s, "root")
	select {
	case <-changed:
	default:
		t.Error("nobody told the approvals account that it can show the gate")
	}
	got, ok, err := s.Thread(t.Context(), "wi-1")
	if diff := cmp.Diff(Thread{WorkItem: "wi-1", Agent: "ops", Room: "!r"}, got); diff != "" || !ok || err != nil {
		t.Errorf("%v, %v\n%s", ok, err, diff)
	}
}

// Progress goes on in the message that took the refused one's place, or in a new one.
func TestProgressAfterRefusal(t *testing.T) {
	for name, tc := range map[string]struct {
		edits []string
		want  string
	}{
		"edited meanwhile": {[]string{"2", "3"}, "3"},
		"not yet edited":   {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, t.TempDir())
			progressOf(t, s, "a")
			said(t, s, Outbound{ID: "first"})
			update(t, s, func(tx *Tx) error { return tx.ProgressShown("wi-1", 1, "first", time.Now()) })
			for _, e := range tc.edits {
				said(t, s, Outbound{ID: e, Replaces: "first"})
			}
			refuse(t, s, "first")
			progressOf(t, s, "b")
			stale, err := s.Stale(t.Context())
			if err != nil || len(stale) != 1 || stale[0].Message != tc.want {
				t.Errorf("edits go to %+v, %v, want %q", stale, err, tc.want)
			}
		})
	}
}

// An edit that is made after its message has failed is a message of its own.
func TestEditOfWhatFailed(t *testing.T) {
	s := open(t, t.TempDir())
	said(t, s, Outbound{ID: "part", Room: "!r"})
	refuse(t, s, "part")
	end := Outbound{ID: "end", Room: "!r", Replaces: "part"}
	said(t, s, end, end)
	if diff := cmp.Diff([]string{"end@!r//"}, sayable(t, s, ByAgent("ops"))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// What must be read is kept and told of; once nobody needs it any more it may fail, and what edits it stands for it.
func TestWhatMustBeRead(t *testing.T) {
	s := open(t, t.TempDir())
	said(t, s, Outbound{ID: "gate/u/part/0", Sender: ByApprovals, Room: "!r", Must: true}, Outbound{ID: "gate/x/part/0", Sender: ByApprovals, Room: "!r", Must: true})
	hidden := func(want int) {
		t.Helper()
		if n, reason, err := s.Hidden(t.Context(), "ops"); n != want || (n > 0) != (reason != "") || err != nil {
			t.Errorf("%d are hidden (%q), %v; want %d", n, reason, err, want)
		}
	}
	hidden(0)
	for n := range 3 {
		if ok, err := s.Sending(t.Context(), "gate/u/part/0", "!r"); !ok || err != nil {
			t.Fatalf("refusal %d: it is in doubt whether the room has it, %v", n, err)
		}
		if refuse(t, s, "gate/u/part/0") {
			t.Fatal("a gate's message has failed for good")
		}
		hidden(1)
		want := []string{"gate/u/part/0@!r//", "gate/x/part/0@!r//"}
		if n > 0 {
			want = append(want, "hidden/gate/u/part/0") // told once
		}
		got := column(t, s, "SELECT CASE WHEN room = '' THEN id ELSE id || '@' || room || '//' END FROM outbox ORDER BY seq")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("refusal %d: -want +got:\n%s", n, diff)
		}
	}
	all, err := s.Unsent(t.Context(), ByApprovals)
	if err != nil || all[0].Refusals != 3 || !all[0].NotBefore.Equal(time.UnixMilli(1)) {
		t.Errorf("%+v, %v", all, err)
	}
	update(t, s, func(tx *Tx) error { return errors.Join(tx.Release("gate/u/part/"), tx.Release("gate/u/part/")) })
	hidden(0)
	if refuse(t, s, "gate/x/part/0") {
		t.Error("another gate was released")
	}
	said(t, s, Outbound{ID: "gate/u/end", Sender: ByApprovals, Room: "!r", Replaces: "gate/u/part/0"})
	if !refuse(t, s, "gate/u/part/0") {
		t.Error("the message of a gate that has ended is kept")
	}
	if got := sayable(t, s, ByApprovals); !cmp.Equal(got, []string{"gate/x/part/0@!r//", "gate/u/end@!r//"}) {
		t.Errorf("%v", got)
	}
}

// Where a message of which nobody knows whether it was taken is looked for does not change by what is sent after it was tried, though
// that comes earlier in the outbox: refused before, or held up by another account's message.
func TestWhereToLook(t *testing.T) {
	s := open(t, t.TempDir())
	must := func(id string) Outbound { return Outbound{ID: id, Sender: ByApprovals, Room: "!r", Must: true} }
	try := func(id, room, after string) {
		t.Helper()
		if ok, err := s.Sending(t.Context(), id, room); !ok || err != nil {
			t.Fatalf("%s: %t, %v", id, ok, err)
		}
		all, err := s.Unsent(t.Context(), ByApprovals)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range all {
			if o.ID == id && (o.After != after || !o.Sending) {
				t.Errorf("%s is looked for after %q (%t), want %q", id, o.After, o.Sending, after)
			}
		}
	}
	sent := func(id, room string) {
		t.Helper()
		if err := s.Sent(t.Context(), id, room, "$"+id); err != nil {
			t.Fatal(err)
		}
	}
	said(t, s, must("first"), must("refused"), must("tried"), Outbound{ID: "elsewhere", Sender: ByApprovals, Room: "!other"}, must("last"))
	try("first", "!r", "")
	sent("first", "!r")
	try("refused", "!r", "$first")
	refuse(t, s, "refused")
	try("elsewhere", "!other", "")
	sent("elsewhere", "!other")
	try("tried", "!r", "$first")
	try("refused", "!r", "$first")
	sent("refused", "!r")
	all, err := s.Unsent(t.Context(), ByApprovals)
	if err != nil || all[0].ID != "tried" || all[0].After != "$first" {
		t.Errorf("%+v, %v", all, err)
	}
	try("last", "!r", "$refused")
	refuse(t, s, "last")
	sent("tried", "!r")
	try("last", "!r", "$tried") // each attempt after a refusal is the first again
}

// What waits for its time does not keep others from being read.
func TestLaterComesLast(t *testing.T) {
	s := open(t, t.TempDir())
	said(t, s, Outbound{ID: "1", Room: "!r", Must: true}, Outbound{ID: "2", Room: "!r"})
	if _, err := s.Refused(t.Context(), "1", "no", 1, time.Now().Add(time.Hour), Outbound{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"2@!r//", "1@!r//"}, sayable(t, s, ByAgent("ops"))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// ofBefore makes a store as an earlier version left it.
func ofBefore(t *testing.T, dir string, version int, with string) {
	t.Helper()
	old, err := sql.Open("sqlite", "file:"+filepath.Join(dir, fileName))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := old.Exec(strings.Join(migrations[:version], ";") + fmt.Sprintf("; PRAGMA user_version = %d;", version) + with); err != nil {
		t.Fatal(err)
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
}

// A store of before, in which it was not noted where to look for what was being sent.
func TestOldStoreKnowsWhereToLook(t *testing.T) {
	dir := t.TempDir()
	ofBefore(t, dir, 6, `
		INSERT INTO outbox(id, sender, agent, work_item, room, thread, thread_of, reply_to, replaces, content, digest, state, sent_room, event_id, at, refusals)
		SELECT value->>0, value->>1, 'ops', '', '!r', '', '', '', '', '{}', '', value->>2, value->>3, value->>4, 1, value->>5 FROM json_each('[
			["a", "approvals", "sent", "!r", "$a", 0],
			["b", "approvals", "sent", "!other", "$b", 0],
			["c", "agent/ops", "sent", "!r", "$c", 0],
			["d", "approvals", "sent", "!r", "$d", 1],
			["e", "approvals", "sending", "!r", "", 0],
			["f", "approvals", "sent", "!r", "$f", 0],
			["g", "approvals", "new", "", "", 0]
		]')`)
	s := open(t, dir)
	if diff := cmp.Diff([]string{"e $a", "g "}, column(t, s, "SELECT id || ' ' || sent_after FROM outbox WHERE state IN ('new', 'sending') ORDER BY id")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A store of before in which messages wait for some that have failed: opening it frees them.
func TestOldStoreIsFreed(t *testing.T) {
	dir := t.TempDir()
	ofBefore(t, dir, 2, `
		INSERT INTO rooms(agent, wanted, room) VALUES('ops', '#ops:x', '!r');
		INSERT INTO threads(work_item, agent, room, root, root_of) VALUES('lost', 'ops', '', '', 'root/lost'), ('well', 'ops', '!r', '$well', 'root/well');
		INSERT INTO progress(work_item, agent, text, version, shown, shown_at) VALUES('lost', 'ops', 't', 9, 4, 1), ('well', 'ops', 't', 9, 4, 1), ('none', 'ops', 't', 1, 0, 0);
		INSERT INTO outbox(id, sender, agent, work_item, room, thread, thread_of, reply_to, replaces, content, digest, state, sent_room, event_id, at)
		SELECT value->>0, value->>1, 'ops', value->>2, '', '', value->>3, '', value->>4, '{}', '', value->>5, '!was', value->>6, 1 FROM json_each('[
			["root/lost", "agent/ops", "lost", "", "", "failed", ""],
			["progress/lost", "agent/ops", "lost", "root/lost", "", "failed", ""],
			["progress/lost/2", "agent/ops", "lost", "root/lost", "progress/lost", "new", ""],
			["progress/lost/4", "agent/ops", "lost", "root/lost", "progress/lost", "new", ""],
			["say/ops/1", "agent/ops", "lost", "root/lost", "", "new", ""],
			["gate/waits/part/0", "approvals", "lost", "root/lost", "", "new", ""],
			["gate/open/part/0", "approvals", "well", "", "", "failed", ""],
			["gate/over/part/0", "approvals", "well", "", "", "failed", ""],
			["gate/over/end", "approvals", "well", "", "gate/over/part/0", "new", ""],
			["gate/said/part/0", "approvals", "well", "", "", "sent", "$said"],
			["progress/well", "agent/ops", "well", "", "", "sent", "$p"],
			["progress/well/4", "agent/ops", "well", "", "progress/well", "new", ""]
		]')`)
	s := open(t, dir)
	if diff := cmp.Diff([]string{"progress/lost/4@!was//", "say/ops/1@!was//", "progress/well/4@!r//$p"}, sayable(t, s, ByAgent("ops"))); diff != "" {
		t.Errorf("the agent: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"gate/waits/part/0@!was//", "gate/open/part/0@!r//", "gate/over/end@!r//"}, sayable(t, s, ByApprovals)); diff != "" {
		t.Errorf("approvals: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"gate/open/part/0 1 new", "gate/waits/part/0 0 new"}, column(t, s, "SELECT id || ' ' || refusals || ' ' || state FROM outbox WHERE must = 1 ORDER BY id")); diff != "" {
		t.Errorf("must be read: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"lost progress/lost/4", "none ", "well progress/well"}, column(t, s, "SELECT work_item || ' ' || message FROM progress ORDER BY 1")); diff != "" {
		t.Errorf("progress: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"lost !was  ", "well !r $well root/well"}, column(t, s, "SELECT work_item || ' ' || room || ' ' || root || ' ' || root_of FROM threads ORDER BY 1")); diff != "" {
		t.Errorf("threads: -want +got:\n%s", diff)
	}
}
