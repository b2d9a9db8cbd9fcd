package shim

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestOrder(t *testing.T) {
	for name, o := range map[string]Order{
		"a program":  {Parent: 7, Argv: []string{"/bin/x", "", "a\nb=c", "\xff"}, Env: []string{"A=", "B=1"}, Dir: "/", CPU: 35, Ruleset: true},
		"a script":   {Parent: 7, Argv: []string{"/bin/x"}, Script: true},
		"as a user":  {Parent: 7, User: &User{Name: "x", UID: 1, GID: 2, Groups: []int{3, 4}}, Argv: []string{"/bin/x"}},
		"a function": {Parent: 7, Function: "fs", User: &User{Name: "x", UID: 0, GID: 0}},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := o.Encode()
			if err != nil {
				t.Fatal(err)
			}
			got, ok := decode(b)
			if d := cmp.Diff(o, got); d != "" || !ok {
				t.Errorf("%t, %s", ok, d)
			}
			for cut := range b { // half an order is none: it could lack the user
				if o, ok := decode(b[:cut]); ok {
					t.Errorf("%d of %d bytes are an order: %+v", cut, len(b), o)
				}
			}
		})
	}
	if b, err := (Order{Argv: []string{"/bin/x", "a\x00r"}}).Encode(); err == nil {
		t.Errorf("an argument with a zero byte is the order %q", b)
	}
}

func TestNoOrder(t *testing.T) {
	for name, b := range map[string]string{
		"nothing": "", "no fields": "\x00", "unknown field": "z\x00.\x00", "more after the end": ".\x00a\x00", "no number": "px\x00.\x00",
		"a user without a number": "nx\x00g1\x00.\x00", "a user without a group": "nx\x00u1\x00.\x00", "a number below zero": "nx\x00u-1\x00g1\x00.\x00", "a number of nobody": "u1\x00.\x00",
	} {
		if o, ok := decode([]byte(b)); ok {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

func TestReport(t *testing.T) {
	want := Report{Step: "user of two words", Errno: 13}
	if got, ok := ParseReport(want.encode()); got != want || !ok {
		t.Errorf("got %+v, %t", got, ok)
	}
	for _, b := range []string{"", "13", "x step"} {
		if r, ok := ParseReport([]byte(b)); ok {
			t.Errorf("%q is %+v", b, r)
		}
	}
}

// The numbers are the kernel's.
func TestNumbers(t *testing.T) {
	want := []int{unix.SYS_CLOSE_RANGE, unix.SYS_LANDLOCK_RESTRICT_SELF, unix.CLOSE_RANGE_CLOEXEC, unix.PR_SET_PDEATHSIG, unix.PR_CAPBSET_DROP, unix.PR_SET_CHILD_SUBREAPER,
		unix.PR_SET_NO_NEW_PRIVS, unix.RLIMIT_NPROC, unix.CAP_DAC_READ_SEARCH, unix.CAP_SYS_MODULE, unix.CAP_SYS_RAWIO, unix.CAP_SYS_PTRACE, unix.CAP_SYS_ADMIN,
		unix.CAP_MKNOD, unix.CAP_MAC_OVERRIDE, unix.CAP_MAC_ADMIN, unix.CAP_PERFMON, unix.CAP_BPF}
	got := []int{sysCloseRange, sysRestrictSelf, closeRangeOnExec, prSetPdeathsig, prCapbsetDrop, prSetSubreaper,
		prSetNoNewPrivs, rlimitNproc, capDACReadSearch, capSysModule, capSysRawIO, capSysPtrace, capSysAdmin,
		capMknod, capMACOverride, capMACAdmin, capPerfmon, capBPF}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}
