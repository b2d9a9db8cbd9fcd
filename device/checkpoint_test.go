package device_test

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"nisse.io/nisse/device/config"
	"nisse.io/nisse/device/daemon"
	"nisse.io/nisse/device/store"
	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/device/wire/chain"
	"nisse.io/nisse/internal/canonical"
	"nisse.io/nisse/internal/checkpoint"
	"nisse.io/nisse/internal/manifest"
	"nisse.io/nisse/internal/testrig"
)

// checkpoint that the device has, for one who has kept since rows, with this root.
func (w *world) checkpoint(since int64, root ...tlog.Hash) checkpoint.Opened {
	w.t.Helper()
	path := fmt.Sprint("/v1/checkpoint?since=", since)
	if len(root) == 1 {
		path += "&root=" + url.QueryEscape(root[0].String())
	}
	q, env := w.get(path)
	o, err := wire.OpenCheckpoint(env, pub(w.device), q)
	must(w.t, err)
	return o
}

// fill the audit: reads leave two rows each.
func (w *world) fill(n int) {
	w.t.Helper()
	for range n {
		w.count++
		a, _ := w.ask(w.free(w.call(manifest.FSRead, manifest.ReadArgs{Path: w.files + "/a"}), fmt.Sprint("read", w.count)))
		w.want(a, wire.Succeeded, "")
	}
}

// A checkpoint comes when rows have come: after so many, after a time, and when the device stops; each extends the one before it, and at rest none comes.
func TestCheckpoints(t *testing.T) {
	w := newWorld(t)
	if o := w.checkpoint(0); o.At.Rows != 0 || o.Checkpoint != "" {
		t.Errorf("a minute has not passed: %+v", o)
	}
	w.fill(50)
	first := w.checkpoint(0)
	if first.At.Rows != 100 {
		t.Fatalf("after 101 rows the checkpoint has %d", first.At.Rows)
	}
	kept := first.At
	w.restart() // stopping makes one
	second := w.checkpoint(100)
	if err := checkpoint.Judge(kept, second); err != nil || second.At.Rows != 101 || len(second.Proof) == 0 {
		t.Errorf("%d rows, proof %v, %v", second.At.Rows, second.Proof, err)
	}
	w.restart()
	if again := w.checkpoint(100); again.Checkpoint != second.Checkpoint {
		t.Errorf("nothing came, and the checkpoint is another: %s", again.Checkpoint)
	}
	w.stop()
	w.sealAfter = 20 * time.Millisecond
	w.start()
	w.fill(1)
	testrig.Until(t, "the time to come", func() bool { return w.checkpoint(101).At.Rows == 103 })
	third := w.checkpoint(101)
	if err := checkpoint.Judge(second.At, third); err != nil {
		t.Error(err)
	}
	if err := checkpoint.Judge(kept, third); !errors.Is(err, checkpoint.ErrOtherSince) {
		t.Errorf("a proof for another: %v", err)
	}
	// Who claims to have kept more than there is gets no proof, and so the truth.
	var f *checkpoint.Finding
	if err := checkpoint.Judge(checkpoint.Checkpoint{Rows: 500}, w.checkpoint(500, tlog.Hash{})); !errors.As(err, &f) || f.Trouble != checkpoint.Truncated || f.Row != 104 {
		t.Errorf("got %v", err)
	}
	for _, bad := range []string{"", "?since=-1", "?since=x", "?since=9007199254740992", "?since=1&root=x"} {
		h, err := wire.SignQuery(w.request, w.query("/v1/checkpoint"+bad))
		must(t, err)
		req, err := http.NewRequest(http.MethodGet, w.http.URL+"/v1/checkpoint"+bad, nil)
		must(t, err)
		req.Header.Set(wire.QueryHeader, h)
		resp, err := http.DefaultClient.Do(req)
		must(t, err)
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%q: status %d", bad, resp.StatusCode)
		}
	}
	q := w.query("/v1/checkpoint?since=0")
	if _, err := wire.OpenCheckpoint(w.getAs(q, w.approve, q.Path), pub(w.device), q); err == nil {
		t.Error("a stranger was answered")
	}
}

