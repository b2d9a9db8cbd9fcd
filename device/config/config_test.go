package config

import (
	"crypto/ed25519"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/manifest"
)

func write(t *testing.T, text string) string {
	t.Helper()
	f := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(f, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestRead(t *testing.T) {
	f := write(t, "listen: [\"10.8.0.7:7443\"]\nstateDir: state\nmanifest: /etc/nisse/manifest.yaml\nkey: state/device.key\n")
	got, err := Read(f)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(f)
	want := Config{Listen: []string{"10.8.0.7:7443"}, StateDir: dir + "/state", Manifest: "/etc/nisse/manifest.yaml", Key: dir + "/state/device.key"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for name, text := range map[string]string{
		"unknown field": "stateDir: s\nmanifest: m\nkey: k\nalowRoot: true\n",
		"field twice":   "stateDir: s\nstateDir: t\nmanifest: m\nkey: k\n",
		"no key":        "stateDir: s\nmanifest: m\n",
		"busy":          "stateDir: s\nmanifest: m\nkey: k\nbusy: -1\n",
		"no YAML":       "{",
	} {
		t.Run(name, func(t *testing.T) {
			if c, err := Read(write(t, text)); err == nil {
				t.Errorf("got %+v", c)
			}
		})
	}
}

func TestMakeKey(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	key, made, err := MakeKey(dir)
	if err != nil || !made {
		t.Fatal(made, err)
	}
	again, made, err := MakeKey(dir)
	if err != nil || made || !again.Equal(key) {
		t.Errorf("the second time: made %t, %v", made, err)
	}
	if err := os.WriteFile(KeyFile(dir), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := MakeKey(dir); err == nil {
		t.Error("a broken key was taken for one, or replaced")
	}
	if err := os.Chmod(KeyFile(dir), 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := PrivateKey(KeyFile(dir)); err == nil || !strings.Contains(err.Error(), "read by others") {
		t.Errorf("got %v", err)
	}
}

// The samples say what they mean once their keys are filled in, and are refused until then.
func TestSamples(t *testing.T) {
	key := func() string {
		pub, _, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return dsse.EncodeKey(pub)
	}
	for _, file := range []string{"../../config/device/manifest.yaml"} {
		t.Run(file, func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := manifest.Parse(b); err == nil {
				t.Error("it is accepted with keys that are nobody's")
			}
			text := strings.NewReplacer(`"request-key"`, `"`+key()+`"`, `"approval-key"`, `"`+key()+`"`).Replace(string(b))
			m, err := manifest.Parse([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			for args, want := range map[string]manifest.Approval{`{"argv":["/usr/bin/df","-h"]}`: manifest.None, `{"argv":["/usr/bin/uptime"]}`: manifest.None} {
				if v, err := m.Check(manifest.Exec, args); err != nil || v.Approval != want {
					t.Errorf("%s: %+v, %v", args, v, err)
				}
			}
			if v, err := m.Check(manifest.FSWrite, `{"content":"x","path":"/srv/nisse/report.txt"}`); err != nil || v.Approval != manifest.Required {
				t.Errorf("%+v, %v", v, err)
			}
		})
	}
	if _, err := Read("../../config/device/config.yaml"); err != nil {
		t.Error(err)
	}
}
