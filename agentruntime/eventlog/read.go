package eventlog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"nisse.io/nisse/agentruntime/event"
	"nisse.io/nisse/internal/telemetry"
)

const selectEvents = "SELECT seq, id, work_item, type, payload, source, hash, prev_hash, at FROM events"

func scan(rows *sql.Rows) (event.Event, error) {
	var e event.Event
	var typ, payload, at string
	if err := rows.Scan(&e.Seq, &e.ID, &e.WorkItem, &typ, &payload, &e.Source, &e.Hash, &e.PrevHash, &at); err != nil {
		return e, fmt.Errorf("read events: %w", err)
	}
	e.Type, e.Payload = event.Type(typ), []byte(payload)
	t, err := time.Parse(time.RFC3339Nano, at)
	if err != nil {
		return e, fmt.Errorf("%w: event %d has no time: %w", ErrBroken, e.Seq, err)
	}
	e.At = t
	return e, nil
}

// Each calls f for every event in order, holding one at a time.
func (l *Log) Each(ctx context.Context, f func(event.Event) error) error {
	return l.each(ctx, f, selectEvents+" ORDER BY seq")
}

// EachOf calls f for the events of one work item, in order.
func (l *Log) EachOf(ctx context.Context, workItem string, f func(event.Event) error) error {
	return l.each(ctx, f, selectEvents+" WHERE work_item = ? ORDER BY seq", workItem)
}

func (l *Log) each(ctx context.Context, f func(event.Event) error, query string, args ...any) error {
	rows, err := l.db.QueryContext(ctx, query, args...)
	if err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		e, err := scan(rows)
		if err != nil {
			return err
		}
		if err := f(e); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Open intents: effects that were asked for and whose outcome is not in the log.
func (l *Log) Intents(ctx context.Context) ([]Intent, error) {
	rows, err := l.db.QueryContext(ctx, "SELECT id, kind, work_item, subject FROM intents WHERE state = 'open' ORDER BY at, id")
	if err != nil {
		return nil, fmt.Errorf("read intents: %w", err)
	}
	defer rows.Close()
	var out []Intent
	for rows.Next() {
		var i Intent
		if err := rows.Scan(&i.ID, &i.Kind, &i.WorkItem, &i.Subject); err != nil {
			return nil, fmt.Errorf("read intents: %w", err)
		}
		out = append(out, i)
	}
	return out, rows.Err()
}

// NextOut is the oldest message that is not delivered yet; ok is false when there is none.
func (l *Log) NextOut(ctx context.Context) (o event.Outgoing, ok bool, err error) {
	err = l.db.QueryRowContext(ctx, "SELECT id, work_item, kind, text FROM outbox WHERE state = 'queued' ORDER BY n LIMIT 1").Scan(&o.ID, &o.WorkItem, &o.Kind, &o.Text)
	if errors.Is(err, sql.ErrNoRows) {
		return o, false, nil
	}
	if err != nil {
		return o, false, fmt.Errorf("read outbox: %w", err)
	}
	return o, true, nil
}

// Undelivered counts the messages of an item that the gateway does not have yet.
func (l *Log) Undelivered(ctx context.Context, workItem string) (n int, err error) {
	if err := l.db.QueryRowContext(ctx, "SELECT count(*) FROM outbox WHERE state = 'queued' AND work_item = ?", workItem).Scan(&n); err != nil {
		return 0, fmt.Errorf("read outbox: %w", err)
	}
	return n, nil
}

// Delivered records that the gateway has the message, or (refused) never will.
func (l *Log) Delivered(ctx context.Context, o event.Outgoing, refused error) error {
	state, name, attrs := "delivered", "words.delivered", []slog.Attr{slog.String("id", o.ID)}
	if refused != nil {
		state, name = "refused", "words.refused"
		attrs = append(attrs, slog.String("error", refused.Error()))
	}
	if _, err := l.db.ExecContext(context.WithoutCancel(ctx), "UPDATE outbox SET state = ? WHERE id = ?", state, o.ID); err != nil {
		return fmt.Errorf("write outbox: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	task := l.correlation[o.WorkItem]
	if task == "" {
		task = o.WorkItem
	}
	telemetry.Changed(ctx, l.log, name, telemetry.Event{Agent: l.agent, TaskID: task, Cause: o.ID}, attrs...)
	return nil
}

// InboxCursor is how far the mailbox was read; zero at first.
func (l *Log) InboxCursor(ctx context.Context) (c Cursor, err error) {
	err = l.db.QueryRowContext(ctx, "SELECT epoch, seq FROM cursor WHERE name = 'inbox'").Scan(&c.Epoch, &c.Seq)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return c, fmt.Errorf("read cursor: %w", err)
	}
	return c, nil
}

// Aside returns the text kept under digest.
func (l *Log) Aside(ctx context.Context, digest string) (body string, err error) {
	if err := l.db.QueryRowContext(ctx, "SELECT body FROM asides WHERE digest = ?", digest).Scan(&body); err != nil {
		return "", fmt.Errorf("read aside %s: %w", digest, err)
	}
	return body, nil
}
