package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/hosttools/program"
	"nisse.io/nisse/internal/manifest"
)

// hold a second manifest, for agents of privilege Elevated, whose commands run as a user.
func (m *machine) hold(user string) (digest string) {
	m.t.Helper()
	e := *m.manifest
	e.Privilege, e.User = manifest.Elevated, user
	e.Packages = []manifest.PackageRule{{Operations: []string{manifest.PkgInstall}, Names: []string{"*"}, Rule: manifest.Rule{Approval: manifest.Required}}}
	usual := m.digest
	m.run("manifest", "install", "--config", m.config, m.sign(&e, m.root))
	digest, m.digest = m.digest, usual
	return digest
}

// by is what came of a free call under a manifest.
func (m *machine) by(digest, id string, capability string, args any) wire.Answer {
	m.t.Helper()
	c := m.call(capability, args)
	c.ManifestDigest = digest
	a, err := m.ask(m.free(c, id))
	must(m.t, err)
	return a
}

// A device that is not root does nothing of a manifest that wants root, and says what to do, beforehand and when it is asked.
func TestElevatedManifestWantsRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Log("the device runs as the test itself")
	}
	m := newMachine(t)
	anybody := m.hold("")
	if out := m.run("check", "--config", m.config); !strings.Contains(out, "this manifest is Elevated, and the device runs as") || !strings.Contains(out, "--elevated lets the device be root") {
		t.Errorf("check says\n%s", out)
	}
	m.start("")
	c := m.call(manifest.PkgInstall, manifest.PkgInstallArgs{Names: []string{"nisse-no-such-package"}})
	c.ManifestDigest = anybody
	_, err := program.Find("apt-get", "dnf5", "dnf", "dnf-3", "pacman")
	if a, aerr := m.ask(m.approved("gate", c)); aerr != nil || a.State != wire.Refused || err == nil && !strings.Contains(a.Message, "nisse-device join --elevated on the machine lets it be root") {
		t.Errorf("packages: %+v, %v", a, aerr)
	}
	must(t, m.process.Process.Kill())
	m.died()

	m.manifest.Epoch++ // a manifest of the same epoch would not be another
	elevated := m.hold("root")
	if out := m.run("check", "--config", m.config); !strings.Contains(out, "it shall run as root, and this daemon, as user") || !strings.Contains(out, "nisse-device join --elevated") {
		t.Errorf("check says\n%s", out)
	}
	m.start("")
	for capability, args := range map[string]any{manifest.Exec: manifest.ExecArgs{Argv: []string{"/usr/bin/id", "-u"}}, manifest.FSRead: manifest.ReadArgs{Path: m.config}} {
		if a := m.by(elevated, capability, capability, args); a.State != wire.Refused || a.Reason != wire.Unconfined || !strings.Contains(a.Message, "nisse-device join --elevated") {
			t.Errorf("%s: %+v", capability, a)
		}
		if a := m.by(m.digest, "user-"+capability, capability, args); a.State != wire.Succeeded {
			t.Errorf("%s by the User manifest: %+v", capability, a)
		}
	}
}

// A device that is root is that for manifests alone that say so; and its own files no rule opens to it.
func TestElevatedDevice(t *testing.T) {
	if os.Getuid() != 0 {
		t.Log("only root can be a device that is root; the refusals above are all that can be seen here")
		return
	}
	m := bareMachine(t)
	m.elevated = true
	for _, f := range []string{"", "/device.key"} {
		must(t, os.Chown(m.dir+"/state"+f, 0, 0))
	}
	if out, err := m.command("run", "--config", m.config).CombinedOutput(); err == nil || !strings.Contains(string(out), "refusing to run as root") {
		t.Errorf("%v: %s", err, out)
	}
	config, err := os.ReadFile(m.config)
	must(t, err)
	must(t, os.WriteFile(m.config, append(config, "allowRoot: true\nuser: nobody\n"...), 0o600))
	m.run("manifest", "install", "--config", m.config, m.sign(m.manifest, m.root))
	elevated := m.hold("root")
	if out := m.run("check", "--config", m.config); strings.Count(out, "      runs as nobody\n") != 1 || strings.Count(out, "      runs as root\n") != 1 {
		t.Errorf("check says\n%s", out)
	}
	m.start("")
	secret := filepath.Join(m.files, "secret")
	must(t, os.WriteFile(secret, []byte("root's"), 0o600))
	for digest, want := range map[string]struct {
		uid  string
		read wire.State
	}{m.digest: {"65534", wire.Failed}, elevated: {"0", wire.Succeeded}} {
		a := m.by(digest, "id"+want.uid, manifest.Exec, manifest.ExecArgs{Argv: []string{"/usr/bin/id", "-u"}})
		if a.State != wire.Succeeded || !strings.Contains(a.Result, `"stdout":"`+want.uid+`\n"`) {
			t.Errorf("user %s: %+v", want.uid, a)
		}
		if a := m.by(digest, "read"+want.uid, manifest.FSRead, manifest.ReadArgs{Path: secret}); a.State != want.read {
			t.Errorf("user %s reads root's file: %+v", want.uid, a)
		}
		for _, own := range []string{m.config, m.dir + "/state/device.key", binary} {
			if a := m.by(digest, "own"+want.uid+own, manifest.FSRead, manifest.ReadArgs{Path: own}); a.State == wire.Succeeded || want.uid == "0" && a.Reason != wire.PathRefused {
				t.Errorf("user %s reads %s: %+v", want.uid, own, a)
			}
		}
	}
	c := m.call(manifest.FSWrite, manifest.WriteArgs{Path: m.files + "/made", Content: "by root"})
	c.ManifestDigest = elevated
	if a, err := m.ask(m.approved("gate", c)); err != nil || a.State != wire.Succeeded || m.content("made") != "by root" {
		t.Errorf("%+v, %v", a, err)
	}
}
