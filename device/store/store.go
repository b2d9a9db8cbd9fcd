// Package store is the one SQLite file of a device: its manifests, its audit, its deeds and what its clock has seen. A row of the audit and the change
// of the deed that it tells of are one transaction.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	_ "modernc.org/sqlite" // the driver
)

// ErrInUse is wrapped when another process has the store open for writing.
var ErrInUse = errors.New("another nisse-device uses this state directory")

// Store of a device.
type Store struct {
	db   *sql.DB
	lock *os.File
	// Fault, for tests, is asked before each commit; its error fails the transaction.
	Fault func() error
}

// File of the store in a state directory.
func File(dir string) string { return filepath.Join(dir, "device.db") }

// migrations, oldest first; each is one step of user_version and never changes.
var migrations = []string{`
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE audit (seq INTEGER PRIMARY KEY, body TEXT NOT NULL, hash TEXT NOT NULL) STRICT;
CREATE TABLE deeds (
	id         TEXT PRIMARY KEY,
	call_hash  TEXT NOT NULL,
	approved   INTEGER NOT NULL,
	state      TEXT NOT NULL,
	answer     BLOB NOT NULL DEFAULT x'',
	expires_at INTEGER NOT NULL,
	intent_row INTEGER NOT NULL
) STRICT;
CREATE INDEX deeds_age ON deeds (approved, expires_at);
CREATE INDEX deeds_open ON deeds (state) WHERE state = 'Running';
CREATE TABLE totals (approved INTEGER PRIMARY KEY, deeds INTEGER NOT NULL, bytes INTEGER NOT NULL) STRICT;
INSERT INTO totals VALUES (0, 0, 0), (1, 0, 0);
CREATE TRIGGER deeds_insert AFTER INSERT ON deeds BEGIN
	UPDATE totals SET deeds = deeds + 1, bytes = bytes + length(new.answer) WHERE approved = new.approved;
END;
CREATE TRIGGER deeds_update AFTER UPDATE OF answer ON deeds BEGIN
	UPDATE totals SET bytes = bytes + length(new.answer) - length(old.answer) WHERE approved = new.approved;
END;
CREATE TRIGGER deeds_delete AFTER DELETE ON deeds BEGIN
	UPDATE totals SET deeds = deeds - 1, bytes = bytes - length(old.answer) WHERE approved = old.approved;
END;
`, `
CREATE TABLE manifests (privilege TEXT PRIMARY KEY, epoch INTEGER NOT NULL, digest TEXT NOT NULL, envelope TEXT NOT NULL) STRICT;
`, `
CREATE TABLE tree (level INTEGER, n INTEGER, hash BLOB NOT NULL, PRIMARY KEY (level, n)) STRICT, WITHOUT ROWID;
CREATE TABLE checkpoints (rows INTEGER PRIMARY KEY, root TEXT NOT NULL, note TEXT NOT NULL, at INTEGER NOT NULL) STRICT;
`, `
ALTER TABLE manifests ADD COLUMN root TEXT NOT NULL DEFAULT '';
ALTER TABLE manifests ADD COLUMN device TEXT NOT NULL DEFAULT '';
`, `
CREATE TABLE old_audit (line INTEGER, seq INTEGER, body TEXT NOT NULL, hash TEXT NOT NULL, PRIMARY KEY (line, seq)) STRICT, WITHOUT ROWID;
CREATE TABLE old_checkpoints (line INTEGER, rows INTEGER, root TEXT NOT NULL, note TEXT NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (line, rows)) STRICT, WITHOUT ROWID;
`}

// Open the store in dir for writing, made if it is not there. One process at a time: a second writer would fork the audit.
func Open(ctx context.Context, dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("%w: %s", ErrInUse, dir)
	}
	s := &Store{lock: lock}
	if err := s.open(ctx, dir); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Store) open(ctx context.Context, dir string) error {
	// The file is made here, not by SQLite, for its mode.
	f, err := os.OpenFile(File(dir), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if s.db, err = connect(File(dir), "rwc"); err != nil {
		return err
	}
	return s.migrate(ctx)
}

// connect opens the file with what durability needs. One connection: SQLite has one writer anyway, and so no lock can be in the way.
func connect(file, mode string) (*sql.DB, error) {
	q := url.Values{"mode": {mode}, "_pragma": {"busy_timeout(5000)"}}
	if mode != "ro" {
		q.Set("_txlock", "immediate")
		q["_pragma"] = append(q["_pragma"], "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)", "cache_size(-512)") // KiB: a call touches some thirty pages
	}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: file}).EscapedPath(), RawQuery: q.Encode()}).String())
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	db.SetMaxOpenConns(1)
	return db, nil
}

func (s *Store) migrate(ctx context.Context) error {
	var have int
	if err := s.db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&have); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if have > len(migrations) {
		return fmt.Errorf("store: it was written by a newer nisse-device (schema %d, this one knows %d); install that one again", have, len(migrations))
	}
	for i := have; i < len(migrations); i++ {
		err := s.Tx(ctx, func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, migrations[i]); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, "PRAGMA user_version = "+strconv.Itoa(i+1))
			return err
		})
		if err != nil {
			return fmt.Errorf("store: migrate to schema %d: %w", i+1, err)
		}
	}
	return nil
}

// OpenReadOnly opens the file of a store to look at it, also while a device uses it.
func OpenReadOnly(dir string) (*Store, error) {
	if _, err := os.Stat(File(dir)); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	db, err := connect(File(dir), "ro")
	if err != nil {
		return nil, err
	}
	return &Store{db: db}, nil
}

// DB for reading.
func (s *Store) DB() *sql.DB { return s.db }

// Tx runs do in one transaction that is on disk when Tx returns nil.
func (s *Store) Tx(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a commit this does nothing
	if err := do(tx); err != nil {
		return err
	}
	if s.Fault != nil {
		if err := s.Fault(); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// Close the store.
func (s *Store) Close() error {
	var err error
	if s.db != nil {
		err = s.db.Close()
	}
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
	}
	return err
}

// Querier is what both a database and a transaction can do.
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Meta returns the value of a key, empty when it was never set.
func Meta(ctx context.Context, q Querier, key string) (string, error) {
	var v string
	err := q.QueryRowContext(ctx, "SELECT value FROM meta WHERE key = ?", key).Scan(&v)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return v, err
}

// SetMeta of a key.
func SetMeta(ctx context.Context, q Querier, key, value string) error {
	_, err := q.ExecContext(ctx, "INSERT INTO meta VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value", key, value)
	return err
}

// MetaInt is Meta for integers, 0 when it was never set.
func MetaInt(ctx context.Context, q Querier, key string) (int64, error) {
	v, err := Meta(ctx, q, key)
	if err != nil || v == "" {
		return 0, err
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("store: meta %s: %w", key, err)
	}
	return n, nil
}

// SetMetaInt of a key.
func SetMetaInt(ctx context.Context, q Querier, key string, n int64) error {
	return SetMeta(ctx, q, key, strconv.FormatInt(n, 10))
}
