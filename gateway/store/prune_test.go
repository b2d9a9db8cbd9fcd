package store

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"nisse.io/nisse/gateway/routing"
)

func TestPrune(t *testing.T) {
	s := open(t, t.TempDir())
	now := time.Now()
	old := now.Add(-time.Hour)
	words := func(event, item string, at time.Time) Inbound {
		return Inbound{EventID: event, Agent: "ops", At: at, Raw: json.RawMessage(`{}`), Route: routing.Route{Kind: routing.Words, WorkItem: item}}
	}
	update(t, s, func(tx *Tx) error {
		for _, m := range []Inbound{words("$done", "over", old), words("$waits", "busy", old), words("$recent", "busy", now)} {
			if _, err := tx.AddInbound(m); err != nil {
				return err
			}
		}
		for n, item := range []string{"over", "busy"} {
			if err := tx.AddThread(Thread{WorkItem: item, Agent: "ops", Root: "$root" + item}); err != nil {
				return err
			}
			if err := tx.AddLetter(Letter{Agent: "ops", EventID: fmt.Sprint(n), WorkItem: item, At: old}); err != nil {
				return err
			}
			if err := tx.Send(Outbound{ID: "said/" + item, Sender: "a", WorkItem: item, Content: json.RawMessage(`{}`)}); err != nil {
				return err
			}
			if err := tx.Sent("said/"+item, "!r", "$said"+item); err != nil {
				return err
			}
		}
		if err := tx.Finish("$done", ""); err != nil {
			return err
		}
		if err := tx.exec("UPDATE outbox SET at = ?", old.UnixMilli()); err != nil {
			return err
		}
		return tx.Send(Outbound{ID: "to say", Sender: "a", WorkItem: "busy", Content: json.RawMessage(`{}`)})
	})
	if err := s.Ack(t.Context(), "ops", 2); err != nil {
		t.Fatal(err)
	}
	if err := s.Prune(t.Context(), now.Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
	left := map[string][]string{
		"inbox": column(t, s, "SELECT event_id FROM inbox ORDER BY 1"), "outbox": column(t, s, "SELECT id FROM outbox ORDER BY 1"),
		"threads": column(t, s, "SELECT work_item FROM threads ORDER BY 1"), "mailbox": column(t, s, "SELECT seq FROM mailbox ORDER BY 1"),
	}
	want := map[string][]string{
		"inbox": {"$recent", "$waits"}, "outbox": {"said/busy", "to say"}, "threads": {"busy"}, "mailbox": {"2"},
	}
	if diff := cmp.Diff(want, left); diff != "" {
		t.Errorf("-want +left:\n%s", diff)
	}
	// Numbers go on where they were.
	update(t, s, func(tx *Tx) error {
		return tx.AddLetter(Letter{Agent: "ops", EventID: "next", WorkItem: "busy", At: now})
	})
	if got, err := s.Letters(t.Context(), "ops", 2, 10); err != nil || len(got) != 1 || got[0].Seq != 3 {
		t.Errorf("letters %+v, %v", got, err)
	}
}

func column(t *testing.T, s *Store, query string) []string {
	t.Helper()
	rows, err := s.db.Query(query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var v string
		if err := rows.Scan(&v); err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
