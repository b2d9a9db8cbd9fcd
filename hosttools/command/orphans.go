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
	"time"

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

const (
	// mostRounds of a sweep: who forks faster than that is bounded by the limit on processes, and by the next sweep.
	mostRounds = 1000
	// patience with what was killed and does not end: it may wait for a disk that is gone, or be held by who traces it. Other commands must be able
	// to start meanwhile; the next sweep sees it again.
	patience = time.Second
)

// reap a process that has ended, or was killed, and with it whatever it has left to us.
func (n *nursery) reap(p *exec.Cmd) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_ = p.Wait() // the state says it all; stdin, stdout and stderr are files, so there is nothing to copy
	delete(n.known, p.Process.Pid)
	until := time.Now().Add(patience)
	// The children of one that is killed are ours in the next round.
	for round := 0; n.adopts && round < mostRounds && !childless(); round++ {
		strange := offspring()
		strange = slices.DeleteFunc(strange, func(pid int) bool { return n.known[pid] })
		if len(strange) == 0 {
			return
		}
		for _, pid := range strange {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		for _, pid := range strange {
			if !wait(pid, until) {
				return
			}
		}
	}
}

// childless tells that this process has no child at all, by one system call: mostly nothing was left to us, and who that would be need not be
// looked for.
func childless() bool {
	return errors.Is(unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT|unix.WALL, nil), unix.ECHILD)
}

// wait until a child has ended, and reap it; false when it has not by then.
func wait(pid int, until time.Time) bool {
	for pause := 50 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		got, err := unix.Wait4(pid, nil, unix.WNOHANG, nil)
		switch {
		case got == 0 && err == nil && time.Now().After(until):
			return false
		case got == 0 && err == nil:
			time.Sleep(pause)
		case !errors.Is(err, unix.EINTR):
			return true
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
