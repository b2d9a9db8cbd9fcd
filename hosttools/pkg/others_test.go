package pkg

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"nisse.io/nisse/hosttools/command"
	"nisse.io/nisse/hosttools/program"
)

// scripted program: it writes down its arguments, one a line with an empty line after each call, and answers by the first argument
// that has an answer.
type scripted struct{ file, calls string }

type answer struct {
	when, stdout, stderr string
	code                 string
}

func script(t *testing.T, name string, answers ...answer) scripted {
	t.Helper()
	d := t.TempDir()
	s := scripted{file: filepath.Join(d, name), calls: filepath.Join(d, "calls")}
	text := "#!/bin/sh\nfor a in \"$@\"; do echo \"$a\" >> " + s.calls + "; done; echo >> " + s.calls + "\ncase \" $* \" in\n"
	for _, a := range answers {
		text += "*' " + a.when + " '*) cat <<'END'\n" + a.stdout + "\nEND\ncat >&2 <<'END'\n" + a.stderr + "\nEND\nexit " + a.code + ";;\n"
	}
	put(t, s.file, text+"esac\nexit 99\n")
	if err := os.Chmod(s.file, 0o755); err != nil {
		t.Fatal(err)
	}
	return s
}

// argv of each call.
func (s scripted) argv(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile(s.calls)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, call := range strings.Split(strings.TrimSuffix(string(b), "\n\n"), "\n\n") {
		all = append(all, strings.ReplaceAll(call, "\n", " "))
	}
	return all
}

func quick() command.Command { return command.Command{Timeout: time.Minute, Keep: 1 << 20} }

const dnf4Table = `Last metadata expiration check: 0:00:01 ago.
Dependencies resolved.
================================================================================
 Package               Architecture  Version              Repository       Size
================================================================================
Installing:
 hello                 x86_64        2.12.1-3.fc40        fedora           70 k
Upgrading:
 libhello              x86_64        2.0-1.fc40           updates          10 k
Installing dependencies:
 python3-a-very-long-name-that-needs-a-line-of-its-own
                       noarch        1.0-1.fc40           fedora           20 k

Transaction Summary
================================================================================
Install  2 Packages
Upgrade  1 Package

Operation aborted.`

const dnf5Table = `Updating and loading repositories:
Repositories loaded.
Package       Arch   Version          Repository      Size
Installing:
 hello        x86_64 2.12.1-4.fc41    fedora     200.0 KiB
Upgrading:
 libhello     x86_64 2.1-1.fc41       updates     20.0 KiB
   replacing libhello x86_64 2.0-1.fc41 fedora    19.0 KiB

Transaction Summary:
 Installing:  1 package
 Upgrading:   1 package
 Replacing:   1 package

Operation aborted by the user.`

