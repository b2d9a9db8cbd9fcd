// Package fs reads, lists, stats and writes on the local machine, below a directory and under a rule.
//
// Names are not trusted: whoever may write below the directory may put symlinks, hard links, FIFOs or devices there, and exchange them
// while a call runs. So every path is walked by os.Root, which never leaves the directory; nothing but regular files and directories is
// opened, without blocking; and what was opened is asked of the kernel again and put before the caller's guard, symlinks resolved.
//
// Decided, and refused with ErrRefused:
//   - symlinks that leave the directory, and a final symlink where a file would be written;
//   - files with more than one hard link, for reading and writing: the other name may lie where nobody may read, and replacing one of
//     two names would quietly part them;
//   - FIFOs, sockets and devices;
//   - what procfs knows of processes (/proc/self, /proc/<pid>): environments and memory are nobody's files.
package fs

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"golang.org/x/sys/unix"
)

// ErrRefused is wrapped when what a path leads to may not be used. Nothing was done.
var ErrRefused = errors.New("path refused")

// Place is a path that a rule allows by name.
type Place struct {
	// Path is absolute and clean.
	Path string
	// Dir is the directory that nothing may leave; Path is it or below it.
	Dir string
	// Guard judges what Path turned out to lead to: the path below Dir with every symlink resolved. A symlink in Dir itself is the
	// administrator's and not resolved.
	Guard func(real string) error
	// Never holds files and directories that no rule opens, with all that is below them, as the kernel names them: the caller's own
	// keys and records.
	Never []string
}

// Dir of a glob: its longest directory without wildcards.
func Dir(glob string) string {
	dir, _ := doublestar.SplitPattern(glob)
	return dir
}

// base is an open directory that nothing may leave.
type base struct {
	*os.Root
	place Place
	// real is where the kernel says Dir is.
	real string
	// rel is Path below Dir.
	rel string
}

func open(p Place) (*base, error) {
	rel, ok := below(p.Dir, p.Path)
	if !ok {
		return nil, fmt.Errorf("%w: %s is not below %s", ErrRefused, p.Path, p.Dir)
	}
	d, err := os.OpenFile(p.Dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	real, err := NameOf(d)
	if err != nil {
		return nil, err
	}
	// Through the open file, so that root and real are of one directory even when Dir is exchanged.
	r, err := os.OpenRoot(fdPath(d))
	if err != nil {
		return nil, err
	}
	return &base{Root: r, place: p, real: real, rel: rel}, nil
}

// below returns p relative to dir, "." for dir itself.
func below(dir, p string) (string, bool) {
	if p == dir {
		return ".", true
	}
	if dir != "/" {
		dir += "/"
	}
	rel, ok := strings.CutPrefix(p, dir)
	return rel, ok && rel != ""
}

// fdOf an open file, good while it is open. File.Fd would make the file blocking.
func fdOf(f *os.File) int {
	n := -1
	if c, err := f.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { n = int(fd) })
	}
	return n
}

// Within tells whether a path is one of dirs or below it.
func Within(dirs []string, p string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { _, ok := below(dir, p); return ok })
}

func fdPath(f *os.File) string { return "/proc/self/fd/" + strconv.Itoa(fdOf(f)) }

// NameOf asks the kernel where an open file is now.
func NameOf(f *os.File) (string, error) {
	name, err := os.Readlink(fdPath(f))
	if err != nil {
		return "", fmt.Errorf("%w: cannot tell where it leads without /proc: %w", ErrRefused, err)
	}
	return name, nil
}

// admit judges an open file or directory, or the entry name in an open directory when name is not empty.
func (b *base) admit(f *os.File, name string) error {
	real, err := NameOf(f)
	if err != nil {
		return err
	}
	rel, ok := below(b.real, real)
	if !ok {
		return fmt.Errorf("%w: %s leads out of %s", ErrRefused, b.place.Path, b.place.Dir)
	}
	if err := notOfProcess(f, path.Join(real, name)); err != nil {
		return err
	}
	if Within(b.place.Never, path.Join(real, name)) {
		return fmt.Errorf("%w: %s is not for anybody's use", ErrRefused, b.place.Path)
	}
	if err := b.place.Guard(path.Join(b.place.Dir, rel, name)); err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return nil
}

// notOfProcess refuses what procfs shows of processes. Another mount of procfs than /proc is refused as a whole.
func notOfProcess(f *os.File, real string) error {
	var s unix.Statfs_t
	if err := unix.Fstatfs(fdOf(f), &s); err != nil {
		return err
	}
	if s.Type != unix.PROC_SUPER_MAGIC {
		return nil
	}
	rel, ok := below("/proc", real)
	first, _, _ := strings.Cut(rel, "/")
	_, err := strconv.Atoi(first)
	if !ok || err == nil || first == "self" || first == "thread-self" {
		return fmt.Errorf("%w: %s belongs to a process", ErrRefused, real)
	}
	return nil
}

// parent opens the directory that holds Path and admits Path in it by name, without following a final symlink.
func (b *base) parent() (dir *os.File, name string, err error) {
	name = path.Base(b.rel)
	dir, err = b.OpenFile(path.Dir(b.rel), os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, "", b.explain(err)
	}
	if err := b.admit(dir, name); err != nil {
		dir.Close()
		return nil, "", err
	}
	return dir, name, nil
}

// explain turns what os.Root and the kernel say about names into a refusal or into words about the path that was asked for.
func (b *base) explain(err error) error {
	var p *os.PathError
	if !errors.As(err, &p) {
		return err
	}
	// os.Root has no exported error for this; a test holds the wording.
	if p.Err.Error() == "path escapes from parent" {
		return fmt.Errorf("%w: %s leads out of %s", ErrRefused, b.place.Path, b.place.Dir)
	}
	if errors.Is(p.Err, unix.ELOOP) {
		return fmt.Errorf("%w: %s leads through too many symlinks", ErrRefused, b.place.Path)
	}
	return &os.PathError{Op: p.Op, Path: b.place.Path, Err: p.Err}
}
