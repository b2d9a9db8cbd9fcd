//go:build crashrig

// Package crashpoint kills the process with SIGKILL at the boundary that NISSE_CRASH_AT names (name or name:n, the n-th time it
// is reached). NISSE_CRASH_ONCE names a file that is created first, so that the restarted process passes.
package crashpoint

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

var hits atomic.Int64

// Hit kills the process if this is the boundary asked for.
func Hit(name string) {
	want, nth, _ := strings.Cut(os.Getenv("NISSE_CRASH_AT"), ":")
	if want == "" || want != name {
		return
	}
	n, err := strconv.ParseInt(nth, 10, 64)
	if err != nil {
		n = 1
	}
	if hits.Add(1) != n {
		return
	}
	if once := os.Getenv("NISSE_CRASH_ONCE"); once != "" {
		f, err := os.OpenFile(once, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return
		}
		_ = f.Close()
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}
