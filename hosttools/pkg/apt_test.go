package pkg

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"nisse.io/nisse/hosttools/command"
	"nisse.io/nisse/hosttools/program"
)

// deb in the tests' own repository: name, version and relations.
type deb struct{ name, version, more string }

var debs = []deb{
	{"nisse-hello", "1.0", ""},
	{"nisse-tool", "2.1-3", "Depends: nisse-lib (>= 1)"},
	{"nisse-lib", "1.5", ""},
	{"nisse-rival", "1.0", "Conflicts: nisse-hello"},
	{"nisse-g++", "1.0", ""},
	{"nisse-provider", "1.0", "Provides: nisse-virtual"},
	{"nisse-a.b", "1.0", ""},
	{"nisse-broken", "1.0", "Depends: nisse-nowhere"},
}

// debian is a machine in a directory: apt and dpkg of this one, with a root, a status and a repository of their own.
func debian(t *testing.T) (m Manager, root string) {
	t.Helper()
	if _, err := program.Find("apt-get"); err != nil {
		if m, err := Find(command.Command{}); m.Name == "apt" || m.Name == "" && !errors.Is(err, program.ErrMissing) {
			t.Fatalf("a machine without apt: %s, %v", m.Name, err)
		}
		return Manager{}, ""
	}
	d, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	repository, root := filepath.Join(d, "repository"), filepath.Join(d, "root")
	for _, dir := range []string{repository, "root/var/lib/dpkg/updates", "root/var/lib/dpkg/info", "root/var/lib/dpkg/triggers", "root/etc", "lists/partial", "cache/archives/partial", "log", "etc/apt.conf.d", "etc/preferences.d", "etc/sources.list.d", "etc/trusted.gpg.d"} {
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(d, dir)
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var index bytes.Buffer
	for _, p := range debs {
		control := fmt.Sprintf("Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: Nobody <nobody@example.org>\n%sDescription: package of a test called %s\n",
			p.name, p.version, strings.TrimLeft(p.more+"\n", "\n"), p.name)
		tree := filepath.Join(d, "build", p.name)
		put(t, filepath.Join(tree, "DEBIAN/control"), control)
		put(t, filepath.Join(tree, "usr/share", p.name, "there"), p.version)
		file := filepath.Join(repository, p.name+".deb")
		if out, err := exec.Command("dpkg-deb", "--build", tree, file).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&index, "%sFilename: ./%s.deb\nSize: %d\nSHA256: %x\n\n", control, p.name, len(b), sha256.Sum256(b))
	}
	put(t, filepath.Join(repository, "Packages"), index.String())
	put(t, filepath.Join(root, "var/lib/dpkg/status"), "")
	put(t, filepath.Join(root, "var/lib/dpkg/available"), "")
	put(t, filepath.Join(d, "etc/sources.list"), "deb [trusted=yes] file:"+repository+" ./\n")
	put(t, filepath.Join(d, "apt.conf"), `
Dir::Etc "`+d+`/etc"; Dir::Etc::main "none"; Dir::Etc::parts "apt.conf.d"; Dir::Etc::sourcelist "sources.list"; Dir::Etc::sourceparts "sources.list.d";
Dir::State "`+d+`"; Dir::State::lists "`+d+`/lists"; Dir::State::status "`+root+`/var/lib/dpkg/status"; Dir::Cache "`+d+`/cache"; Dir::Log "`+d+`/log";
APT::Sandbox::User "`+account(t)+`"; APT::Architecture "amd64"; APT::Architectures {"amd64";};
DPkg::Options {"--root=`+root+`"; "--force-not-root"; "--log=`+d+`/log/dpkg.log";};
`)
	c := command.Command{Timeout: time.Minute, Keep: 1 << 20, Env: program.Env(nil, "APT_CONFIG="+filepath.Join(d, "apt.conf"))}
	update := exec.Command("apt-get", "update")
	update.Env = c.Env
	if out, err := update.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	m, err = Find(c)
	if err != nil || m.Name != "apt" {
		t.Fatal(m.Name, err)
	}
	return m, root
}

