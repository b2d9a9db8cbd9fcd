package rig

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Engine starts a Docker Engine whose one container is called web, and returns where it listens; ok is false where none is installed.
func (m *Machine) Engine(t testing.TB) (host string, ok bool) {
	t.Helper()
	file, err := exec.LookPath("dockerd")
	if err != nil {
		t.Logf("no Engine of the test's own: %v", err)
		return "", false
	}
	d := filepath.Join(m.dir, "docker")
	socket := filepath.Join(d, "docker.sock")
	var log bytes.Buffer
	c := exec.Command(file, "--data-root", filepath.Join(d, "data"), "--exec-root", filepath.Join(d, "exec"), "--pidfile", filepath.Join(d, "pid"), "--host", "unix://"+socket,
		"--iptables=false", "--ip6tables=false", "--bridge=none", "--storage-driver=vfs")
	c.Stdout, c.Stderr = &log, &log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM) // it may have ended
		_ = c.Wait()
		_ = syscall.Unmount(filepath.Join(d, "data"), syscall.MNT_DETACH) // which an Engine that could not begin leaves behind
	})
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	engine := &http.Client{Transport: &http.Transport{DialContext: dial}}
	post := func(path, kind string, body io.Reader) error {
		resp, err := engine.Post("http://docker"+path, kind, body)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if said, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode >= 300 {
			return fmt.Errorf("%s: %s: %s, %w", path, resp.Status, said, err)
		}
		return nil
	}
	m.rig.Wait(t, "the Engine answers", Patience, func(context.Context) error {
		resp, err := engine.Get("http://docker/_ping")
		if err != nil {
			return fmt.Errorf("%w\n%s", err, log.String())
		}
		return resp.Body.Close()
	})
	var image bytes.Buffer
	w := tar.NewWriter(&image)
	if err := w.WriteHeader(&tar.Header{Name: "empty", Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	order, err := json.Marshal(map[string]any{"Image": "nisse-e2e:1", "Cmd": []string{"/none"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, ask := range []struct {
		path, kind string
		body       io.Reader
	}{
		{"/images/create?fromSrc=-&repo=nisse-e2e&tag=1", "application/x-tar", &image},
		{"/containers/create?name=web", "application/json", bytes.NewReader(order)}, // it need not run to be listed
	} {
		if err := post(ask.path, ask.kind, ask.body); err != nil {
			t.Fatal(err)
		}
	}
	m.rig.Command(t, "chown", DeviceUser+":", socket)
	return "unix://" + socket, true
}

// Apt is the machine's own apt with a system of the test's own below a directory: one package, nisse-e2e, in a repository, and nothing
// installed. It returns the configuration that leads there, and that directory; ok is false where there is no apt.
func (m *Machine) Apt(t testing.TB) (config, system string, ok bool) {
	t.Helper()
	for _, program := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Logf("no packages of the test's own: %v", err)
			return "", "", false
		}
	}
	d := filepath.Join(m.dir, "apt")
	system = filepath.Join(d, "system")
	for _, dir := range []string{"repository", "lists/partial", "cache/archives/partial", "log", "etc/apt.conf.d", "etc/preferences.d", "etc/sources.list.d", "etc/trusted.gpg.d",
		"system/var/lib/dpkg/updates", "system/var/lib/dpkg/info", "system/var/lib/dpkg/triggers", "system/etc"} {
		if err := os.MkdirAll(filepath.Join(d, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	put := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(d, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(d, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const control = "Package: nisse-e2e\nVersion: 1.0\nArchitecture: all\nMaintainer: Nobody <nobody@example.org>\nDescription: package of a test\n"
	put("build/DEBIAN/control", control)
	put("build/usr/share/nisse-e2e/there", "1.0")
	file := filepath.Join(d, "repository", "nisse-e2e.deb")
	m.rig.Command(t, "dpkg-deb", "--build", filepath.Join(d, "build"), file)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	put("repository/Packages", fmt.Sprintf("%sFilename: ./nisse-e2e.deb\nSize: %d\nSHA256: %x\n\n", control, len(b), sha256.Sum256(b)))
	put("system/var/lib/dpkg/status", "")
	put("system/var/lib/dpkg/available", "")
	put("etc/sources.list", "deb [trusted=yes] file:"+filepath.Join(d, "repository")+" ./\n")
	put("apt.conf", strings.ReplaceAll(`
Dir::Etc "D/etc"; Dir::Etc::main "none"; Dir::Etc::parts "apt.conf.d"; Dir::Etc::sourcelist "sources.list"; Dir::Etc::sourceparts "sources.list.d";
Dir::State "D/"; Dir::State::lists "D/lists"; Dir::State::status "D/system/var/lib/dpkg/status"; Dir::Cache "D/cache"; Dir::Log "D/log";
APT::Sandbox::User "root"; APT::Architecture "amd64"; APT::Architectures {"amd64";};
DPkg::Options {"--root=D/system"; "--log=D/log/dpkg.log";};
`, "D/", d+"/"))
	config = filepath.Join(d, "apt.conf")
	m.rig.Command(t, "env", "APT_CONFIG="+config, "apt-get", "update")
	return config, system, true
}

// Remote is a bare repository of the device's account with one commit on main, and its URL.
func (m *Machine) Remote(t testing.TB) (dir, url string) {
	t.Helper()
	dir = filepath.Join(m.dir, "git", "tool.git")
	m.Give(t, filepath.Dir(dir))
	seed := filepath.Join(m.dir, "git", "seed")
	m.Git(t, "init", "-q", "-b", "main", seed)
	m.Git(t, "-C", seed, "-c", "user.name=Op", "-c", "user.email=op@example.org", "commit", "-q", "--allow-empty", "-m", "first")
	m.Git(t, "clone", "-q", "--bare", seed, dir)
	m.Git(t, "-C", dir, "remote", "remove", "origin")
	return dir, "file://" + dir
}

// Git as the device's account, as a person would look at what was done; it returns what git says.
func (m *Machine) Git(t testing.TB, args ...string) string {
	t.Helper()
	args = append([]string{"--reuid=" + DeviceUser, "--regid=" + DeviceUser, "--init-groups", "env", "HOME=" + m.Files, "git"}, args...)
	out, err := exec.CommandContext(t.Context(), "setpriv", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}
