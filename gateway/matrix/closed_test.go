package matrix_test

import (
	"sync/atomic"
	"testing"

	"maunium.net/go/mautrix/id"

	"nisse.io/nisse/gateway/matrix"
	"nisse.io/nisse/gateway/render"
	"nisse.io/nisse/gateway/store"
	"nisse.io/nisse/internal/testrig/homeserver"
	"nisse.io/nisse/internal/testrig/person"
)

// tellIn puts messages for another room into the outbox.
func (w *world) tellIn(room string, texts ...string) {
	w.t.Helper()
	w.must(w.store.Update(w.t.Context(), func(tx *store.Tx) error {
		for _, text := range texts {
			if err := tx.Send(store.Outbound{ID: "t/" + text, Sender: store.ByAgent("ops"), Agent: "ops", Room: room, Content: render.Text(text).JSON()}); err != nil {
				return err
			}
		}
		return nil
	}))
}

// saidIn counts the messages of this text in the room.
func (w *world) saidIn(room id.RoomID, text string) (n int) {
	w.t.Helper()
	c, err := w.you.Conversation(w.t.Context(), room)
	w.must(err)
	for _, m := range c.Messages {
		if m.Sender == w.bot && m.Body == text {
			n++
		}
	}
	return n
}

// However much waits for a room that is closed, it keeps nothing from other rooms.
func TestClosedRoomHidesNoOther(t *testing.T) {
	t.Parallel()
	w := build(t, homeserver.Shared(t), "closed")
	w.start()
	w.connected()
	w.tellIn("!nowhere:"+w.hs.ServerName, numbered(250)...)
	w.tell("open")
	w.wait("the other room's message", func() bool { return w.saidIn(w.room, "open") == 1 })
}

// A room of which it cannot be found out what it has keeps nothing from other rooms, and nothing is said there twice.
func TestDoubtfulRoomHidesNoOther(t *testing.T) {
	t.Parallel()
	w := build(t, homeserver.Start(t, homeserver.Options{}), "doubt")
	other, err := w.you.CreateRoom(t.Context(), person.RoomOptions{Alias: "doubt-other", Invite: []id.UserID{w.bot}})
	w.must(err)
	f := &fault{}
	w.through(f)
	w.start()
	w.connected()
	w.tellIn(other.String(), "zero")
	w.told()
	f.deaf.Store(true)
	f.blind.Store(other.String())
	f.lose.Store(1)
	w.tellIn(other.String(), "one", "two")
	w.wait("a lost answer", func() bool { return f.lost.Load() == 1 })
	forget(t, w.hs)
	w.tell("meanwhile")
	w.wait("the other room's message", func() bool { return w.saidIn(w.room, "meanwhile") == 1 })
	f.blind.Store("")
	w.told()
	for _, text := range []string{"zero", "one", "two"} {
		if n := w.saidIn(other, text); n != 1 {
			t.Errorf("%s was said %d times", text, n)
		}
	}
}

// A room in which nothing can be said, or something before the homeserver bars it, keeps nothing from other rooms.
func TestSickRoomHidesNoOther(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]func(*fault) *atomic.Value{
		"sick":   func(f *fault) *atomic.Value { return &f.sick },
		"barred": func(f *fault) *atomic.Value { return &f.barred },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := build(t, homeserver.Shared(t), name)
			other, err := w.you.CreateRoom(t.Context(), person.RoomOptions{Alias: name + "-other", Invite: []id.UserID{w.bot}})
			w.must(err)
			f := &fault{}
			w.through(f)
			w.start()
			w.connected()
			of(f).Store(other.String())
			w.tellIn(other.String(), "one", "two")
			w.tell("open")
			w.wait("the other room's message", func() bool { return w.saidIn(w.room, "open") == 1 })
			of(f).Store("")
			w.told()
			for _, text := range []string{"one", "two"} {
				if n := w.saidIn(other, text); n != 1 {
					t.Errorf("%s was said %d times", text, n)
				}
			}
		})
	}
}

// The approvals account belongs in every agent's room. One whose history cannot be read keeps it neither from reading nor from writing in
// the others: plans would be hidden from everybody.
func TestUnreadableRoomHidesNoOther(t *testing.T) {
	t.Parallel()
	w := build(t, homeserver.Shared(t), "unreadable")
	other, err := w.you.CreateRoom(t.Context(), person.RoomOptions{Alias: "unreadable-other", Invite: []id.UserID{w.bot}})
	w.must(err)
	f := &fault{}
	w.through(f)
	approvals := func(o *matrix.Options) { o.Desk, o.Agent, o.Wanted = nil, "", "" }
	w.start(approvals)
	w.tellIn(w.room.String(), "here")
	w.tellIn(other.String(), "there")
	w.wait("both rooms' messages", func() bool { return w.saidIn(w.room, "here") == 1 && w.saidIn(other, "there") == 1 })
	w.stop()
	for _, text := range numbered(25) { // more than a sync brings
		_, err := w.you.Say(t.Context(), other, text, person.Where{})
		w.must(err)
	}
	f.blind.Store(other.String())
	w.start(approvals)
	w.tellIn(w.room.String(), "open")
	w.wait("the room's message", func() bool { return w.saidIn(w.room, "open") == 1 })
	w.tellIn(other.String(), "all the same")
	w.wait("the other room's message", func() bool { return w.saidIn(other, "all the same") == 1 })
}
