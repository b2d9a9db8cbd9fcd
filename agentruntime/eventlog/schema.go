package eventlog

import (
	"context"
	"database/sql"
	"fmt"
)

// migrations in order; the index of one plus one is the schema version it leads to. One that has landed is never edited.
var migrations = []string{
	`CREATE TABLE meta (
		id        INTEGER PRIMARY KEY CHECK (id = 1),
		log_id    TEXT NOT NULL,
		head_seq  INTEGER NOT NULL,
		head_hash TEXT NOT NULL
	) STRICT;
	CREATE TABLE events (
		seq       INTEGER PRIMARY KEY,
		id        TEXT NOT NULL UNIQUE,
		work_item TEXT NOT NULL,
		type      TEXT NOT NULL,
		payload   TEXT NOT NULL,
		source    TEXT NOT NULL UNIQUE,
		hash      TEXT NOT NULL,
		prev_hash TEXT NOT NULL,
		at        TEXT NOT NULL
	) STRICT;
	CREATE INDEX events_of_item ON events (work_item, seq);
	CREATE TABLE intents (
		id        TEXT PRIMARY KEY,
		kind      TEXT NOT NULL,
		work_item TEXT NOT NULL,
		subject   TEXT NOT NULL,
		state     TEXT NOT NULL CHECK (state IN ('open', 'settled', 'dropped')),
		at        TEXT NOT NULL
	) STRICT;
	CREATE INDEX intents_open ON intents (state) WHERE state = 'open';
	CREATE TABLE outbox (
		n         INTEGER PRIMARY KEY,
		id        TEXT NOT NULL UNIQUE,
		work_item TEXT NOT NULL,
		kind      TEXT NOT NULL,
		text      TEXT NOT NULL,
		state     TEXT NOT NULL CHECK (state IN ('queued', 'delivered', 'refused')),
		at        TEXT NOT NULL
	) STRICT;
	CREATE INDEX outbox_queued ON outbox (state) WHERE state = 'queued';
	CREATE TABLE cursor (
		name  TEXT PRIMARY KEY,
		epoch TEXT NOT NULL,
		seq   INTEGER NOT NULL
	) STRICT;
	CREATE TABLE asides (
		digest TEXT PRIMARY KEY,
		body   TEXT NOT NULL
	) STRICT;`,
}

// migrate brings the schema up to date and returns the version it found. A file of a newer version is left alone: an older
// program would write what the newer one cannot read.
func migrate(ctx context.Context, db *sql.DB) (from int, err error) {
	if err := db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&from); err != nil {
		return 0, fmt.Errorf("read schema version: %w", err)
	}
	if from > len(migrations) {
		return from, fmt.Errorf("event log has schema version %d and this program knows %d; run the newer program, or restore the log that belongs to this one", from, len(migrations))
	}
	for v := from; v < len(migrations); v++ {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return from, fmt.Errorf("migrate to schema version %d: %w", v+1, err)
		}
		if _, err := tx.ExecContext(ctx, migrations[v]); err != nil {
			_ = tx.Rollback()
			return from, fmt.Errorf("migrate to schema version %d: %w", v+1, err)
		}
		if _, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", v+1)); err != nil {
			_ = tx.Rollback()
			return from, fmt.Errorf("migrate to schema version %d: %w", v+1, err)
		}
		if err := tx.Commit(); err != nil {
			return from, fmt.Errorf("migrate to schema version %d: %w", v+1, err)
		}
	}
	return from, nil
}
