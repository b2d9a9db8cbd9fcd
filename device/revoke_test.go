package device_test

import (
	"crypto/ed25519"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"nisse.io/nisse/device/store"
	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/device/wire/chain"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/manifest"
	"nisse.io/nisse/internal/testrig"
)

func (w *world) revoke(epoch int64) (wire.Status, error) {
	w.t.Helper()
	body, err := wire.SignRevocation(w.request, wire.Revocation{Device: "web1", Epoch: epoch, At: w.now.Load()})
	must(w.t, err)
	return w.change(revokePath, body, w.request)
}

// Revoked, nothing begins any more, not even what was approved, over restarts and for good; what the root key signs later counts.
func TestRevoke(t *testing.T) {
	w := newWorld(t)
	old := w.signed(w.m, w.root)
	_, err := w.bring(old, w.request)
	must(t, err)
	done := w.one("done", w.write("done", "1"))
	a, first := w.ask(done)
	w.want(a, wire.Succeeded, "")
	approved, free := w.one("gate", w.write("target", "pwned")), w.reads("1")
	st, err := w.revoke(w.m.Epoch)
	if err != nil || st.RevokedEpoch != w.m.Epoch || st.Holds(w.digest()) || len(st.Manifests) != 1 || st.AuditRows != 5 {
		t.Fatalf("got %+v, %v", st, err)
	}
	for _, restart := range []bool{false, true} {
		if restart {
			w.restart()
		}
		for _, r := range []wire.Request{approved, free} {
			a, _ := w.ask(r)
			w.want(a, wire.Refused, wire.Revoked)
		}
		if _, again := w.ask(done); string(again) != string(first) { // what was done was done
			t.Error("what was done is answered otherwise")
		}
		if a := w.seen(done.Deed); a.State != wire.Succeeded {
			t.Errorf("got %+v", a)
		}
		_, err := w.bring(old, w.request)
		wantReason(t, err, wire.Revoked)
	}
	rows := w.status().AuditRows
	for _, epoch := range []int64{w.m.Epoch, 1} { // once is enough, and less changes nothing
		if st, err := w.revoke(epoch); err != nil || st.RevokedEpoch != w.m.Epoch || st.AuditRows != rows {
			t.Errorf("got %+v, %v", st, err)
		}
	}
	q, env := w.get("/v1/audit?after=4")
	page, err := wire.OpenAuditPage(env, pub(w.device), q)
	must(t, err)
	row, err := chain.Decode(page.Rows[0])
	must(t, err)
	if row.Kind != chain.Revoked || row.Args != args(t, map[string]any{"at": int64(began), "by": dsse.KeyID(pub(w.request)), "epoch": w.m.Epoch}) {
		t.Errorf("the audit says %+v", row)
	}
	w.now.Add(60)
	_, err = w.bring(w.signed(w.m, w.root), w.request)
	must(t, err)
	a, _ = w.ask(approved) // its statement is of the manifest that is gone
	w.want(a, wire.Refused, wire.Revoked)
	a, _ = w.ask(w.one("gate2", w.write("again", "1")))
	w.want(a, wire.Succeeded, "")
	if w.content("target") != "" {
		t.Error("it was written")
	}
}

// Who revokes wants the machine left alone: what runs is killed, and how it ended is told. What runs under another manifest goes on.
func TestRevokeKillsWhatRuns(t *testing.T) {
	w := newWorld(t)
	elevated, request, approve := w.elevated()
	w.now.Add(10)
	_, err := w.bring(w.signed(elevated, w.root), request)
	must(t, err)
	ask := func(r wire.Request, k ed25519.PrivateKey) <-chan wire.Answer {
		body, err := wire.SignRequest(k, r)
		must(t, err)
		c := make(chan wire.Answer, 1)
		go func() { a, _ := w.read(body, r.Deed); c <- a }()
		return c
	}
	r := w.one("gate", w.exec("hang", w.files+"/user"))
	users := ask(r, w.request)
	user := w.m
	w.m = elevated
	c := w.exec("hang", w.files+"/elevated")
	other := w.one("gate2", c)
	other.Approved.Statement, err = w.statement("gate2", c).Sign(approve)
	must(t, err)
	elevateds := ask(other, request)
	testrig.Until(t, "both to run", func() bool { return w.content("user")+w.content("elevated") == "xx" })
	if st, err := w.revoke(user.Epoch); err != nil || !st.Holds(w.digest()) {
		t.Fatalf("got %+v, %v", st, err)
	}
	a := <-users
	w.want(a, wire.Failed, "")
	if !strings.Contains(a.Message, "revoked") || result[wire.ExecResult](t, a).Signal != "killed" {
		t.Errorf("got %q, %s", a.Message, a.Result)
	}
	if a := w.seen(other.Deed); a.State != wire.Running {
		t.Errorf("the other one is %+v", a)
	}
	_, err = w.revoke(elevated.Epoch)
	must(t, err)
	a = <-elevateds
	w.want(a, wire.Failed, "")
	if a := w.seen(r.Deed); a.State != wire.Failed {
		t.Errorf("it is told as %+v", a)
	}
}

