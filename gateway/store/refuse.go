package store

import (
	"context"
	"fmt"
	"time"
)

// Refused notes that the homeserver will not take a message as it is. One that must be read is kept, to be said plainly, not before
// a time, and is new again, for a refusal leaves no doubt about what has to be looked for in its room; if even that was refused
// already, instead is said beside it, once. Any other is kept in the same way until it was tried so many times, and nothing waits for
// its event meanwhile; then it has failed for good: failed, unless it stands in the room after all.
func (s *Store) Refused(ctx context.Context, id, reason string, tries int, notBefore time.Time, instead Outbound) (failed bool, err error) {
	err = s.Update(ctx, func(tx *Tx) error {
		var sender string
		var refusals int
		var must bool
		kept, err := found(tx.QueryRowContext(ctx, `UPDATE outbox SET state = 'new', refusals = refusals + 1, not_before = ?, error = ?
			WHERE id = ? AND (must = 1 OR refusals + 1 < ?) AND state IN ('new', 'sending') RETURNING sender, refusals, must`,
			notBefore.UnixMilli(), reason, id, tries).Scan(&sender, &refusals, &must))
		switch failed = !kept; {
		case err != nil:
			return err
		case failed:
			failed, err = tx.fail(id, reason)
			return err
		case !must:
			err = tx.unthread(id)
		case refusals > 1:
			// Its words tell the reason, which may be another each time: the same ID with other words would be a conflict.
			var said bool
			if said, err = tx.Said(instead.ID); err == nil && !said {
				err = tx.Send(instead)
			}
		}
		tx.changed = append(tx.changed, TopicOutbox(sender))
		return err
	})
	if err != nil {
		return false, fmt.Errorf("note that %s was refused: %w", id, err)
	}
	return failed, nil
}

// fail a message for good, and free what waits for its event: the edit of it, of which Send keeps one, is a message of its own, and
// what belongs into its thread goes outside. One that came back from the room meanwhile has its event, and nothing changes.
func (t *Tx) fail(id, reason string) (failed bool, err error) {
	failed, err = t.affected("UPDATE outbox SET state = 'failed', error = ?, content = '' WHERE id = ? AND event_id = ''", reason, id)
	if err != nil || !failed {
		return false, err
	}
	if err := t.unthread(id); err != nil {
		return false, err
	}
	var edit string
	if _, err := found(t.QueryRowContext(t.ctx, "SELECT id FROM outbox WHERE state IN ('new', 'sending') AND replaces = ?", id).Scan(&edit)); err != nil {
		return false, err
	}
	if err := t.exec("UPDATE outbox SET replaces = '' WHERE id = ?", edit); err != nil {
		return false, err
	}
	return true, t.exec("UPDATE progress SET message = ? WHERE message = ?", edit, id)
}

// unthread what waits for a message to become the root of its thread: it goes outside.
func (t *Tx) unthread(id string) error {
	if err := t.wake(id); err != nil {
		return err
	}
	var room string
	if _, err := found(t.QueryRowContext(t.ctx, "SELECT sent_room FROM outbox WHERE id = ?", id).Scan(&room)); err != nil {
		return err
	}
	if err := t.exec("UPDATE outbox SET thread_of = '', room = CASE room WHEN '' THEN ? ELSE room END WHERE state IN ('new', 'sending') AND thread_of = ?", room, id); err != nil {
		return err
	}
	return t.exec("UPDATE threads SET root_of = '', room = CASE room WHEN '' THEN ? ELSE room END WHERE root = '' AND root_of = ?", room, id)
}

// wake those whose messages wait for the event of this one.
func (t *Tx) wake(id string) error {
	rows, err := t.QueryContext(t.ctx, "SELECT DISTINCT sender FROM outbox WHERE state IN ('new', 'sending') AND (thread_of = ?1 OR replaces = ?1)", id)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var sender string
		if err := rows.Scan(&sender); err != nil {
			return err
		}
		t.changed = append(t.changed, TopicOutbox(sender))
	}
	return rows.Err()
}

// Release says that nobody has to read the messages of a prefix any more: what of them is refused has failed.
func (t *Tx) Release(prefix string) error {
	return t.exec("UPDATE outbox SET must = 0, not_before = 0 WHERE must = 1 AND state IN ('new', 'sending') AND id >= ? AND id < ?", prefix, after(prefix))
}

// MustRead lists the outbounds that somebody must read and that do not stand in a room yet, and about whose work they are.
func (s *Store) MustRead(ctx context.Context) ([]Outbound, error) {
	rows, err := s.db.QueryContext(ctx, "SELECT id, agent, work_item FROM outbox WHERE must = 1 AND state IN ('new', 'sending') ORDER BY seq")
	if err != nil {
		return nil, fmt.Errorf("read what must be read: %w", err)
	}
	defer rows.Close()
	var out []Outbound
	for rows.Next() {
		var o Outbound
		if err := rows.Scan(&o.ID, &o.Agent, &o.WorkItem); err != nil {
			return nil, fmt.Errorf("read what must be read: %w", err)
		}
		out = append(out, o)
	}
	return out, rows.Err()
}

// Drop a message that nobody is to read any more: it is not sent, or not again. One that stands in the room is left as it is.
func (t *Tx) Drop(id, reason string) (dropped bool, err error) {
	dropped, err = t.fail(id, reason)
	return dropped, wrap(err, "drop %s", id)
}

// Hidden tells how many messages about an agent's work that somebody must read the homeserver refuses, and a reason that it gave.
func (s *Store) Hidden(ctx context.Context, agent string) (n int, reason string, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT COUNT(*), COALESCE(MAX(error), '') FROM outbox
		WHERE agent = ? AND must = 1 AND refusals > 0 AND state IN ('new', 'sending')`, agent).Scan(&n, &reason)
	return n, reason, err
}
