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
	left := map[string][]string{}
	for _, q := range []string{"SELECT 'inbox', event_id FROM inbox", "SELECT 'outbox', id FROM outbox", "SELECT 'threads', work_item FROM threads", "SELECT 'mailbox', seq FROM mailbox"} {
		rows, err := s.db.Query(q + " ORDER BY 2")
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			var table, id string
			if err := rows.Scan(&table, &id); err != nil {
				t.Fatal(err)
			}
			left[table] = append(left[table], id)
		}
		if err := rows.Close(); err != nil {
			t.Fatal(err)
		}
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
