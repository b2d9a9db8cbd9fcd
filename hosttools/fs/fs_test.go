package fs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// tree is a directory "in" with files, beside "out" with a secret.
func tree(t testing.TB) (in, out string) {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	in, out = filepath.Join(top, "in"), filepath.Join(top, "out")
	for _, d := range []string{filepath.Join(in, "sub"), out} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range map[string]string{"in/a": "0123456789", "in/sub/b": "bee", "out/secret": "secret"} {
		if err := os.WriteFile(filepath.Join(top, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return in, out
}

// place under a glob; the guard wants the same of what a path leads to.
func place(glob, p string) Place {
	return Place{Path: p, Dir: Dir(glob), Guard: func(real string) error {
		if ok, _ := doublestar.Match(glob, real); !ok {
			return fmt.Errorf("%s does not match %s", real, glob)
		}
		return nil
	}}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestDir(t *testing.T) {
	for glob, want := range map[string]string{"/srv/nisse/**": "/srv/nisse", "/etc/hostname": "/etc", "/**": "/", "/srv/{a,b}/x": "/srv", "/srv/a*/b": "/srv", "/x": "/"} {
		if got := Dir(glob); got != want {
			t.Errorf("%s: got %s, want %s", glob, got, want)
		}
	}
}

func TestRead(t *testing.T) {
	in, _ := tree(t)
	must(t, os.Symlink("a", in+"/link"))
	must(t, os.Symlink("sub", in+"/dirlink"))
	for _, c := range []struct {
		name, path    string
		offset, limit int64
		want          Content
	}{
		{"whole", "/a", 0, 10, Content{[]byte("0123456789"), 10, false}},
		{"more room than file", "/a", 0, 100, Content{[]byte("0123456789"), 10, false}},
		{"head", "/a", 0, 4, Content{[]byte("0123"), 10, true}},
		{"middle", "/a", 4, 4, Content{[]byte("4567"), 10, true}},
		{"tail", "/a", 8, 4, Content{[]byte("89"), 10, false}},
		{"past the end", "/a", 20, 4, Content{[]byte{}, 10, false}},
		{"deeper", "/sub/b", 0, 10, Content{[]byte("bee"), 3, false}},
		{"by a symlink that stays", "/link", 0, 10, Content{[]byte("0123456789"), 10, false}},
		{"by a directory's symlink that stays", "/dirlink/b", 0, 10, Content{[]byte("bee"), 3, false}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Read(place(in+"/**", in+c.path), c.offset, c.limit)
			must(t, err)
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// What lies below an allowed directory is made by others. Each of these must be refused at once, by every operation, without effect.
func TestTraps(t *testing.T) {
	in, out := tree(t)
	must(t, os.Symlink(out+"/secret", in+"/absolute"))
	must(t, os.Symlink("../out/secret", in+"/relative"))
	must(t, os.Symlink(out, in+"/dir"))
	must(t, os.Symlink("dir/secret", in+"/two-hops"))
	must(t, os.Symlink("loop", in+"/loop"))
	must(t, os.Symlink("a", in+"/final"))
	must(t, os.Link(out+"/secret", in+"/hard"))
	must(t, unix.Mkfifo(in+"/fifo", 0o666))
	must(t, os.Symlink("fifo", in+"/to-fifo"))
	l, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	must(t, err)
	t.Cleanup(func() { _ = syscall.Close(l) })
	t.Chdir(in) // socket names are short
	must(t, syscall.Bind(l, &syscall.SockaddrUnix{Name: "socket"}))
	device := "/null"
	if err := unix.Mknod(in+device, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
		must(t, os.Symlink("/dev/null", in+device)) // without privilege
	}
	must(t, os.Symlink("/proc/self/environ", in+"/environ"))
	must(t, os.MkdirAll(in+"/sub/deep", 0o755))
	must(t, os.Symlink("../../a", in+"/sub/deep/up"))

	type op func(Place) error
	read := op(func(p Place) error { _, err := Read(p, 0, 100); return err })
	list := op(func(p Place) error { _, _, err := List(p, 100); return err })
	stat := op(func(p Place) error { _, err := Stat(p); return err })
	write := op(func(p Place) error { _, err := Write(p, []byte("pwned")); return err })
	for _, c := range []struct {
		name, glob, path string
		op               op
	}{
		{"read absolute symlink", "/**", "/absolute", read},
		{"read relative symlink", "/**", "/relative", read},
		{"read through a directory", "/**", "/dir/secret", read},
		{"read by two hops", "/**", "/two-hops", read},
		{"read a loop", "/**", "/loop", read},
		{"read a hard link", "/**", "/hard", read},
		{"read a FIFO", "/**", "/fifo", read},
		{"read a FIFO by symlink", "/**", "/to-fifo", read},
		{"read a socket", "/**", "/socket", read},
		{"read a device", "/**", device, read},
		{"read the environment", "/**", "/environ", read},
		{"read what the rule does not match", "/sub/**", "/sub/deep/up", read},
		{"list through a symlink", "/**", "/dir", list},
		{"stat through a symlink", "/**", "/dir/secret", stat},
		{"write over a symlink out", "/**", "/absolute", write},
		{"write over a symlink that stays", "/**", "/final", write},
		{"write through a directory", "/**", "/dir/new", write},
		{"write over a hard link", "/**", "/hard", write},
		{"write over a FIFO", "/**", "/fifo", write},
		{"write over a socket", "/**", "/socket", write},
		{"write over a device", "/**", device, write},
		{"write beside the directory", "/**", "/../out/new", write},
	} {
		t.Run(c.name, func(t *testing.T) {
			done := make(chan error, 1)
			go func() { done <- c.op(place(in+c.glob, in+c.path)) }()
			select {
			case err := <-done:
				if !errors.Is(err, ErrRefused) {
					t.Errorf("got %v", err)
				}
			case <-time.After(time.Minute):
				t.Fatal("it hangs")
			}
		})
	}
	if b, err := os.ReadFile(out + "/secret"); err != nil || string(b) != "secret" {
		t.Errorf("the secret is %q now, %v", b, err)
	}
	if b, err := os.ReadFile(in + "/a"); err != nil || string(b) != "0123456789" {
		t.Errorf("a is %q now, %v", b, err)
	}
	if names := listing(t, out); !slices.Equal(names, []string{"secret"}) {
		t.Errorf("out holds %v", names)
	}
	if names := listing(t, in); slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, ".nisse-") }) {
		t.Errorf("temporary files are left: %v", names)
	}
}

func listing(t testing.TB, dir string) []string {
	t.Helper()
	all, err := os.ReadDir(dir)
	must(t, err)
	var names []string
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

// Even a rule that allows all of procfs shows nothing of processes, and still shows the rest.
func TestProcesses(t *testing.T) {
	for _, p := range []string{"/proc/self/environ", "/proc/thread-self/environ", fmt.Sprintf("/proc/%d/environ", os.Getpid()), "/proc/mounts"} {
		if c, err := Read(place("/proc/**", p), 0, 100); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: got %q, %v", p, c.Bytes, err)
		}
		if _, err := Stat(place("/**", p)); !errors.Is(err, ErrRefused) && p != "/proc/mounts" {
			t.Errorf("stat %s: got %v", p, err)
		}
	}
	if _, _, err := List(place("/**", "/proc/self"), 10); !errors.Is(err, ErrRefused) {
		t.Errorf("list /proc/self: got %v", err)
	}
	c, err := Read(place("/proc/**", "/proc/uptime"), 0, 100)
	if err != nil || len(c.Bytes) == 0 || c.Size != int64(len(c.Bytes)) {
		t.Errorf("got %+v, %v", c, err)
	}
}

// What is the caller's own is closed, by whatever name it is reached.
func TestNever(t *testing.T) {
	in, out := tree(t)
	must(t, os.Symlink("sub", in+"/alias"))
	for _, c := range []struct {
		name, never, path string
		refused           bool
	}{
		{"the file", in + "/a", "/a", true},
		{"below a directory", in + "/sub", "/sub/b", true},
		{"below it, by a symlink", in + "/sub", "/alias/b", true},
		{"beside it", in + "/sub", "/a", false},
		{"with the same beginning", in + "/su", "/sub/b", false},
		{"elsewhere", out, "/a", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := place(in+"/**", in+c.path)
			p.Never = []string{c.never}
			if _, err := Read(p, 0, 100); errors.Is(err, ErrRefused) != c.refused {
				t.Errorf("read: %v", err)
			}
			if _, err := Stat(p); errors.Is(err, ErrRefused) != c.refused {
				t.Errorf("stat: %v", err)
			}
			before, err := os.ReadFile(p.Path)
			must(t, err)
			if _, err := Write(p, []byte("written")); errors.Is(err, ErrRefused) != c.refused {
				t.Errorf("write: %v", err)
			}
			if after, err := os.ReadFile(p.Path); err != nil || bytes.Equal(before, after) != c.refused {
				t.Errorf("it was %q and is %q, %v", before, after, err)
			}
			must(t, os.WriteFile(p.Path, before, 0o644))
		})
	}
}

// The directory of a rule may be a symlink of the administrator's.
func TestDirIsASymlink(t *testing.T) {
	in, _ := tree(t)
	alias := filepath.Join(filepath.Dir(in), "alias")
	must(t, os.Symlink(in, alias))
	c, err := Read(place(alias+"/**", alias+"/a"), 0, 100)
	if err != nil || string(c.Bytes) != "0123456789" {
		t.Errorf("got %q, %v", c.Bytes, err)
	}
	if _, err := Write(place(alias+"/*", alias+"/n"), []byte("new")); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(in + "/n"); err != nil || string(b) != "new" {
		t.Errorf("got %q, %v", b, err)
	}
}

func TestListAndStat(t *testing.T) {
	in, _ := tree(t)
	must(t, os.Symlink("/etc/shadow", in+"/z"))
	must(t, unix.Mkfifo(in+"/p", 0o600))
	must(t, os.Chmod(in+"/a", 0o750|os.ModeSetuid))
	for _, n := range []string{"a", "sub"} {
		must(t, os.Chtimes(filepath.Join(in, n), time.Unix(1e9, 5), time.Unix(1e9, 5)))
	}
	when := time.Unix(1e9, 5).UTC()
	if in, err := os.Stat(in + "/a"); err != nil || in.Mode()&os.ModeSetuid == 0 {
		t.Fatalf("the set-user-ID bit did not stay: %v, %v", in.Mode(), err)
	}
	entries, more, err := List(place(in+"/**", in), 3)
	must(t, err)
	if len(entries) != 3 || !more {
		t.Fatalf("got %d entries, more %t", len(entries), more)
	}
	entries[1].ModTime = when
	entries[2].Size = 0
	want := []Entry{
		{Name: "a", Kind: "file", Size: 10, Mode: "-rwsr-x---", ModTime: when},
		{Name: "p", Kind: "other", Mode: "prw-------", ModTime: when},
		{Name: "sub", Kind: "directory", Mode: "drwxr-xr-x", ModTime: when},
	}
	if d := cmp.Diff(want, entries); d != "" {
		t.Error(d)
	}
	if _, more, err := List(place(in+"/**", in), 4); err != nil || more {
		t.Errorf("more %t, %v", more, err)
	}
	e, err := Stat(place(in+"/**", in+"/z"))
	if err != nil || e.Kind != "symlink" || e.Target != "/etc/shadow" || e.Mode != "lrwxrwxrwx" {
		t.Errorf("got %+v, %v", e, err)
	}
	e, err = Stat(place(in+"/**", in))
	if err != nil || e.Kind != "directory" || e.Name != "in" {
		t.Errorf("got %+v, %v", e, err)
	}
	if _, err := Stat(place(in+"/**", in+"/none")); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), in+"/none") {
		t.Errorf("got %v", err)
	}
	if _, err := Read(place(in+"/**", in+"/none"), 0, 1); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), in+"/none") {
		t.Errorf("got %v", err)
	}
	if _, err := Read(place(in+"/**", in+"/sub"), 0, 1); !errors.Is(err, unix.EISDIR) || errors.Is(err, ErrRefused) {
		t.Errorf("got %v", err)
	}
}

