// Package eventlog keeps the runtime's one truth on disk: a hash-linked list of events in SQLite, and beside it what is under way
// (intents), what is still to be said (outbox) and how far the mailbox was read (cursor). Each Commit is one transaction that is on
// disk when it returns.
package eventlog

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	_ "modernc.org/sqlite" // the driver; pure Go, so that the binary stays static

	"nisse.io/nisse/agentruntime/event"
	"nisse.io/nisse/internal/canonical"
	"nisse.io/nisse/internal/telemetry"
)

// Log is an open event log. One process at a time has one; its methods may be called from several goroutines.
type Log struct {
	id    string
	agent string
	db    *sql.DB
	lock  *os.File
	log   *slog.Logger
	now   func() time.Time

	mu          sync.Mutex
	head        event.Event // seq and hash of the last event
	correlation map[string]string
}

// Open takes the directory, migrates the file in it and verifies the whole chain. Nothing may be done before it has succeeded.
func Open(ctx context.Context, dir, agent string, now func() time.Time, log *slog.Logger) (*Log, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make state directory: %w", err)
	}
	lf, err := lock(dir)
	if err != nil {
		return nil, err
	}
	l := &Log{agent: agent, lock: lf, log: log, now: now, correlation: map[string]string{}}
	if err := l.open(ctx, filepath.Join(dir, "events.db")); err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

func (l *Log) open(ctx context.Context, path string) error {
	q := url.Values{"_pragma": {"journal_mode(WAL)", "synchronous(FULL)", "busy_timeout(5000)", "foreign_keys(1)", "cache_size(-1024)"}, "_txlock": {"immediate"}}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}).String())
	if err != nil {
		return fmt.Errorf("open event log %s: %w", path, err)
	}
	l.db = db
	db.SetMaxOpenConns(1)
	from, err := migrate(ctx, db)
	if err != nil {
		return err
	}
	if from < len(migrations) {
		telemetry.Changed(ctx, l.log, "schema.migrated", telemetry.Event{Agent: l.agent, Cause: "boot"}, slog.Int("from_version", from), slog.Int("to_version", len(migrations)))
	}
	// The ID goes into every ID that is derived from this log, so that a log begun anew never speaks with the IDs of a lost one.
	if _, err := db.ExecContext(ctx, "INSERT INTO meta (id, log_id, head_seq, head_hash) VALUES (1, ?, 0, '') ON CONFLICT DO NOTHING", rand.Text()); err != nil {
		return fmt.Errorf("name event log: %w", err)
	}
	if err := db.QueryRowContext(ctx, "SELECT log_id, head_seq, head_hash FROM meta").Scan(&l.id, &l.head.Seq, &l.head.Hash); err != nil {
		return fmt.Errorf("read head of event log: %w", err)
	}
	return verify(ctx, db, l.head.Seq, l.head.Hash)
}

// ID of this log, chosen when it was made.
func (l *Log) ID() string { return l.id }

// Close lets go of the file and the directory.
func (l *Log) Close() error {
	var errs []error
	if l.db != nil {
		errs = append(errs, l.db.Close())
	}
	errs = append(errs, l.lock.Close())
	return errors.Join(errs...)
}

// Correlate sets the ID under which log lines of an item are written; it is the item's own name until then.
func (l *Log) Correlate(workItem, correlationID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.correlation[workItem] = correlationID
}

// Intent says that an effect outside is about to be asked for.
type Intent struct {
	// ID that the effect bears outside, or by which its outcome is known.
	ID string
	// Kind: Ask or CallTool.
	Kind     string
	WorkItem string
	// Subject for people: the model's or the tool's name.
	Subject string
}

// Kinds of intents.
const (
	KindAsk  = "ask"
	KindCall = "call"
)

// Cursor is how far a numbered source was read.
type Cursor struct {
	Epoch string
	Seq   int64
}

// Write is what one Commit puts on disk, all or nothing.
type Write struct {
	// Cause in one word or ID, for the log line.
	Cause string
	// Events to append. One whose source the log holds already is left out, with nothing else changed.
	Events []event.New
	// Say these in the room.
	Say []event.Outgoing
	// Begin an intent. Beginning one again that is open is fine.
	Begin *Intent
	// Settle the intent with this ID: its outcome is among Events.
	Settle string
	// Drop the intent with this ID: nothing came of it, and nothing will.
	Drop string
	// Cursor of the inbox.
	Cursor *Cursor
	Asides []event.Aside
}

