package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"nisse.io/nisse/gateway/metrics"
)

// leave so many more pages for the file.
func leave(t *testing.T, s *Store, pages int) {
	t.Helper()
	var now int
	if err := s.db.QueryRow("PRAGMA page_count").Scan(&now); err != nil {
		t.Fatal(err)
	}
	if _, err := s.db.Exec(fmt.Sprintf("PRAGMA max_page_count = %d", now+pages)); err != nil {
		t.Fatal(err)
	}
}

// A volume that is full: what was taken is there, nothing is taken by half, the error says what it is, and it goes on by itself once there is
// room, or once something was pruned.
func TestFullVolume(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	var taken []string
	send := func(id string) error {
		err := s.Update(t.Context(), func(tx *Tx) error {
			for _, part := range []string{"", "#1"} {
				if err := tx.Send(Outbound{ID: id + part, Sender: "a", Agent: "ops", Room: "!r", Content: json.RawMessage(`{"body":"` + strings.Repeat("x", 2000) + `"}`)}); err != nil {
					return err
				}
			}
			return nil
		})
		if err == nil {
			taken = append(taken, id, id+"#1")
		}
		return err
	}
	whole := func() {
		t.Helper()
		if diff := cmp.Diff(taken, column(t, s, "SELECT id FROM outbox ORDER BY seq")); diff != "" {
			t.Fatalf("-taken +there:\n%s", diff)
		}
		if ok := column(t, s, "PRAGMA integrity_check"); ok[0] != "ok" {
			t.Fatalf("%v", ok)
		}
	}
	fill := func() {
		t.Helper()
		leave(t, s, 20)
		counted := testutil.ToFloat64(metrics.StoreFull)
		var err error
		for n := 0; err == nil && n < 1000; n++ {
			err = send(fmt.Sprintf("%d/%d", len(taken), n))
		}
		if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "make it larger") {
			t.Fatalf("the error is %v", err)
		}
		if testutil.ToFloat64(metrics.StoreFull) == counted {
			t.Error("nobody counted it")
		}
		whole()
	}
	fill()
	if err := send("still full"); !errors.Is(err, ErrFull) {
		t.Fatalf("the error is %v", err)
	}
	leave(t, s, 100)
	if err := send("room again"); err != nil {
		t.Fatal(err)
	}
	fill()

	// What was said makes room by being said, and by being pruned.
	for _, id := range taken[:40] {
		if err := s.Sent(t.Context(), id, "!r", "$"+id); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Prune(t.Context(), time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	taken = taken[40:]
	if err := send("where others were"); err != nil {
		t.Fatal(err)
	}
	whole()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	whole()
}

func TestSpace(t *testing.T) {
	s := open(t, t.TempDir())
	for range 50 {
		update(t, s, func(tx *Tx) error {
			return tx.Send(Outbound{ID: fmt.Sprint(time.Now().UnixNano()), Sender: "a", Content: json.RawMessage(strings.Repeat("x", 20000))})
		})
	}
	before, err := s.Space(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var files int64
	for _, name := range []string{fileName, fileName + "-wal"} {
		info, err := os.Stat(filepath.Join(s.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		files += info.Size()
	}
	if before.Files < 50*20000 || before.Files < files/2 || before.Reusable != 0 || before.Free <= 0 {
		t.Errorf("%+v, where the files have %d bytes", before, files)
	}
	if _, err := s.db.Exec("DELETE FROM outbox"); err != nil {
		t.Fatal(err)
	}
	after, err := s.Space(t.Context())
	if err != nil || after.Reusable < 40*20000 {
		t.Errorf("%+v, %v", after, err)
	}
}

// loglines is where a log writes to.
type loglines chan string

func (l loglines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// A store that cannot be pruned now is no reason to end the gateway.
func TestHousekeepingGoesOn(t *testing.T) {
	s := open(t, t.TempDir())
	said(t, s, Outbound{ID: "old"})
	if _, err := s.db.Exec(`UPDATE outbox SET state = 'sent', at = 1;
		CREATE TRIGGER broken BEFORE DELETE ON outbox BEGIN SELECT RAISE(ABORT, 'no room for it'); END`); err != nil {
		t.Fatal(err)
	}
	s.again = time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	log := make(loglines)
	go func() {
		defer close(ended)
		s.Housekeeping(ctx, slog.New(slog.NewTextHandler(log, nil)))
	}()
	for range 3 {
		select {
		case line := <-log:
			if !strings.Contains(line, "level=ERROR") || !strings.Contains(line, "no room for it") {
				t.Errorf("the log says %s", line)
			}
		case <-ended:
			t.Fatal("it has ended")
		}
	}
	cancel()
	for over := false; !over; {
		select {
		case <-log:
		case <-ended:
			over = true
		}
	}
}
