package manifest

import (
	"path"
	"strings"
)

// wrappers execute an argument of theirs, or a script that one names. Listing one would make every other line of the list meaningless
// (goclaw 1202).
var wrappers = set(
	// shells and boxes of everything
	"sh bash rbash dash zsh ksh mksh fish ash csh tcsh pwsh elvish nu busybox toybox",
	// other users, namespaces and roots
	"env sudo su doas pkexec run0 runuser setpriv capsh chroot unshare nsenter bwrap firejail fakeroot systemd-run systemd-nspawn start-stop-daemon ip-netns",
	// this, but so
	"xargs parallel nice ionice chrt taskset numactl prlimit setarch linux32 linux64 cgexec nohup setsid timeout time watch stdbuf unbuffer flock faketime eatmydata dbus-run-session entr catchsegv",
	// terminals and other machines
	"script expect screen tmux openvt ssh rsh socat",
	// interpreters, tracers and the loader
	"python pypy perl ruby irb node nodejs deno bun php lua luajit tclsh wish awk gawk mawk nawk original-awk gdb lldb strace ltrace perf valgrind make gmake find ld.so ld-linux ld-musl",
	// later
	"at batch crontab",
)

func set(lines ...string) map[string]bool {
	m := map[string]bool{}
	for _, l := range lines {
		for _, w := range strings.Fields(l) {
			m[w] = true
		}
	}
	return m
}

// Wrapper tells whether a program, by the last element of its path, runs whatever it is given. Version suffixes do not hide one:
// python3.13 and perl5.40.1 are wrappers, and so is ld-linux-x86-64.so.2.
func Wrapper(program string) bool {
	base := strings.ToLower(path.Base(program))
	if wrappers[base] || wrappers[strings.TrimRight(base, "0123456789.-_")] {
		return true
	}
	loader, _, _ := strings.Cut(strings.TrimPrefix(base, "ld-"), "-")
	return strings.HasPrefix(base, "ld-") && (loader == "linux" || loader == "musl" || strings.HasPrefix(loader, "linux."))
}

// MultiCall tells whether a program decides by the name it is called by what it is. Reached through a symlink such as /usr/bin/df, it
// is df and nothing else.
func MultiCall(program string) bool {
	switch path.Base(program) {
	case "busybox", "toybox", "coreutils", "uutils":
		return true
	}
	return false
}