// Commit writes w and returns the events that were new. It does not depend on the caller's patience: once begun, it ends.
func (l *Log) Commit(ctx context.Context, w Write) ([]event.Event, error) {
	ctx = context.WithoutCancel(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("write event log: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // no-op after Commit
	at := l.now().UTC().Truncate(time.Microsecond)
	added, head, err := appendEvents(ctx, tx, l.head, w.Events, at)
	if err != nil {
		return nil, err
	}
	if err := besides(ctx, tx, w, at); err != nil {
		return nil, fmt.Errorf("write event log: %w", err)
	}
	if err := tx.Commit(); err != nil {
		return nil, fmt.Errorf("write event log: %w", err)
	}
	l.head = head
	l.told(ctx, w, added)
	return added, nil
}

func appendEvents(ctx context.Context, tx *sql.Tx, head event.Event, news []event.New, at time.Time) ([]event.Event, event.Event, error) {
	var added []event.Event
	for _, n := range news {
		if !n.Type.Valid() || n.Source == "" {
			return nil, head, fmt.Errorf("write event log: event of type %q from %q is not one of ours", n.Type, n.Source)
		}
		var seen int
		if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM events WHERE source = ?", n.Source).Scan(&seen); err != nil {
			return nil, head, fmt.Errorf("write event log: %w", err)
		}
		if seen > 0 {
			continue
		}
		payload, err := canonical.Marshal(n.Payload)
		if err != nil {
			return nil, head, fmt.Errorf("write event log: payload of %s: %w", n.Source, err)
		}
		e := event.Event{Seq: head.Seq + 1, ID: eventID(at, n.Source), WorkItem: n.WorkItem, Type: n.Type, Payload: payload, Source: n.Source, PrevHash: head.Hash, At: at}
		if e.Hash, err = hash(e); err != nil {
			return nil, head, fmt.Errorf("write event log: %w", err)
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO events (seq, id, work_item, type, payload, source, hash, prev_hash, at) VALUES (?,?,?,?,?,?,?,?,?)",
			e.Seq, e.ID, e.WorkItem, string(e.Type), string(e.Payload), e.Source, e.Hash, e.PrevHash, stamp(e.At)); err != nil {
			return nil, head, fmt.Errorf("write event log: %w", err)
		}
		added = append(added, e)
		head = e
	}
	if len(added) > 0 {
		if _, err := tx.ExecContext(ctx, "UPDATE meta SET head_seq = ?, head_hash = ?", head.Seq, head.Hash); err != nil {
			return nil, head, fmt.Errorf("write event log: %w", err)
		}
	}
	return added, head, nil
}

func besides(ctx context.Context, tx *sql.Tx, w Write, at time.Time) error {
	for _, a := range w.Asides {
		if _, err := tx.ExecContext(ctx, "INSERT INTO asides (digest, body) VALUES (?,?) ON CONFLICT DO NOTHING", a.Digest, a.Body); err != nil {
			return err
		}
	}
	for _, o := range w.Say {
		if _, err := tx.ExecContext(ctx, "INSERT INTO outbox (id, work_item, kind, text, state, at) VALUES (?,?,?,?,'queued',?) ON CONFLICT DO NOTHING", o.ID, o.WorkItem, o.Kind, o.Text, stamp(at)); err != nil {
			return err
		}
	}
	if b := w.Begin; b != nil {
		if _, err := tx.ExecContext(ctx, "INSERT INTO intents (id, kind, work_item, subject, state, at) VALUES (?,?,?,?,'open',?) ON CONFLICT (id) DO UPDATE SET state = 'open' WHERE state = 'dropped'", b.ID, b.Kind, b.WorkItem, b.Subject, stamp(at)); err != nil {
			return err
		}
	}
	for id, state := range map[string]string{w.Settle: "settled", w.Drop: "dropped"} {
		if id == "" {
			continue
		}
		if _, err := tx.ExecContext(ctx, "UPDATE intents SET state = ? WHERE id = ? AND state = 'open'", state, id); err != nil {
			return err
		}
	}
	if c := w.Cursor; c != nil {
		if _, err := tx.ExecContext(ctx, "INSERT INTO cursor (name, epoch, seq) VALUES ('inbox', ?, ?) ON CONFLICT (name) DO UPDATE SET epoch = excluded.epoch, seq = excluded.seq", c.Epoch, c.Seq); err != nil {
			return err
		}
	}
	return nil
}

// told writes one line for each durable change, after the commit and never before. What people said stays out of it.
func (l *Log) told(ctx context.Context, w Write, added []event.Event) {
	line := func(name, item string, attrs ...slog.Attr) {
		task := l.correlation[item]
		if task == "" {
			task = item
		}
		telemetry.Changed(ctx, l.log, name, telemetry.Event{Agent: l.agent, TaskID: task, Cause: w.Cause}, attrs...)
	}
	for _, e := range added {
		line("event.appended", e.WorkItem, slog.Int64("seq", e.Seq), slog.String("type", string(e.Type)), slog.String("source", e.Source))
	}
	for _, o := range w.Say {
		line("words.queued", o.WorkItem, slog.String("id", o.ID), slog.String("kind", o.Kind))
	}
	if b := w.Begin; b != nil {
		line("intent.begun", b.WorkItem, slog.String("intent_id", b.ID), slog.String("kind", b.Kind), slog.String("subject", b.Subject))
	}
	item := ""
	if len(added) > 0 {
		item = added[0].WorkItem
	}
	if w.Settle != "" {
		line("intent.settled", item, slog.String("intent_id", w.Settle))
	}
	if w.Drop != "" {
		line("intent.dropped", item, slog.String("intent_id", w.Drop))
	}
}
