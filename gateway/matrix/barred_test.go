package matrix_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"maunium.net/go/mautrix/event"
	"maunium.net/go/mautrix/id"

	"nisse.io/nisse/gateway/matrix"
	"nisse.io/nisse/gateway/render"
	"nisse.io/nisse/gateway/store"
	"nisse.io/nisse/internal/testrig/homeserver"
	"nisse.io/nisse/internal/testrig/person"
)

// rights that the room's maker gives: what messages want, and what others have.
func (w *world) rights(maker *person.Person, room id.RoomID, wants int, have map[id.UserID]int) {
	w.t.Helper()
	levels := map[string]any{"events_default": wants, "users": have}
	_, err := maker.Client().SendStateEvent(w.t.Context(), room, event.StatePowerLevels, "", levels)
	w.must(err)
}

// Words that a filter bars keep back nothing that is said after them, nor what belongs into their thread; and they are said as soon as
// the filter lets them.
func TestBarredWordsHideNoOther(t *testing.T) {
	t.Parallel()
	for name, verdict := range map[string]string{
		"module": `{"errcode":"M_FORBIDDEN","error":"This message has been rejected as probable spam"}`,
		"proxy":  `<html>Forbidden</html>`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := build(t, homeserver.Shared(t), "words-"+name)
			f := &fault{verdict: verdict}
			f.words.Store("/etc/passwd")
			w.through(f)
			w.start()
			w.connected()
			w.tell("cat /etc/passwd")
			w.must(w.store.Update(t.Context(), func(tx *store.Tx) error {
				return tx.Send(store.Outbound{ID: "t/under", Sender: store.ByAgent("ops"), Agent: "ops", ThreadOf: "t/cat /etc/passwd", Content: render.Text("under it").JSON(), Must: true})
			}))
			w.tell("after")
			w.wait("what is said after it", func() bool { return slices.Contains(w.said(), "after") && slices.Contains(w.said(), "under it") })
			f.words.Store("")
			w.told()
			if diff := cmp.Diff([]string{"after", "cat /etc/passwd", "under it"}, slices.Sorted(slices.Values(w.said()))); diff != "" {
				t.Errorf("-want +said:\n%s", diff)
			}
		})
	}
}

// Words that nobody must read and that are barred for ever fail in the end; those that somebody must read are told of.
func TestBarredForEver(t *testing.T) {
	t.Parallel()
	w := build(t, homeserver.Shared(t), "ever")
	f := &fault{verdict: `{"errcode":"M_FORBIDDEN","error":"no"}`}
	f.words.Store("never")
	w.through(f)
	w.start()
	w.connected()
	w.tell("never this", "after")
	w.must(w.store.Update(t.Context(), func(tx *store.Tx) error {
		return tx.Send(store.Outbound{ID: "gate/1", Sender: store.ByAgent("ops"), Agent: "ops", Room: w.room.String(), Content: render.Text("never that").JSON(), Must: true})
	}))
	w.wait("word of what is hidden", func() bool {
		return slices.ContainsFunc(w.said(), func(s string) bool { return strings.Contains(s, "refuses to show it") })
	})
	w.wait("the end of what nobody must read", func() bool {
		n, err := w.store.Unanswered(t.Context(), store.ByAgent("ops"))
		w.must(err)
		return n == 1
	})
	must, err := w.store.MustRead(t.Context())
	w.must(err)
	if len(must) != 1 || must[0].ID != "gate/1" {
		t.Errorf("what must be read and waits: %+v", must)
	}
}

// A right that is taken for a while loses no words, and people are told whose it is and how to give it.
func TestRightsTakenForAWhile(t *testing.T) {
	t.Parallel()
	w := build(t, homeserver.Shared(t), "rights")
	w.start()
	w.connected()
	w.tell("one")
	w.told()
	all := map[id.UserID]int{w.bot: 50, w.gates: 50}
	w.rights(w.you, w.room, 50, map[id.UserID]int{w.gates: 50})
	w.tell("two", "three")
	w.wait("word of what is lacking", func() bool {
		s := w.reported()
		last := s[len(s)-1]
		return last.Reason == matrix.RoomReadOnly && strings.Contains(last.Message, w.bot.String()+" may not write in the room: its power level is 0, and messages want 50")
	})
	w.say("still heard?")
	w.hears("still heard?")
	w.rights(w.you, w.room, 50, all)
	w.told()
	w.connected()
	if diff := cmp.Diff([]string{"one", "two", "three"}, w.said()); diff != "" {
		t.Errorf("-want +said:\n%s", diff)
	}

	all[w.gates] = 0
	w.rights(w.you, w.room, 50, all)
	w.wait("word of what the approvals account is lacking", func() bool {
		s := w.reported()
		last := s[len(s)-1]
		return last.Connected && strings.Contains(last.Message, "Plans cannot be shown: "+w.gates.String()+" may not write in the room")
	})
	w.rights(w.you, w.room, 0, all)
	w.wait("no more word of it", func() bool {
		s := w.reported()
		return s[len(s)-1].Connected && s[len(s)-1].Message == ""
	})
}

// Who made a room may write there, though no list of levels says so.
func TestMakerMayWrite(t *testing.T) {
	t.Parallel()
	w := build(t, homeserver.Shared(t), "maker")
	bot := w.hs.Login(t, "maker-ops", password)
	room, err := bot.CreateRoom(t.Context(), person.RoomOptions{Invite: []id.UserID{w.you.UserID()}})
	w.must(err)
	w.rights(bot, room, 150, map[id.UserID]int{w.you.UserID(): 150})
	_, err = w.you.Join(t.Context(), room.String())
	w.must(err)
	w.start(func(o *matrix.Options) { o.Wanted = room.String() })
	w.tellIn(room.String(), "mine")
	w.wait("the maker's message", func() bool { return w.saidIn(room, "mine") == 1 })
}
