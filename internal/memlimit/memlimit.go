// Package memlimit tells Go how much memory its container has. Go takes twice what it uses before it looks for what can go, and would be killed
// for that where looking earlier had been enough.
package memlimit

import (
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// container's limit, as a process in a cgroup namespace of its own sees it (cgroup v2). On a machine without containers there is no such file.
const container = "/sys/fs/cgroup/memory.max"

// Set the limit to nine tenths of the container's, which leaves room for what Go does not count; where GOMEMLIMIT is set, that stays.
func Set() {
	if os.Getenv("GOMEMLIMIT") == "" {
		set(container)
	}
}

func set(file string) {
	b, err := os.ReadFile(file)
	if err != nil {
		return
	}
	if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && n > 0 { // else it is max: no limit
		debug.SetMemoryLimit(n / 10 * 9)
	}
}
