package matrix_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync/atomic"
	"testing"

	"nisse.io/nisse/gateway/matrix"
	"nisse.io/nisse/internal/testrig/homeserver"
)

// A homeserver in other hands sends the gateway elsewhere, perhaps to what only the inside of the cluster can reach. Nothing is asked there,
// people are told, and it goes on when that ends.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	for _, away := range []string{"/login", "/sync", "/joined_rooms", "/whoami"} {
		t.Run(path.Base(away), func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				asked.Add(1)
				_, _ = w.Write([]byte(`{}`))
			}))
			t.Cleanup(elsewhere.Close)
			w := build(t, homeserver.Shared(t), "led-"+strings.ReplaceAll(path.Base(away), "_", "-"))
			f := &fault{away: away, elsewhere: elsewhere.URL}
			w.through(f)
			if away == "/whoami" { // it is asked about a session that is kept
				w.start()
				w.connected()
				w.stop()
			}
			f.leads.Store(true)
			w.start()
			w.wait("the person to be told", func() bool {
				s := w.reported()
				return len(s) > 0 && strings.HasPrefix(s[len(s)-1].Message, "it sends us to another address, which is not followed")
			})
			if s := w.reported(); s[len(s)-1].Reason != matrix.HomeserverUnreachable || s[len(s)-1].Connected {
				t.Errorf("%+v", s[len(s)-1])
			}
			f.leads.Store(false)
			w.connected()
			w.say("one")
			w.hears("one")
			if n := asked.Load(); n != 0 {
				t.Errorf("the other address was asked %d times", n)
			}
		})
	}
}

// Answers that are longer than is read are asked for in smaller pieces: what was said while nobody read is not lost, and nobody is deaf
// for it.
func TestLongAnswers(t *testing.T) {
	t.Parallel()
	w := build(t, homeserver.Shared(t), "long")
	w.start()
	w.connected()
	w.say("first")
	w.hears("first")
	w.stop()
	want := []string{"first"}
	for n := range 15 {
		want = append(want, fmt.Sprintf("%d %s", n, strings.Repeat("x", 10<<10)))
		w.say(want[n+1])
	}
	w.start(func(o *matrix.Options) { o.Timing.Answer = 32 << 10 })
	w.hears(want...)
}

// A flood that was too long to be kept loses its oldest; what came last is read.
func TestFloodInAGap(t *testing.T) {
	t.Parallel()
	w := build(t, homeserver.Shared(t), "flood")
	w.start()
	w.connected()
	w.say("first")
	w.hears("first")
	w.stop()
	for n := range 30 {
		w.say(fmt.Sprintf("%d %s", n, strings.Repeat("x", 10<<10)))
	}
	w.start(func(o *matrix.Options) { o.Timing.Gap = 64 << 10 })
	w.wait("the last of the flood", func() bool {
		heard := w.heard()
		return strings.HasPrefix(heard[len(heard)-1], "29 ")
	})
	w.say("and now?")
	w.wait("what comes after", func() bool {
		heard := w.heard()
		return heard[len(heard)-1] == "and now?"
	})
	if n := len(w.heard()); n < 12 || n > 20 { // the sync's own ten, what fits into 64 KB before, and the two around
		t.Errorf("%d messages heard", n)
	}
}