// account that runs the test, which apt must not leave.
func account(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("id", "-un").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func put(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// there tells which packages of the repository lie in the root.
func there(t *testing.T, root string) []string {
	t.Helper()
	var all []string
	for _, p := range debs {
		if _, err := os.Stat(filepath.Join(root, "usr/share", p.name, "there")); err == nil {
			all = append(all, p.name)
		}
	}
	return all
}

func TestAptInstall(t *testing.T) {
	m, root := debian(t)
	if m.Name == "" {
		return // debian has tested the refusal
	}
	got, err := m.Install(t.Context(), []string{"nisse-tool", "nisse-g++"})
	if err != nil {
		t.Fatal(err)
	}
	want := []Package{{Name: "nisse-g++", Version: "1.0"}, {Name: "nisse-lib", Version: "1.5"}, {Name: "nisse-tool", Version: "2.1-3"}}
	if d := cmp.Diff(want, got.Packages); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"nisse-tool", "nisse-lib", "nisse-g++"}, there(t, root)); d != "" {
		t.Error(d)
	}
	if !strings.Contains(got.Output.Stdout.Text(), "Setting up nisse-tool") {
		t.Errorf("output is %q", got.Output.Stdout.Text())
	}

	got, err = m.Install(t.Context(), []string{"nisse-tool", "nisse-hello"})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(Installed{Packages: []Package{{Name: "nisse-hello", Version: "1.0"}}, Already: []string{"nisse-tool"}}, Installed{Packages: got.Packages, Already: got.Already}); d != "" {
		t.Error(d)
	}
	if got, err = m.Install(t.Context(), []string{"nisse-hello"}); err != nil || len(got.Packages) != 0 || len(got.Already) != 1 {
		t.Errorf("again: %+v, %v", got, err)
	}
}

func TestAptRefuses(t *testing.T) {
	m, root := debian(t)
	if m.Name == "" {
		return
	}
	if _, err := m.Install(t.Context(), []string{"nisse-hello"}); err != nil {
		t.Fatal(err)
	}
	for name, packages := range map[string][]string{
		"no such package":             {"nisse-nothing"},
		"one of two":                  {"nisse-lib", "nisse-nothing"},
		"would remove another":        {"nisse-rival"},
		"trailing minus removes":      {"nisse-hello-"},
		"trailing plus":               {"nisse-lib+"},
		"dot is a pattern to apt":     {"nisse.lib"},
		"provided by another":         {"nisse-virtual"},
		"depends on what is not here": {"nisse-broken"},
		"version":                     {"nisse-lib=1.5"},
		"release":                     {"nisse-lib/stable"},
		"file":                        {"./nisse-lib.deb"},
		"pattern":                     {"?name(nisse-lib)"},
		"option":                      {"--reinstall"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := m.Install(t.Context(), packages); !errors.Is(err, program.ErrRefused) {
				t.Errorf("got %v", err)
			}
			if d := cmp.Diff([]string{"nisse-hello"}, there(t, root)); d != "" {
				t.Error(d)
			}
		})
	}
	if _, err := m.Install(t.Context(), []string{"nisse-a.b"}); err != nil {
		t.Errorf("a name with a dot that is one: %v", err)
	}
}

func TestAptSearch(t *testing.T) {
	m, _ := debian(t)
	if m.Name == "" {
		return
	}
	for query, want := range map[string][]string{"nisse-t": {"nisse-tool"}, "a.b": {"nisse-a.b"}, "g++": {"nisse-g++"}, "isse.lib": nil, "nothing-like-it": nil} {
		t.Run(query, func(t *testing.T) {
			found, err := m.Search(t.Context(), query)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, p := range found {
				names = append(names, p.Name)
				if p.Description != "package of a test called "+p.Name {
					t.Errorf("%+v", p)
				}
			}
			if d := cmp.Diff(want, names); d != "" {
				t.Error(d)
			}
		})
	}
}
