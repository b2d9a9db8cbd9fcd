package device_test

import (
	"crypto/ed25519"
	"errors"
	"io"
	"strings"
	"testing"

	"nisse.io/nisse/device/daemon"
	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/device/wire/chain"
	"nisse.io/nisse/internal/checkpoint"
	"nisse.io/nisse/internal/manifest"
)

const anchorPath = "/v1/anchor"

// order of a root key to begin a line after what was kept.
func order(t testing.TB, k ed25519.PrivateKey, kept checkpoint.Checkpoint, line int64, change ...func(*checkpoint.Anchor)) []byte {
	t.Helper()
	a := checkpoint.Anchor{Device: "web1", Line: line, Before: kept.Line, Rows: kept.Rows, Root: kept.Root.String(), Trouble: checkpoint.Edited, Row: 4, Reason: "a mouse", At: line}
	for _, c := range change {
		c(&a)
	}
	env, err := a.Sign(k)
	must(t, err)
	return []byte(env)
}

func (w *world) anchor(order []byte) (wire.Status, error) {
	w.t.Helper()
	return w.change(anchorPath, order, w.request)
}

// brokenWorld has found its own audit bent. A deed had begun when it stopped, and one is done.
func brokenWorld(t *testing.T) (w *world, kept checkpoint.Checkpoint, done wire.Request) {
	t.Helper()
	w = newWorld(t)
	done = w.one("done", w.write("done", "1"))
	a, _ := w.ask(done)
	w.want(a, wire.Succeeded, "")
	w.fill(2)
	w.restart()
	kept = w.checkpoint(0).At
	w.stop()
	w.tamper(run(`UPDATE audit SET body = replace(body, '"agent":"ops"', '"agent":"dev"') WHERE seq = 4`))
	w.start()
	a, _ = w.ask(w.one("late", w.write("late", "1")))
	w.want(a, wire.Refused, wire.AuditUnwritable)
	return w, kept, done
}

// The root key, and nobody else, has a broken audit go on in a new line; the old one stays as it is, and what was done stays done.
func TestAnchor(t *testing.T) {
	w, kept, done := brokenWorld(t)
	const line = 1_900_000_000
	st, err := w.anchor(order(t, w.root, kept, line))
	if err != nil || st.AuditLine != line || st.AuditRows != 1 || strings.Contains(strings.Join(st.Problems, " "), "audit") {
		t.Fatalf("got %+v, %v", st, err)
	}
	for range 2 { // also after a restart
		o := w.checkpoint(kept.Rows, kept.Root)
		if o.At.Line != line || o.Finding != nil || !errors.Is(checkpoint.Judge(kept, o), checkpoint.ErrAnchored) {
			t.Errorf("got %+v, %v", o, checkpoint.Judge(kept, o))
		}
		w.restart()
	}
	a, _ := w.ask(w.one("late", w.write("late", "2")))
	w.want(a, wire.Succeeded, "")
	if w.content("late") != "2" {
		t.Error("it did not run")
	}
	a, _ = w.ask(done)
	w.want(a, wire.Succeeded, "")
	first := w.checkpoint(0).At
	w.fill(1)
	w.restart()
	if err := checkpoint.Judge(first, w.checkpoint(first.Rows, first.Root)); err != nil {
		t.Errorf("the new line does not extend itself: %v", err)
	}
	w.stop()
	var out, old strings.Builder
	if err := daemon.VerifyAudit(t.Context(), w.state, &out); err != nil || !strings.Contains(out.String(), "anchored: line 1900000000, at row 1") || !strings.Contains(out.String(), "a mouse") {
		t.Errorf("%q, %v", out.String(), err)
	}
	if err := daemon.VerifyAudit(t.Context(), w.state, io.Discard, chain.Expect{Rows: kept.Rows, Root: kept.Root}); err == nil || !strings.Contains(err.Error(), "--line 0") {
		t.Errorf("a checkpoint of the line before: %v", err)
	}
	if err := daemon.ShowLine(t.Context(), w.state, 0, &old); err != nil || !strings.Contains(old.String(), `"agent":"dev"`) || strings.Count(old.String(), "\n") != int(kept.Rows) {
		t.Errorf("the line before is not as it was: %d bytes, %v", old.Len(), err)
	}
	w.start()
}

