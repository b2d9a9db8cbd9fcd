package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"nisse.io/nisse/gateway/routing"
)

// Inbound is a message of somebody in an agent's room, with what becomes of it.
type Inbound struct {
	Seq     int64
	EventID string
	// Account that read it, Agent whose room it is.
	Account string
	Agent   string
	Room    string
	Sender  string
	At      time.Time
	// Thread is the root of the thread it was sent in.
	Thread string
	// Raw is the event as the homeserver sent it. It is kept for people who look for what happened, and not read again.
	Raw   json.RawMessage
	Route routing.Route
}

// AddInbound stores a message once. A message that leads nowhere is done at once; it is kept because a gap is filled back to what
// is known.
func (t *Tx) AddInbound(m Inbound) (added bool, err error) {
	route, err := json.Marshal(m.Route)
	if err != nil {
		return false, fmt.Errorf("store the route of %s: %w", m.EventID, err)
	}
	state := "new"
	if m.Route.Kind == routing.Silence {
		state = "done"
	}
	added, err = t.affected(`INSERT INTO inbox(event_id, account, agent, room, sender, at, thread, raw, kind, work_item, route, state)
		VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		m.EventID, m.Account, m.Agent, m.Room, m.Sender, m.At.UnixMilli(), m.Thread, string(m.Raw), string(m.Route.Kind), m.Route.WorkItem,
		string(route), state)
	if err != nil {
		return false, fmt.Errorf("store message %s: %w", m.EventID, err)
	}
	if added && state == "new" {
		t.changed = append(t.changed, TopicInbox)
	}
	return added, nil
}

// Known tells whether a message is in the inbox.
func (s *Store) Known(ctx context.Context, eventID string) (bool, error) {
	var one int
	return found(s.db.QueryRowContext(ctx, "SELECT 1 FROM inbox WHERE event_id = ?", eventID).Scan(&one))
}

// Known tells whether a message is in the inbox.
func (t *Tx) Known(eventID string) (bool, error) {
	var one int
	return found(t.QueryRowContext(t.ctx, "SELECT 1 FROM inbox WHERE event_id = ?", eventID).Scan(&one))
}

const inboundColumns = "seq, event_id, account, agent, room, sender, at, thread, route"

type row interface{ Scan(...any) error }

func scanInbound(r row) (Inbound, error) {
	var m Inbound
	var at int64
	var route string
	if err := r.Scan(&m.Seq, &m.EventID, &m.Account, &m.Agent, &m.Room, &m.Sender, &at, &m.Thread, &route); err != nil {
		return Inbound{}, err
	}
	m.At = time.UnixMilli(at).UTC()
	if err := json.Unmarshal([]byte(route), &m.Route); err != nil {
		return Inbound{}, fmt.Errorf("read the route of %s: %w", m.EventID, err)
	}
	return m, nil
}

// Waiting lists the messages whose effect is not done, oldest first.
func (s *Store) Waiting(ctx context.Context) ([]Inbound, error) {
	rows, err := s.db.QueryContext(ctx, "SELECT "+inboundColumns+" FROM inbox WHERE state = 'new' ORDER BY seq LIMIT 500")
	if err != nil {
		return nil, fmt.Errorf("read the inbox: %w", err)
	}
	defer rows.Close()
	var out []Inbound
	for rows.Next() {
		m, err := scanInbound(rows)
		if err != nil {
			return nil, fmt.Errorf("read the inbox: %w", err)
		}
		out = append(out, m)
	}
	return out, rows.Err()
}

// Inbound by its event.
func (s *Store) Inbound(ctx context.Context, eventID string) (Inbound, bool, error) {
	m, err := scanInbound(s.db.QueryRowContext(ctx, "SELECT "+inboundColumns+" FROM inbox WHERE event_id = ?", eventID))
	ok, err := found(err)
	return m, ok, err
}

// Finish notes that the effect of a message is done; with a reason, that it cannot be done.
func (t *Tx) Finish(eventID, reason string) error {
	state := "done"
	if reason != "" {
		state = "failed"
	}
	return t.exec("UPDATE inbox SET state = ?, error = ? WHERE event_id = ?", state, reason, eventID)
}

// OldestOpening is the first of an agent's messages that open an item and are still to be worked off.
func (t *Tx) OldestOpening(agent string) (Inbound, bool, error) {
	m, err := scanInbound(t.QueryRowContext(t.ctx, "SELECT "+inboundColumns+" FROM inbox WHERE agent = ? AND kind = ? AND state = 'new' ORDER BY seq LIMIT 1",
		agent, string(routing.Open)))
	ok, err := found(err)
	return m, ok, err
}

// Stopping tells whether a stop that was said is still to be worked off: one of this item, or of whatever the agent works on.
func (t *Tx) Stopping(agent, workItem string) (bool, error) {
	var one int
	return found(t.QueryRowContext(t.ctx, "SELECT 1 FROM inbox WHERE agent = ? AND kind = ? AND state = 'new' AND work_item IN (?, '') LIMIT 1",
		agent, string(routing.Stop), workItem).Scan(&one))
}

// StopOf is the first stop of an item that is still to be worked off.
func (s *Store) StopOf(ctx context.Context, agent, workItem string) (Inbound, bool, error) {
	m, err := scanInbound(s.db.QueryRowContext(ctx, "SELECT "+inboundColumns+" FROM inbox WHERE agent = ? AND kind = ? AND state = 'new' AND work_item = ? ORDER BY seq LIMIT 1",
		agent, string(routing.Stop), workItem))
	ok, err := found(err)
	return m, ok, err
}
