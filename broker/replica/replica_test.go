package replica

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nisse.io/nisse/device/wire/chain"
	"nisse.io/nisse/internal/checkpoint"
)

func public(seed byte) ed25519.PublicKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize)).Public().(ed25519.PublicKey)
}

// machine has an audit and gives it in small pages.
type machine struct {
	t     *testing.T
	rows  []string
	pages int
}

// grow by rows that bear a word.
func (m *machine) grow(n int, word string) {
	m.t.Helper()
	for range n {
		prev := chain.Genesis
		if len(m.rows) > 0 {
			prev = chain.Hash(m.rows[len(m.rows)-1])
		}
		body, err := chain.Row{Seq: int64(len(m.rows) + 1), At: "1", Kind: chain.Intent, Agent: word, Prev: prev}.Encode()
		m.must(err)
		m.rows = append(m.rows, body)
	}
}

func (m *machine) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) at(rows int) checkpoint.Checkpoint {
	m.t.Helper()
	var tree checkpoint.Tree
	for _, r := range m.rows[:rows] {
		leaf, err := checkpoint.Leaf(chain.Hash(r))
		m.must(err)
		tree.Add(leaf)
	}
	return tree.Now()
}

// audit of which the manager has kept some rows.
func (m *machine) audit(kept int) Audit {
	return Audit{Device: "web1", Key: public(3), Kept: m.at(kept), Now: m.at(len(m.rows))}
}

func (m *machine) page(_ context.Context, after int64) ([]string, bool, error) {
	m.pages++
	rest := m.rows[min(int(after), len(m.rows)):]
	page := rest[:min(10, len(rest))]
	return page, len(page) < len(rest), nil
}

func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir, 4<<20)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// take, and want so many rows and this error.
func (m *machine) take(s *Store, a Audit, rows int, want error) {
	m.t.Helper()
	got, err := s.Take(m.t.Context(), a, m.page)
	if got != int64(rows) || !errors.Is(err, want) {
		m.t.Errorf("got %d rows, %v; want %d, %v", got, err, rows, want)
	}
}

func (m *machine) shows(dir string, rows int) {
	m.t.Helper()
	var b strings.Builder
	m.must(Show(dir, "web1", &b))
	if want := strings.Join(m.rows[:rows], "\n") + "\n"; b.String() != want {
		m.t.Errorf("shown are %d bytes, want the %d of %d rows", b.Len(), len(want), rows)
	}
}

func TestTakes(t *testing.T) {
	m, dir := &machine{t: t}, t.TempDir()
	s := open(t, dir)
	m.take(s, m.audit(0), 0, nil)
	m.grow(25, "row")
	sealed := m.audit(10)
	m.grow(3, "row")
	m.take(s, sealed, 25, nil) // what is not sealed yet comes with the next checkpoint
	m.shows(dir, 25)
	before := m.pages
	m.take(s, sealed, 25, nil)
	if m.pages != before {
		t.Error("it asked, and has all")
	}
	m.take(s, m.audit(25), 28, nil)
	s = open(t, dir) // another broker
	m.grow(1, "row")
	m.take(s, m.audit(28), 29, nil)
	m.shows(dir, 29)
	// A pass takes so much, and the next goes on.
	m.grow(10*mostPages, "row")
	m.take(s, m.audit(29), 29+10*mostPages-0, nil)
	m.grow(10*mostPages+5, "row")
	m.take(s, m.audit(29), 29+20*mostPages, nil)
	m.take(s, m.audit(29), 29+20*mostPages+5, nil)
}

// A row that was written in part is no row.
func TestStopsWhileItWrites(t *testing.T) {
	m, dir := &machine{t: t}, t.TempDir()
	m.grow(12, "row")
	m.take(open(t, dir), m.audit(0), 12, nil)
	f, err := os.OpenFile(filepath.Join(dir, m.audit(0).file()), os.O_WRONLY|os.O_APPEND, 0)
	m.must(err)
	_, err = f.WriteString(`{"agent":"ha`)
	m.must(errors.Join(err, f.Close()))
	m.grow(4, "row")
	m.take(open(t, dir), m.audit(12), 16, nil)
	m.shows(dir, 16)
	m.take(open(t, dir), m.audit(12), 16, nil)
}

