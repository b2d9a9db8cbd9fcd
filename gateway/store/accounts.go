package store

import (
	"context"
	"fmt"
)

// Session of an account at its homeserver. It is kept for life: a new login would forget the transaction IDs of the old one, and
// later the keys of the device.
type Session struct {
	UserID     string
	Homeserver string
	DeviceID   string
	Token      string
}

// Session that is kept for an account.
func (s *Store) Session(ctx context.Context, userID string) (Session, bool, error) {
	got := Session{UserID: userID}
	ok, err := found(s.db.QueryRowContext(ctx, "SELECT homeserver, device_id, token FROM accounts WHERE user_id = ?", userID).
		Scan(&got.Homeserver, &got.DeviceID, &got.Token))
	if err != nil {
		return Session{}, false, fmt.Errorf("read the session of %s: %w", userID, err)
	}
	return got, ok, nil
}

// KeepSession stores it. How far the account has read stays: that belongs to the account, not to the session. Only a fresh account,
// made just now, has read nothing.
func (s *Store) KeepSession(ctx context.Context, n Session, fresh bool) error {
	err := s.Update(ctx, func(tx *Tx) error {
		if fresh {
			for _, table := range []string{"accounts WHERE user_id", "marks WHERE account"} {
				if err := tx.exec("DELETE FROM "+table+" = ?", n.UserID); err != nil {
					return err
				}
			}
		}
		return tx.exec(`INSERT INTO accounts(user_id, homeserver, device_id, token) VALUES(?, ?, ?, ?)
			ON CONFLICT(user_id) DO UPDATE SET homeserver = excluded.homeserver, device_id = excluded.device_id, token = excluded.token`,
			n.UserID, n.Homeserver, n.DeviceID, n.Token)
	})
	if err != nil {
		return fmt.Errorf("keep the session of %s: %w", n.UserID, err)
	}
	return nil
}

// Since is how far the account has read; empty when it never has.
func (s *Store) Since(ctx context.Context, userID string) (string, error) {
	var since string
	if _, err := found(s.db.QueryRowContext(ctx, "SELECT since FROM accounts WHERE user_id = ?", userID).Scan(&since)); err != nil {
		return "", fmt.Errorf("read the sync token of %s: %w", userID, err)
	}
	return since, nil
}

// SetSince moves on. It belongs into the transaction that stores what was read.
func (t *Tx) SetSince(userID, since string) error {
	return t.exec("UPDATE accounts SET since = ? WHERE user_id = ?", since, userID)
}

// Mark is the last event that the account has read in a room; empty when none.
func (s *Store) Mark(ctx context.Context, userID, room string) (string, error) {
	var event string
	_, err := found(s.db.QueryRowContext(ctx, "SELECT event_id FROM marks WHERE account = ? AND room = ?", userID, room).Scan(&event))
	return event, err
}

// SetMark stores it.
func (t *Tx) SetMark(userID, room, event string) error {
	return t.exec(`INSERT INTO marks(account, room, event_id) VALUES(?, ?, ?)
		ON CONFLICT DO UPDATE SET event_id = excluded.event_id`, userID, room, event)
}

// Room that the agent's address (an alias or an ID) led to last, if it is still the same address.
func (s *Store) Room(ctx context.Context, agent, wanted string) (string, error) {
	var room string
	_, err := found(s.db.QueryRowContext(ctx, "SELECT room FROM rooms WHERE agent = ? AND wanted = ?", agent, wanted).Scan(&room))
	return room, err
}

// SetRoom stores it.
func (s *Store) SetRoom(ctx context.Context, agent, wanted, room string) error {
	return s.Update(ctx, func(tx *Tx) error {
		tx.changed = append(tx.changed, TopicOutbox(ByAgent(agent)), TopicOutbox(ByApprovals))
		return tx.exec(`INSERT INTO rooms(agent, wanted, room) VALUES(?, ?, ?)
			ON CONFLICT DO UPDATE SET wanted = excluded.wanted, room = excluded.room`, agent, wanted, room)
	})
}

// Rooms of all agents.
func (s *Store) Rooms(ctx context.Context) ([]string, error) {
	rows, err := s.db.QueryContext(ctx, "SELECT DISTINCT room FROM rooms ORDER BY room")
	if err != nil {
		return nil, fmt.Errorf("read the rooms: %w", err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var room string
		if err := rows.Scan(&room); err != nil {
			return nil, fmt.Errorf("read the rooms: %w", err)
		}
		out = append(out, room)
	}
	return out, rows.Err()
}
