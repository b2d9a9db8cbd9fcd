package store

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// Keep is how long what is done with stays: longer than any object that could ask for it again.
const Keep = 90 * 24 * time.Hour

// keepSaid messages of each agent's pod, the newest: a pod may say more in a day than the volume holds for as long as others' words are
// kept. An older one that comes again is another message, and a reply to it is no reply.
const keepSaid = 10_000

// Prune forgets what was done with before a time: messages whose effect is done, what was said, letters that were read, and the
// threads and progress of items of which nothing else is left. What is still to be done stays however old it is.
func (s *Store) Prune(ctx context.Context, before time.Time) error {
	ms := before.UnixMilli()
	err := s.Update(ctx, func(tx *Tx) error {
		for _, q := range []string{
			"DELETE FROM inbox WHERE state <> 'new' AND at < ?",
			"DELETE FROM mailbox WHERE at < ? AND seq <= COALESCE((SELECT a.seq FROM acks a WHERE a.agent = mailbox.agent), 0)" +
				" AND seq < (SELECT MAX(m.seq) FROM mailbox m WHERE m.agent = mailbox.agent)", // the last number is where the next begins
			"DELETE FROM progress_ids WHERE at < ?",
			"DELETE FROM outbox WHERE state IN ('sent', 'failed') AND at < ?1 AND (work_item = ''" +
				" OR NOT EXISTS (SELECT 1 FROM outbox o WHERE o.work_item = outbox.work_item AND o.at >= ?1)" +
				" AND work_item NOT IN (SELECT o.work_item FROM outbox o WHERE o.state IN ('new', 'sending')))",
		} {
			if err := tx.exec(q, ms); err != nil {
				return err
			}
		}
		if err := tx.exec(`DELETE FROM outbox WHERE seq IN (SELECT seq FROM (
				SELECT seq, row_number() OVER (PARTITION BY sender ORDER BY seq DESC) AS n FROM outbox WHERE id >= 'say/' AND id < 'say0' AND state IN ('sent', 'failed')
			) WHERE n > ?)`, keepSaid); err != nil {
			return err
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

// Housekeeping prunes now and every hour, until the context ends. What fails is tried again soon: without room there may be none for
// pruning either, and the gateway goes on.
func (s *Store) Housekeeping(ctx context.Context, log *slog.Logger) {
	for {
		wait := time.Hour
		if err := s.Prune(ctx, time.Now().Add(-Keep)); err != nil && ctx.Err() == nil {
			log.ErrorContext(ctx, "store.unpruned", "error", err.Error())
			wait = s.again
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}
