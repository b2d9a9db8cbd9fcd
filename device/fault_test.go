package device_test

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	_ "modernc.org/sqlite"

	"nisse.io/nisse/device"
	"nisse.io/nisse/device/daemon"
	"nisse.io/nisse/device/deeds"
	"nisse.io/nisse/device/store"
	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/device/wire/chain"
	"nisse.io/nisse/internal/checkpoint"
	"nisse.io/nisse/internal/manifest"
	"nisse.io/nisse/internal/testrig"
)

// A disk that takes nothing: what needs approval does not run, reads go on and say so, and when there is room again all is as before.
func TestNothingCanBeWritten(t *testing.T) {
	w := newWorld(t)
	write := w.one("gate", w.write("target", "fine"))
	bad := w.one("gate2", w.write("other", "x"))
	bad.Approved.Statement = w.sign(w.statement("gate2", w.write("another", "x")))
	w.breakDisk()
	a, _ := w.ask(write)
	w.want(a, wire.Refused, wire.AuditUnwritable)
	a, _ = w.ask(bad) // a refusal that cannot be kept is not called final
	w.want(a, wire.Refused, wire.AuditUnwritable)
	if w.content("target")+w.content("other") != "" {
		t.Error("it was written")
	}
	for _, id := range []string{"1", "1", "2"} {
		a, _ = w.ask(w.free(w.call(manifest.FSRead, manifest.ReadArgs{Path: w.files + "/a"}), id))
		w.want(a, wire.Succeeded, "")
		if !strings.Contains(a.Message, "not in the device's audit") || a.AuditRow != 0 {
			t.Errorf("got %q, row %d", a.Message, a.AuditRow)
		}
	}
	if st := w.status(); !contains(st.Problems, "no space left") || st.AuditRows != 1 {
		t.Errorf("got %q, %d rows", st.Problems, st.AuditRows)
	}
	q, env := w.get("/v1/deeds/" + write.Deed)
	if a, err := wire.OpenAnswer(env, pub(w.device), "web1", write.Deed); err == nil {
		t.Errorf("it promises what it cannot keep: %+v, %s", a, q.Nonce)
	}
	w.mend()
	a, _ = w.ask(write)
	w.want(a, wire.Succeeded, "")
	a, _ = w.ask(bad)
	w.want(a, wire.Refused, wire.NotCovered)
	if st := w.status(); len(troubles(st)) != 0 || st.AuditRows != 4 {
		t.Errorf("got %q, %d rows", st.Problems, st.AuditRows)
	}
}

// What an Elevated manifest lets run on the agent's word waits like everything else of it until it can be written down.
func TestNothingElevatedRunsUnwritten(t *testing.T) {
	w := newWorld(t)
	elevated := w.another(func(m *manifest.Manifest) { m.Privilege, m.ExpiresAt = manifest.Elevated, "2027-02-01T00:00:00Z" })
	_, err := w.bring(w.signed(elevated, w.root), w.request)
	must(t, err)
	user := w.reads("user")
	w.m = elevated
	look := w.reads("elevated")
	w.breakDisk()
	a, _ := w.ask(look)
	w.want(a, wire.Refused, wire.AuditUnwritable)
	a, _ = w.ask(user)
	w.want(a, wire.Succeeded, "")
	w.mend()
	a, _ = w.ask(look)
	if w.want(a, wire.Succeeded, ""); a.AuditRow == 0 {
		t.Errorf("it is not in the audit: %+v", a)
	}
}

