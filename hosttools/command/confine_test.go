package command

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nisse.io/nisse/hosttools/confine"
	"nisse.io/nisse/internal/testrig"
)

// yard is a place of a confined program: what it may read, write and neither.
type yard struct {
	self, read, write, out string
	c                      confine.Confinement
}

// accounts to run as: this process's own, and, if it is root, nobody's.
func accounts(t *testing.T) map[string]*confine.User {
	t.Helper()
	all := map[string]*confine.User{"own user": nil}
	if os.Geteuid() == 0 {
		u, err := confine.Lookup("nobody")
		if err != nil {
			t.Fatal(err)
		}
		all["nobody"] = u
	}
	return all
}

// newYard whose program is a copy of the test's own, since that lies where only this user may look. On a kernel that cannot hold its rules
// there is none: what is promised there is that nothing runs which requires them, and that is tested instead.
func newYard(t *testing.T, user *confine.User) (y yard, ok bool) {
	t.Helper()
	top, err := os.MkdirTemp("", "yard-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	if top, err = filepath.EvalSymlinks(top); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(top, 0o755); err != nil {
		t.Fatal(err)
	}
	y = yard{self: top + "/program", read: top + "/read", write: top + "/write", out: top + "/out"}
	for _, d := range []string{y.read, y.write, y.out} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(d+"/file", []byte("old"), 0o666); err != nil {
			t.Fatal(err)
		}
		// The files' own rights let everybody in, so that Landlock alone can keep anybody out.
		for _, p := range []string{d, d + "/file"} {
			if err := os.Chmod(p, 0o777); err != nil {
				t.Fatal(err)
			}
		}
	}
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(y.self, b, 0o755); err != nil {
		t.Fatal(err)
	}
	y.c = confine.Confinement{User: user, Rules: &confine.Rules{Required: true, Read: []string{y.read}, Write: []string{y.write}}}
	if confine.ABI() < confine.LeastABI {
		unheld(t, y)
		return yard{}, false
	}
	return y, true
}

// unheld is what requires rules that the kernel cannot hold, before anything of it runs.
func unheld(t *testing.T, y yard) {
	t.Helper()
	t.Logf("Landlock ABI %d, and rules need %d: what requires them is refused here, and nothing else of them can be seen", confine.ABI(), confine.LeastABI)
	if r, err := y.run(t, "try", "write", y.write+"/new", y.out, y.write); !errors.Is(err, confine.ErrUnconfined) || !strings.Contains(err.Error(), "confine: Available") {
		t.Errorf("got %+v, %v", r, err)
	}
	if got := content(t, y.write+"/new"); got != "" {
		t.Errorf("it ran, and wrote %q", got)
	}
}

func (y yard) run(t *testing.T, args ...string) (Result, error) {
	t.Helper()
	return Run(t.Context(), Command{Argv: append([]string{y.self, "act"}, args...), Timeout: time.Minute, Keep: 4000, Confine: &y.c})
}