// What a device does not obey, and that nothing has changed then.
func TestOrdersThatAreNotObeyed(t *testing.T) {
	w, kept, _ := brokenWorld(t)
	const line = 1_900_000_000
	before := w.status()
	other := func(a *checkpoint.Anchor) { a.Device = "web2" }
	for name, c := range map[string]struct {
		order  []byte
		reason wire.Reason
	}{
		"by the approval key":  {order(t, w.approve, kept, line), wire.BadSignature},
		"by the request key":   {order(t, w.request, kept, line), wire.BadSignature},
		"by the device itself": {order(t, w.device, kept, line), wire.BadSignature},
		"for another device":   {order(t, w.root, kept, line, other), wire.OtherDevice},
		"a manifest":           {[]byte(w.signed(w.another(func(*manifest.Manifest) {}), w.root)), wire.BadSignature},
	} {
		_, err := w.anchor(c.order)
		wantReason(t, err, c.reason)
		if now := w.status(); now.AuditLine != 0 || now.AuditRows != before.AuditRows || len(now.Problems) != len(before.Problems) {
			t.Errorf("%s: got %+v", name, now)
		}
	}
	good := order(t, w.root, kept, line)
	_, err := w.change(anchorPath, good, w.approve)
	wantReason(t, err, wire.BadSignature) // the root key's order, brought by a stranger

	w.breakDisk()
	_, err = w.anchor(good)
	wantReason(t, err, wire.AuditUnwritable)
	w.mend()
	if st := w.status(); st.AuditLine != 0 {
		t.Errorf("got %+v", st)
	}
	_, err = w.anchor(good)
	must(t, err)
	w.fill(1)
	rows := w.status().AuditRows
	// Played again it does nothing, whatever comes in between.
	for range 2 {
		if st, err := w.anchor(good); err != nil || st.AuditLine != line || st.AuditRows != rows {
			t.Errorf("played again: %+v, %v", st, err)
		}
		w.restart()
	}
	w.stop()
	w.tamper(run(`UPDATE audit SET body = replace(body, '"agent":"ops"', '"agent":"dev"') WHERE seq = 2`))
	w.start()
	if st, err := w.anchor(good); err != nil || st.AuditRows != rows || len(st.Problems) == 0 {
		t.Errorf("the order of the first break has mended the second: %+v, %v", st, err)
	}
	_, err = w.anchor(order(t, w.root, kept, line-1))
	wantReason(t, err, wire.OlderAnchor)
}

// A device that has all that was kept has nothing to repair; one that lacks some of it has, though it does not know.
func TestOrdersForAnIntactAudit(t *testing.T) {
	w := newWorld(t)
	w.fill(3)
	w.restart()
	kept := w.checkpoint(0).At
	w.fill(1)
	_, err := w.anchor(order(t, w.root, kept, 1_900_000_000))
	wantReason(t, err, wire.AuditIntact)
	if st := w.status(); st.AuditLine != 0 || st.AuditRows != kept.Rows+2 {
		t.Errorf("got %+v", st)
	}
	_, err = w.anchor(order(t, w.root, checkpoint.Checkpoint{}, 1_900_000_000)) // by one who had kept nothing
	wantReason(t, err, wire.AuditIntact)
	lost := kept
	lost.Rows += 5
	if st, err := w.anchor(order(t, w.root, lost, 1_900_000_000)); err != nil || st.AuditLine == 0 {
		t.Errorf("rows were lost: %+v, %v", st, err)
	}

	w = newWorld(t)
	w.fill(3)
	w.restart()
	forked := w.checkpoint(0).At
	forked.Root = checkpoint.Checkpoint{}.Root
	if st, err := w.anchor(order(t, w.root, forked, 1_900_000_000)); err != nil || st.AuditLine == 0 {
		t.Errorf("rows were written anew: %+v, %v", st, err)
	}
}

// An audit that was broken before anybody had kept any of it goes on in a new line as well.
func TestAnchorWhenNothingWasKept(t *testing.T) {
	w, _, _ := brokenWorld(t)
	if st, err := w.anchor(order(t, w.root, checkpoint.Checkpoint{}, 1_900_000_000)); err != nil || st.AuditLine != 1_900_000_000 || st.AuditRows != 1 {
		t.Errorf("got %+v, %v", st, err)
	}
}

// A deed that had begun when its line ended is told of in the new one: nobody knows how it ended.
func TestAnchorSettlesWhatHadBegun(t *testing.T) {
	w, kept, _ := brokenWorld(t)
	w.stop()
	w.tamper(run(`INSERT INTO deeds (id, call_hash, approved, state, expires_at, intent_row) SELECT 'begun', 'x', 1, 'Running', 2000000000, 2`))
	w.start()
	st, err := w.anchor(order(t, w.root, kept, 1_900_000_000))
	if err != nil || st.AuditRows != 2 {
		t.Fatalf("got %+v, %v", st, err)
	}
	if a := w.seen("begun"); a.State != wire.Unknown {
		t.Errorf("got %+v", a)
	}
}