func TestWrite(t *testing.T) {
	in, _ := tree(t)
	defer syscall.Umask(syscall.Umask(0o077))
	w, err := Write(place(in+"/**", in+"/new"), []byte("hello"))
	must(t, err)
	if d := cmp.Diff(Written{Bytes: 5, SHA256: "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824", Created: true}, w); d != "" {
		t.Error(d)
	}
	if i, err := os.Stat(in + "/new"); err != nil || i.Mode() != newMode {
		t.Errorf("mode %v, %v", i.Mode(), err)
	}
	must(t, os.Chmod(in+"/a", 0o640|os.ModeSetuid))
	root := os.Getuid() == 0
	if root {
		must(t, os.Chown(in+"/a", 1234, 4321))
		must(t, os.Chmod(in+"/a", 0o640|os.ModeSetuid))
	}
	held, err := os.Open(in + "/a")
	must(t, err)
	defer held.Close()
	w, err = Write(place(in+"/**", in+"/a"), []byte{})
	must(t, err)
	if w.Created || w.Bytes != 0 {
		t.Errorf("got %+v", w)
	}
	i, err := os.Stat(in + "/a")
	must(t, err)
	if i.Mode() != 0o640 || i.Size() != 0 {
		t.Errorf("mode %v, size %d", i.Mode(), i.Size())
	}
	if s := i.Sys().(*syscall.Stat_t); root && (s.Uid != 1234 || s.Gid != 4321) {
		t.Errorf("owner %d:%d", s.Uid, s.Gid)
	}
	// Replaced, not overwritten: who had it open keeps the old content.
	var old [10]byte
	if _, err := held.ReadAt(old[:], 0); err != nil || string(old[:]) != "0123456789" {
		t.Errorf("got %q, %v", old, err)
	}
	for _, p := range []string{in, in + "/sub"} {
		if _, err := Write(place(in+"/**", p), nil); !errors.Is(err, unix.EISDIR) {
			t.Errorf("%s: got %v", p, err)
		}
	}
	if _, err := Write(place(in+"/**", in+"/none/x"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if names := listing(t, in); !slices.Equal(names, []string{"a", "new", "sub"}) {
		t.Errorf("left: %v", names)
	}
}

// Somebody exchanges a directory for a symlink out while calls run. Nothing outside is ever read or made.
func TestRaces(t *testing.T) {
	in, out := tree(t)
	must(t, os.Mkdir(in+"/swap", 0o755))
	must(t, os.WriteFile(in+"/swap/secret", []byte("decoy"), 0o644))
	must(t, os.Symlink(out, in+"/evil"))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, in+"/swap", unix.AT_FDCWD, in+"/evil", unix.RENAME_EXCHANGE)
			}
		}
	})
	var served, refused int
	for range 3000 {
		c, err := Read(place(in+"/**", in+"/swap/secret"), 0, 100)
		switch {
		case err == nil && bytes.Equal(c.Bytes, []byte("decoy")):
			served++
		case err == nil:
			t.Errorf("read %q", c.Bytes)
		default:
			refused++
		}
		_, _ = Write(place(in+"/**", in+"/swap/made"), []byte("x"))
	}
	close(stop)
	wg.Wait()
	if names := listing(t, out); !slices.Equal(names, []string{"secret"}) {
		t.Errorf("out holds %v", names)
	}
	if served == 0 || refused == 0 {
		t.Errorf("no race: served %d, refused %d", served, refused)
	}
}

