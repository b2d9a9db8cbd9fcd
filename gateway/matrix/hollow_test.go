package matrix_test

import (
	"fmt"
	"path"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"maunium.net/go/mautrix/id"

	"nisse.io/nisse/gateway/matrix"
	"nisse.io/nisse/internal/testrig/homeserver"
)

// What stands before a homeserver answers for it, well-formed and without what was asked for. That is no answer: nothing counts as said that
// was not, nothing as read, no account dies of it, and people are sent to mend nothing else.
func TestHollowAnswers(t *testing.T) {
	t.Parallel()
	for n, tc := range []struct{ about, hollow string }{
		{"/send/", `{}`},
		{"/send/", `null`},
		{"/send/", `{"event_id": null}`},
		{"/sync", `{}`},
		{"/sync", `null`},
		{"/sync", `{"rooms": {"join": {"!x:y": null}}}`},
		{"/messages", `{}`},
		{"/messages", `null`},
		{"/messages", `{"start": "x"}`},
		{"/whoami", `{}`},
		{"/whoami", `null`},
		{"/joined_rooms", `{}`},
		{"/joined_rooms", `null`},
		{"/directory/room/", `{}`},
		{"/directory/room/", `null`},
		{"/state/m.room.encryption", `{}`},
		{"/state/m.room.encryption", `null`},
		{"/state/m.room.member", `{}`},
		{"/state/m.room.power_levels", `null`},
	} {
		t.Run(path.Base(tc.about)+" "+tc.hollow, func(t *testing.T) {
			t.Parallel()
			name := fmt.Sprint("hollow-", n)
			w := build(t, homeserver.Shared(t), name)
			f := &fault{about: tc.about, hollow: tc.hollow}
			w.through(f)
			byAlias := func(o *matrix.Options) { o.Wanted = "#" + name + ":" + w.hs.ServerName }
			w.start(byAlias)
			w.connected()
			w.tell("first")
			w.told()
			w.say("one")
			w.hears("one")
			w.stop()
			missed := numbered(25) // more than a sync brings
			for _, text := range missed {
				w.say(text)
			}
			w.mu.Lock()
			w.states = nil
			w.mu.Unlock()
			f.hollows.Store(3)
			w.start(byAlias)
			w.tell("second", "third")
			w.told()
			w.connected()
			w.say("last")
			w.hears(slices.Concat([]string{"one"}, missed, []string{"last"})...)
			if diff := cmp.Diff([]string{"first", "second", "third"}, w.said()); diff != "" {
				t.Errorf("-want +said:\n%s", diff)
			}
			w.hollowed(f)
		})
	}
}

// The same while an account is made and logs in: nothing is kept of it.
func TestHollowLogin(t *testing.T) {
	t.Parallel()
	for n, tc := range []struct{ about, hollow string }{
		{"/register", `{}`},
		{"/register", `null`},
		{"/login", `{}`},
		{"/login", `null`},
		{"/login", `{"user_id": "@hollow-login-4-made:example.org", "device_id": "x"}`},
		{"/join", `{}`},
		{"/join", `null`},
	} {
		t.Run(path.Base(tc.about)+" "+tc.hollow, func(t *testing.T) {
			t.Parallel()
			name := fmt.Sprint("hollow-login-", n)
			w := build(t, homeserver.Shared(t), name)
			bot := id.NewUserID(name+"-made", w.hs.ServerName)
			w.must(w.you.Invite(t.Context(), w.room, bot))
			f := &fault{about: tc.about, hollow: tc.hollow}
			f.hollows.Store(3)
			w.through(f)
			file := w.registration()
			w.start(func(o *matrix.Options) {
				o.UserID, o.Credentials = bot, matrix.Credentials{RegistrationSecretFile: file, ServerName: w.hs.ServerName}
			})
			w.connected()
			w.say("one")
			w.hears("one")
			w.hollowed(f)
		})
	}
}

// hollowed checks that the hollow answers were given, and what people were told meanwhile.
func (w *world) hollowed(f *fault) {
	w.t.Helper()
	if n := f.hollows.Load(); n > 0 {
		w.t.Errorf("%d hollow answers were not asked for, so this showed nothing", n)
	}
	for _, s := range w.reported() {
		if !s.Connected && s.Reason != matrix.HomeserverUnreachable {
			w.t.Errorf("people were told %+v", s)
		}
	}
}
