package main

import (
	"database/sql"
	"strings"
	"syscall"
	"testing"
	"time"

	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/internal/checkpoint"
	"nisse.io/nisse/internal/manifest"
	"nisse.io/nisse/internal/testrig"
)

// kill the daemon, in the middle of whatever it does.
func (m *machine) kill() {
	m.t.Helper()
	must(m.t, m.process.Process.Kill())
	m.died()
}

// tamper with what the device has written, while it does not run.
func (m *machine) tamper(statement string) {
	m.t.Helper()
	db, err := sql.Open("sqlite", "file:"+m.dir+"/state/device.db")
	must(m.t, err)
	r, err := db.Exec(statement)
	must(m.t, err)
	if n, err := r.RowsAffected(); err != nil || n != 1 {
		m.t.Fatalf("%d rows were changed, %v", n, err)
	}
	must(m.t, db.Close())
}

// Killed before and after a new line is written: it begins whole or not at all, once however often it is ordered; nothing of the line before is lost,
// what was done stays done, and what had begun is told of as Unknown.
func TestKilledWhileAnchoring(t *testing.T) {
	for _, c := range []struct {
		point string
		begun bool // after the restart
	}{{"device.anchor.before", false}, {"device.anchor.after", true}} {
		t.Run(c.point, func(t *testing.T) {
			m := newMachine(t)
			m.start("")
			done := m.approved("done", m.call(manifest.Exec, manifest.ExecArgs{Argv: []string{m.tool, "append", m.files + "/done"}}))
			if a, err := m.ask(done); err != nil || a.State != wire.Succeeded {
				t.Fatalf("got %+v, %v", a, err)
			}
			must(t, m.process.Process.Signal(syscall.SIGTERM)) // it seals before it goes
			m.died()
			m.start("")
			kept := m.checkpoint(0).At
			hangs := m.approved("hangs", m.call(manifest.Exec, manifest.ExecArgs{Argv: []string{m.tool, "hang", m.files + "/hangs"}}))
			go func() { _, _ = m.ask(hangs) }()
			testrig.Until(t, "the command to run", func() bool { return m.content("hangs") == "x" })
			m.kill()
			m.tamper(`UPDATE audit SET body = replace(body, '"agent":"ops"', '"agent":"dev"') WHERE seq = 2`)

			line := time.Now().Unix()
			order, err := checkpoint.Anchor{Device: "web1", Line: line, Rows: kept.Rows, Root: kept.Root.String(), Trouble: checkpoint.Edited, Row: 2, Reason: "a mouse", At: line}.Sign(m.root)
			must(t, err)
			m.start(c.point)
			if st, err := m.change("/v1/anchor", []byte(order)); err == nil {
				t.Fatalf("it answered %+v", st)
			}
			if s := m.died(); s != syscall.SIGKILL {
				t.Fatalf("it ended by %v", s)
			}
			m.start("")
			st, err := m.change("/v1/status", nil)
			if broken := strings.Contains(strings.Join(st.Problems, " "), "audit chain broken"); err != nil || st.AuditLine == line != c.begun || broken == c.begun {
				t.Errorf("after the restart: %+v, %v", st, err)
			}
			for range 2 { // brought again, once is enough: the order and what had begun
				if st, err := m.change("/v1/anchor", []byte(order)); err != nil || st.AuditLine != line || st.AuditRows != 2 {
					t.Errorf("brought again: %+v, %v", st, err)
				}
			}
			for _, d := range []struct {
				r    wire.Request
				want wire.State
				file string
			}{{done, wire.Succeeded, "done"}, {hangs, wire.Unknown, "hangs"}} {
				if a, err := m.ask(d.r); err != nil || a.State != d.want || m.content(d.file) != "x" {
					t.Errorf("%s: got %+v, %v, and it ran %d times", d.file, a, err, len(m.content(d.file)))
				}
			}
			if o := m.checkpoint(0); o.At.Line != line || o.Finding != nil {
				t.Errorf("got %+v", o)
			}
			if out := m.run("audit", "verify", "--config", m.config); !strings.Contains(out, "whole: 2 rows") || !strings.Contains(out, "a mouse") {
				t.Errorf("audit verify: %s", out)
			}
			if out := m.run("audit", "show", "--config", m.config, "--line", "0"); !strings.Contains(out, "dev") || int64(strings.Count(out, "\n")) != kept.Rows+1 {
				t.Errorf("of the line before: %s", out)
			}
		})
	}
}
