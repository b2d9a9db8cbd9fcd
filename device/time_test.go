package device_test

import (
	"strings"
	"testing"

	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/internal/manifest"
)

// Case 40: a machine whose battery is empty starts in 1970, or somewhere in between. Nothing that needs approval runs, reads go on, and
// Status says why.
func TestClockThatIsBehind(t *testing.T) {
	for name, now := range map[string]int64{"1970": 100, "built before": 1_600_000_000, "an hour ago": began - 3600} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a, _ := w.ask(w.one("first", w.write("first", "1")))
			w.want(a, wire.Succeeded, "") // the floor is known from here on
			w.restart()
			old := w.one("gate", w.write("target", "pwned"))
			w.now.Store(now)
			// One made now by a cluster whose clock is right, and one that was captured when this clock would have been right.
			captured := w.one("gate2", w.write("target", "pwned"))
			read := w.free(w.call(manifest.FSRead, manifest.ReadArgs{Path: w.files + "/a"}), "1")
			read.At, read.ExpiresAt = began, began+60
			for _, r := range []wire.Request{old, captured} {
				a, _ := w.ask(r)
				w.want(a, wire.Refused, wire.NotYet)
				if !strings.Contains(a.Message, "clock") {
					t.Errorf("message %q", a.Message)
				}
			}
			a, _ = w.ask(read)
			w.want(a, wire.Succeeded, "")
			q := wire.Query{V: 1, Device: "web1", Path: "/v1/status", At: began, ExpiresAt: began + 60, Nonce: "n"}
			st, err := wire.OpenStatus(w.getAs(q, w.request, "/v1/status"), pub(w.device), q)
			if err != nil || !contains(st.Problems, "the clock says") {
				t.Errorf("problems %q, %v", st.Problems, err)
			}
			if w.content("target") != "" {
				t.Error("it was written")
			}
			w.now.Store(began + 1)
			a, _ = w.ask(old)
			w.want(a, wire.Succeeded, "") // the clock was set, and the refusal was not final
		})
	}
}

// A clock that jumped ahead refuses what is current as expired and does not take its own word for the floor: set back, all is well.
func TestClockThatIsAhead(t *testing.T) {
	w := newWorld(t)
	stale := w.one("gate", w.write("stale", "1"))
	w.now.Store(began + 100*86400)
	a, _ := w.ask(stale)
	w.want(a, wire.Refused, wire.Expired)
	q := wire.Query{V: 1, Device: "web1", Path: "/v1/deeds/x", At: began, ExpiresAt: began + 60, Nonce: "n"}
	if a, err := wire.OpenAnswer(w.getAs(q, w.request, "/v1/deeds/x"), pub(w.device), "web1", "x"); err == nil {
		t.Errorf("it swears by a clock that disagrees: %+v", a)
	}
	w.now.Store(began)
	a, _ = w.ask(w.one("gate2", w.write("fresh", "1")))
	w.want(a, wire.Succeeded, "")
	a, _ = w.ask(stale)
	w.want(a, wire.Refused, wire.Expired) // who was told that it is over may rely on it
}

// "Not seen, and it is past its end here" is a promise: the request, late on its way, must not run after that, though the clock is set
// back and the device started anew.
func TestNotSeenIsAPromise(t *testing.T) {
	w := newWorld(t)
	late := w.one("gate", w.write("target", "late"))
	w.now.Store(late.ExpiresAt)
	a := w.seen(late.Deed)
	if a.State != wire.NotSeen || a.Now < late.ExpiresAt || a.CallHash != "" {
		t.Fatalf("got %+v", a)
	}
	w.restart()
	w.now.Store(began)
	a, _ = w.ask(late)
	w.want(a, wire.Refused, wire.Expired)
	if w.content("target") != "" {
		t.Error("it was written")
	}
	early := w.seen(w.one("gate2", w.write("x", "")).Deed)
	if early.State != wire.NotSeen || early.Now != late.ExpiresAt {
		t.Errorf("it takes back what it told: %+v", early)
	}
}

// Case 39: what was queued somewhere comes when its window is over.
func TestQueuedPastItsWindow(t *testing.T) {
	w := newWorld(t)
	r := w.one("gate", w.write("target", "late"))
	w.now.Store(r.ExpiresAt - 1)
	again := w.one("gate3", w.write("in-time", "1"))
	again.At, again.ExpiresAt = r.At, r.ExpiresAt
	a, _ := w.ask(again)
	w.want(a, wire.Succeeded, "")
	w.now.Store(r.ExpiresAt)
	a, _ = w.ask(r)
	w.want(a, wire.Refused, wire.Expired)
}
