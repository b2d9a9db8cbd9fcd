package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"nisse.io/nisse/gateway/metrics"
)

// ErrFull is returned when there is no room for what was to be stored. Nothing of it was; what was stored before is there, and the
// same may be tried again.
var ErrFull = errors.New("the volume of the gateway's store is full, and nothing more is kept: make it larger (gateway.storage.size)")

// full adds ErrFull to an error that means it.
func full(err error) error {
	var e *sqlite.Error
	if errors.As(err, &e) && e.Code()&0xff == sqlite3.SQLITE_FULL {
		metrics.StoreFull.Inc()
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}

// Space that the store takes and has, in bytes.
type Space struct {
	// Files is what its files take, and Reusable what of that was given up and is used before they grow.
	Files, Reusable int64
	// Free is what the volume has left.
	Free int64
}

// Space that the store takes and has.
func (s *Store) Space(ctx context.Context) (Space, error) {
	var r Space
	if err := s.db.QueryRowContext(ctx, `SELECT page_size * page_count, page_size * freelist_count
		FROM pragma_page_size, pragma_page_count, pragma_freelist_count`).Scan(&r.Files, &r.Reusable); err != nil {
		return r, fmt.Errorf("measure the store: %w", err)
	}
	switch log, err := os.Stat(filepath.Join(s.dir, fileName+"-wal")); {
	case err == nil:
		r.Files += log.Size()
	case !errors.Is(err, fs.ErrNotExist):
		return r, fmt.Errorf("measure the store: %w", err)
	}
	var v syscall.Statfs_t
	if err := syscall.Statfs(s.dir, &v); err != nil {
		return r, fmt.Errorf("measure the volume of the store: %w", err)
	}
	r.Free = int64(v.Bavail) * v.Bsize //nolint:gosec // no volume has 2^63 blocks
	return r, nil
}