// The disk fills up between intent and outcome: nobody is told how it ended until that is written; it is written as soon as it can be.
func TestOutcomeCannotBeWritten(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart ", restart), func(t *testing.T) {
			w := newWorld(t)
			r := w.one("gate", w.exec("append", w.files+"/log"))
			commits := 0
			w.d.Store.Fault = func() error {
				if commits++; commits > 1 && w.fault.Load() == nil {
					w.breakDisk()
				}
				if e := w.fault.Load(); e != nil {
					return *e
				}
				return nil
			}
			a, _ := w.ask(r)
			w.want(a, wire.Running, "")
			if w.content("log") != "x" || !strings.Contains(a.Message, "cannot be recorded") {
				t.Errorf("it ran %d times, %q", len(w.content("log")), a.Message)
			}
			a, _ = w.ask(r)
			w.want(a, wire.Running, "")
			if a := w.seen(r.Deed); a.State != wire.Running {
				t.Errorf("got %+v", a)
			}
			if st := w.status(); !contains(st.Problems, "1 outcomes wait") {
				t.Errorf("got %q", st.Problems)
			}
			a, _ = w.ask(w.one("gate2", w.write("x", "")))
			w.want(a, wire.Refused, wire.AuditUnwritable)
			want := wire.Succeeded
			if restart {
				w.stop()
				w.mend()
				w.start()
				want = wire.Unknown
			} else {
				w.d.Store.Fault = nil
				w.mend()
			}
			if a := w.seen(r.Deed); a.State != want || a.AuditRow != 3 {
				t.Errorf("got %+v", a)
			}
			a, _ = w.ask(r)
			w.want(a, want, "")
			if w.content("log") != "x" {
				t.Errorf("it ran %d times", len(w.content("log")))
			}
			if st := w.status(); len(troubles(st)) != 0 {
				t.Errorf("got %q", st.Problems)
			}
		})
	}
}

// A real file system that is full, as SQLite meets it.
func TestFullDisk(t *testing.T) {
	w := newWorld(t)
	a, _ := w.ask(w.one("first", w.write("first", "1")))
	w.want(a, wire.Succeeded, "")
	info, err := os.Stat(store.File(w.state) + "-wal")
	must(t, err)
	var was unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &was))
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: uint64(info.Size()) + 100, Max: was.Max}))
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_FSIZE, &was) }()
	second := w.one("second", w.write("second", "2"))
	a, _ = w.ask(second)
	w.want(a, wire.Refused, wire.AuditUnwritable)
	if w.content("second") != "" {
		t.Error("it was written")
	}
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &was))
	a, _ = w.ask(second)
	w.want(a, wire.Succeeded, "")
	w.restart()
	if st := w.status(); len(troubles(st)) != 0 || st.AuditRows != 5 {
		t.Errorf("got %q, %d rows", st.Problems, st.AuditRows)
	}
}

func TestTwoWriters(t *testing.T) {
	w := newWorld(t)
	d, _, err := device.New(t.Context(), device.Options{Dir: w.state, Device: "web1", RootKey: pub(w.root), Key: w.device})
	if !errors.Is(err, store.ErrInUse) {
		t.Fatalf("a second device got %v, %v", d, err)
	}
	a, _ := w.ask(w.one("gate", w.write("target", "fine")))
	w.want(a, wire.Succeeded, "")
	var out bytes.Buffer
	must(t, daemon.VerifyAudit(t.Context(), w.state, &out, chain.Expect{Rows: a.AuditRow, Head: a.AuditHash}))
	if !strings.Contains(out.String(), "whole: 3 rows") {
		t.Errorf("got %q", out.String())
	}
}

