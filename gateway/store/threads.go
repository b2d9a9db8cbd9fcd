package store

import (
	"context"
	"fmt"
)

// Thread of a work item in its agent's room.
type Thread struct {
	WorkItem string
	Agent    string
	// Room, empty for the agent's own while that is not known.
	Room string
	// Root event; empty while RootOf, an outbound, has not been sent.
	Root   string
	RootOf string
}

// AddThread links an item to its thread, once.
func (t *Tx) AddThread(n Thread) error {
	if err := t.exec(`INSERT INTO threads(work_item, agent, room, root, root_of) VALUES(?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		n.WorkItem, n.Agent, n.Room, n.Root, n.RootOf); err != nil {
		return fmt.Errorf("link %s to its thread: %w", n.WorkItem, err)
	}
	return nil
}

// Thread of an item.
func (t *Tx) Thread(workItem string) (Thread, bool, error) {
	n := Thread{WorkItem: workItem}
	ok, err := found(t.QueryRowContext(t.ctx, "SELECT agent, room, root, root_of FROM threads WHERE work_item = ?", workItem).
		Scan(&n.Agent, &n.Room, &n.Root, &n.RootOf))
	return n, ok, err
}

// Thread of an item.
func (s *Store) Thread(ctx context.Context, workItem string) (n Thread, ok bool, err error) {
	err = s.Update(ctx, func(tx *Tx) error {
		n, ok, err = tx.Thread(workItem)
		return err
	})
	return n, ok, err
}

// ItemOf finds the item that an event belongs to: the latest whose thread it is the root of, or that a message of ours is about.
// The message of a person belongs to what it was routed to.
func (t *Tx) ItemOf(agent, eventID string) (string, error) {
	if eventID == "" {
		return "", nil
	}
	var item string
	_, err := found(t.QueryRowContext(t.ctx, `
		SELECT work_item FROM (
			SELECT work_item, 1 AS rank, seq FROM threads WHERE root = ?1 AND agent = ?2
			UNION ALL SELECT work_item, 2, seq FROM outbox WHERE event_id = ?1 AND agent = ?2 AND work_item <> ''
			UNION ALL SELECT work_item, 3, seq FROM inbox WHERE event_id = ?1 AND agent = ?2 AND work_item <> ''
		) ORDER BY rank, seq DESC LIMIT 1`, eventID, agent).Scan(&item))
	if err != nil {
		return "", fmt.Errorf("find the item of %s: %w", eventID, err)
	}
	return item, nil
}
