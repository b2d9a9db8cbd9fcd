package main

import (
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/internal/checkpoint"
	"nisse.io/nisse/internal/manifest"
)

// checkpoint that the device has.
func (m *machine) checkpoint(since int64) checkpoint.Opened {
	m.t.Helper()
	path := fmt.Sprint("/v1/checkpoint?since=", since)
	q := wire.Query{Device: "web1", Path: path, At: time.Now().Unix(), ExpiresAt: time.Now().Unix() + 60, Nonce: "n"}
	h, err := wire.SignQuery(m.request, q)
	must(m.t, err)
	req, err := http.NewRequest(http.MethodGet, m.url+path, nil)
	must(m.t, err)
	req.Header.Set(wire.QueryHeader, h)
	resp, err := m.http().Do(req)
	must(m.t, err)
	defer resp.Body.Close()
	env, err := io.ReadAll(resp.Body)
	must(m.t, err)
	o, err := wire.OpenCheckpoint(env, m.public, q)
	must(m.t, err)
	return o
}

// Killed before and after a checkpoint is written: there is one root for a length, whoever was told it, and each checkpoint extends the one before.
func TestKilledWhileSealing(t *testing.T) {
	for _, point := range []string{"device.seal.before", "device.seal.written", "device.seal.after"} {
		t.Run(point, func(t *testing.T) {
			m := newMachine(t)
			m.start("")
			first := m.checkpoint(0) // of the manifest that was installed
			must(t, m.process.Process.Kill())
			m.died()
			m.start(point)
			if a, err := m.ask(m.approved("gate", m.call(manifest.Exec, manifest.ExecArgs{Argv: []string{m.tool, "append", m.files + "/log"}}))); err != nil || a.State != wire.Succeeded {
				t.Fatalf("got %+v, %v", a, err)
			}
			must(t, m.process.Process.Signal(syscall.SIGTERM)) // it seals before it goes
			if s := m.died(); s != syscall.SIGKILL {
				t.Fatalf("it ended by %v", s)
			}
			roots := map[int64]string{first.At.Rows: first.At.Root.String()}
			tell := func() {
				db, err := sql.Open("sqlite", "file:"+m.dir+"/state/device.db?mode=ro")
				must(t, err)
				defer db.Close()
				rows, err := db.Query("SELECT rows, root FROM checkpoints")
				must(t, err)
				defer rows.Close()
				for rows.Next() {
					var n int64
					var root string
					must(t, rows.Scan(&n, &root))
					if was, ok := roots[n]; ok && was != root {
						t.Errorf("%d rows had the root %s, and have %s", n, was, root)
					}
					roots[n] = root
				}
				must(t, rows.Err())
			}
			tell()
			m.start("")
			tell()
			o := m.checkpoint(first.At.Rows)
			if err := checkpoint.Judge(first.At, o); err != nil || first.At.Rows != 1 || o.At.Rows != 3 || len(roots) != 2 {
				t.Errorf("from %d to %d rows, %d checkpoints, %v", first.At.Rows, o.At.Rows, len(roots), err)
			}
			kept := m.dir + "/kept"
			must(t, os.WriteFile(kept, []byte(o.Checkpoint), 0o644))
			if out := m.run("audit", "verify", "--config", m.config, "--checkpoint", kept); !strings.Contains(out, "whole: 3 rows") {
				t.Errorf("audit verify: %s", out)
			}
		})
	}
}