// A disk that fills up leaves the old file and no rest.
func TestWriteOnFullDisk(t *testing.T) {
	in, _ := tree(t)
	var was unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &was))
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1000, Max: was.Max}))
	_, err := Write(place(in+"/**", in+"/a"), make([]byte, 5000))
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &was))
	if !errors.Is(err, unix.EFBIG) {
		t.Errorf("got %v", err)
	}
	if b, err := os.ReadFile(in + "/a"); err != nil || string(b) != "0123456789" {
		t.Errorf("got %q, %v", b, err)
	}
	if names := listing(t, in); !slices.Equal(names, []string{"a", "sub"}) {
		t.Errorf("left: %v", names)
	}
}

// FuzzPlace: whatever path is asked for, what is read lies inside.
func FuzzPlace(f *testing.F) {
	in, out := tree(f)
	must(f, os.Symlink("../out", in+"/dir"))
	must(f, os.Symlink(out+"/secret", in+"/absolute"))
	for _, s := range []string{"/a", "/sub/b", "/../out/secret", "/dir/secret", "/absolute", "/sub/../../out/secret", "//../out/secret", "/sub/./b", "/a/", "/a/../a", "", "/", "/\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, p string) {
		c, err := Read(Place{Path: in + p, Dir: in, Guard: func(string) error { return nil }}, 0, 100)
		if err == nil && string(c.Bytes) != "0123456789" && string(c.Bytes) != "bee" {
			t.Errorf("%q gave %q", p, c.Bytes)
		}
	})
}