// said is what the program printed.
func (y yard) said(t *testing.T, args ...string) string {
	t.Helper()
	r, err := y.run(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	if r.ExitCode != 0 {
		t.Fatalf("exit %d %s: %s%s", r.ExitCode, r.Signal, r.Stdout.Text(), r.Stderr.Text())
	}
	return strings.TrimSpace(r.Stdout.Text())
}

func content(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(b)
}

// Every row tries one thing and looks at the machine afterwards.
func TestConfinedReach(t *testing.T) {
	for name, user := range accounts(t) {
		t.Run(name, func(t *testing.T) {
			y, ok := newYard(t, user)
			if !ok {
				return
			}
			secret := filepath.Join(y.out, "secret")
			if err := os.WriteFile(secret, []byte("secret"), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(y.out+"/file", y.write+"/link"); err != nil {
				t.Fatal(err)
			}
			for _, c := range []struct {
				what, path string
				ok         bool
			}{
				{"read", y.read + "/file", true},
				{"read", y.write + "/file", true},
				{"read", secret, false},
				{"read", "/etc/passwd", true},
				{"read", "/etc/shadow", false},
				{"read", "/proc/uptime", true},
				{"read", fmt.Sprintf("/proc/%d/environ", os.Getpid()), false},
				{"list", y.read, true},
				{"list", y.out, false},
				{"write", y.write + "/new", true},
				{"write", y.write + "/file", true},
				{"write", y.read + "/file", false},
				{"write", y.read + "/new", false},
				{"write", y.out + "/file", false},
				{"write", y.write + "/link", false},
				{"write", "/dev/null", true},
				{"truncate", y.read + "/file", false},
				{"remove", y.out + "/file", false},
				{"move", y.write + "/new", false}, // out of where it may write
				{"link", y.out + "/file", false},  // into where it may write
				{"device", y.write + "/disk", false},
				{"remove", y.write + "/new", true},
				{"run", "/bin/true", true},
				{"run", y.write + "/file", false},
			} {
				t.Run(c.what+" "+strings.TrimPrefix(c.path, filepath.Dir(y.self)), func(t *testing.T) {
					got := y.said(t, "try", c.what, c.path, y.out, y.write)
					if (got == "done") != c.ok {
						t.Errorf("it says %q", got)
					}
				})
			}
			for file, want := range map[string]string{y.read + "/file": "old", y.out + "/file": "old", y.write + "/file": "new"} {
				if got := content(t, file); got != want {
					t.Errorf("%s holds %q", file, got)
				}
			}
			if all, err := os.ReadDir(y.out); err != nil || len(all) != 2 {
				t.Errorf("out holds %v, %v", all, err)
			}
		})
	}
}

// A daemon that is root does not run what belongs to a user, and a set-user-ID program is no way back.
func TestConfinedUser(t *testing.T) {
	for name, user := range accounts(t) {
		t.Run(name, func(t *testing.T) {
			y, ok := newYard(t, user)
			if !ok {
				return
			}
			if err := os.Chmod(y.self, 0o755|os.ModeSetuid|os.ModeSetgid); err != nil {
				t.Fatal(err)
			}
			uid, gid, groups := os.Geteuid(), os.Getegid(), "0"
			if user != nil {
				uid, gid = user.UID, user.GID
				groups = fmt.Sprint(user.Groups)
			} else if all, err := os.Getgroups(); err == nil {
				groups = fmt.Sprint(all)
			}
			want := fmt.Sprintf("%d %d %d %d %s nnp=1 core=0 files=1024", uid, uid, gid, gid, groups)
			if got := y.said(t, "identity"); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			if got := y.said(t, "again", "identity"); got != want {
				t.Errorf("as a child: got %s, want %s", got, want)
			}
			if got := y.said(t, "capabilities"); user != nil && got != "0000000000000000" {
				t.Errorf("it keeps capabilities %s", got)
			}
		})
	}
}

func TestLookup(t *testing.T) {
	if u, err := confine.Lookup(""); u != nil || err != nil {
		t.Errorf("got %v, %v", u, err)
	}
	if _, err := confine.Lookup("no-such-user"); !errors.Is(err, confine.ErrUnconfined) {
		t.Errorf("got %v", err)
	}
	if os.Geteuid() != 0 {
		if _, err := confine.Lookup("root"); !errors.Is(err, confine.ErrUnconfined) || !strings.Contains(err.Error(), "run it as root") {
			t.Errorf("got %v", err)
		}
		return
	}
	if u, err := confine.Lookup("root"); u != nil || err != nil {
		t.Errorf("got %v, %v", u, err)
	}
}

func TestConfinedSurroundings(t *testing.T) {
	t.Setenv("SECRET", "x")
	for name, user := range accounts(t) {
		t.Run(name, func(t *testing.T) {
			y, ok := newYard(t, user)
			if !ok {
				return
			}
			lines := strings.Split(y.said(t, "env"), "\n")
			i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "TMPDIR=") })
			if i < 0 {
				t.Fatalf("no TMPDIR in %q", lines)
			}
			tmp := strings.TrimPrefix(lines[i], "TMPDIR=")
			want := append(append([]string{}, Environment...), lines[i], "/", "0 EOF", "true")
			if !slices.Equal(lines, want) {
				t.Errorf("got %q", lines)
			}
			if _, err := os.Stat(tmp); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is still there: %v", tmp, err)
			}
			if got := y.said(t, "tmp"); got != "done" {
				t.Error(got)
			}
			inherited, err := os.Open(y.out) // as from a service manager, or a shell
			if err != nil {
				t.Fatal(err)
			}
			defer inherited.Close()
			if _, err := unix.FcntlInt(inherited.Fd(), unix.F_SETFD, 0); err != nil {
				t.Fatal(err)
			}
			r, err := y.run(t, "descriptors")
			if err != nil || r.Stdout.Text() != "0 1 2" {
				t.Errorf("it holds descriptors %s, %v", r.Stdout.Text(), err)
			}
		})
	}
}

