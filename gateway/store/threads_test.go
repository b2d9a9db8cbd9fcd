package store

import (
	"testing"
	"time"

	"nisse.io/nisse/gateway/routing"
)

// An item that is not among the known objects is about to be there, or is gone: what the store was told tells which.
func TestExpected(t *testing.T) {
	const item = "wi-1"
	said := func(event string, r routing.Route) func(*testing.T, *Store) {
		return func(t *testing.T, s *Store) {
			t.Helper()
			update(t, s, func(tx *Tx) error {
				_, err := tx.AddInbound(Inbound{EventID: event, Agent: "ops", At: time.UnixMilli(1), Raw: []byte("{}"), Route: r})
				return err
			})
		}
	}
	thread := func(unseen bool) func(*testing.T, *Store) {
		return func(t *testing.T, s *Store) {
			t.Helper()
			update(t, s, func(tx *Tx) error {
				return tx.AddThread(Thread{WorkItem: item, Agent: "ops", Room: "!r", Root: "$1", Unseen: unseen})
			})
		}
	}
	finished := func(reason string) func(*testing.T, *Store) {
		return func(t *testing.T, s *Store) {
			t.Helper()
			update(t, s, func(tx *Tx) error { return tx.Finish("$1", reason) })
		}
	}
	seen := func(t *testing.T, s *Store) {
		t.Helper()
		if err := s.Seen(t.Context(), item); err != nil {
			t.Fatal(err)
		}
	}
	opens := said("$1", routing.Route{Kind: routing.Open, WorkItem: item})
	for name, tc := range map[string]struct {
		before []func(*testing.T, *Store)
		want   bool
	}{
		"never heard of":                {nil, false},
		"to be made":                    {[]func(*testing.T, *Store){opens, thread(true)}, true},
		"to be made, by an older store": {[]func(*testing.T, *Store){opens, thread(false)}, true},
		"made and not seen":             {[]func(*testing.T, *Store){opens, thread(true), finished("")}, true},
		"could not be made":             {[]func(*testing.T, *Store){opens, thread(true), finished("invalid")}, false},
		"made and seen":                 {[]func(*testing.T, *Store){opens, thread(true), finished(""), seen}, false},
		"made by hand":                  {[]func(*testing.T, *Store){thread(false)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, t.TempDir())
			for _, f := range tc.before {
				f(t, s)
			}
			update(t, s, func(tx *Tx) error {
				got, err := tx.Expected(item)
				if got != tc.want {
					t.Errorf("expected: %t, want %t", got, tc.want)
				}
				return err
			})
		})
	}
	t.Run("stops and openings that wait", func(t *testing.T) {
		s := open(t, t.TempDir())
		opens(t, s)
		said("$2", routing.Route{Kind: routing.Open, WorkItem: "wi-2"})(t, s)
		said("$3", routing.Route{Kind: routing.Stop, WorkItem: item, Wide: true})(t, s)
		if m, ok, err := s.StopOf(t.Context(), "ops", item); err != nil || !ok || m.EventID != "$3" {
			t.Errorf("the stop of %s is %s, %t, %v", item, m.EventID, ok, err)
		}
		if m, ok, err := s.StopOf(t.Context(), "ops", "wi-2"); err != nil || ok {
			t.Errorf("the stop of wi-2 is %s, %v", m.EventID, err)
		}
		update(t, s, func(tx *Tx) error {
			m, ok, err := tx.OldestOpening("ops")
			if !ok || m.Route.WorkItem != item {
				t.Errorf("the oldest opens %q", m.Route.WorkItem)
			}
			if err != nil {
				return err
			}
			for name, want := range map[string]bool{item: true, "wi-2": false} {
				got, err := tx.Stopping("ops", name)
				if got != want {
					t.Errorf("%s is about to be stopped: %t", name, got)
				}
				if err != nil {
					return err
				}
			}
			return tx.Finish("$3", "")
		})
		if _, ok, err := s.StopOf(t.Context(), "ops", item); err != nil || ok {
			t.Errorf("a stop that is done waits still (%v)", err)
		}
	})
}