func TestDnfTable(t *testing.T) {
	for _, c := range []struct {
		name, text string
		install    []Package
		remove     []string
	}{
		{"version 4", dnf4Table, []Package{{Name: "hello", Version: "2.12.1-3.fc40"}, {Name: "libhello", Version: "2.0-1.fc40"}, {Name: "python3-a-very-long-name-that-needs-a-line-of-its-own", Version: "1.0-1.fc40"}}, nil},
		{"version 5", dnf5Table, []Package{{Name: "hello", Version: "2.12.1-4.fc41"}, {Name: "libhello", Version: "2.1-1.fc41"}}, nil},
		{"nothing to do", "Package hello-2.12.1-3.fc40.x86_64 is already installed.\nDependencies resolved.\nNothing to do.\nComplete!", nil, nil},
		{"removal", "Installing:\n hello x86_64 1 fedora 1 k\nRemoving dependent packages:\n rival x86_64 1 @fedora 1 k\n\nTransaction Summary\n", []Package{{Name: "hello", Version: "1"}}, []string{"rival"}},
		{"obsoletes in version 4", "Installing:\n hello x86_64 1 fedora 1 k\n     replacing  rival.x86_64 1-2.fc40\n\nTransaction Summary\n", []Package{{Name: "hello", Version: "1"}}, []string{"rival"}},
		{"obsoletes in version 5", "Installing:\n hello x86_64 1 fedora 1 KiB\n   replacing rival x86_64 1-2.fc41 fedora 1 KiB\n\nTransaction Summary:\n", []Package{{Name: "hello", Version: "1"}}, []string{"rival"}},
		{"downgrade", "Downgrading:\n glibc x86_64 1 fedora 1 k\n\nTransaction Summary\n", nil, []string{"glibc"}},
		{"a section nobody knows", "Exchanging:\n glibc x86_64 1 fedora 1 k\n\nTransaction Summary\n", nil, []string{"glibc"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := dnfTable(c.text)
			if d := cmp.Diff(c.install, got.install); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(c.remove, got.remove); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestDnf(t *testing.T) {
	rpm := script(t, "rpm", answer{when: "there", stdout: "there", code: "0"}, answer{when: "hello", stdout: "package hello is not installed", code: "1"})
	file := script(t, "dnf", answer{when: "--assumeno", stdout: dnf4Table, code: "1"}, answer{when: "--assumeyes", stdout: "Complete!", code: "0"},
		answer{when: "*hello*", stdout: "hello\t2.12.1-3.fc40\tPrints a greeting\nother\t1\tProvides hello in a file", code: "0"})
	m := Manager{"dnf", dnf{file: file.file, rpm: rpm.file, command: quick()}}
	found, err := m.Search(t.Context(), "hello")
	if d := cmp.Diff([]Package{{"hello", "2.12.1-3.fc40", "Prints a greeting"}}, found); d != "" || err != nil {
		t.Error(err, d)
	}
	got, err := m.Install(t.Context(), []string{"hello", "there"})
	if err != nil || len(got.Packages) != 3 || !cmp.Equal(got.Already, []string{"there"}) || got.Output.Stdout.Text() != "Complete!\n" {
		t.Errorf("%+v, %v", got, err)
	}
	const flags = "install --setopt=obsoletes=False --setopt=install_weak_deps=False --setopt=clean_requirements_on_remove=False hello there"
	want := []string{"--quiet repoquery --available --latest-limit=1 --queryformat=%{name}\t%{evr}\t%{summary}", "*hello*", // the format ends a line
		"--assumeno " + flags, "--assumeyes " + flags}
	if d := cmp.Diff(want, file.argv(t)); d != "" {
		t.Error(d)
	}
}

func TestDnfRefuses(t *testing.T) {
	rpm := script(t, "rpm", answer{when: "--query", code: "1"})
	for name, a := range map[string]answer{
		"removal":         {when: "--assumeno", stdout: "Installing:\n hello x86_64 1 fedora 1 k\nRemoving:\n glibc x86_64 1 @fedora 1 k\n\nTransaction Summary\n", code: "1"},
		"another name":    {when: "--assumeno", stdout: "Installing:\n hello-server x86_64 1 fedora 1 k\n\nTransaction Summary\n", code: "1"},
		"no such package": {when: "--assumeno", stderr: "Error: Unable to find a match: hello", code: "1"},
		"half a table":    {when: "--assumeno", stdout: "Installing:\n hello x86_64 1 fedora 1 k\n", code: "1"},
	} {
		t.Run(name, func(t *testing.T) {
			file := script(t, "dnf", a)
			if _, err := (Manager{"dnf", dnf{file: file.file, rpm: rpm.file, command: quick()}}).Install(t.Context(), []string{"hello"}); !errors.Is(err, program.ErrRefused) {
				t.Errorf("got %v", err)
			}
			if calls := file.argv(t); len(calls) != 1 {
				t.Errorf("it went on: %q", calls)
			}
		})
	}
}

func TestPacman(t *testing.T) {
	file := script(t, "pacman", answer{when: "--print", stdout: "libhello 2-1\nhello 2.12-1", code: "0"},
		answer{when: "--query", stdout: "there 1-1", stderr: "error: package 'hello' was not found", code: "1"},
		answer{when: "--search", stdout: "extra/hello 2.12-1 [installed]\n    Prints a greeting\nextra/other 1-1\n    says hello", code: "0"},
		answer{when: "--needed", stdout: "done", code: "0"})
	m := Manager{"pacman", pacman{file: file.file, command: quick()}}
	found, err := m.Search(t.Context(), "hello")
	if d := cmp.Diff([]Package{{"hello", "2.12-1", "Prints a greeting"}}, found); d != "" || err != nil {
		t.Error(err, d)
	}
	got, err := m.Install(t.Context(), []string{"hello", "there"})
	if err != nil || got.Output.Stdout.Text() != "done\n" {
		t.Fatal(got, err)
	}
	if d := cmp.Diff(Installed{Packages: []Package{{Name: "libhello", Version: "2-1"}, {Name: "hello", Version: "2.12-1"}}, Already: []string{"there"}}, Installed{Packages: got.Packages, Already: got.Already}); d != "" {
		t.Error(d)
	}
	want := []string{"--sync --search --color=never -- hello",
		"--sync --print --print-format=%n %v --needed --noconfirm --color=never -- hello there",
		"--query --color=never -- hello there",
		"--sync --needed --noconfirm --noprogressbar --color=never -- hello there"}
	if d := cmp.Diff(want, file.argv(t)); d != "" {
		t.Error(d)
	}
	if _, err := m.Install(t.Context(), []string{"base-devel"}); !errors.Is(err, program.ErrRefused) {
		t.Errorf("a group: %v", err)
	}
	none := script(t, "pacman", answer{when: "--search", code: "1"})
	none.quiet(t)
	if found, err := (Manager{"pacman", pacman{file: none.file, command: quick()}}).Search(t.Context(), "x"); err != nil || found != nil {
		t.Errorf("%v, %v", found, err)
	}
}

// quiet answers without the line that an empty answer is.
func (s scripted) quiet(t *testing.T) {
	t.Helper()
	put(t, s.file, "#!/bin/sh\nexit 1\n")
}

func TestTransactionCheck(t *testing.T) {
	big := transaction{install: []Package{{Name: "a"}}}
	for range mostPackages {
		big.install = append(big.install, Package{Name: "b"})
	}
	for name, c := range map[string]struct {
		t  transaction
		ok bool
	}{
		"installed": {transaction{install: []Package{{Name: "a"}, {Name: "b"}}}, true},
		"already":   {transaction{already: []string{"a"}}, true},
		"removal":   {transaction{install: []Package{{Name: "a"}}, remove: []string{"b"}}, false},
		"nothing":   {transaction{}, false},
		"a flood":   {big, false},
	} {
		if err := c.t.check([]string{"a"}); (err == nil) != c.ok || err != nil && !errors.Is(err, program.ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestProbe(t *testing.T) {
	name, err := Probe()
	if err != nil && !errors.Is(err, program.ErrMissing) || err == nil && name == "" {
		t.Errorf("%q, %v", name, err)
	}
}
