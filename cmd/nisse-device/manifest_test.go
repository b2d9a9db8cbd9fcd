package main

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"nisse.io/nisse/device/wire"
)

// change posts a manifest or a revocation.
func (m *machine) change(path string, body []byte) (wire.Status, error) {
	m.t.Helper()
	now := time.Now().Unix()
	q := wire.Query{Device: "web1", Path: path, At: now, ExpiresAt: now + 60, Nonce: "n"}
	h, err := wire.SignQuery(m.request, q)
	must(m.t, err)
	method := http.MethodPost
	if body == nil {
		method = http.MethodGet
	}
	req, err := http.NewRequest(method, m.url+path, bytes.NewReader(body))
	must(m.t, err)
	req.Header.Set(wire.QueryHeader, h)
	resp, err := m.http().Do(req)
	if err != nil {
		return wire.Status{}, err
	}
	defer resp.Body.Close()
	env, err := io.ReadAll(resp.Body)
	if err != nil {
		return wire.Status{}, err
	}
	return wire.OpenStatus(env, m.public, q)
}

// A manifest and its row of the audit, and a revocation and its row, are written whole or not at all.
func TestKilledAtChanges(t *testing.T) {
	for _, c := range []struct {
		point string
		held  bool // after the restart
	}{{"device.manifest.before", false}, {"device.manifest.after", true}} {
		t.Run(c.point, func(t *testing.T) {
			m := bareMachine(t)
			env, err := os.ReadFile(m.sign(m.manifest, m.root))
			must(t, err)
			m.start(c.point)
			if st, err := m.change("/v1/manifests", env); err == nil {
				t.Fatalf("it answered %+v", st)
			}
			if s := m.died(); s != syscall.SIGKILL {
				t.Fatalf("it ended by %v", s)
			}
			out := m.run("audit", "show", "--config", m.config)
			if rows := strings.Count(out, " manifest "); rows != 0 != c.held {
				t.Errorf("%d rows: %s", rows, out)
			}
			m.start("")
			st, err := m.change("/v1/status", nil)
			var refused *wire.RefusedError
			if c.held && (err != nil || !st.Holds(m.digest)) || !c.held && (!errors.As(err, &refused) || refused.Reason != wire.NoManifest) {
				t.Errorf("after the restart: %+v, %v", st, err)
			}
			for range 2 { // brought again, once is enough
				if st, err := m.change("/v1/manifests", env); err != nil || !st.Holds(m.digest) || st.AuditRows != 1 {
					t.Errorf("brought again: %+v, %v", st, err)
				}
			}
		})
	}
	for _, c := range []struct {
		point   string
		revoked bool
	}{{"device.revoke.before", false}, {"device.revoke.after", true}} {
		t.Run(c.point, func(t *testing.T) {
			m := newMachine(t)
			body, err := wire.SignRevocation(m.request, wire.Revocation{Device: "web1", Epoch: m.manifest.Epoch, At: time.Now().Unix()})
			must(t, err)
			m.start(c.point)
			if st, err := m.change("/v1/revoke", body); err == nil {
				t.Fatalf("it answered %+v", st)
			}
			if s := m.died(); s != syscall.SIGKILL {
				t.Fatalf("it ended by %v", s)
			}
			m.start("")
			if st, err := m.change("/v1/status", nil); err != nil || st.Holds(m.digest) == c.revoked || st.AuditRows != 1 != c.revoked {
				t.Errorf("after the restart: %+v, %v", st, err)
			}
			if st, err := m.change("/v1/revoke", body); err != nil || st.Holds(m.digest) || st.AuditRows != 2 {
				t.Errorf("asked again: %+v, %v", st, err)
			}
			if out := m.run("manifest", "show", "--config", m.config); !strings.Contains(out, ": Revoked") {
				t.Errorf("manifest show: %s", out)
			}
		})
	}
}

// What the person at the machine types, and what goes wrong with it.
func TestManifestCommands(t *testing.T) {
	m := bareMachine(t)
	fails := func(want string, args ...string) {
		t.Helper()
		out, err := m.command(args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("nisse-device %s: %v: %s; want %q", strings.Join(args, " "), err, out, want)
		}
	}
	fails("no manifest is held yet", "manifest", "show", "--config", m.config)
	if out := m.run("check", "--config", m.config); !strings.Contains(out, "warn  no manifest is held yet") {
		t.Errorf("check says %q", out)
	}
	fails("name one file", "manifest", "install", "--config", m.config)
	fails("no such file", "manifest", "install", "--config", m.config, m.dir+"/none")
	fails("signature refused", "manifest", "install", "--config", m.config, m.sign(m.manifest, m.request))
	old, err := os.ReadFile(m.sign(m.manifest, m.root))
	must(t, err)
	file := m.sign(m.manifest, m.root)
	m.run("manifest", "install", "--config", m.config, file)
	m.run("manifest", "install", "--config", m.config, file) // twice changes nothing
	if out := m.run("audit", "show", "--config", m.config); strings.Count(out, "\n") != 1 || !strings.Contains(out, `"by":"offline"`) {
		t.Errorf("audit: %s", out)
	}
	c := m.command("manifest", "install", "--config", m.config, "-")
	c.Stdin = bytes.NewReader(old)
	if out, err := c.CombinedOutput(); err == nil || !strings.Contains(string(out), "OlderManifest") {
		t.Errorf("an older one: %v: %s", err, out)
	}
	text, err := m.manifest.Canonical()
	must(t, err)
	if out := m.run("manifest", "show", "--config", m.config, "--json"); out != string(text)+"\n" {
		t.Errorf("show --json: %s", out)
	}
	m.configure("127.0.0.1:0", m.request) // the machine's owner pins another root key
	fails("is rootKey of the config another one now?", "manifest", "show", "--config", m.config)
}