// What is held open is what the program gets, whatever its name leads to by now.
func TestHeldPathsFollowNoSwap(t *testing.T) {
	y, ok := newYard(t, nil)
	if !ok {
		return
	}
	slot := y.read + "/slot"
	if err := os.Mkdir(slot, 0o777); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(slot)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	y.c.Rules = &confine.Rules{Held: []confine.Held{{File: f, Write: true}}}
	if got := y.said(t, "try", "write", slot+"/a"); got != "done" {
		t.Fatal(got)
	}
	if err := errors.Join(os.Rename(slot, y.read+"/moved"), os.Symlink(y.out, slot)); err != nil {
		t.Fatal(err)
	}
	if got := y.said(t, "try", "write", slot+"/file"); got == "done" || content(t, y.out+"/file") != "old" {
		t.Errorf("it says %q, the file outside holds %q", got, content(t, y.out+"/file"))
	}
}

// Never wins over every list.
func TestNeverIsCarvedOut(t *testing.T) {
	y, ok := newYard(t, nil)
	if !ok {
		return
	}
	top := filepath.Dir(y.self)
	y.c.Rules = &confine.Rules{Read: []string{"/"}, Write: []string{top}, Never: []string{y.out}}
	for path, ok := range map[string]bool{y.write + "/file": true, y.read + "/file": true, y.out + "/file": false} {
		if got := y.said(t, "try", "write", path); (got == "done") != ok {
			t.Errorf("%s: %s", path, got)
		}
		if got := y.said(t, "try", "read", path); (got == "done") != ok {
			t.Errorf("%s: %s", path, got)
		}
	}
}

// What is held open has no holes: nothing starts with what holds any of Never, or lies in it.
func TestHeldHoldsNothingOfNever(t *testing.T) {
	y, ok := newYard(t, nil)
	if !ok {
		return
	}
	top := filepath.Dir(y.self)
	for name, c := range map[string]struct {
		held confine.Held
		path string
		ok   bool
	}{
		"above, read":  {confine.Held{}, top, false},
		"above, write": {confine.Held{Write: true}, top, false},
		"above, make":  {confine.Held{Make: true}, top, false},
		"the root":     {confine.Held{}, "/", false},
		"itself":       {confine.Held{}, y.out, false},
		"below":        {confine.Held{}, y.out + "/file", false},
		"beside":       {confine.Held{}, y.read, true},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := os.Open(c.path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			c.held.File = f
			y.c.Rules = &confine.Rules{Held: []confine.Held{c.held}, Never: []string{y.out}}
			if c.ok {
				if got := y.said(t, "try", "read", c.path+"/file"); got != "done" {
					t.Error(got)
				}
				return
			}
			if r, err := y.run(t, "try", "read", y.out+"/file"); !errors.Is(err, confine.ErrUnconfined) {
				t.Errorf("it says %q, %v", r.Stdout.Text(), err)
			}
		})
	}
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

const script = "#!/bin/sh\necho honest \"$1\"\n"

