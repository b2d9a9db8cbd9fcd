package store

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a?b#c %41") // names that mean something in a URL
	s, err := Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "cache_size": "-512"} {
		var got string
		if err := s.DB().QueryRow("PRAGMA " + pragma).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %s, %v", pragma, got, err)
		}
	}
	if i, err := os.Stat(File(dir)); err != nil || i.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", i, err)
	}
	if _, err := Open(t.Context(), dir); !errors.Is(err, ErrInUse) {
		t.Errorf("a second writer got %v", err)
	}
	if err := SetMetaInt(t.Context(), s.DB(), "x", 1<<60); err != nil {
		t.Fatal(err)
	}
	reader, err := OpenReadOnly(dir) // while it is in use
	if err != nil {
		t.Fatal(err)
	}
	if n, err := MetaInt(t.Context(), reader.DB(), "x"); err != nil || n != 1<<60 {
		t.Errorf("got %d, %v", n, err)
	}
	if err := SetMetaInt(t.Context(), reader.DB(), "x", 2); err == nil {
		t.Error("a reader could write")
	}
	if err := errors.Join(reader.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(t.Context(), dir); err != nil { // the lock is gone with its holder, what was written is there
		t.Fatal(err)
	}
	if n, err := MetaInt(t.Context(), s.DB(), "x"); err != nil || n != 1<<60 {
		t.Errorf("got %d, %v", n, err)
	}
	if _, err := s.DB().Exec("PRAGMA user_version = 99"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), dir); err == nil {
		t.Error("a store of a newer version was opened")
	}
	if _, err := OpenReadOnly(t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestTxIsWhole(t *testing.T) {
	s, err := Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	full := errors.New("full")
	set := func(tx *sql.Tx) error { return SetMeta(t.Context(), tx, "k", "v") }
	for name, do := range map[string]func() error{
		"failing": func() error {
			return s.Tx(t.Context(), func(tx *sql.Tx) error { return errors.Join(set(tx), full) })
		},
		"not committed": func() error {
			s.Fault = func() error { return full }
			defer func() { s.Fault = nil }()
			return s.Tx(t.Context(), set)
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := do(); !errors.Is(err, full) {
				t.Errorf("got %v", err)
			}
			if v, err := Meta(t.Context(), s.DB(), "k"); v != "" || err != nil {
				t.Errorf("half of it is there: %q, %v", v, err)
			}
		})
	}
	if err := s.Tx(t.Context(), set); err != nil {
		t.Error(err)
	}
}

// A store of the first schema keeps what it holds.
func TestMigrate(t *testing.T) {
	dir := t.TempDir()
	old, err := connect(File(dir), "rwc")
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{migrations[0], "PRAGMA user_version = 1", "INSERT INTO meta VALUES ('k', 'v')", "INSERT INTO audit VALUES (1, 'body', 'hash')"} {
		if _, err := old.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var rows, held, version int
	err = errors.Join(s.DB().QueryRow("SELECT count(*) FROM audit").Scan(&rows), s.DB().QueryRow("SELECT count(*) FROM manifests").Scan(&held),
		s.DB().QueryRow("PRAGMA user_version").Scan(&version))
	if err != nil || rows != 1 || held != 0 || version != len(migrations) {
		t.Errorf("%d rows, %d manifests, schema %d, %v", rows, held, version, err)
	}
	if v, err := Meta(t.Context(), s.DB(), "k"); err != nil || v != "v" {
		t.Errorf("got %q, %v", v, err)
	}
}
