package store

import (
	"context"
	"fmt"
	"time"
)

// Keep is how long what is done with stays: longer than any object that could ask for it again.
const Keep = 90 * 24 * time.Hour

// Prune forgets what was done with before a time: messages whose effect is done, what was said, letters that were read, and the
// threads and progress of items of which nothing else is left. What is still to be done stays however old it is.
func (s *Store) Prune(ctx context.Context, before time.Time) error {
	ms := before.UnixMilli()
	err := s.Update(ctx, func(tx *Tx) error {
		for _, q := range []string{
			"DELETE FROM inbox WHERE state <> 'new' AND at < ?",
			"DELETE FROM mailbox WHERE at < ? AND seq <= COALESCE((SELECT a.seq FROM acks a WHERE a.agent = mailbox.agent), 0)" +
				" AND seq < (SELECT MAX(m.seq) FROM mailbox m WHERE m.agent = mailbox.agent)", // the last number is where the next begins
			"DELETE FROM outbox WHERE state IN ('sent', 'failed') AND at < ? AND NOT EXISTS" +
				" (SELECT 1 FROM outbox o WHERE o.work_item = outbox.work_item AND o.work_item <> '' AND (o.at >= ?1 OR o.state IN ('new', 'sending')))",
		} {
			if err := tx.exec(q, ms); err != nil {
				return err
			}
		}
		for _, q := range []string{
			"DELETE FROM progress WHERE shown = version AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.work_item = progress.work_item)",
			"DELETE FROM threads WHERE NOT EXISTS (SELECT 1 FROM outbox o WHERE o.work_item = threads.work_item)" +
				" AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.work_item = threads.work_item)" +
				" AND NOT EXISTS (SELECT 1 FROM mailbox m WHERE m.work_item = threads.work_item)",
		} {
			if err := tx.exec(q); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("forget what is over: %w", err)
	}
	return nil
}

// Housekeeping prunes now and every day, until the context ends.
func (s *Store) Housekeeping(ctx context.Context) error {
	tick := time.NewTicker(24 * time.Hour)
	defer tick.Stop()
	for {
		if err := s.Prune(ctx, time.Now().Add(-Keep)); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