// A checkpoint that cannot be written keeps nothing from running, and is made when there is room again.
func TestCheckpointCannotBeWritten(t *testing.T) {
	w := newWorld(t)
	w.stop()
	w.sealAfter = 10 * time.Millisecond
	w.start()
	w.fill(1)
	testrig.Until(t, "the checkpoint", func() bool { return w.checkpoint(0).At.Rows == 3 })
	commits := 0
	w.d.Store.Fault = func() error { // a call's two are written, the next is not
		if commits++; commits == 3 {
			return errors.New("no space left on device")
		}
		return nil
	}
	w.fill(1)
	testrig.Until(t, "the checkpoint after all", func() bool { return w.checkpoint(0).At.Rows == 5 })
}

// A while after the last call its rows are sealed, and then whoever waits for such a time is told.
func TestRest(t *testing.T) {
	w := newWorld(t)
	w.stop()
	w.sealAfter = 10 * time.Millisecond
	w.start()
	rested := make(chan struct{}, 100)
	w.d.Rest = func() { rested <- struct{}{} }
	for rows := int64(3); rows < 7; rows += 2 {
		w.fill(1)
		testrig.Until(t, "the device to rest with all sealed", func() bool {
			select {
			case <-rested:
			default:
				return false
			}
			return w.checkpoint(0).At.Rows == rows
		})
	}
}

// sealedWorld has rows 1 to 7, of which a checkpoint has 5 and another, kept by somebody else, 7.
func sealedWorld(t *testing.T) (w *world, kept string) {
	w = newWorld(t)
	w.fill(2)
	w.restart()
	w.fill(1)
	w.stop()
	w.start()
	kept = filepath.Join(t.TempDir(), "checkpoint")
	must(t, os.WriteFile(kept, []byte(w.checkpoint(0).Checkpoint), 0o600))
	w.stop()
	return w, kept
}

// tamper with the database of a device that is stopped.
func (w *world) tamper(do func(db *sql.DB) error) {
	w.t.Helper()
	db, err := sql.Open("sqlite", store.File(w.state))
	must(w.t, err)
	must(w.t, errors.Join(do(db), db.Close()))
}

// rewrite rows from one on as a forger would who knows all there is: bodies, hashes, links and the end that is kept beside them.
func rewrite(from int64) func(db *sql.DB) error {
	return func(db *sql.DB) error {
		prev, last := chain.Genesis, int64(0)
		for seq := int64(1); ; seq++ {
			var body, hash string
			err := db.QueryRow("SELECT body, hash FROM audit WHERE seq = ?", seq).Scan(&body, &hash)
			if errors.Is(err, sql.ErrNoRows) {
				break
			}
			if err != nil {
				return err
			}
			last = seq
			if seq < from {
				prev = hash
				continue
			}
			r, err := chain.Decode(body)
			if err != nil {
				return err
			}
			r.Agent, r.Prev = "nobody", prev
			if body, err = r.Encode(); err != nil {
				return err
			}
			prev = canonical.Hex([]byte(body))
			if _, err := db.Exec("UPDATE audit SET body = ?, hash = ? WHERE seq = ?", body, prev, seq); err != nil {
				return err
			}
		}
		_, err := db.Exec("UPDATE meta SET value = ? WHERE key = 'audit.head'", prev)
		return errors.Join(err, setRows(db, last))
	}
}

func setRows(db *sql.DB, n int64) error {
	_, err := db.Exec("UPDATE meta SET value = ? WHERE key = 'audit.rows'", fmt.Sprint(n))
	return err
}

func run(query string, args ...any) func(db *sql.DB) error {
	return func(db *sql.DB) error { _, err := db.Exec(query, args...); return err }
}

func both(all ...func(db *sql.DB) error) func(db *sql.DB) error {
	return func(db *sql.DB) error {
		for _, do := range all {
			if err := do(db); err != nil {
				return err
			}
		}
		return nil
	}
}

// cut the newest rows off, and everything that the device itself has of them.
var cut = both(
	run(`DELETE FROM audit WHERE seq > 5; DELETE FROM checkpoints WHERE rows > 5; DELETE FROM tree WHERE (n + 1) << level > 5`),
	end)

// end of the chain, as if row 5 had been the newest ever.
var end = both(run(`UPDATE meta SET value = (SELECT hash FROM audit WHERE seq = 5) WHERE key = 'audit.head'`), func(db *sql.DB) error { return setRows(db, 5) })

