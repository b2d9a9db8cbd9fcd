package store

import (
	"context"
	"database/sql"
	"fmt"
)

// migrations in order; user_version counts those that were applied. One that was released is never changed.
var migrations = []string{
	`
	CREATE TABLE meta(
		key   TEXT PRIMARY KEY,
		value TEXT NOT NULL
	) STRICT;

	-- An account's session, which lasts for life, and how far it has read.
	CREATE TABLE accounts(
		user_id    TEXT PRIMARY KEY,
		homeserver TEXT NOT NULL,
		device_id  TEXT NOT NULL,
		token      TEXT NOT NULL,
		since      TEXT NOT NULL DEFAULT ''
	) STRICT;

	-- The last event of each room's timeline that an account has read. Gaps are filled back to it.
	CREATE TABLE marks(
		account  TEXT NOT NULL,
		room     TEXT NOT NULL,
		event_id TEXT NOT NULL,
		PRIMARY KEY(account, room)
	) STRICT;

	-- The room an agent's address led to last.
	CREATE TABLE rooms(
		agent  TEXT PRIMARY KEY,
		wanted TEXT NOT NULL,
		room   TEXT NOT NULL
	) STRICT;

	-- What people said, with what becomes of it (route, JSON).
	CREATE TABLE inbox(
		seq       INTEGER PRIMARY KEY AUTOINCREMENT,
		event_id  TEXT NOT NULL UNIQUE,
		account   TEXT NOT NULL,
		agent     TEXT NOT NULL,
		room      TEXT NOT NULL,
		sender    TEXT NOT NULL,
		at        INTEGER NOT NULL, -- ms, by the homeserver
		thread    TEXT NOT NULL,
		raw       TEXT NOT NULL,
		kind      TEXT NOT NULL,
		work_item TEXT NOT NULL,
		route     TEXT NOT NULL,
		state     TEXT NOT NULL CHECK(state IN ('new', 'done', 'failed')),
		error     TEXT NOT NULL DEFAULT ''
	) STRICT;
	CREATE INDEX inbox_new ON inbox(agent, seq) WHERE state = 'new';

	-- What an agent's pod is to read.
	CREATE TABLE mailbox(
		agent        TEXT NOT NULL,
		seq          INTEGER NOT NULL,
		event_id     TEXT NOT NULL,
		work_item    TEXT NOT NULL,
		at           INTEGER NOT NULL,
		person       TEXT NOT NULL,
		may_instruct INTEGER NOT NULL,
		text         TEXT NOT NULL,
		PRIMARY KEY(agent, seq),
		UNIQUE(agent, event_id)
	) STRICT;
	CREATE TABLE acks(
		agent TEXT PRIMARY KEY,
		seq   INTEGER NOT NULL
	) STRICT;

	-- What is to be said. thread_of and replaces name other rows, whose event may not exist yet.
	CREATE TABLE outbox(
		seq       INTEGER PRIMARY KEY AUTOINCREMENT,
		id        TEXT NOT NULL UNIQUE,
		sender    TEXT NOT NULL,
		agent     TEXT NOT NULL,
		work_item TEXT NOT NULL,
		room      TEXT NOT NULL,
		thread    TEXT NOT NULL,
		thread_of TEXT NOT NULL,
		reply_to  TEXT NOT NULL,
		replaces  TEXT NOT NULL,
		content   TEXT NOT NULL, -- JSON, without relations
		digest    TEXT NOT NULL,
		state     TEXT NOT NULL CHECK(state IN ('new', 'sending', 'sent', 'failed')),
		sent_room TEXT NOT NULL DEFAULT '',
		event_id  TEXT NOT NULL DEFAULT '',
		seen      INTEGER NOT NULL DEFAULT 0,
		at        INTEGER NOT NULL,
		error     TEXT NOT NULL DEFAULT ''
	) STRICT;
	CREATE INDEX outbox_waiting ON outbox(sender, seq) WHERE state IN ('new', 'sending');
	CREATE INDEX outbox_event ON outbox(event_id);

	-- The thread of a work item: its root is an event, or the row of one that is still to be sent.
	CREATE TABLE threads(
		seq       INTEGER PRIMARY KEY AUTOINCREMENT,
		work_item TEXT NOT NULL UNIQUE,
		agent     TEXT NOT NULL,
		room      TEXT NOT NULL,
		root      TEXT NOT NULL,
		root_of   TEXT NOT NULL
	) STRICT;
	CREATE INDEX threads_root ON threads(root);

	-- The one progress message of a work item.
	CREATE TABLE progress(
		work_item TEXT PRIMARY KEY,
		agent     TEXT NOT NULL,
		text      TEXT NOT NULL,
		version   INTEGER NOT NULL,
		shown     INTEGER NOT NULL,
		shown_at  INTEGER NOT NULL
	) STRICT;
	CREATE TABLE progress_ids(
		id     TEXT PRIMARY KEY,
		digest TEXT NOT NULL
	) STRICT;
	`,
	`
	-- 1 from the message that opens an item until the item was seen among the API server's objects.
	ALTER TABLE threads ADD COLUMN unseen INTEGER NOT NULL DEFAULT 0;
	`,
	`
	-- 1 for what somebody has to read: refused, it is sent again plainly, not before a time (ms), for as long as that takes.
	ALTER TABLE outbox ADD COLUMN must INTEGER NOT NULL DEFAULT 0;
	ALTER TABLE outbox ADD COLUMN refusals INTEGER NOT NULL DEFAULT 0;
	ALTER TABLE outbox ADD COLUMN not_before INTEGER NOT NULL DEFAULT 0;
	-- The outbound that edits of the progress replace; empty when the next text is a message of its own.
	ALTER TABLE progress ADD COLUMN message TEXT NOT NULL DEFAULT '';
	UPDATE progress SET message = 'progress/' || work_item WHERE shown > 0;

	-- Gates that are not known to have ended, those too that the homeserver refused.
	UPDATE outbox SET must = 1 WHERE event_id = '' AND id GLOB 'gate/*/part/*'
		AND NOT EXISTS (SELECT 1 FROM outbox e WHERE e.id = substr(outbox.id, 1, instr(outbox.id, '/part/')) || 'end');
	UPDATE outbox SET state = 'new', refusals = 1 WHERE must = 1 AND state = 'failed';

	-- What waits for the event of a message that was refused does not any more: the newest of its edits is a message of its own, older
	-- ones say less than that, and what belonged into its thread stands outside.
	UPDATE outbox SET state = 'failed', error = 'a newer edit took its place' WHERE state = 'new'
		AND replaces IN (SELECT f.id FROM outbox f WHERE f.state = 'failed' AND f.event_id = '')
		AND EXISTS (SELECT 1 FROM outbox n WHERE n.replaces = outbox.replaces AND n.state = 'new' AND n.seq > outbox.seq);
	UPDATE progress SET message = COALESCE((SELECT o.id FROM outbox o WHERE o.replaces = progress.message AND o.state = 'new'), '')
		WHERE message IN (SELECT f.id FROM outbox f WHERE f.state = 'failed' AND f.event_id = '');
	UPDATE outbox SET replaces = '' WHERE state = 'new' AND replaces IN (SELECT f.id FROM outbox f WHERE f.state = 'failed' AND f.event_id = '');
	UPDATE outbox SET thread_of = '', room = CASE room WHEN '' THEN (SELECT f.sent_room FROM outbox f WHERE f.id = outbox.thread_of) ELSE room END
		WHERE state = 'new' AND thread_of IN (SELECT f.id FROM outbox f WHERE f.state = 'failed' AND f.event_id = '');
	UPDATE threads SET root_of = '', room = CASE room WHEN '' THEN (SELECT f.sent_room FROM outbox f WHERE f.id = threads.root_of) ELSE room END
		WHERE root = '' AND root_of IN (SELECT f.id FROM outbox f WHERE f.state = 'failed' AND f.event_id = '');
	`,
	`
	-- When a message that is seen was sent, in ms, by the homeserver but never later than it came in; 0 where that is not known.
	ALTER TABLE outbox ADD COLUMN seen_at INTEGER NOT NULL DEFAULT 0;
	`,
	`
	-- IDs of lines are kept for each agent's newest, and no longer than other things.
	ALTER TABLE progress_ids ADD COLUMN agent TEXT NOT NULL DEFAULT '';
	ALTER TABLE progress_ids ADD COLUMN at INTEGER NOT NULL DEFAULT 0;
	UPDATE progress_ids SET agent = substr(id, 10, instr(substr(id, 10), '/') - 1), at = unixepoch() * 1000;
	DELETE FROM progress_ids WHERE rowid IN (
		SELECT r FROM (SELECT rowid AS r, row_number() OVER (PARTITION BY agent ORDER BY rowid DESC) AS n FROM progress_ids) WHERE n > 1000);
	CREATE INDEX progress_ids_agent ON progress_ids(agent);

	-- What is looked for by its item or original must not take the longer the more others have said.
	CREATE INDEX outbox_item ON outbox(work_item, at);
	CREATE INDEX outbox_edits ON outbox(replaces, seq) WHERE replaces <> '';
	CREATE INDEX inbox_item ON inbox(work_item);
	CREATE INDEX mailbox_item ON mailbox(work_item);

	-- Words that stand in the room, or never will, are not needed here; nor are edits that newer ones took the place of.
	UPDATE outbox SET content = '' WHERE state IN ('sent', 'failed');
	DELETE FROM outbox WHERE state IN ('sent', 'failed') AND replaces <> ''
		AND EXISTS (SELECT 1 FROM outbox n WHERE n.work_item = outbox.work_item AND n.replaces = outbox.replaces AND n.state = 'sent' AND n.seq > outbox.seq);
	`,
	`
	-- What an agent's pod had stored, by the hour since 1970.
	CREATE TABLE spent(
		agent TEXT NOT NULL,
		hour  INTEGER NOT NULL,
		bytes INTEGER NOT NULL,
		PRIMARY KEY(agent, hour)
	) STRICT, WITHOUT ROWID;
	`,
	`
	-- An event that the sender had in the room before the first attempt that may have reached it: what became of the message stands after it.
	ALTER TABLE outbox ADD COLUMN sent_after TEXT NOT NULL DEFAULT '';
	CREATE INDEX outbox_sent ON outbox(sender, sent_room, seq) WHERE event_id <> '';
	UPDATE outbox SET sent_after = COALESCE((SELECT o.event_id FROM outbox o WHERE o.sender = outbox.sender AND o.sent_room = outbox.sent_room
		AND o.event_id <> '' AND o.refusals = 0 AND o.seq < outbox.seq ORDER BY o.seq DESC LIMIT 1), '') WHERE state = 'sending';
	`,
}

func migrate(ctx context.Context, db *sql.DB) error {
	var version int
	if err := db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return fmt.Errorf("read the store's version: %w", err)
	}
	if version > len(migrations) {
		return fmt.Errorf("the store was written by a newer gateway (version %d, this one knows %d); run that one", version, len(migrations))
	}
	for ; version < len(migrations); version++ {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return fmt.Errorf("migrate the store: %w", err)
		}
		if _, err := tx.ExecContext(ctx, migrations[version]+fmt.Sprintf("; PRAGMA user_version = %d", version+1)); err != nil {
			_ = tx.Rollback() // the first error says more
			return fmt.Errorf("migrate the store to version %d: %w", version+1, err)
		}
		if err := tx.Commit(); err != nil {
			return fmt.Errorf("migrate the store to version %d: %w", version+1, err)
		}
	}
	return nil
}
