package deeds

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nisse.io/nisse/device/store"
	"nisse.io/nisse/device/wire"
)

const day = 86400

func open(t *testing.T) *store.Store {
	t.Helper()
	st, err := store.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return st
}

func add(t *testing.T, st *store.Store, table Table, now int64, d Deed) error {
	t.Helper()
	return st.Tx(t.Context(), func(tx *sql.Tx) error { return table.Add(t.Context(), tx, now, d) })
}

func finish(t *testing.T, st *store.Store, id string, answer []byte) error {
	t.Helper()
	return st.Tx(t.Context(), func(tx *sql.Tx) error { return Finish(t.Context(), tx, id, wire.Succeeded, answer) })
}

func TestLife(t *testing.T) {
	st := open(t)
	table := Table{DefaultBounds}
	d := Deed{ID: "d", CallHash: "c", Approved: true, State: wire.Running, ExpiresAt: 100, IntentRow: 7}
	if _, found, err := Get(t.Context(), st.DB(), "d"); found || err != nil {
		t.Errorf("found %t, %v", found, err)
	}
	if err := add(t, st, table, 1, d); err != nil {
		t.Fatal(err)
	}
	if err := add(t, st, table, 1, d); err == nil {
		t.Error("a deed was added twice")
	}
	all, err := Open(t.Context(), st.DB())
	if err != nil || len(all) != 1 || all[0].ID != "d" || all[0].IntentRow != 7 {
		t.Errorf("open: %+v, %v", all, err)
	}
	answer := []byte{0, 1, 0xff, '\n'}
	if err := finish(t, st, "d", answer); err != nil {
		t.Fatal(err)
	}
	if err := finish(t, st, "d", []byte("other")); err == nil {
		t.Error("a deed was finished twice")
	}
	if err := finish(t, st, "none", nil); err == nil {
		t.Error("a deed that was never begun was finished")
	}
	got, found, err := Get(t.Context(), st.DB(), "d")
	d.State, d.Answer = wire.Succeeded, answer
	if diff := cmp.Diff(d, got); diff != "" || !found || err != nil {
		t.Error(diff, found, err)
	}
	if all, err := Open(t.Context(), st.DB()); err != nil || len(all) != 0 {
		t.Errorf("open: %+v, %v", all, err)
	}
}

func TestRetention(t *testing.T) {
	for _, c := range []struct {
		name             string
		approved         bool
		state            wire.State
		age              int64 // of the deeds that fill the table, since they expired
		believed, pruned bool
	}{
		{"approved, 89 days", true, wire.Succeeded, 89 * day, true, false},
		{"approved, 91 days", true, wire.Succeeded, 91 * day, true, true},
		{"approved and running, 91 days", true, wire.Running, 91 * day, true, false},
		{"approved, 91 days by a clock that is not believed", true, wire.Succeeded, 91 * day, false, false},
		{"free, an hour", false, wire.Succeeded, 3600, true, false},
		{"free, three hours", false, wire.Succeeded, 3 * 3600, true, true},
		{"free, two days", false, wire.Refused, 2 * day, true, true},
		{"free, two days, not believed", false, wire.Refused, 2 * day, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			st := open(t)
			table := Table{Bounds{Approved: 2, Free: 2, ApprovedBytes: 1000, FreeBytes: 1000}}
			for i := range 2 {
				if err := add(t, st, table, 1, Deed{ID: fmt.Sprint(i), Approved: c.approved, State: c.state, ExpiresAt: 1000}); err != nil {
					t.Fatal(err)
				}
			}
			if err := add(t, st, table, 1, Deed{ID: "of the other kind", Approved: !c.approved, State: wire.Running}); err != nil {
				t.Errorf("the kinds share their room: %v", err)
			}
			now := 1000 + c.age
			if !c.believed {
				now = 0
			}
			err := add(t, st, table, now, Deed{ID: "new", Approved: c.approved, State: wire.Running, ExpiresAt: now})
			if c.pruned != (err == nil) || err != nil && !errors.Is(err, ErrFull) {
				t.Errorf("got %v", err)
			}
			if _, found, err := Get(t.Context(), st.DB(), "0"); found == c.pruned || err != nil {
				t.Errorf("found %t, %v", found, err)
			}
		})
	}
}

// The two days' retention comes before the pressed one: with room to spare after it, younger deeds stay.
func TestOldestFirst(t *testing.T) {
	st := open(t)
	table := Table{Bounds{Free: 2, FreeBytes: 1000}}
	now := int64(10 * day)
	for id, expired := range map[string]int64{"old": now - 2*day, "young": now - 5*3600} {
		if err := add(t, st, table, now, Deed{ID: id, State: wire.Succeeded, ExpiresAt: expired}); err != nil {
			t.Fatal(err)
		}
	}
	if err := add(t, st, table, now, Deed{ID: "new", State: wire.Running, ExpiresAt: now}); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]bool{"old": false, "young": true, "new": true} {
		if _, found, err := Get(t.Context(), st.DB(), id); found != want || err != nil {
			t.Errorf("%s: found %t, %v", id, found, err)
		}
	}
}

func TestBytesAreBounded(t *testing.T) {
	st := open(t)
	table := Table{Bounds{Free: 100, FreeBytes: 1000}}
	for i := range 2 {
		id := fmt.Sprint(i)
		if err := add(t, st, table, 1, Deed{ID: id, State: wire.Running, ExpiresAt: 1000}); err != nil {
			t.Fatal(err)
		}
		if err := finish(t, st, id, bytes.Repeat([]byte{'x'}, 500)); err != nil {
			t.Fatal(err)
		}
	}
	if err := add(t, st, table, 2000, Deed{ID: "2", State: wire.Running}); !errors.Is(err, ErrFull) {
		t.Errorf("got %v", err)
	}
	if err := add(t, st, table, 2*day, Deed{ID: "2", State: wire.Running}); err != nil {
		t.Errorf("got %v", err)
	}
	var n, size int64
	if err := st.DB().QueryRow("SELECT deeds, bytes FROM totals WHERE approved = 0").Scan(&n, &size); err != nil || n != 1 || size != 0 {
		t.Errorf("%d deeds, %d bytes, %v", n, size, err)
	}
}