// Case 41: whoever may write to the file can bend the chain, but not unseen. The device then does nothing that needs approval.
func TestBentAudit(t *testing.T) {
	for _, c := range []struct {
		name, change string
		want         checkpoint.Trouble
		row          int64
	}{
		{"newest row cut off", "DELETE FROM audit WHERE seq = 5", checkpoint.Truncated, 5},
		{"all cut off", "DELETE FROM audit", checkpoint.Truncated, 1},
		{"row cut out", "DELETE FROM audit WHERE seq = 2", checkpoint.Gap, 2},
		{"row edited", `UPDATE audit SET body = replace(body, '"agent":"ops"', '"agent":"dev"') WHERE seq = 3`, checkpoint.Edited, 3},
		{"hash edited", "UPDATE audit SET hash = 'x' WHERE seq = 1", checkpoint.Edited, 1},
		{"rows exchanged", "UPDATE audit SET seq = -seq WHERE seq IN (2, 3); UPDATE audit SET seq = 5 + seq WHERE seq < 0", checkpoint.Gap, 2},
		{"row repeated", "INSERT INTO audit SELECT 6, body, hash FROM audit WHERE seq = 5", checkpoint.Duplicate, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			var last wire.Answer
			for i := range 2 {
				last, _ = w.ask(w.one(fmt.Sprint("gate", i), w.write(fmt.Sprint("f", i), "1")))
				w.want(last, wire.Succeeded, "")
			}
			w.stop()
			db, err := sql.Open("sqlite", store.File(w.state))
			must(t, err)
			_, err = db.Exec(c.change)
			must(t, errors.Join(err, db.Close()))
			var finding *chain.Finding
			if err := daemon.VerifyAudit(t.Context(), w.state, io.Discard); !errors.As(err, &finding) || finding.Trouble != c.want || finding.Row != c.row {
				t.Errorf("verify says %v, want %s at row %d", err, c.want, c.row)
			}
			w.start()
			if st := w.status(); !contains(st.Problems, string(c.want)) {
				t.Errorf("problems %q", st.Problems)
			}
			a, _ := w.ask(w.one("late", w.write("late", "1")))
			w.want(a, wire.Refused, wire.AuditUnwritable)
			if w.content("late") != "" {
				t.Error("it was written")
			}
			a, _ = w.ask(w.free(w.call(manifest.FSRead, manifest.ReadArgs{Path: w.files + "/a"}), "1"))
			w.want(a, wire.Succeeded, "")
		})
	}
	t.Run("cut off with its count", func(t *testing.T) { // only who saw the end before can tell
		w := newWorld(t)
		a, _ := w.ask(w.one("gate", w.write("f", "1")))
		w.stop()
		db, err := sql.Open("sqlite", store.File(w.state))
		must(t, err)
		_, err = db.Exec("DELETE FROM audit; DELETE FROM meta WHERE key LIKE 'audit.%'")
		must(t, errors.Join(err, db.Close()))
		var finding *chain.Finding
		if err := daemon.VerifyAudit(t.Context(), w.state, io.Discard, chain.Expect{Rows: a.AuditRow, Head: a.AuditHash}); !errors.As(err, &finding) || finding.Trouble != checkpoint.Truncated {
			t.Errorf("got %v", err)
		}
		w.start()
	})
}

// Case 36: a full table refuses; free and approved deeds do not crowd each other out; what is old enough goes.
func TestTableFull(t *testing.T) {
	w := newWorld(t)
	w.stop()
	w.bounds = deeds.Bounds{Approved: 2, Free: 3, ApprovedBytes: 1 << 20, FreeBytes: 1 << 20}
	w.start()
	read := func(id string) wire.Request {
		return w.free(w.call(manifest.FSRead, manifest.ReadArgs{Path: w.files + "/a"}), id)
	}
	for i := range 3 {
		a, _ := w.ask(read(fmt.Sprint(i)))
		w.want(a, wire.Succeeded, "")
	}
	a, _ := w.ask(read("3"))
	w.want(a, wire.Refused, wire.TableFull)
	var kept []wire.Request
	for i := range 2 {
		kept = append(kept, w.one(fmt.Sprint("gate", i), w.exec("append", w.files+"/log")))
		a, _ = w.ask(kept[i])
		w.want(a, wire.Succeeded, "")
	}
	full := w.one("gate2", w.write("target", "1"))
	a, _ = w.ask(full)
	w.want(a, wire.Refused, wire.TableFull)
	if w.content("target") != "" {
		t.Error("it was written")
	}
	rows := w.status().AuditRows
	if rows != 11 {
		t.Errorf("%d rows, want 11: what did not run has no intent", rows)
	}
	w.now.Add(3 * 3600) // free deeds may go when there is no room
	a, _ = w.ask(read("4"))
	w.want(a, wire.Succeeded, "")
	a, _ = w.ask(w.one("gate3", w.write("target", "1")))
	w.want(a, wire.Refused, wire.TableFull)
	w.now.Add(91 * 86400)
	a, _ = w.ask(w.one("gate4", w.write("target", "1")))
	w.want(a, wire.Succeeded, "")
	a, _ = w.ask(kept[0])
	w.want(a, wire.Refused, wire.Expired) // forgotten, and yet it does not run
	if w.content("log") != "xx" {
		t.Errorf("it ran %d times", len(w.content("log")))
	}
}

