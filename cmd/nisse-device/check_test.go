package main

import (
	"os"
	"strings"
	"testing"
)

// What keeps a device from running is told once each, with what to do about it, and nothing of it is called ok.
func TestCheckTellsWhatIsMissing(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(t *testing.T, m *machine)
		want []string // parts of the FAIL lines, in order
	}{
		"state and key": {
			func(t *testing.T, m *machine) { must(t, os.RemoveAll(m.dir+"/state")) },
			[]string{"make one with: nisse-device init --dir DIR/state, and give its publicKey to the Device", "it does not exist; make it, with the device's key, as the device's user: nisse-device init --dir DIR/state"},
		},
		"state beside the key": {
			func(t *testing.T, m *machine) { m.replace("stateDir: state", "stateDir: stat") },
			[]string{"state directory DIR/stat: it does not exist; make it as the device's user: mkdir -m 700 DIR/stat"},
		},
		"key of another name": {
			func(t *testing.T, m *machine) { m.replace("state/device.key", "state/web1.key") },
			[]string{"make one with: nisse-device init --dir DIR/state, and name DIR/state/device.key as key"},
		},
		"an address that the machine does not have": {
			func(t *testing.T, m *machine) { m.replace("127.0.0.1:0", "192.0.2.254:7443") },
			[]string{"listen 192.0.2.254:7443: this machine does not have that address now"},
		},
		"an address that is none": {
			func(t *testing.T, m *machine) { m.replace("127.0.0.1:0", "10.8.0.7") },
			[]string{"listen 10.8.0.7: address 10.8.0.7: missing port"},
		},
		"a directory of somebody else": {
			func(t *testing.T, m *machine) { must(t, os.Chmod(m.dir+"/state", 0)) },
			[]string{"run this as that user", "run this as that user", "manifests"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := bareMachine(t)
			c.do(t, m)
			out, err := m.command("check", "--config", m.config).CombinedOutput()
			t.Cleanup(func() { _ = os.Chmod(m.dir+"/state", 0o700) })
			var failed []string
			for _, line := range strings.Split(string(out), "\n") {
				if strings.HasPrefix(line, "FAIL ") {
					failed = append(failed, line)
				} else if strings.HasPrefix(line, "ok    state directory") && name != "key of another name" && !strings.HasPrefix(name, "an address") {
					t.Errorf("it calls that ok: %s", line)
				}
			}
			if err == nil || len(failed) != len(c.want) {
				t.Fatalf("%v:\n%s", err, out)
			}
			for i, want := range c.want {
				want = strings.ReplaceAll(want, "DIR", m.dir)
				if !strings.Contains(failed[i], want) {
					t.Errorf("%s\nwant %q", failed[i], want)
				}
				_, what, _ := strings.Cut(failed[i], "  ")
				if n := strings.Count(string(out), what); n != 1 {
					t.Errorf("%d times: %s\n%s", n, what, out)
				}
			}
		})
	}
}

// replace a part of the config.
func (m *machine) replace(old, by string) {
	m.t.Helper()
	b, err := os.ReadFile(m.config)
	must(m.t, err)
	text := strings.Replace(string(b), old, by, 1)
	if text == string(b) {
		m.t.Fatalf("the config does not say %q", old)
	}
	must(m.t, os.WriteFile(m.config, []byte(text), 0o644))
}