func TestRevocationsRefused(t *testing.T) {
	sign := func(k ed25519.PrivateKey, kind string, v any) []byte {
		b, err := dsse.Sign(k, kind, v)
		must(t, err)
		return b
	}
	good := wire.Revocation{V: wire.Version, Device: "web1", Epoch: began, At: began}
	for _, c := range []struct {
		name   string
		body   []byte
		key    ed25519.PrivateKey
		change func(*wire.Query)
		reason wire.Reason
	}{
		{"signed by a stranger", sign(key(9), dsse.TypeRevocation, good), key(1), nil, wire.BadSignature},
		{"signed by who approves", sign(key(2), dsse.TypeRevocation, good), key(1), nil, wire.BadSignature},
		{"signed as a request", sign(key(1), dsse.TypeRequest, good), key(1), nil, wire.BadSignature},
		{"asked by a stranger", sign(key(1), dsse.TypeRevocation, good), key(9), nil, wire.BadSignature},
		{"of another version", sign(key(1), dsse.TypeRevocation, map[string]any{"v": 2}), key(1), nil, wire.BadVersion},
		{"of another device", sign(key(1), dsse.TypeRevocation, wire.Revocation{V: 1, Device: "web2", Epoch: began}), key(1), nil, wire.OtherDevice},
		{"of nothing", sign(key(1), dsse.TypeRevocation, wire.Revocation{V: 1, Device: "web1"}), key(1), nil, wire.BadArgs},
		{"played back later", sign(key(1), dsse.TypeRevocation, good), key(1), func(q *wire.Query) { q.At -= 600; q.ExpiresAt = q.At + 60 }, wire.Expired},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			change := c.change
			if change == nil {
				change = func(*wire.Query) {}
			}
			_, err := w.change(revokePath, c.body, c.key, change)
			wantReason(t, err, c.reason)
			if st := w.status(); !st.Holds(w.digest()) || st.AuditRows != 1 || st.RevokedEpoch != 0 {
				t.Errorf("got %+v", st)
			}
		})
	}
	t.Run("no manifest", func(t *testing.T) {
		w := newMachine(t)
		_, err := w.revoke(began)
		wantReason(t, err, wire.NoManifest)
	})
}

// A stolen request key can say no, but not for ever: an order that goes further than anything signed so far kills what is held.
func TestRevokeBeyondTime(t *testing.T) {
	w := newWorld(t)
	rows := w.status().AuditRows
	for range 2 {
		st, err := w.revoke(1<<53 - 1)
		if err != nil || st.RevokedEpoch != w.m.Epoch || st.AuditRows != rows+1 {
			t.Fatalf("got %+v, %v", st, err)
		}
	}
	_, err := w.bring(w.signed(w.m, w.root), w.request)
	must(t, err)
	a, _ := w.ask(w.reads("1"))
	w.want(a, wire.Succeeded, "")
}

// Saying no works whatever the disk and the chain are like.
func TestRevokeWithoutAudit(t *testing.T) {
	t.Run("full disk", func(t *testing.T) {
		w := newWorld(t)
		w.breakDisk()
		_, err := w.revoke(w.m.Epoch)
		wantReason(t, err, wire.AuditUnwritable)
		a, _ := w.ask(w.reads("1")) // it counts all the same
		w.want(a, wire.Refused, wire.Revoked)
		st := w.status() // and tells that it must be asked again
		if st.RevokedEpoch != 0 || !contains(st.Problems, "a restart would forget it") {
			t.Errorf("got %+v", st)
		}
		w.mend()
		if st, err = w.revoke(w.m.Epoch); err != nil || st.RevokedEpoch != w.m.Epoch || len(troubles(st)) != 0 || st.AuditRows != 2 {
			t.Errorf("got %+v, %v", st, err)
		}
		w.restart()
		a, _ = w.ask(w.reads("2"))
		w.want(a, wire.Refused, wire.Revoked)
	})
	t.Run("bent chain", func(t *testing.T) {
		w := newWorld(t)
		w.stop()
		db, err := sql.Open("sqlite", store.File(w.state))
		must(t, err)
		_, err = db.Exec("DELETE FROM audit")
		must(t, errors.Join(err, db.Close()))
		w.start()
		if st, err := w.revoke(w.m.Epoch); err != nil || st.RevokedEpoch != w.m.Epoch {
			t.Errorf("got %+v, %v", st, err)
		}
		w.restart()
		a, _ := w.ask(w.reads("1"))
		w.want(a, wire.Refused, wire.Revoked)
	})
	t.Run("clock in 1970", func(t *testing.T) {
		w := newWorld(t)
		w.now.Store(100)
		if st, err := w.revoke(w.m.Epoch); err != nil || st.Holds(w.digest()) {
			t.Errorf("got %+v, %v", st, err)
		}
		a, _ := w.ask(w.free(w.call(manifest.FSRead, manifest.ReadArgs{Path: w.files + "/a"}), "1"))
		w.want(a, wire.Refused, wire.Revoked)
	})
}