// Whoever may write the database and makes it fit again is found out: by the tree, by the checkpoints, and in the end by who kept one elsewhere. What
// was done is told apart, and the first row is named.
func TestTamperedDatabase(t *testing.T) {
	edit := run(`UPDATE audit SET body = replace(body, '"agent":"ops"', '"agent":"dev"') WHERE seq = 4`)
	edited := func(db *sql.DB) error { // with its hash
		var body string
		if err := errors.Join(edit(db), db.QueryRow("SELECT body FROM audit WHERE seq = 4").Scan(&body)); err != nil {
			return err
		}
		return run("UPDATE audit SET hash = ? WHERE seq = 4", canonical.Hex([]byte(body)))(db)
	}
	for _, c := range []struct {
		name   string
		change func(db *sql.DB) error
		// by what the device has, and by what somebody else kept as well. Empty: nothing shows.
		alone, kept checkpoint.Trouble
		row         int64
	}{
		{"nothing", run("SELECT 1"), "", "", 0},
		{"a row edited", edit, checkpoint.Edited, checkpoint.Edited, 4},
		{"a row edited, with its hash", edited, checkpoint.Edited, checkpoint.Edited, 4},
		{"the newest edited, with its hash and the end", rewrite(7), checkpoint.Edited, checkpoint.Edited, 7},
		{"a row taken out", run("DELETE FROM audit WHERE seq = 4"), checkpoint.Gap, checkpoint.Gap, 4},
		{"a row doubled", run("INSERT INTO audit SELECT 8, body, hash FROM audit WHERE seq = 7"), checkpoint.Duplicate, checkpoint.Duplicate, 7},
		{"an old row doubled", run("INSERT INTO audit SELECT 8, body, hash FROM audit WHERE seq = 2"), checkpoint.Duplicate, checkpoint.Duplicate, 2},
		{"written anew from a row on", rewrite(3), checkpoint.Forked, checkpoint.Forked, 3},
		{"written anew, without the tree", both(rewrite(3), run("DELETE FROM tree")), checkpoint.Forked, checkpoint.Forked, 5},
		{"written anew, without tree and checkpoints", both(rewrite(3), run("DELETE FROM tree; DELETE FROM checkpoints")), "", checkpoint.Forked, 7},
		{"the newest cut off", run("DELETE FROM audit WHERE seq > 5"), checkpoint.Truncated, checkpoint.Truncated, 6},
		{"the newest cut off, with the end", both(run("DELETE FROM audit WHERE seq > 5"), end), checkpoint.Truncated, checkpoint.Truncated, 6},
		{"the newest cut off, with all that tells of them", cut, "", checkpoint.Truncated, 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, file := sealedWorld(t)
			w.tamper(c.change)
			seen, err := daemon.Kept(config.Config{StateDir: w.state}, file, text(w.device))
			must(t, err)
			for _, look := range []struct {
				name string
				want checkpoint.Trouble
				seen []chain.Expect
			}{{"alone", c.alone, nil}, {"with what was kept", c.kept, []chain.Expect{seen}}} {
				err := daemon.VerifyAudit(t.Context(), w.state, io.Discard, look.seen...)
				var f *chain.Finding
				switch {
				case look.want == "" && err == nil:
				case look.want == "" || !errors.As(err, &f) || f.Trouble != look.want || f.Row != c.row:
					t.Errorf("%s: got %v, want %s at row %d", look.name, err, look.want, c.row)
				}
			}
			// The device says so itself where it can, and who has kept a checkpoint sees the rest by its reply.
			w.start()
			o := w.checkpoint(seen.Rows, seen.Root)
			var f *checkpoint.Finding
			err = checkpoint.Judge(checkpoint.Checkpoint{Rows: seen.Rows, Root: seen.Root}, o)
			if c.kept == "" && err == nil {
				return
			}
			if !errors.As(err, &f) || f.Trouble != c.kept || f.Row != c.row {
				t.Errorf("the cluster: got %v, want %s at row %d", err, c.kept, c.row)
			}
			if (o.Finding != nil) != (c.alone != "") {
				t.Errorf("the device says %v", o.Finding)
			}
		})
	}
}

