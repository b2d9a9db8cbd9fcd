package eventlog_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"nisse.io/nisse/agentruntime/event"
	"nisse.io/nisse/agentruntime/eventlog"
	"nisse.io/nisse/internal/telemetry"
)

func open(t *testing.T, dir string) *eventlog.Log {
	t.Helper()
	l, err := eventlog.Open(t.Context(), dir, "ops", time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func words(source, text string) event.New {
	return event.New{WorkItem: "wi-1", Type: event.UserMessage, Source: source, Payload: event.Words{Text: text, Origin: event.Person}}
}

func sources(t *testing.T, l *eventlog.Log) (out []string) {
	t.Helper()
	if err := l.Each(t.Context(), func(e event.Event) error { out = append(out, e.Source); return nil }); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestASourceIsInTheLogOnceAndSurvivesReopening(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	id := l.ID()
	for range 2 {
		if _, err := l.Commit(t.Context(), eventlog.Write{
			Events: []event.New{words("matrix/$a", "one"), words("matrix/$b", "two")},
			Say:    []event.Outgoing{{ID: "o1", WorkItem: "wi-1", Kind: "say", Text: "hello"}},
			Begin:  &eventlog.Intent{ID: "call_1", Kind: eventlog.KindCall, WorkItem: "wi-1", Subject: "fs_read"},
			Cursor: &eventlog.Cursor{Epoch: "e1", Seq: 7},
		}); err != nil {
			t.Fatal(err)
		}
	}
	added, err := l.Commit(t.Context(), eventlog.Write{Events: []event.New{words("matrix/$b", "two"), words("matrix/$c", "three")}})
	if err != nil || len(added) != 1 || added[0].Seq != 3 {
		t.Fatalf("added %v, %v; want only the new one, as number 3", added, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}

	l = open(t, dir)
	defer l.Close()
	if l.ID() != id || id == "" {
		t.Errorf("the log's ID was %q and is %q", id, l.ID())
	}
	if diff := cmp.Diff([]string{"matrix/$a", "matrix/$b", "matrix/$c"}, sources(t, l)); diff != "" {
		t.Error(diff)
	}
	intents, err := l.Intents(t.Context())
	if diff := cmp.Diff([]eventlog.Intent{{ID: "call_1", Kind: eventlog.KindCall, WorkItem: "wi-1", Subject: "fs_read"}}, intents); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if c, err := l.InboxCursor(t.Context()); err != nil || c != (eventlog.Cursor{Epoch: "e1", Seq: 7}) {
		t.Errorf("cursor %v, %v", c, err)
	}
	o, ok, err := l.NextOut(t.Context())
	if err != nil || !ok || o.Text != "hello" {
		t.Fatalf("outbox %v %v %v", o, ok, err)
	}
	if err := l.Delivered(t.Context(), o, nil); err != nil {
		t.Fatal(err)
	}
	if _, ok, _ := l.NextOut(t.Context()); ok {
		t.Error("a delivered message is offered again")
	}
	if _, err := l.Commit(t.Context(), eventlog.Write{Settle: "call_1"}); err != nil {
		t.Fatal(err)
	}
	if left, _ := l.Intents(t.Context()); len(left) != 0 {
		t.Errorf("open intents after settling: %v", left)
	}
}

func TestStoringDoesNotDependOnTheCaller(t *testing.T) {
	l := open(t, t.TempDir())
	defer l.Close()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Commit(gone, eventlog.Write{Events: []event.New{words("result/1", "done")}}); err != nil {
		t.Fatal(err)
	}
	if got := sources(t, l); len(got) != 1 {
		t.Errorf("log holds %v", got)
	}
}

func TestAHalfWriteLeavesNothing(t *testing.T) {
	l := open(t, t.TempDir())
	defer l.Close()
	_, err := l.Commit(t.Context(), eventlog.Write{
		Events: []event.New{words("matrix/$a", "one"), {WorkItem: "wi-1", Type: "made_up", Source: "x"}},
		Say:    []event.Outgoing{{ID: "o1", Kind: "say"}},
	})
	if err == nil {
		t.Fatal("an event of an unknown type was taken")
	}
	if got := sources(t, l); len(got) != 0 {
		t.Errorf("log holds %v", got)
	}
	if _, err := l.Commit(t.Context(), eventlog.Write{Events: []event.New{words("matrix/$a", "one")}}); err != nil {
		t.Errorf("the log cannot be written after a refused write: %v", err)
	}
}

func TestASecondProcessIsRefused(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir)
	defer l.Close()
	_, err := eventlog.Open(t.Context(), dir, "ops", time.Now, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("second open: %v", err)
	}
}

func TestDamageIsFoundAndToldApart(t *testing.T) {
	tests := map[string]struct {
		damage, want string
	}{
		"edited text":         {`UPDATE events SET payload = replace(payload, 'two', 'TWO') WHERE seq = 2`, "event 2 was changed"},
		"edited time":         {`UPDATE events SET at = '2001-01-01T00:00:00Z' WHERE seq = 2`, "event 2 was changed"},
		"moved to other work": {`UPDATE events SET work_item = 'wi-2' WHERE seq = 2`, "event 2 was changed"},
		"lost in the middle":  {`DELETE FROM events WHERE seq = 2`, "events 2 to 2 are missing"},
		"lost at the end":     {`DELETE FROM events WHERE seq = 3`, "should end with event 3 and ends with 2"},
		"two rows swapped":    {`UPDATE events SET seq = -1 WHERE seq = 2; UPDATE events SET seq = 2 WHERE seq = 3; UPDATE events SET seq = 3 WHERE seq = -1`, "does not follow"},
		"a newer program":     {`PRAGMA user_version = 99`, "run the newer program"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			l := open(t, dir)
			for i, w := range []string{"one", "two", "three"} {
				if _, err := l.Commit(t.Context(), eventlog.Write{Events: []event.New{words(fmt.Sprintf("matrix/$%d", i), w)}}); err != nil {
					t.Fatal(err)
				}
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			db, err := sql.Open("sqlite", filepath.Join(dir, "events.db"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := db.Exec(tt.damage); err != nil {
				t.Fatal(err)
			}
			_ = db.Close()
			_, err = eventlog.Open(t.Context(), dir, "ops", time.Now, slog.New(slog.DiscardHandler))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %v, want an error with %q", err, tt.want)
			}
			if broken := errors.Is(err, eventlog.ErrBroken); broken == (name == "a newer program") {
				t.Errorf("ErrBroken: %v", broken)
			}
		})
	}
}

func TestEachDurableChangeIsOneLogLine(t *testing.T) {
	var b bytes.Buffer
	l, err := eventlog.Open(t.Context(), t.TempDir(), "ops", time.Now, telemetry.New(&b, "agentruntime", slog.LevelInfo))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.Correlate("wi-1", "corr-1")
	b.Reset()
	if _, err := l.Commit(t.Context(), eventlog.Write{
		Cause: "$a", Events: []event.New{words("matrix/$a", "a secret")}, Say: []event.Outgoing{{ID: "o1", WorkItem: "wi-1", Kind: "say", Text: "x"}},
		Begin: &eventlog.Intent{ID: "i1", Kind: eventlog.KindAsk, WorkItem: "wi-1"}, Settle: "i1",
	}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	for i, want := range []string{"event.appended", "words.queued", "intent.begun", "intent.settled"} {
		if i >= len(lines) || !strings.Contains(lines[i], `"event":"`+want+`"`) || !strings.Contains(lines[i], `"task_id":"corr-1"`) || !strings.Contains(lines[i], `"cause":"$a"`) {
			t.Errorf("line %d of %v, want %s with task_id and cause", i, lines, want)
		}
	}
	if strings.Contains(b.String(), "secret") {
		t.Error("what people said is in the log lines")
	}
}
