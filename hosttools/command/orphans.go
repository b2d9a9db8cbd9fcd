package command

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// nursery of the processes that this one has started through Run. Where it adopts, what is left of a command after its end becomes
// this process's child, however it got out of its group, and is killed. Children of commands that still run are theirs, not ours.
type nursery struct {
	mu     sync.Mutex
	adopts bool
	known  map[int]bool
}

var orphans = nursery{known: map[int]bool{}}

// AdoptOrphans makes this process the parent of whatever its commands leave behind, so that nothing outlives a command. Every child that
// Run did not start is killed from then on, so it is for a process that starts none otherwise.
func AdoptOrphans() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the parent of orphans: %w", err)
	}
	orphans.mu.Lock()
	defer orphans.mu.Unlock()
	orphans.adopts = true
	return nil
}

// start a process that is known from its first moment.
func (n *nursery) start(p *exec.Cmd) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := p.Start(); err != nil {
		return err
	}
	n.known[p.Process.Pid] = true
	return nil
}

// mostRounds of a sweep: who forks faster than that is bounded by the limit on processes, and by the next sweep.
const mostRounds = 1000

// reap a process that has ended, or was killed, and with it whatever it has left to us.
func (n *nursery) reap(p *exec.Cmd) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_ = p.Wait() // the state says it all; stdin, stdout and stderr are files, so there is nothing to copy
	delete(n.known, p.Process.Pid)
	// The children of one that is killed are ours in the next round.
	for round := 0; n.adopts && round < mostRounds; round++ {
		strange := offspring()
		strange = slices.DeleteFunc(strange, func(pid int) bool { return n.known[pid] })
		if len(strange) == 0 {
			return
		}
		for _, pid := range strange {
			_ = unix.Kill(pid, unix.SIGKILL)
			for {
				if _, err := unix.Wait4(pid, nil, 0, nil); !errors.Is(err, unix.EINTR) {
					break
				}
			}
		}
	}
}

// offspring of this process, as the kernel lists them by thread.
func offspring() []int {
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	var all []int
	for _, l := range lists {
		b, err := os.ReadFile(l)
		if err != nil {
			continue // the thread has ended, and its children are another's
		}
		for _, f := range bytes.Fields(b) {
			if pid, err := strconv.Atoi(string(f)); err == nil {
				all = append(all, pid)
			}
		}
	}
	return all
}
