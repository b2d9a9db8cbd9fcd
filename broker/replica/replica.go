// Package replica keeps the rows of devices' audits beside the broker, so that a machine that is destroyed still leaves what it did. A replica is a
// file of rows, one a line, as they are hashed. It is only ever added to: what a device says later cannot take from it what it said before. The
// device is hostile here as everywhere: each row must continue the one before it, all of them must have the roots that the device has signed, and
// how much is taken is bounded.
package replica

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/mod/sumdb/tlog"

	"nisse.io/nisse/device/wire/chain"
	"nisse.io/nisse/internal/checkpoint"
	"nisse.io/nisse/internal/dsse"
)

// What ends a pass before its time.
var (
	// ErrDiverged is wrapped when what the device gives does not continue what it gave before, or is not what it has signed. Nothing of it is added.
	ErrDiverged = errors.New("the rows that the device gives are not those of its audit")
	// ErrFull is wrapped when a replica has as many bytes as it may have.
	ErrFull = errors.New("the replica is full")
	// ErrDamaged is wrapped when the file is not what was written.
	ErrDamaged = errors.New("the replica was damaged")
)

const (
	// mostPages of a pass. A device's page has a mebibyte.
	mostPages = 8
	// longestRow in bytes.
	longestRow = 1 << 20
)

// Store of replicas.
type Store struct {
	dir  string
	most int64

	mu    sync.Mutex
	files map[string]*file
}

// Open the store in a directory, which is made if it is not there. Each replica may have so many bytes.
func Open(dir string, most int64) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("replicas of audits: %w", err)
	}
	return &Store{dir: dir, most: most, files: map[string]*file{}}, nil
}

// Source of a device's rows: those after a row, as many as one page has.
type Source func(ctx context.Context, after int64) (rows []string, more bool, err error)

// Audit that is replicated.
type Audit struct {
	Device string
	// Key of the device. A machine that was set up anew under the same name has another, and a replica of its own.
	Key ed25519.PublicKey
	// Kept is the checkpoint that the manager has, and Now the newest that the device has signed and proven to extend it.
	Kept, Now checkpoint.Checkpoint
}

func (a Audit) file() string {
	if a.Now.Line > 0 { // the line that it follows stays as it is
		return fmt.Sprintf("%s.%s.%d.jsonl", a.Device, dsse.KeyID(a.Key), a.Now.Line)
	}
	return fmt.Sprintf("%s.%s.jsonl", a.Device, dsse.KeyID(a.Key))
}

