package store

import (
	"context"
	"fmt"

	"nisse.io/nisse/gateway/routing"
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
	// Unseen: the item was not in the API server's objects when its thread was noted; see Seen.
	Unseen bool
}

// AddThread links an item to its thread, once.
func (t *Tx) AddThread(n Thread) error {
	if err := t.exec(`INSERT INTO threads(work_item, agent, room, root, root_of, unseen) VALUES(?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		n.WorkItem, n.Agent, n.Room, n.Root, n.RootOf, n.Unseen); err != nil {
		return fmt.Errorf("link %s to its thread: %w", n.WorkItem, err)
	}
	return nil
}

// Thread of an item.
func (t *Tx) Thread(workItem string) (Thread, bool, error) {
	n := Thread{WorkItem: workItem}
	ok, err := found(t.QueryRowContext(t.ctx, "SELECT agent, room, root, root_of, unseen FROM threads WHERE work_item = ?", workItem).
		Scan(&n.Agent, &n.Room, &n.Root, &n.RootOf, &n.Unseen))
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

// Seen notes that an item was among the API server's objects: from now on, one that is not there is gone.
func (s *Store) Seen(ctx context.Context, workItem string) error {
	var one int
	unseen, err := found(s.db.QueryRowContext(ctx, "SELECT 1 FROM threads WHERE work_item = ? AND unseen = 1", workItem).Scan(&one))
	if err != nil || !unseen {
		return err
	}
	return s.Update(ctx, func(tx *Tx) error { return tx.exec("UPDATE threads SET unseen = 0 WHERE work_item = ?", workItem) })
}

// Expected tells whether an item that is not among the objects that are known will be: it is still to be made, or it was made and
// what is known lags behind. One that could not be made will not.
func (t *Tx) Expected(workItem string) (bool, error) {
	var one int
	return found(t.QueryRowContext(t.ctx, `SELECT 1 WHERE
		EXISTS (SELECT 1 FROM inbox WHERE work_item = ?1 AND kind = ?2 AND state = 'new') OR
		EXISTS (SELECT 1 FROM threads WHERE work_item = ?1 AND unseen = 1) AND NOT EXISTS (SELECT 1 FROM inbox WHERE work_item = ?1 AND kind = ?2 AND state = 'failed')`,
		workItem, string(routing.Open)).Scan(&one))
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
