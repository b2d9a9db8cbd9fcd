package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// ByApprovals is the sender of what the approvals account says.
const ByApprovals = "approvals"

// ByAgent is the sender of what an agent's account says.
func ByAgent(agent string) string { return "agent/" + agent }

// Outbound is a message to send. What it relates to may not have been sent yet; it waits for that.
type Outbound struct {
	Seq int64
	// ID of the message; the same ID again is the same message.
	ID     string
	Sender string
	// Agent in whose room it goes, about this item.
	Agent    string
	WorkItem string
	// Room, or empty for the agent's own.
	Room string
	// Thread is the root event, or ThreadOf the outbound that becomes it. Neither: outside threads.
	Thread   string
	ThreadOf string
	// ReplyTo is an event that it answers.
	ReplyTo string
	// Replaces is the outbound that it edits.
	Replaces string
	// Content of the message, without relations.
	Content json.RawMessage
	// Whole text, where the content is a part of it: the same ID must be the same whole.
	Whole string
	// Must: somebody has to read it, so it is sent again and again when the homeserver refuses it. See Refused.
	Must bool
	// Sending: an earlier attempt may have reached the homeserver. What became of it can only stand after the event After, which the
	// sender had sent in the room before; empty where there was none.
	Sending bool
	After   string
	// Refusals of the homeserver so far. After the first it is said plainly; not before a time.
	Refusals  int
	NotBefore time.Time
	// Original event that it edits, resolved from Replaces.
	Original string
}

// ErrConflict is returned when an ID is used again for another message.
var ErrConflict = errors.New("this ID was used for another message")

// Send puts a message into the outbox, once. The same ID with other words is a conflict. An edit of what will never have an event is
// a message of its own.
func (t *Tx) Send(o Outbound) error {
	digest := digest(o.Sender, o.WorkItem, o.ReplyTo, o.Replaces, string(o.Content), o.Whole)
	added, err := t.affected(`INSERT INTO outbox(id, sender, agent, work_item, room, thread, thread_of, reply_to, replaces, content, digest, state, at, must)
		VALUES(?, ?, ?, ?, ?, ?, ?, ?, COALESCE((SELECT id FROM outbox WHERE id = ? AND (state <> 'failed' OR event_id <> '')), ''), ?, ?, 'new', ?, ?)
		ON CONFLICT DO NOTHING`,
		o.ID, o.Sender, o.Agent, o.WorkItem, o.Room, o.Thread, o.ThreadOf, o.ReplyTo, o.Replaces, string(o.Content), digest, time.Now().UnixMilli(), o.Must)
	if err != nil {
		return fmt.Errorf("store outgoing %s: %w", o.ID, err)
	}
	if added {
		t.changed = append(t.changed, TopicOutbox(o.Sender))
		// Nobody needs an older edit that has not gone out.
		return t.exec("DELETE FROM outbox WHERE replaces = ? AND replaces <> '' AND state = 'new' AND sender = ? AND id <> ?", o.Replaces, o.Sender, o.ID)
	}
	var have string
	if err := t.QueryRowContext(t.ctx, "SELECT digest FROM outbox WHERE id = ?", o.ID).Scan(&have); err != nil {
		return fmt.Errorf("read outgoing %s: %w", o.ID, err)
	}
	if have != digest {
		return fmt.Errorf("%s: %w", o.ID, ErrConflict)
	}
	return nil
}

// Said tells whether an outbound of this ID exists.
func (t *Tx) Said(id string) (bool, error) {
	var one int
	return found(t.QueryRowContext(t.ctx, "SELECT 1 FROM outbox WHERE id = ?", id).Scan(&one))
}

// Unsent lists what the sender has still to say, oldest first: what it relates to has an event, and its room is known. What was
// refused and waits for its time comes last. Rooms that are closed to the sender are left out, lest what waits for them fill the list.
func (s *Store) Unsent(ctx context.Context, sender string, closed ...string) ([]Outbound, error) {
	except, err := json.Marshal(append([]string{}, closed...))
	if err != nil {
		return nil, err
	}
	rows, err := s.db.QueryContext(ctx, `
		SELECT o.seq, o.id, o.sender, o.agent, o.work_item,
			CASE WHEN o.room <> '' THEN o.room WHEN root.sent_room <> '' THEN root.sent_room ELSE r.room END,
			CASE WHEN o.thread <> '' THEN o.thread ELSE COALESCE(root.event_id, '') END,
			o.reply_to, o.replaces, COALESCE(old.event_id, ''), o.content, o.state = 'sending', o.sent_after, o.must, o.refusals, o.not_before
		FROM outbox o
		LEFT JOIN outbox root ON root.id = o.thread_of
		LEFT JOIN outbox old ON old.id = o.replaces
		LEFT JOIN rooms r ON r.agent = o.agent
		WHERE o.sender = ?1 AND o.state IN ('new', 'sending')
			AND (o.thread_of = '' OR root.event_id <> '')
			AND (o.replaces = '' OR old.event_id <> '')
			AND (o.room <> '' OR root.sent_room <> '' OR r.room IS NOT NULL)
			AND CASE WHEN o.room <> '' THEN o.room WHEN root.sent_room <> '' THEN root.sent_room ELSE r.room END NOT IN (SELECT value FROM json_each(?3))
		ORDER BY o.not_before > ?2, o.seq LIMIT 100`, sender, time.Now().UnixMilli(), string(except))
	if err != nil {
		return nil, fmt.Errorf("read the outbox of %s: %w", sender, err)
	}
	defer rows.Close()
	var out []Outbound
	for rows.Next() {
		var o Outbound
		var content string
		var notBefore int64
		if err := rows.Scan(&o.Seq, &o.ID, &o.Sender, &o.Agent, &o.WorkItem, &o.Room, &o.Thread, &o.ReplyTo, &o.Replaces, &o.Original,
			&content, &o.Sending, &o.After, &o.Must, &o.Refusals, &notBefore); err != nil {
			return nil, fmt.Errorf("read the outbox of %s: %w", sender, err)
		}
		o.Content, o.NotBefore = json.RawMessage(content), time.UnixMilli(notBefore)
		out = append(out, o)
	}
	return out, rows.Err()
}