// Take rows up to the newest checkpoint, as many as one pass may. It returns how many rows the replica has.
func (s *Store) Take(ctx context.Context, a Audit, from Source) (int64, error) {
	f, err := s.file(a)
	if err != nil {
		return 0, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.diverged != nil {
		return f.rows, f.diverged
	}
	for range mostPages {
		if f.rows >= a.Now.Rows {
			break
		}
		page, more, err := from(ctx, f.rows)
		if err != nil {
			return f.rows, err
		}
		if err := f.add(page, a, s.most); err != nil {
			return f.rows, err
		}
		if !more && f.rows < a.Now.Rows {
			return f.rows, f.diverge("it has signed that it has %d rows, and gives %d", a.Now.Rows, f.rows)
		}
	}
	return f.rows, nil
}

// Rows of a replica; 0 where there is none, or it cannot be read.
func (s *Store) Rows(a Audit) int64 {
	f, err := s.file(a)
	if err != nil {
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rows
}

// file of an audit, read when it is first asked for.
func (s *Store) file(a Audit) (*file, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := a.file()
	if f := s.files[name]; f != nil {
		return f, nil
	}
	f := &file{path: filepath.Join(s.dir, name), state: state{head: chain.Genesis}}
	if err := f.load(a); err != nil {
		return nil, err
	}
	s.files[name] = f
	return f, nil
}

// state of a replica: what its next row must continue.
type state struct {
	rows int64
	head string
	size int64
	tree checkpoint.Tree
}

type file struct {
	mu   sync.Mutex
	path string
	state
	// diverged is why nothing is added any more.
	diverged error
}

func (f *file) diverge(format string, args ...any) error {
	f.diverged = fmt.Errorf("%w: %s; compare %s with the machine, and move it away to begin anew", ErrDiverged, fmt.Sprintf(format, args...), f.path)
	return f.diverged
}

// next row.
func (s *state) next(body string, seen ...checkpoint.Checkpoint) error {
	if len(body) > longestRow {
		return fmt.Errorf("row %d has %d bytes", s.rows+1, len(body))
	}
	r, err := chain.Decode(body)
	if err != nil {
		return fmt.Errorf("row %d: %w", s.rows+1, err)
	}
	if r.Seq != s.rows+1 || r.Prev != s.head {
		return fmt.Errorf("row %d does not continue row %d as it was replicated", r.Seq, s.rows)
	}
	s.rows, s.head, s.size = r.Seq, chain.Hash(body), s.size+lineSize(body)
	leaf, err := checkpoint.Leaf(s.head)
	if err != nil {
		return err
	}
	s.tree.Add(leaf)
	return s.agrees(seen...)
}

func lineSize(body string) int64 { return int64(len(body)) + 1 }

// agrees tells whether the rows are those that a checkpoint was made of, where it was made of that many.
func (s *state) agrees(seen ...checkpoint.Checkpoint) error {
	for _, c := range seen {
		if c.Rows == s.rows && (c.Root != tlog.Hash{}) && s.tree.Now().Root != c.Root {
			return fmt.Errorf("rows up to %d are not those that its checkpoint was made of", s.rows)
		}
	}
	return nil
}

// add a page, as a whole or not at all.
func (f *file) add(page []string, a Audit, most int64) error {
	s := f.state
	s.tree = s.tree.Clone()
	var b strings.Builder
	full := false
	for _, body := range page {
		if s.rows == a.Now.Rows {
			break // what comes after it is not sealed yet
		}
		if full = s.size+lineSize(body) > most; full {
			break
		}
		if err := s.next(body, a.Kept, a.Now); err != nil {
			return f.diverge("%v", err)
		}
		b.WriteString(body)
		b.WriteByte('\n')
	}
	if err := f.write(b.String()); err != nil {
		return err
	}
	f.state = s
	if full {
		return fmt.Errorf("%w: %s has %d bytes, and %d are allowed", ErrFull, f.path, f.size, most)
	}
	return nil
}

// write rows behind those that are there, and wait until they are on disk. What was written in part is cut off by the next write, or at the next start.
func (f *file) write(rows string) error {
	if rows == "" {
		return nil
	}
	w, err := os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("replica: %w", err)
	}
	_, err = w.WriteAt([]byte(rows), f.size)
	if err == nil {
		err = w.Truncate(f.size + int64(len(rows)))
	}
	if err = errors.Join(err, w.Sync(), w.Close()); err != nil {
		return fmt.Errorf("replica: %w", err)
	}
	return nil
}

// load what was written. A last row without its end was being written when the broker stopped.
func (f *file) load(a Audit) error {
	in, err := os.Open(f.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("replica: %w", err)
	}
	defer func() { _ = in.Close() }() // read-only
	r := bufio.NewReader(in)
	for {
		line, err := r.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("replica: %w", err)
		}
		if err := f.next(strings.TrimSuffix(line, "\n")); err != nil {
			return fmt.Errorf("%w: %s: %w; move it away to begin anew", ErrDamaged, f.path, err)
		}
		if err := f.agrees(a.Kept, a.Now); err != nil {
			_ = f.diverge("%v", err)
		}
	}
}

// Show writes a replica as it is, one row a line. It is named by its device or, where that has had several keys, by the beginning of its file's name.
func Show(dir, name string, w io.Writer) error {
	all, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("replicas of audits: %w", err)
	}
	var found []string
	for _, e := range all {
		if e.Name() == name || strings.HasPrefix(e.Name(), name+".") {
			found = append(found, e.Name())
		}
	}
	switch len(found) {
	case 0:
		return fmt.Errorf("there is no replica of %s in %s", name, dir)
	case 1:
	default:
		return fmt.Errorf("there are several replicas of %s, of different keys or lines; name one of %s", name, strings.Join(found, ", "))
	}
	f, err := os.Open(filepath.Join(dir, found[0]))
	if err != nil {
		return fmt.Errorf("replica: %w", err)
	}
	defer func() { _ = f.Close() }() // read-only
	_, err = io.Copy(w, f)
	return err
}
