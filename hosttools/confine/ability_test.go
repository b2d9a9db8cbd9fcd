package confine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// deniedEnv names the error that a child of this test gets for Landlock's first system call.
const deniedEnv = "NISSE_TEST_LANDLOCK_ERROR"

// deny Landlock to every thread of this process, as a unit of systemd does.
func deny(with unix.Errno) error {
	ins := func(code uint16, jt, jf uint8, k uint32) unix.SockFilter {
		return unix.SockFilter{Code: code, Jt: jt, Jf: jf, K: k}
	}
	filter := []unix.SockFilter{
		ins(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, 0, 0, 0), // the call's number
		ins(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, 0, 1, unix.SYS_LANDLOCK_CREATE_RULESET),
		ins(unix.BPF_RET|unix.BPF_K, 0, 0, unix.SECCOMP_RET_ERRNO|uint32(with)),
		ins(unix.BPF_RET|unix.BPF_K, 0, 0, unix.SECCOMP_RET_ALLOW),
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if r, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program))); errno != 0 || r != 0 {
		return fmt.Errorf("seccomp: %d, %w", r, errno)
	}
	return nil
}

// What keeps a machine from Landlock is told apart, for each has a remedy of its own.
func TestMissingTellsWhy(t *testing.T) {
	if n, err := strconv.Atoi(os.Getenv(deniedEnv)); err == nil {
		if err := deny(unix.Errno(n)); err != nil {
			t.Fatal(err)
		}
		set, err := Rules{Required: true}.set(&Program{}, t.TempDir(), os.Getuid())
		if set != nil || !errors.Is(err, ErrUnconfined) || ABI() != 0 {
			t.Errorf("it would be held: ABI %d, %v", ABI(), err)
		}
		fmt.Printf("missing: %s\nrefused: %s\n", Missing(), err)
		return
	}
	for errno, want := range map[unix.Errno]string{unix.EPERM: "SystemCallFilter", unix.EACCES: "SystemCallFilter", unix.EOPNOTSUPP: "lsm=", unix.ENOSYS: "this kernel has no Landlock"} {
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMissingTellsWhy$")
		c.Env = append(os.Environ(), deniedEnv+"="+strconv.Itoa(int(errno)))
		out, err := c.CombinedOutput()
		if err != nil || strings.Count(string(out), want) != 2 {
			t.Errorf("%s: %v, want %q twice:\n%s", errno, err, want, out)
		}
	}
}