// Cut off and written on: the device knows nothing of it, and what it signs does not contain what was kept.
func TestCutOffAndWrittenOn(t *testing.T) {
	w, file := sealedWorld(t)
	w.tamper(cut)
	seen, err := daemon.Kept(config.Config{StateDir: w.state}, file, text(w.device))
	must(t, err)
	w.start()
	w.fill(2)
	w.restart()
	var f *checkpoint.Finding
	o := w.checkpoint(seen.Rows, seen.Root)
	if err := checkpoint.Judge(checkpoint.Checkpoint{Rows: seen.Rows, Root: seen.Root}, o); !errors.As(err, &f) || f.Trouble != checkpoint.Forked || o.Finding != nil {
		t.Errorf("got %v, device %v", err, o.Finding)
	}
	w.stop()
	if err := daemon.VerifyAudit(t.Context(), w.state, io.Discard, seen); !errors.As(err, &f) || f.Trouble != checkpoint.Forked || f.Row != 7 {
		t.Errorf("got %v", err)
	}
	w.start()
}

// The tree is made of the rows, and can be made of them again: losing it is no loss, and bending it no lie.
func TestTreeIsMadeAgain(t *testing.T) {
	for name, change := range map[string]string{
		"lost":   "DELETE FROM tree",
		"bent":   "UPDATE tree SET hash = randomblob(32) WHERE level > 0",
		"broken": "UPDATE tree SET hash = x'00' WHERE level > 0",
	} {
		t.Run(name, func(t *testing.T) {
			w, file := sealedWorld(t)
			w.tamper(run(change))
			seen, err := daemon.Kept(config.Config{StateDir: w.state}, file, text(w.device))
			must(t, err)
			w.start()
			if o := w.checkpoint(3); len(o.Proof) == 0 || o.Finding != nil {
				t.Errorf("proof %v, finding %v", o.Proof, o.Finding)
			}
			w.fill(1)
			w.restart()
			o := w.checkpoint(seen.Rows)
			if err := checkpoint.Judge(checkpoint.Checkpoint{Rows: seen.Rows, Root: seen.Root}, o); err != nil || o.At.Rows != 9 {
				t.Errorf("%d rows, %v", o.At.Rows, err)
			}
		})
	}
}

// What is altered while the device runs is found when it starts again at the latest, and from then on nothing that needs approval runs.
func TestAlteredWhileItRuns(t *testing.T) {
	w := newWorld(t)
	w.fill(2)
	w.restart()
	_, err := w.d.Store.DB().Exec("DELETE FROM audit WHERE seq = 5; UPDATE meta SET value = 4 WHERE key = 'audit.rows'")
	must(t, err)
	_, err = w.d.Store.DB().Exec("UPDATE meta SET value = (SELECT hash FROM audit WHERE seq = 4) WHERE key = 'audit.head'")
	must(t, err)
	w.fill(1) // an intent makes it as long again, an outcome longer
	w.now.Add(1)
	a, _ := w.ask(w.one("gate", w.write("f", "1")))
	w.want(a, wire.Succeeded, "")
	w.restart()
	a, _ = w.ask(w.one("late", w.write("late", "1")))
	w.want(a, wire.Refused, wire.AuditUnwritable)
	if o := w.checkpoint(0); o.Finding == nil || w.content("late") != "" {
		t.Errorf("finding %v", o.Finding)
	}
	w.fill(1)
}

func TestKeptCheckpointIsTheDevices(t *testing.T) {
	w, file := sealedWorld(t)
	defer w.start()
	c := config.Config{StateDir: w.state}
	if _, err := daemon.Kept(c, file, ""); err == nil || !strings.Contains(err.Error(), "--key") {
		t.Errorf("without a key: %v", err)
	}
	if _, err := daemon.Kept(c, file, text(w.request)); err == nil {
		t.Error("another key signed it, and it was taken")
	}
	c.Device = "web2"
	if _, err := daemon.Kept(c, file, text(w.device)); err == nil {
		t.Error("another device's was taken")
	}
	b, err := json.Marshal("x")
	must(t, err)
	must(t, os.WriteFile(file, b, 0o600))
	if _, err := daemon.Kept(c, file, text(w.device)); err == nil {
		t.Error("no checkpoint was taken for one")
	}
}
