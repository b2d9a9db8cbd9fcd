package config

import (
	"crypto/ed25519"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

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
	root := publicKey(t)
	f := write(t, "listen: [\"10.8.0.7:7443\"]\nstateDir: state\ndevice: web1\nrootKey: "+root+"\nkey: state/device.key\n")
	got, err := Read(f)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(f)
	want := Config{Listen: []string{"10.8.0.7:7443"}, StateDir: dir + "/state", Device: "web1", RootKey: root, Key: dir + "/state/device.key", File: f}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	good := "stateDir: s\ndevice: web1\nrootKey: " + root + "\nkey: k\n"
	if _, err := Read(write(t, good)); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"unknown field":         good + "alowRoot: true\n",
		"field twice":           good + "stateDir: t\n",
		"no key":                strings.Replace(good, "key: k\n", "", 1),
		"no name":               strings.Replace(good, "device: web1\n", "", 1),
		"no root key":           strings.Replace(good, "rootKey: "+root+"\n", "", 1),
		"a root key of nobody":  strings.Replace(good, root, "root-key", 1),
		"a root key of anybody": strings.Replace(good, root, dsse.EncodeKey(make([]byte, 32)), 1),
		"busy":                  good + "busy: -1\n",
		"no YAML":               "{",
	} {
		t.Run(name, func(t *testing.T) {
			if c, err := Read(write(t, text)); err == nil {
				t.Errorf("got %+v", c)
			}
		})
	}
}

// Who upgrades is told what to do with a file of before, not that a field is unknown.
func TestReadOfOld(t *testing.T) {
	_, err := Read(write(t, "listen: [\"10.8.0.7:7443\"]\nstateDir: s\nmanifest: /etc/nisse/manifest.yaml\nkey: k\n"))
	if err == nil || !strings.Contains(err.Error(), "name device and rootKey instead") || strings.Contains(err.Error(), "unknown") {
		t.Errorf("got %v", err)
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

func publicKey(t *testing.T) string {
	t.Helper()
	pub, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return dsse.EncodeKey(pub)
}

// The samples say what they mean once their keys are filled in, and are refused until then.
func TestSamples(t *testing.T) {
	t.Run("config", func(t *testing.T) {
		const file = "../../config/device/config.yaml"
		if c, err := Read(file); err == nil {
			t.Errorf("it is accepted with a root key that is nobody's: %+v", c)
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Read(write(t, strings.Replace(string(b), "rootKey: root-key", "rootKey: "+publicKey(t), 1))); err != nil {
			t.Error(err)
		}
	})
	read := func(t *testing.T, file string) *manifest.Manifest {
		t.Helper()
		b, err := os.ReadFile("../../config/device/" + file)
		if err != nil {
			t.Fatal(err)
		}
		spec := func(text string) []byte { // as the object's spec is signed
			var o struct {
				Spec map[string]any `json:"spec"`
			}
			if err := yaml.Unmarshal([]byte(text), &o); err != nil {
				t.Fatal(err)
			}
			o.Spec["v"], o.Spec["epoch"] = manifest.Version, 1
			out, err := yaml.Marshal(o.Spec)
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		if _, err := manifest.Parse(spec(string(b))); err == nil {
			t.Error("it is accepted with keys that are nobody's")
		}
		m, err := manifest.Parse(spec(strings.NewReplacer(`"request-key"`, `"`+publicKey(t)+`"`, `"approval-key"`, `"`+publicKey(t)+`"`).Replace(string(b))))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	t.Run("manifest", func(t *testing.T) {
		m := read(t, "manifest.yaml")
		for args, want := range map[string]manifest.Approval{`{"argv":["/usr/bin/df","-h"]}`: manifest.None, `{"argv":["/usr/bin/uptime"]}`: manifest.None} {
			if v, err := m.Check(manifest.Exec, args); err != nil || v.Approval != want {
				t.Errorf("%s: %+v, %v", args, v, err)
			}
		}
		if v, err := m.Check(manifest.FSWrite, `{"content":"x","path":"/srv/nisse/report.txt"}`); err != nil || v.Approval != manifest.Required {
			t.Errorf("%+v, %v", v, err)
		}
	})
	// Root's: it may look at names by itself, and everything else is for a person to decide.
	t.Run("elevated manifest", func(t *testing.T) {
		m := read(t, "elevated.yaml")
		if m.Privilege != manifest.Elevated || m.User != "root" {
			t.Errorf("privilege %s, user %s", m.Privilege, m.User)
		}
		for call, want := range map[[2]string]manifest.Approval{
			{manifest.FSList, `{"path":"/etc/nginx"}`}:                                               manifest.None,
			{manifest.FSRead, `{"path":"/etc/nginx/nginx.conf"}`}:                                    manifest.Required,
			{manifest.FSWrite, `{"content":"x","path":"/etc/nginx/nginx.conf"}`}:                     manifest.Required,
			{manifest.Exec, `{"argv":["/usr/bin/systemctl","--no-pager","status","nginx"]}`}:         manifest.None,
			{manifest.Exec, `{"argv":["/usr/bin/systemctl","restart","nginx"]}`}:                     manifest.Required,
			{manifest.Exec, `{"argv":["/usr/bin/journalctl","--no-pager","-n","200","-u","nginx"]}`}: manifest.Required,
			{manifest.PkgSearch, `{"query":"nginx"}`}:                                                manifest.None,
			{manifest.PkgInstall, `{"names":["nginx"]}`}:                                             manifest.Required,
			{manifest.ProcList, `{}`}:                                                                manifest.None,
			{manifest.ProcKill, `{"pid":7,"signal":"HUP","start":"1@00000000"}`}:                     manifest.Required,
		} {
			if v, err := m.Check(call[0], call[1]); err != nil || v.Approval != want {
				t.Errorf("%s: %+v, %v", call, v, err)
			}
		}
		for _, args := range []string{`{"argv":["/usr/bin/systemctl","mask","nginx"]}`, `{"argv":["/usr/bin/systemctl","stop","--all"]}`, `{"argv":["/usr/bin/systemctl","reboot"]}`} {
			if _, err := m.Check(manifest.Exec, args); err == nil {
				t.Errorf("%s is allowed", args)
			}
		}
	})
}
