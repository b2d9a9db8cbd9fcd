package docker

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"nisse.io/nisse/hosttools/proc"
)

// killTree of processes that began with one in a container: children first stop being made, for their parent goes first. Each must
// still be in that container when it is looked at through a handle, so that no other process of its number is met.
func killTree(container string, first int) {
	if first <= 1 {
		return
	}
	all, err := proc.List()
	if err != nil {
		return
	}
	tree := map[int]bool{first: true}
	for grew := true; grew; {
		grew = false
		for _, p := range all {
			if tree[p.Parent] && !tree[p.PID] {
				tree[p.PID], grew = true, true
			}
		}
	}
	for _, p := range all {
		if tree[p.PID] {
			killInside(container, p.PID)
		}
	}
}

func killInside(container string, pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	groups, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil || !strings.Contains(string(groups), container) {
		return
	}
	_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
}
