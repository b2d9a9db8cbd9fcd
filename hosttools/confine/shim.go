package confine

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"syscall"
	"unsafe"

	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// shimName is the name that a process is started under to be a shim.
const shimName = "nisse-confine"

// Descriptors of a shim.
const (
	orderFD = 3 + iota
	reportFD
	programFD
	rulesetFD
)

// order to a shim.
type order struct {
	// Function to run as the user; empty to become a program.
	Function string `json:"function,omitempty"`
	// Parent that the shim must not outlive.
	Parent int      `json:"parent"`
	User   *User    `json:"user,omitempty"`
	Argv   []string `json:"argv,omitempty"`
	Env    []string `json:"env,omitempty"`
	Dir    string   `json:"dir,omitempty"`
	// CPU seconds.
	CPU uint64 `json:"cpu,omitempty"`
	// Script: its interpreter opens the program's descriptor.
	Script bool `json:"script,omitempty"`
	// Ruleset is there.
	Ruleset bool `json:"ruleset,omitempty"`
}

// Steps of a shim that mean something to who started it.
const (
	stepExec = "exec"
	stepDir  = "chdir"
)

// waiting is the order of a shim that runs a function, for the package that has the function: its init comes after this one.
var waiting *order

// init makes this process a shim if it was started as one. It runs on the main thread, which Go locks to it, so that what is dropped
// for one thread is dropped for the program.
func init() {
	if len(os.Args) != 1 || os.Args[0] != shimName {
		return
	}
	// Whatever this process was given beyond what it is told of stays with it.
	if err := unix.CloseRange(orderFD, 1<<31-1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		for fd := orderFD; fd < 1024; fd++ { // before Linux 5.11
			unix.CloseOnExec(fd)
		}
	}
	var o order
	b, err := io.ReadAll(os.NewFile(orderFD, "order"))
	if err == nil {
		err = json.Unmarshal(b, &o)
	}
	if err != nil {
		fail("order", unix.EINVAL)
	}
	if o.Function != "" {
		waiting = &o
		return
	}
	become(o)
}

// become the program.
func become(o order) {
	if o.Script {
		_, err := unix.FcntlInt(programFD, unix.F_SETFD, 0)
		try("descriptor", err)
	}
	unix.Umask(0o022)
	uid := os.Geteuid()
	if o.User != nil {
		uid = o.User.UID
	}
	limit(o, uid)
	if uid == 0 {
		drop()
	} else if o.User != nil {
		try("user "+o.User.Name, be(*o.User))
	}
	// The kernel forgets the death signal of who changes its user, and nobody sends it for a parent that is gone already.
	try("death signal", unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0))
	if os.Getppid() != o.Parent {
		fail("parent", unix.ESRCH)
	}
	// What leaves the program's process group is the program's own child again when its parent ends, and the daemon's after that.
	try("subreaper", unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
	try("no new privileges", unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
	if err := unix.Chdir(o.Dir); err != nil {
		try(stepDir, err)
	}
	if o.Ruleset {
		try("Landlock", ll.LandlockRestrictSelf(rulesetFD, 0))
	}
	// The open file by its descriptor, as execveat(2) does it with an empty path; Go's own Exec keeps its runtime from starting threads.
	try(stepExec, syscall.Exec("/proc/self/fd/5", o.Argv, o.Env))
}

// be a user, on this thread alone: no other survives the exec.
func be(u User) error {
	groups := make([]uint32, len(u.Groups))
	for i, g := range u.Groups {
		groups[i] = uint32(g)
	}
	var list unsafe.Pointer
	if len(groups) > 0 {
		list = unsafe.Pointer(&groups[0])
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(list), 0); errno != 0 {
		return errno
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(u.GID), uintptr(u.GID), uintptr(u.GID)); errno != 0 {
		return errno
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(u.UID), uintptr(u.UID), uintptr(u.UID)); errno != 0 {
		return errno
	}
	return nil
}

// drop what lets root go around every rule on files: to load code into the kernel, to reach memory and disks by themselves, to look
// into other processes (CAP_SYS_ADMIN alone lets it read their environments, past what Landlock says of them). The bounding set is what a
// program of root's gets at most.
func drop() {
	for _, c := range []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SYS_MODULE, unix.CAP_SYS_RAWIO, unix.CAP_MKNOD, unix.CAP_SYS_PTRACE, unix.CAP_DAC_READ_SEARCH, unix.CAP_MAC_ADMIN, unix.CAP_MAC_OVERRIDE, unix.CAP_BPF, unix.CAP_PERFMON} {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EPERM) { // unknown to the kernel, or no such right to give
			try("capabilities", err)
		}
	}
}

// limit the program. Where a limit is lower already, it stays.
func limit(o order, uid int) {
	limits := map[int]uint64{unix.RLIMIT_CORE: 0, unix.RLIMIT_NOFILE: 1024, unix.RLIMIT_FSIZE: 1 << 30}
	if o.CPU > 0 {
		limits[unix.RLIMIT_CPU] = o.CPU
	}
	if uid != 0 {
		limits[unix.RLIMIT_NPROC] = 4096
	}
	for resource, most := range limits {
		var was syscall.Rlimit
		if err := syscall.Getrlimit(resource, &was); err != nil {
			try("limits", err)
		}
		most = min(most, was.Max)
		// By package syscall, or its Exec would put back how many files Go found allowed.
		try("limits", syscall.Setrlimit(resource, &syscall.Rlimit{Cur: most, Max: most}))
	}
}

// try a step; the shim ends with it when it failed.
func try(step string, err error) {
	if err == nil {
		return
	}
	errno := unix.EINVAL
	_ = errors.As(err, &errno)
	fail(step, errno)
}

func fail(step string, errno syscall.Errno) {
	b, _ := json.Marshal(report{Step: step, Errno: int(errno)})
	_, _ = unix.Write(reportFD, b)
	os.Exit(125)
}
