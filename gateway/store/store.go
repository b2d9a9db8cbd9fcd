// Package store keeps everything of the gateway that must survive it, in one SQLite file: sync tokens, what people said and what
// became of it, what waits to be said, and which message stands for which object. Whatever belongs together is written in one
// transaction; that is the reason why it is one file.
package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	_ "modernc.org/sqlite" // registers the driver "sqlite"
)

const (
	fileName = "gateway.db"
	lockName = "gateway.lock"
	// walBytes is how much the log beside the file keeps of its room once what it holds is in the file.
	walBytes = 8 << 20
)

// Store is the open file. It has one connection, so nothing inside Update or View may call methods of the Store.
type Store struct {
	db    *sql.DB
	lock  *os.File
	dir   string
	epoch string
	hub   hub
	// again is when pruning that failed is tried again.
	again time.Duration
}

// ErrLocked is returned when another gateway has the file open.
var ErrLocked = errors.New("another gateway uses this state directory")

// Open the store in dir, making it if it is not there. The process holds a lock on it until Close.
func Open(ctx context.Context, dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the state directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock file: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close() // nothing was written
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s; run one gateway a directory", ErrLocked, dir)
		}
		return nil, fmt.Errorf("lock the state directory: %w", err)
	}
	s := &Store{lock: lock, dir: dir, again: time.Minute}
	if err := s.open(ctx, filepath.Join(dir, fileName)); err != nil {
		_ = s.Close() // the first error says more
		return nil, err
	}
	return s, nil
}

func (s *Store) open(ctx context.Context, path string) error {
	// Made beforehand, because SQLite would let others read it and it holds access tokens.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	// The time options and foreign keys are what mautrix's stores want that will share this file.
	s.db, err = sql.Open("sqlite", "file:"+path+"?_pragma=foreign_keys(1)&_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)"+
		fmt.Sprintf("&_pragma=journal_size_limit(%d)", walBytes)+"&_pragma=synchronous(FULL)&_txlock=immediate&_time_format=sqlite&_timezone=UTC")
	if err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	s.db.SetMaxOpenConns(1)
	if err := migrate(ctx, s.db); err != nil {
		return err
	}
	return s.Update(ctx, func(tx *Tx) error {
		err := tx.QueryRow("SELECT value FROM meta WHERE key = 'epoch'").Scan(&s.epoch)
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		s.epoch = rand.Text()
		return tx.exec("INSERT INTO meta(key, value) VALUES('epoch', ?)", s.epoch)
	})
}

// Epoch tells this store from one that was made anew or restored: sequence numbers mean something within one epoch only.
func (s *Store) Epoch() string { return s.epoch }

// Close the store and let go of the lock.
func (s *Store) Close() error {
	var err error
	if s.db != nil {
		err = s.db.Close()
	}
	return errors.Join(err, s.lock.Close())
}

// Tx is one transaction.
type Tx struct {
	*sql.Tx
	ctx     context.Context
	changed []string
	after   []func()
}

// After the commit, f runs; not if it fails.
func (t *Tx) After(f func()) { t.after = append(t.after, f) }

// Update runs f in one transaction, which is committed when f returns nil. Waiters hear of the changes after the commit.
func (s *Store) Update(ctx context.Context, f func(*Tx) error) error {
	t, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return full(fmt.Errorf("begin: %w", err))
	}
	tx := &Tx{Tx: t, ctx: ctx}
	if err := f(tx); err != nil {
		if err = full(err); errors.Is(err, ErrFull) {
			_ = t.Rollback() // SQLite has done it already, and says so
			return err
		}
		return errors.Join(err, ignoreDone(t.Rollback()))
	}
	if err := t.Commit(); err != nil {
		return full(fmt.Errorf("commit: %w", err))
	}
	s.hub.tell(tx.changed)
	for _, f := range tx.after {
		f()
	}
	return nil
}

func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return nil
	}
	return err
}

func (t *Tx) exec(query string, args ...any) error {
	_, err := t.ExecContext(t.ctx, query, args...)
	return err
}

func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}

// affected tells whether an INSERT … ON CONFLICT DO NOTHING made a row, or an UPDATE found one.
func (t *Tx) affected(query string, args ...any) (bool, error) {
	res, err := t.ExecContext(t.ctx, query, args...)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}

// found turns "no rows" into false.
func found(err error) (bool, error) {
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}