// Sending notes, before the request, that it may reach the homeserver. It is not to be sent if it does not wait any more: a newer
// edit took its place, or it was sent before. Messages are not sent by their order alone, for some wait for another account or a
// time; so it is noted too what the sender has in the room by now.
func (s *Store) Sending(ctx context.Context, id, room string) (ok bool, err error) {
	err = s.Update(ctx, func(tx *Tx) error {
		ok, err = tx.affected(`UPDATE outbox SET state = 'sending', sent_room = ?1, sent_after = COALESCE((SELECT o.event_id FROM outbox o
			WHERE o.sender = outbox.sender AND o.sent_room = ?1 AND o.event_id <> '' ORDER BY o.seq DESC LIMIT 1), '') WHERE id = ?2 AND state = 'new'`, room, id)
		return err
	})
	return ok, err
}

// Sent notes the event that the message became. The first one counts.
func (s *Store) Sent(ctx context.Context, id, room, eventID string) error {
	return s.Update(ctx, func(tx *Tx) error { return tx.Sent(id, room, eventID) })
}

// Sent notes the event that the message became. The first one counts. Its words stand in the room now and are not kept here, and the
// edits of the same message that went before it are forgotten, unless what was to be sent between is still to be looked for: back to
// what was sent before it.
func (t *Tx) Sent(id, room, eventID string) error {
	sent, err := t.affected("UPDATE outbox SET state = 'sent', event_id = ?, sent_room = ?, error = '', content = '' WHERE id = ? AND event_id = ''",
		eventID, room, id)
	if err != nil || !sent {
		return wrap(err, "note that %s was sent", id)
	}
	if err := t.wake(id); err != nil {
		return err
	}
	if err := t.exec(`DELETE FROM outbox WHERE seq IN (
			SELECT old.seq FROM outbox new JOIN outbox old ON old.replaces = new.replaces AND old.replaces <> '' AND old.sender = new.sender AND old.seq < new.seq
			WHERE new.id = ? AND old.state IN ('sent', 'failed')
				AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.sender = new.sender AND o.state IN ('new', 'sending') AND o.seq > old.seq AND o.seq < new.seq))`, id); err != nil {
		return err
	}
	return t.exec("UPDATE threads SET root = ?, room = ? WHERE root_of = ?", eventID, room, id)
}

// Seen notes that a message of ours stood in the timeline that an agent's account reads, and when it was sent. The first time counts.
func (t *Tx) Seen(id string, at time.Time) error {
	return t.exec("UPDATE outbox SET seen = 1, seen_at = ? WHERE id = ? AND seen = 0", at.UnixMilli(), id)
}

// Mine finds the outbound by its ID and tells whether it is this sender's.
func (t *Tx) Mine(id, sender string) (bool, error) {
	var one int
	return found(t.QueryRowContext(t.ctx, "SELECT 1 FROM outbox WHERE id = ? AND sender = ?", id, sender).Scan(&one))
}

// Showing is how far an outbound in parts has come.
type Showing struct {
	// Whole: all parts stood in the timeline.
	Whole bool
	// Some of it did, or was refused, and people were told where else to read it.
	Some bool
	// At is when the last part was sent; zero where it stood there before that was noted.
	At time.Time
}

// Shown tells how far the parts have come that have the prefix in common.
func (t *Tx) Shown(prefix string) (Showing, error) {
	var parts, seen, some int
	var last int64
	err := t.QueryRowContext(t.ctx, "SELECT COUNT(*), COALESCE(SUM(seen), 0), COALESCE(SUM(seen = 1 OR refusals > 0), 0), COALESCE(MAX(seen_at), 0) FROM outbox WHERE id >= ? AND id < ?",
		prefix, after(prefix)).Scan(&parts, &seen, &some, &last)
	s := Showing{Whole: parts > 0 && parts == seen, Some: some > 0}
	if last > 0 {
		s.At = time.UnixMilli(last).UTC()
	}
	return s, err
}

// Unanswered counts what a sender has still to say. Each of these will be sent or refused one day: none waits for one that has failed.
func (s *Store) Unanswered(ctx context.Context, sender string) (int, error) {
	var n int
	err := s.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM outbox WHERE sender = ? AND state IN ('new', 'sending')", sender).Scan(&n)
	return n, err
}

// Depths of inbox and outbox.
func (s *Store) Depths(ctx context.Context) (inbox, outbox int, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT (SELECT COUNT(*) FROM inbox WHERE state = 'new'),
		(SELECT COUNT(*) FROM outbox WHERE state IN ('new', 'sending'))`).Scan(&inbox, &outbox)
	return inbox, outbox, err
}

// after is the first string behind all that begin with a prefix, which ends in an ordinary character.
func after(prefix string) string {
	last := len(prefix) - 1
	return prefix[:last] + string(rune(prefix[last]+1))
}

func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))
}
