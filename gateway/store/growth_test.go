package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// size of a store's pages, those that wait to be used again included.
func size(t *testing.T, s *Store) (used int) {
	t.Helper()
	if err := s.db.QueryRow("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").Scan(&used); err != nil {
		t.Fatal(err)
	}
	return used
}

// What stands in the room is not kept here as well.
func TestWordsAreForgottenOnceSaid(t *testing.T) {
	s := open(t, t.TempDir())
	said(t, s, Outbound{ID: "sent"}, Outbound{ID: "refused"}, Outbound{ID: "waits"})
	if err := s.Sent(t.Context(), "sent", "!r", "$sent"); err != nil {
		t.Fatal(err)
	}
	refuse(t, s, "refused")
	if diff := cmp.Diff([]string{"sent:", "refused:", `waits:{"body":"x"}`}, column(t, s, "SELECT id || ':' || content FROM outbox ORDER BY seq")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	// It is the same message as before all the same.
	said(t, s, Outbound{ID: "sent"})
	err := s.Update(t.Context(), func(tx *Tx) error {
		return tx.Send(Outbound{ID: "sent", Sender: ByAgent("ops"), Agent: "ops", WorkItem: "wi-1", Content: json.RawMessage(`{"body":"y"}`)})
	})
	if !errors.Is(err, ErrConflict) {
		t.Errorf("other words: %v", err)
	}
}

// Of the edits of a message those are kept that something still hangs on.
func TestNewerEditsTakeThePlaceOfOlder(t *testing.T) {
	edit := func(id string) Outbound { return Outbound{ID: id, Replaces: "p"} }
	for name, tc := range map[string]struct {
		unsent []Outbound
		do     map[string]string // what becomes of some, in the order of their IDs
		then   []Outbound
		want   []string
	}{
		"one that was sent":                  {[]Outbound{edit("1")}, map[string]string{"1": "sent"}, []Outbound{edit("2")}, []string{"p", "2 sent"}},
		"one that was refused":               {[]Outbound{edit("1")}, map[string]string{"1": "refused"}, []Outbound{edit("2")}, []string{"p", "2 sent"}},
		"one that waits":                     {[]Outbound{edit("1")}, nil, []Outbound{edit("2")}, []string{"p", "2 sent"}},
		"one that may be on its way":         {[]Outbound{edit("1")}, map[string]string{"1": "sending"}, []Outbound{edit("2")}, []string{"p", "1 sending", "2 sent"}},
		"one before what may be on its way":  {[]Outbound{edit("1"), {ID: "2"}}, map[string]string{"1": "sent", "2": "sending"}, []Outbound{edit("3")}, []string{"p", "1 sent", "2 sending", "3 sent"}},
		"one behind what may be on its way":  {[]Outbound{{ID: "1"}, edit("2")}, map[string]string{"1": "sending", "2": "sent"}, []Outbound{edit("3")}, []string{"p", "1 sending", "3 sent"}},
		"another's that may be on its way":   {[]Outbound{edit("1"), {ID: "2", Sender: "b"}}, map[string]string{"1": "sent", "2": "sending"}, []Outbound{edit("3")}, []string{"p", "2 sending", "3 sent"}},
		"an edit of another message":         {[]Outbound{edit("1")}, map[string]string{"1": "sent"}, []Outbound{{ID: "2", Replaces: "q"}}, []string{"p", "1 sent", "2 sent"}},
		"a message is not taken for an edit": {[]Outbound{{ID: "1"}}, map[string]string{"1": "sent"}, []Outbound{{ID: "2"}}, []string{"p", "1 sent", "2 sent"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, t.TempDir())
			send := func(id string) {
				t.Helper()
				if err := s.Sent(t.Context(), id, "!r", "$"+id); err != nil {
					t.Fatal(err)
				}
			}
			said(t, s, Outbound{ID: "q"}, Outbound{ID: "p"})
			send("q")
			send("p")
			said(t, s, tc.unsent...)
			for _, o := range tc.unsent {
				switch tc.do[o.ID] {
				case "sent":
					send(o.ID)
				case "refused":
					refuse(t, s, o.ID)
				case "sending":
					if ok, err := s.Sending(t.Context(), o.ID, "!r"); !ok || err != nil {
						t.Fatal(ok, err)
					}
				}
			}
			said(t, s, tc.then...)
			if tc.do == nil {
				if ok, err := s.Sending(t.Context(), "1", "!r"); ok || err != nil {
					t.Errorf("an edit that is gone is to be sent: %t, %v", ok, err)
				}
			}
			for _, o := range tc.then {
				send(o.ID)
			}
			got := column(t, s, "SELECT CASE id WHEN 'p' THEN id ELSE id || ' ' || state END FROM outbox WHERE id <> 'q' ORDER BY seq")
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// lines of progress, in one transaction.
func lines(t *testing.T, s *Store, agent string, from, to int) {
	t.Helper()
	text := strings.Repeat("x", 300)
	update(t, s, func(tx *Tx) error {
		for n := from; n < to; n++ {
			if _, err := tx.AddProgress(fmt.Sprintf("progress/%s/01JDZ8Q2V5T3C9%012d", agent, n), agent, "wi-"+agent, text+fmt.Sprint(n), func(string) string { return strings.Repeat(text, 30) }); err != nil {
				return err
			}
		}
		return nil
	})
}

// The newest lines of each agent are known again.
func TestLinesAreKnownForAWhile(t *testing.T) {
	s := open(t, t.TempDir())
	lines(t, s, "dev", 0, 1)
	lines(t, s, "ops", 0, keepIDs+1)
	version := func() string { return column(t, s, "SELECT group_concat(version) FROM progress ORDER BY agent")[0] }
	before := version()
	lines(t, s, "dev", 0, 1)
	lines(t, s, "ops", 1, keepIDs+1)
	if got := version(); got != before {
		t.Errorf("lines that came again were taken: versions %s, before %s", got, before)
	}
	lines(t, s, "ops", 0, 1)
	if got := version(); got == before {
		t.Error("the oldest line is known still, so this showed nothing")
	}
	if err := s.Prune(t.Context(), time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if left := column(t, s, "SELECT id FROM progress_ids"); len(left) != 0 {
		t.Errorf("%d IDs outlive everything else", len(left))
	}
}

// An honest agent that writes a line each second, shown every 15 s, takes no more room in its second hour than in its first, nor ever.
func TestALineASecondTakesNoMoreRoom(t *testing.T) {
	const most = 1 << 20 // docs/conversation.md
	s := open(t, t.TempDir())
	words := json.RawMessage(`{"body":"` + strings.Repeat("x", 24<<10) + `"}`)
	said(t, s, Outbound{ID: "progress/wi-ops"})
	if err := s.Sent(t.Context(), "progress/wi-ops", "!r", "$0"); err != nil {
		t.Fatal(err)
	}
	second := 0
	hour := func() int {
		for end := second + 3600; second < end; second += 15 {
			lines(t, s, "ops", second, second+15)
			id := fmt.Sprintf("progress/wi-ops/%d", second+15)
			update(t, s, func(tx *Tx) error {
				return tx.Send(Outbound{ID: id, Sender: ByAgent("ops"), Agent: "ops", WorkItem: "wi-ops", Replaces: "progress/wi-ops", Content: words})
			})
			if err := s.Sent(t.Context(), id, "!r", "$"+id); err != nil {
				t.Fatal(err)
			}
		}
		return size(t, s)
	}
	first, then := hour(), hour()
	if then > first || then > most {
		t.Errorf("%d bytes after an hour, %d after two; the document says %d at most", first, then, most)
	}
	t.Logf("%d bytes", then)
	if info, err := os.Stat(filepath.Join(s.dir, fileName+"-wal")); err != nil || info.Size() > walBytes {
		t.Errorf("the log beside the file has %d bytes, %v", info.Size(), err)
	}
}

// However much a pod says, what is kept of it is bounded, and room that was given up is used again.
func TestWhatAPodSaysIsBounded(t *testing.T) {
	const perMessage = 1 << 10 // docs/conversation.md
	s := open(t, t.TempDir())
	empty := size(t, s)
	flood := func(from, to int) {
		t.Helper()
		update(t, s, func(tx *Tx) error {
			for n := from; n < to; n++ {
				// The longest ID that the door takes, and events, rooms and names as homeservers and clusters make them.
				id := "say/ops/" + strings.Repeat("i", 118) + fmt.Sprintf("%010d", n)
				o := Outbound{ID: id, Sender: ByAgent("ops"), Agent: "ops", WorkItem: "wi-01jdz8q2v5t3c9m4n6p7r8s9t0", Room: "!abcdefghijklmnopqr:example.org",
					Thread: "$0123456789012345678901234567890123456789012", Content: json.RawMessage(`{"body":"x"}`)}
				if err := tx.Send(o); err != nil {
					return err
				}
				if err := tx.Sent(id, o.Room, fmt.Sprintf("$%043d", n)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	prune := func() {
		t.Helper()
		if err := s.Prune(t.Context(), time.Now().Add(-Keep)); err != nil {
			t.Fatal(err)
		}
		if n := column(t, s, "SELECT COUNT(*) FROM outbox WHERE id LIKE 'say/%'")[0]; n != fmt.Sprint(keepSaid) {
			t.Errorf("%s messages are kept, want %d", n, keepSaid)
		}
	}
	said(t, s, Outbound{ID: "root/wi-1"}) // older than all of it
	if err := s.Sent(t.Context(), "root/wi-1", "!r", "$root"); err != nil {
		t.Fatal(err)
	}
	flood(0, keepSaid+5000)
	full := size(t, s)
	if each := (full - empty) / (keepSaid + 5000); each > perMessage {
		t.Errorf("a message takes %d bytes; the document says %d at most", each, perMessage)
	}
	prune()
	flood(keepSaid+5000, keepSaid+10000)
	prune()
	if now := size(t, s); now > full+full/20 {
		t.Errorf("%d bytes, before %d: what was deleted is not used again", now, full)
	}
	if root := column(t, s, "SELECT id FROM outbox WHERE id LIKE 'root/%'"); len(root) != 1 {
		t.Error("the root of a thread was forgotten")
	}
}

// A store of before, full of what is not needed any more.
func TestOldStoreIsRelieved(t *testing.T) {
	dir := t.TempDir()
	ofBefore(t, dir, 3, `
		INSERT INTO outbox(id, sender, agent, work_item, room, thread, thread_of, reply_to, replaces, content, digest, state, event_id, at)
		SELECT value->>0, 'agent/ops', 'ops', 'wi', '!r', '', '', '', value->>1, 'words', '', value->>2, value->>3, 1 FROM json_each('[
			["progress/wi", "", "sent", "$p"],
			["progress/wi/2", "progress/wi", "sent", "$2"],
			["progress/wi/3", "progress/wi", "failed", ""],
			["progress/wi/4", "progress/wi", "sent", "$4"],
			["progress/wi/5", "progress/wi", "new", ""],
			["say/ops/1", "", "new", ""]
		]');
		WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 1500)
		INSERT INTO progress_ids(id, digest) SELECT 'progress/ops/' || n, '' FROM n UNION ALL SELECT 'progress/dev/1', '';`)
	s := open(t, dir)
	want := []string{"progress/wi:", "progress/wi/4:", "progress/wi/5:words", "say/ops/1:words"}
	if diff := cmp.Diff(want, column(t, s, "SELECT id || ':' || content FROM outbox ORDER BY seq")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"dev 1 progress/dev/1", "ops 1000 progress/ops/501"}, column(t, s, "SELECT agent || ' ' || COUNT(*) || ' ' || id FROM progress_ids GROUP BY agent HAVING MIN(rowid) ORDER BY agent")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