// A script or a program that was exchanged after it was resolved does not run.
func TestChangedPrograms(t *testing.T) {
	y, ok := newYard(t, nil)
	if !ok {
		return
	}
	file := y.read + "/report"
	write := func(s string) {
		t.Helper()
		if err := errors.Join(os.WriteFile(file, []byte(s), 0o755), os.Chmod(file, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	write(script)
	path, hash, err := Resolve([]string{file, "x"})
	if err != nil || path != file || hash != sum([]byte(script)) {
		t.Fatalf("%s %s %v", path, hash, err)
	}
	c := Command{Argv: []string{file, "x"}, Timeout: time.Minute, Keep: 100, Confine: &y.c, SHA256: hash}
	if r, err := Run(t.Context(), c); err != nil || r.Stdout.Text() != "honest x\n" {
		t.Errorf("got %+v, %v", r, err)
	}
	write("#!/bin/sh\necho pwned > " + y.write + "/pwned\n")
	if r, err := Run(t.Context(), c); !errors.Is(err, ErrChanged) || content(t, y.write+"/pwned") != "" {
		t.Errorf("got %+v, %v, %q", r, err, content(t, y.write+"/pwned"))
	}
	other, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Fatal(err)
	}
	write(string(other))
	if r, err := Run(t.Context(), c); !errors.Is(err, ErrChanged) {
		t.Errorf("got %+v, %v", r, err)
	}
	c.SHA256, c.Confine = hash, nil
	if r, err := Run(t.Context(), c); !errors.Is(err, ErrRefused) {
		t.Errorf("got %+v, %v", r, err)
	}
}

// The bytes that were looked at are the bytes that run, also when the file is written to between the two.
func TestOpenProgramIsWhatRuns(t *testing.T) {
	y, ok := newYard(t, nil)
	if !ok {
		return
	}
	file := y.read + "/report"
	if err := os.WriteFile(file, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	p, err := confine.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := os.WriteFile(file, []byte("#!/bin/sh\necho pwned\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	s, err := y.c.Prepare(p, []string{file, "x"}, Environment, "/", confine.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var out strings.Builder
	s.Cmd.Stdout = &out
	if err := s.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := s.Started(time.Minute); err != nil {
		t.Error(err)
	}
	if err := s.Cmd.Wait(); err != nil || out.String() != "honest x\n" {
		t.Errorf("it said %q, %v", out.String(), err)
	}
}

func TestConfinedRefuses(t *testing.T) {
	y, ok := newYard(t, nil)
	if !ok {
		return
	}
	open := y.read + "/open"
	if err := errors.Join(os.WriteFile(open, []byte(script), 0o755), os.Chmod(open, 0o775), os.Symlink("/bin/sh", y.read+"/tool"), os.WriteFile(y.read+"/text", []byte(script), 0o644),
		os.Chmod(y.read+"/text", 0o644), os.WriteFile(y.read+"/broken", []byte("#!/no/such/interpreter\n"), 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		argv string
		dir  string
		want error
	}{
		{"others may change it", open, "", ErrRefused},
		{"a wrapper by a symlink", y.read + "/tool", "", ErrRefused},
		{"not executable", y.read + "/text", "", os.ErrPermission},
		{"not there", y.read + "/none", "", os.ErrNotExist},
		{"a directory", y.read, "", ErrRefused},
		{"no interpreter", y.read + "/broken", "", os.ErrNotExist},
		{"no directory to run in", "/bin/true", y.read + "/none", os.ErrNotExist},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := Run(t.Context(), Command{Argv: []string{c.argv}, Dir: c.dir, Timeout: time.Minute, Keep: 10, Confine: &y.c})
			if !errors.Is(err, c.want) {
				t.Errorf("got %+v, %v", r, err)
			}
		})
	}
}

// Timeouts, contexts, signals and exit codes are those of the program, not of the shim.
func TestConfinedEnds(t *testing.T) {
	y, ok := newYard(t, nil)
	if !ok {
		return
	}
	file := y.write + "/pids"
	r, err := Run(t.Context(), Command{Argv: []string{y.self, "act", "children", file, "stay"}, Timeout: 2 * time.Second, Keep: 100, Confine: &y.c})
	if err != nil || !r.TimedOut || r.Signal != "killed" || r.Stdout.Text() != "born" {
		t.Errorf("got %+v, %v", r, err)
	}
	member, _ := children(t, file)
	testrig.Until(t, "the group's end", func() bool { return gone(member) })
	if r, err := y.run(t, "exit", "3"); err != nil || r.ExitCode != 3 {
		t.Errorf("got %+v, %v", r, err)
	}
	if r, err := y.run(t, "die"); err != nil || r.Signal != "terminated" {
		t.Errorf("got %+v, %v", r, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := Run(ctx, Command{Argv: []string{y.self, "act", "sleep"}, Timeout: time.Minute, Keep: 100, Confine: &y.c}); err == nil && r.Signal != "killed" {
		t.Errorf("got %+v, %v", r, err)
	}
}

// A process that left its group, its session and its parent does not outlive its command in a daemon that adopts. It does nothing to
// the processes of a command that still runs.
func TestOrphansAreKilled(t *testing.T) {
	for name, user := range accounts(t) {
		t.Run(name, func(t *testing.T) {
			y, ok := newYard(t, user)
			if !ok {
				return
			}
			account := ""
			if user != nil {
				account = user.Name
			}
			p := exec.Command(y.self, "act", "adopter", y.write, account)
			p.Env = append(os.Environ(), "TMPDIR="+y.out) // it ends with a command running, whose directory nobody removes
			out, err := p.CombinedOutput()
			if b, err := os.ReadFile(filepath.Join(y.write, "other")); err == nil { // nobody is left to end this one
				if pid, err := strconv.Atoi(string(b)); err == nil {
					t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
				}
			}
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if got := string(out); got != "other alive, orphan gone" {
				t.Errorf("got %q", got)
			}
		})
	}
}

// BenchmarkTrue tells what the shim costs beside a plain start.
func BenchmarkTrue(b *testing.B) {
	for name, c := range map[string]*confine.Confinement{"plain": nil, "user": {}, "landlock": {Rules: &confine.Rules{Required: true, Write: []string{"/var/tmp"}}}} {
		b.Run(name, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				if r, err := Run(b.Context(), Command{Argv: []string{"/bin/true"}, Timeout: time.Minute, Keep: 10, Confine: c}); err != nil || r.ExitCode != 0 {
					b.Fatal(r, err)
				}
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms/median")
		})
	}
}