// Whatever a hostile device gives, what was replicated stays.
func TestHostileDevices(t *testing.T) {
	whole := func(m *machine) Audit { return m.audit(20) }
	for _, c := range []struct {
		name string
		does func(m *machine) Audit
		rows int
		err  error
	}{
		{"rows written anew", func(m *machine) Audit { m.rows = m.rows[:15]; m.grow(15, "forged"); return m.audit(10) }, 20, ErrDiverged},
		{"rows that it did not sign", func(m *machine) Audit {
			m.grow(5, "row")
			a := m.audit(20)
			m.rows = m.rows[:20]
			m.grow(5, "forged")
			return a
		}, 20, ErrDiverged},
		{"rows left out", func(m *machine) Audit {
			m.grow(5, "row")
			a := m.audit(20)
			m.rows = append(m.rows[:21], m.rows[22:]...)
			return a
		}, 20, ErrDiverged},
		{"fewer than it signed", func(m *machine) Audit { m.grow(5, "row"); a := m.audit(20); m.rows = m.rows[:23]; return a }, 23, ErrDiverged},
		{"no rows", func(m *machine) Audit {
			m.grow(5, "row")
			a := m.audit(20)
			m.rows = append(m.rows[:20], "{}", "x")
			return a
		}, 20, ErrDiverged},
		{"a row of a megabyte", func(m *machine) Audit { m.grow(1, strings.Repeat("x", longestRow)); return whole(m) }, 20, ErrDiverged},
		{"two lines in one row", func(m *machine) Audit { m.grow(2, "row"); a := m.audit(20); m.rows[20] += "\n" + m.rows[21]; return a }, 20, ErrDiverged},
		{"a machine that was set up anew", func(m *machine) Audit {
			m.rows = nil
			m.grow(3, "new")
			a := m.audit(0)
			a.Key = public(4)
			return a
		}, 3, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, dir := &machine{t: t}, t.TempDir()
			m.grow(20, "row")
			m.take(open(t, dir), m.audit(10), 20, nil)
			kept := filepath.Join(dir, m.audit(0).file())
			before, err := os.ReadFile(kept)
			m.must(err)
			s := open(t, dir)
			a := c.does(m)
			m.take(s, a, c.rows, c.err)
			m.take(s, a, c.rows, c.err) // and stays so
			if after, err := os.ReadFile(kept); err != nil || !bytes.HasPrefix(after, before) {
				t.Errorf("what was replicated is gone: %v", err)
			}
		})
	}
}

// What a checkpoint says that came after the rows is looked at when the broker starts anew.
func TestRootIsComparedAtTheStart(t *testing.T) {
	m, dir := &machine{t: t}, t.TempDir()
	m.grow(20, "row")
	m.take(open(t, dir), Audit{Device: "web1", Key: public(3), Now: m.at(20)}, 20, nil)
	other := &machine{t: t}
	other.grow(30, "other")
	s := open(t, dir)
	a := other.audit(20)
	if _, err := s.Take(t.Context(), a, other.page); !errors.Is(err, ErrDiverged) {
		t.Errorf("got %v", err)
	}
}

func TestBounds(t *testing.T) {
	m, dir := &machine{t: t}, t.TempDir()
	m.grow(30, "row")
	s, err := Open(dir, int64(12*(len(m.rows[0])+2)))
	m.must(err)
	m.take(s, m.audit(0), 12, ErrFull)
	m.take(s, m.audit(0), 12, ErrFull)
	m.shows(dir, 12)
	// Its end is on the last page: a device that gives all it has is not accused for what there is no room for.
	few, last := &machine{t: t}, t.TempDir()
	few.grow(14, "row")
	s, err = Open(last, int64(12*(len(few.rows[0])+2)))
	m.must(err)
	few.take(s, few.audit(0), 12, ErrFull)
	few.shows(last, 12)
	endless := func(context.Context, int64) ([]string, bool, error) { m.pages++; return nil, true, nil }
	before := m.pages
	if _, err := open(t, t.TempDir()).Take(t.Context(), m.audit(0), endless); err != nil || m.pages-before != mostPages {
		t.Errorf("%d pages, %v", m.pages-before, err)
	}
	away := errors.New("away")
	if n, err := open(t, t.TempDir()).Take(t.Context(), m.audit(0), func(context.Context, int64) ([]string, bool, error) { return nil, false, away }); n != 0 || !errors.Is(err, away) {
		t.Errorf("got %d, %v", n, err)
	}
}

// Somebody who could write the file is found out, and what is there is left as it is.
func TestDamaged(t *testing.T) {
	m, dir := &machine{t: t}, t.TempDir()
	m.grow(20, "row")
	m.take(open(t, dir), m.audit(0), 20, nil)
	file := filepath.Join(dir, m.audit(0).file())
	b, err := os.ReadFile(file)
	m.must(err)
	edited := bytes.Replace(b, []byte(`"agent":"row"`), []byte(`"agent":"roe"`), 1)
	m.must(os.WriteFile(file, edited, 0o600))
	m.take(open(t, dir), m.audit(0), 0, ErrDamaged)
	if after, err := os.ReadFile(file); err != nil || !bytes.Equal(after, edited) {
		t.Errorf("it was changed: %v", err)
	}
}

func TestShow(t *testing.T) {
	m, dir := &machine{t: t}, t.TempDir()
	s := open(t, dir)
	m.grow(2, "row")
	for _, seed := range []byte{3, 4} {
		a := m.audit(0)
		a.Key = public(seed)
		m.take(s, a, 2, nil)
	}
	var b strings.Builder
	if err := Show(dir, "web1", &b); err == nil || !strings.Contains(err.Error(), "several") || b.Len() > 0 {
		t.Errorf("got %v", err)
	}
	if err := Show(dir, fmt.Sprint(m.audit(0).file()), &b); err != nil || b.Len() == 0 {
		t.Errorf("got %v", err)
	}
	for _, name := range []string{"web", "web2", "../web1"} {
		if err := Show(dir, name, &b); err == nil {
			t.Errorf("%s was shown", name)
		}
	}
}
