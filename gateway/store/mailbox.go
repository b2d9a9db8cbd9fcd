package store

import (
	"context"
	"fmt"
	"time"

	"nisse.io/nisse/gateway/routing"
	"nisse.io/nisse/internal/doors"
)

// Letter is a message for an agent's pod.
type Letter struct {
	Agent       string
	EventID     string
	WorkItem    string
	At          time.Time
	Person      string
	MayInstruct bool
	Text        string
}

// AddLetter puts it into the agent's mailbox, once.
func (t *Tx) AddLetter(l Letter) error {
	added, err := t.affected(`INSERT INTO mailbox(agent, seq, event_id, work_item, at, person, may_instruct, text)
		SELECT ?1, 1 + COALESCE((SELECT MAX(seq) FROM mailbox WHERE agent = ?1), 0), ?2, ?3, ?4, ?5, ?6, ?7 WHERE true ON CONFLICT DO NOTHING`,
		l.Agent, l.EventID, l.WorkItem, l.At.UnixMilli(), l.Person, l.MayInstruct, l.Text)
	if err != nil {
		return fmt.Errorf("hand on %s: %w", l.EventID, err)
	}
	if added {
		t.changed = append(t.changed, TopicMailbox(l.Agent))
	}
	return nil
}

// Letters of an agent after seq, in order, at most limit. One that was stored when there was no bound is cut now.
func (s *Store) Letters(ctx context.Context, agent string, after int64, limit int) ([]doors.Message, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT seq, event_id, work_item, at, person, may_instruct, text FROM mailbox
		WHERE agent = ? AND seq > ? ORDER BY seq LIMIT ?`, agent, after, limit)
	if err != nil {
		return nil, fmt.Errorf("read the mailbox of %s: %w", agent, err)
	}
	defer rows.Close()
	out := []doors.Message{}
	for rows.Next() {
		var m doors.Message
		var at int64
		if err := rows.Scan(&m.Seq, &m.ID, &m.WorkItem, &at, &m.Person, &m.MayInstruct, &m.Text); err != nil {
			return nil, fmt.Errorf("read the mailbox of %s: %w", agent, err)
		}
		m.Text, _ = routing.Letter(m.Text)
		m.At = time.UnixMilli(at).UTC().Format(time.RFC3339Nano)
		out = append(out, m)
	}
	return out, rows.Err()
}

// Ack notes that the agent has everything up to seq.
func (s *Store) Ack(ctx context.Context, agent string, seq int64) error {
	return s.Update(ctx, func(tx *Tx) error {
		return tx.exec("INSERT INTO acks(agent, seq) VALUES(?, ?) ON CONFLICT DO UPDATE SET seq = MAX(seq, excluded.seq)", agent, seq)
	})
}
