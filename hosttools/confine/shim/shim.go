// Package shim is what a process does that was started to become another program: it drops what that may not keep, and executes the open
// file. The hook is in an init function, because one that main must call is one that somebody forgets, and a test binary that runs itself
// instead would run for ever.
//
// It is on the way of every call, and a process that becomes another has no use for what the rest of the program makes ready when it
// starts. Go initialises packages as soon as what they import is, so this one imports next to nothing: package os alone would have hundreds
// of others go first.
package shim

import (
	"errors"
	"syscall"
	"unsafe"
)

// Name that a process is started under to be a shim.
const Name = "nisse-confine"

// Descriptors of a shim.
const (
	OrderFD = 3 + iota
	ReportFD
	ProgramFD
	RulesetFD
)

// Steps of a shim that mean something to who started it.
const (
	StepExec = "exec"
	StepDir  = "chdir"
)

// What package syscall has no names for.
const (
	sysCloseRange    = 436
	sysRestrictSelf  = 446
	closeRangeOnExec = 1 << 2
	prSetPdeathsig   = 1
	prCapbsetDrop    = 24
	prSetSubreaper   = 36
	prSetNoNewPrivs  = 38
	rlimitNproc      = 6
	mostOpen         = 1<<31 - 1
)

// Waiting is the order of a shim that runs a function, for the package that has the function: its init comes after this one.
var Waiting *Order

// init makes this process a shim if it was started as one. It runs on the main thread, which Go locks to it, so that what is dropped
// for one thread is dropped for the program.
func init() {
	if !named() {
		return
	}
	// Whatever this process was given beyond what it is told of stays with it.
	if _, _, errno := syscall.RawSyscall(sysCloseRange, OrderFD, mostOpen, closeRangeOnExec); errno != 0 {
		for fd := OrderFD; fd < 1024; fd++ { // before Linux 5.11
			syscall.CloseOnExec(fd)
		}
	}
	o, ok := decode(read(OrderFD))
	if !ok {
		fail("order", syscall.EINVAL)
	}
	if o.Function != "" {
		Waiting = &o
		return
	}
	become(o)
}

// named tells whether this process was started under the shim's name and nothing more.
func named() bool {
	fd, err := syscall.Open("/proc/self/cmdline", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return false // without /proc nobody can have started a shim
	}
	defer syscall.Close(fd)
	var line [len(Name) + 2]byte
	n, err := syscall.Read(fd, line[:])
	return err == nil && n == len(Name)+1 && string(line[:n]) == Name+"\x00"
}

// read a file from its beginning; what cannot be read is empty.
func read(fd int) []byte {
	var b []byte
	var chunk [4096]byte
	for {
		n, err := syscall.Pread(fd, chunk[:], int64(len(b)))
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return nil
		case n == 0:
			return b
		default:
			b = append(b, chunk[:n]...)
		}
	}
}

// become the program.
func become(o Order) {
	if o.Script {
		_, _, errno := syscall.RawSyscall(syscall.SYS_FCNTL, ProgramFD, syscall.F_SETFD, 0)
		Try("descriptor", raw(errno))
	}
	syscall.Umask(0o022)
	uid := syscall.Geteuid()
	if o.User != nil {
		uid = o.User.UID
	}
	limit(o, uid)
	if uid == 0 {
		drop()
	} else if o.User != nil {
		Try("user "+o.User.Name, be(*o.User))
	}
	Tie(o)
	// What leaves the program's process group is the program's own child again when its parent ends, and the daemon's after that.
	Try("subreaper", prctl(prSetSubreaper, 1))
	Try("no new privileges", prctl(prSetNoNewPrivs, 1))
	Try(StepDir, syscall.Chdir(o.Dir))
	if o.Ruleset {
		_, _, errno := syscall.RawSyscall(sysRestrictSelf, RulesetFD, 0, 0)
		Try("Landlock", raw(errno))
	}
	// The open file by its descriptor, as execveat(2) does it with an empty path; Go's own Exec keeps its runtime from starting threads.
	fail(StepExec, syscall.Exec("/proc/self/fd/5", o.Argv, o.Env))
}

// Tie the shim's life to its parent's. The kernel forgets the death signal of who changes its user, and nobody sends it for a parent that is
// gone already.
func Tie(o Order) {
	Try("death signal", prctl(prSetPdeathsig, uintptr(syscall.SIGKILL)))
	if syscall.Getppid() != o.Parent {
		fail("parent", syscall.ESRCH)
	}
}

// be a user, on this thread alone: no other survives the exec.
func be(u User) error {
	groups := make([]uint32, len(u.Groups))
	for i, g := range u.Groups {
		groups[i] = uint32(g)
	}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(unsafe.SliceData(groups))), 0); errno != 0 {
		return errno
	}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESGID, uintptr(u.GID), uintptr(u.GID), uintptr(u.GID)); errno != 0 {
		return errno
	}
	_, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(u.UID), uintptr(u.UID), uintptr(u.UID))
	return raw(errno)
}

// Capabilities that let root go around every rule on files: to load code into the kernel, to reach memory and disks by themselves, to look
// into other processes (SYS_ADMIN alone lets it read their environments, past what Landlock says of them).
const (
	capDACReadSearch = 2
	capSysModule     = 16
	capSysRawIO      = 17
	capSysPtrace     = 19
	capSysAdmin      = 21
	capMknod         = 27
	capMACOverride   = 32
	capMACAdmin      = 33
	capPerfmon       = 38
	capBPF           = 39
)

// drop those capabilities. The bounding set is what a program of root's gets at most.
func drop() {
	for _, c := range [...]uintptr{capSysAdmin, capSysModule, capSysRawIO, capMknod, capSysPtrace, capDACReadSearch, capMACAdmin, capMACOverride, capBPF, capPerfmon} {
		if err := prctl(prCapbsetDrop, c); !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.EPERM) { // unknown to the kernel, or no such right to give
			Try("capabilities", err)
		}
	}
}

// limit the program. Where a limit is lower already, it stays.
func limit(o Order, uid int) {
	most := func(resource int, n uint64) {
		var was syscall.Rlimit
		Try("limits", syscall.Getrlimit(resource, &was))
		n = min(n, was.Max)
		// By package syscall, or its Exec would put back how many files Go found allowed.
		Try("limits", syscall.Setrlimit(resource, &syscall.Rlimit{Cur: n, Max: n}))
	}
	most(syscall.RLIMIT_CORE, 0)
	most(syscall.RLIMIT_NOFILE, 1024)
	most(syscall.RLIMIT_FSIZE, 1<<30)
	if o.CPU > 0 {
		most(syscall.RLIMIT_CPU, o.CPU)
	}
	if uid != 0 {
		most(rlimitNproc, 4096)
	}
}

func prctl(option, value uintptr) error {
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, option, value, 0, 0, 0, 0)
	return raw(errno)
}

// Try a step; the shim ends with it when it failed.
func Try(step string, err error) {
	if err != nil {
		fail(step, err)
	}
}

// raw system calls return a number that is no error when it is 0.
func raw(errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

func fail(step string, err error) {
	errno := syscall.EINVAL
	_ = errors.As(err, &errno)
	_, _ = syscall.Write(ReportFD, Report{Step: step, Errno: int(errno)}.encode())
	syscall.Exit(125)
}