func TestBusy(t *testing.T) {
	w := newWorld(t)
	w.stop()
	w.busy = 1
	w.start()
	r := w.one("gate", w.exec("hang", w.files+"/started"))
	first := make(chan wire.Answer, 1)
	go func() { a, _ := w.ask(r); first <- a }()
	testrig.Until(t, "the first call to run", func() bool { return w.content("started") == "x" })
	read := w.free(w.call(manifest.FSRead, manifest.ReadArgs{Path: w.files + "/a"}), "1")
	a, _ := w.ask(read)
	w.want(a, wire.Refused, wire.Busy)
	if a := w.seen(r.Deed); a.State != wire.Running {
		t.Errorf("got %+v", a)
	}
	// The device stops: the command dies with it, and how it ended is known.
	must(t, w.d.Close())
	a = <-first
	w.want(a, wire.Failed, "")
	if !strings.Contains(a.Message, "stopping") {
		t.Errorf("got %q", a.Message)
	}
	w.http.Close()
	w.start()
	if a := w.seen(r.Deed); a.State != wire.Failed {
		t.Errorf("got %+v", a)
	}
	a, _ = w.ask(read)
	w.want(a, wire.Succeeded, "")
}

// Case 17: who asked goes away; the call is finished and its answer kept.
func TestCallerGoesAway(t *testing.T) {
	w := newWorld(t)
	r := w.one("gate", w.exec("append", w.files+"/log"))
	body, err := wire.SignRequest(w.request, r)
	must(t, err)
	for range 20 {
		impatient(t, w, body)
	}
	testrig.Until(t, "the outcome", func() bool { return w.seen(r.Deed).State == wire.Succeeded })
	if w.content("log") != "x" {
		t.Errorf("it ran %d times", len(w.content("log")))
	}
}

// Two clients at twice twenty calls a second and more: no lock is in anybody's way, every call is in the chain, and the chain is whole.
func TestTwoClients(t *testing.T) {
	calls := 100
	pace := make(chan time.Time)
	close(pace) // as fast as they can
	var next <-chan time.Time = pace
	if os.Getenv("NISSE_LONG") != "" { // 20 calls a second for a minute
		calls, next = 600, time.Tick(50*time.Millisecond)
	}
	w := newWorld(t)
	start := time.Now()
	together(2, func(client int) {
		for i := range calls {
			<-next
			r := w.free(w.call(manifest.FSRead, manifest.ReadArgs{Path: w.files + "/a"}), fmt.Sprint(client, " ", i))
			if i%5 == 0 {
				r = w.one(fmt.Sprint("gate", client, "-", i), w.write(fmt.Sprint("f", client, "-", i), "1"))
			}
			a, _ := w.ask(r)
			if a.State != wire.Succeeded || a.Message != "" {
				t.Errorf("client %d, call %d: %s %s %q", client, i, a.State, a.Reason, a.Message)
			}
		}
	})
	if rate := 2 * float64(calls) / time.Since(start).Seconds(); rate < 19 {
		t.Errorf("%.0f calls a second", rate)
	} else {
		t.Logf("%.0f calls a second, each with two synced transactions", rate)
	}
	st := w.status()
	if st.AuditRows != 1+4*int64(calls) || len(troubles(st)) != 0 {
		t.Errorf("%d rows, problems %q", st.AuditRows, st.Problems)
	}
	must(t, daemon.VerifyAudit(t.Context(), w.state, io.Discard, chain.Expect{Rows: st.AuditRows, Head: st.AuditHead}))
}
