package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// LeastABI of Landlock that holds what Rules say: with an older one a program could truncate what it may only read.
const LeastABI = 3

// ABI of Landlock that this process can use; 0 when there is none.
func ABI() int {
	abi, _ := ability()
	return abi
}

// ability to use Landlock: its ABI, or why there is none and what to do about it.
func ability() (abi int, why string) {
	abi, err := ll.LandlockGetABIVersion()
	switch {
	case err == nil && abi >= LeastABI:
		return abi, ""
	case err == nil:
		return abi, fmt.Sprintf("this kernel has Landlock of ABI %d, and %d is the least: take a newer kernel", abi, LeastABI)
	case errors.Is(err, unix.EOPNOTSUPP):
		return 0, "Landlock is switched off in this kernel: let the lsm= of its command line name landlock"
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return 0, "a filter of system calls (seccomp) keeps this process from Landlock: let the unit's SystemCallFilter, or the container, allow landlock_create_ruleset, landlock_add_rule and landlock_restrict_self"
	}
	return 0, fmt.Sprintf("this kernel has no Landlock; take a newer one, of ABI %d at least", LeastABI)
}

// Rules of what a program may reach beside its own file, the system's programs and libraries, and what nearly every program reads (see
// base). Paths need not exist; what is not there opens nothing.
type Rules struct {
	// Required refuses to start anything where the kernel cannot hold it.
	Required bool
	// List names of what lies below these directories.
	List []string
	// Read these files, and all below these directories.
	Read []string
	// Write these files, and make, remove and write all below these directories, but no devices.
	Write []string
	// Held are open files and directories with what may be done to them: their names may lead elsewhere meanwhile.
	Held []Held
	// Never is not opened even if it lies below one of these: files and directories as the kernel names them. What is Held has no holes,
	// since they would be found by names that may lead elsewhere: nothing starts with one that holds any of this.
	Never []string
}

// Held is an open file or directory.
type Held struct {
	File *os.File
	// Write as in Rules; reading is always allowed.
	Write bool
	// Make files and directories in it and write to them, but remove none: for the directory of a file that is not there yet.
	Make bool
}

const (
	list    = landlock.AccessFSSet(ll.AccessFSReadDir)
	read    = list | ll.AccessFSReadFile
	run     = read | ll.AccessFSExecute
	produce = read | ll.AccessFSWriteFile | ll.AccessFSTruncate | ll.AccessFSMakeReg | ll.AccessFSMakeDir
	// A device file made in a directory would open the disk beneath every other rule.
	write = produce | ll.AccessFSRemoveDir | ll.AccessFSRemoveFile | ll.AccessFSMakeSym | ll.AccessFSMakeFifo | ll.AccessFSMakeSock | ll.AccessFSRefer
	// device files are read, written, and asked about.
	device = landlock.AccessFSSet(ll.AccessFSReadFile | ll.AccessFSWriteFile | ll.AccessFSIoctlDev)
	ofFile = landlock.AccessFSSet(ll.AccessFSExecute | ll.AccessFSReadFile | ll.AccessFSWriteFile | ll.AccessFSTruncate | ll.AccessFSIoctlDev)
	// handled rights: what no rule gives is denied. Sockets, signals and the network are not among them: listed programs are the
	// administrator's own, and nginx -s reload sends a signal, systemctl speaks with a socket.
	handled = write | run | ll.AccessFSMakeChar | ll.AccessFSMakeBlock | ll.AccessFSIoctlDev
)

// set of rules in the kernel, as a descriptor that a shim restricts itself by; nil when the kernel has no Landlock and rules do not
// require it. tmp is the program's own directory.
func (r Rules) set(program *Program, tmp string, uid int) (*os.File, error) {
	abi, why := ability()
	if why != "" && r.Required {
		return nil, fmt.Errorf("%w: the manifest demands Landlock, and %s; or say confine: Available", ErrUnconfined, why)
	}
	if abi == 0 {
		return nil, nil
	}
	b := builder{never: r.Never, refer: abi >= 2}
	b.base(uid)
	b.add(run, program.Path)
	b.add(list, r.List...)
	b.add(read, r.Read...)
	b.add(write, r.Write...)
	b.add(write, tmp)
	for _, h := range r.Held {
		rights := read
		switch {
		case h.Write:
			rights = write
		case h.Make:
			rights = produce
		}
		b.hold(rights, h.File)
	}
	if b.err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnconfined, b.err)
	}
	fd, _, err := landlock.Config{HandledAccessFS: handled}.BestEffort().NewRulesetFD(b.rules...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnconfined, err)
	}
	if fd < 0 {
		return nil, nil
	}
	return os.NewFile(uintptr(fd), "ruleset"), nil
}

// Missing says what keeps this process from holding programs; empty when nothing does.
func Missing() string {
	if _, why := ability(); why != "" {
		return why + ". Until then a command is held by its user and its arguments, not by the manifest's paths"
	}
	return ""
}

// builder of a set.
type builder struct {
	rules []landlock.Rule
	never []string
	refer bool
	err   error
}

// add rights to paths, symlinks followed, around what is never opened.
func (b *builder) add(rights landlock.AccessFSSet, paths ...string) {
	for _, p := range paths {
		real, err := filepath.EvalSymlinks(p)
		if err != nil { // not there, or closed to the daemon and so to what it starts
			continue
		}
		info, err := os.Lstat(real)
		if err != nil {
			b.missing(err)
			continue
		}
		for _, c := range carve(real, info.IsDir(), b.never) {
			if c.whole {
				b.rule(rights, c.path, c.dir)
			} else {
				b.rule(rights&list, c.path, c.dir)
			}
		}
	}
}

// missing paths open nothing; whatever else is wrong with one keeps the program from starting.
func (b *builder) missing(err error) {
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		b.err = errors.Join(b.err, err)
	}
}

// one path as it is.
func (b *builder) one(rights landlock.AccessFSSet, path string) {
	info, err := os.Lstat(path)
	if err != nil {
		b.missing(err)
		return
	}
	if info.Mode()&fs.ModeSymlink == 0 { // what it leads to has a rule of its own, or none
		b.rule(rights, path, info.IsDir())
	}
}

// hold rights to an open file by its descriptor.
func (b *builder) hold(rights landlock.AccessFSSet, f *os.File) {
	info, err := f.Stat()
	if err != nil {
		b.err = errors.Join(b.err, err)
		return
	}
	name, err := os.Readlink(fdPath(f))
	if err != nil {
		b.err = errors.Join(b.err, err)
		return
	}
	for _, n := range b.never {
		if below(n, name) || below(name, n) {
			b.err = errors.Join(b.err, fmt.Errorf("%s may not be opened, for %s is closed to everybody; name what lies beside that", name, n))
			return
		}
	}
	b.rule(rights, fdPath(f), info.IsDir())
}

func (b *builder) rule(rights landlock.AccessFSSet, path string, dir bool) {
	if !dir {
		rights &= ofFile
	}
	if !b.refer {
		rights &^= ll.AccessFSRefer
	}
	if rights == 0 {
		return
	}
	// Missing or of a kind that the kernel holds no rights of (pipes, sockets): nothing is opened.
	b.rules = append(b.rules, landlock.PathAccess(rights, path).IgnoreIfMissing())
}
