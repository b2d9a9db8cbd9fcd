// Package proc lists processes of this machine and sends signals to one of them, never to another that has got its number meanwhile.
package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Process of this machine.
type Process struct {
	PID, Parent int
	// Start names the process beside its number: ticks since the machine booted, and which boot that was.
	Start string
	// UID that it acts by.
	UID uint32
	// Name as the kernel keeps it, 15 bytes at most.
	Name string
	// Argv as the process shows it, its first 4 KiB.
	Argv []string
	// State as ps writes it: R, S, D, T, Z …
	State string
	// Resident memory in bytes.
	Resident int64
	// CPUSeconds used.
	CPUSeconds int64
}

// ticks a second in /proc, on every Linux that Go runs on.
const ticks = 100

// List processes, sorted by number. Those that end meanwhile are left out.
func List() ([]Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var all []Process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, err := Look(pid); err == nil {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b Process) int { return a.PID - b.PID })
	return all, nil
}

// Look at one process.
func Look(pid int) (Process, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return Process{}, gone(pid, err)
	}
	p, err := parse(stat)
	if err != nil {
		return Process{}, fmt.Errorf("process %d: %w", pid, err)
	}
	boot, err := bootID()
	if err != nil {
		return Process{}, err
	}
	p.Start += "@" + boot
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return Process{}, gone(pid, err)
	}
	if p.UID, err = owner(status); err != nil {
		return Process{}, fmt.Errorf("process %d: %w", pid, err)
	}
	if argv, err := head(filepath.Join(dir, "cmdline"), maxArgv); err == nil && len(argv) > 0 {
		p.Argv = strings.Split(strings.TrimSuffix(string(argv), "\x00"), "\x00")
	}
	return p, nil
}

// maxArgv bytes of a command line are read. A process may have megabytes of it, and so may each of a thousand.
const maxArgv = 4 << 10

// head of a file.
func head(name string, most int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}

// ErrGone is wrapped when there is no such process, or not any more.
var ErrGone = errors.New("there is no such process")

func gone(pid int, err error) error {
	if errors.Is(err, os.ErrNotExist) || strings.Contains(err.Error(), "no such process") {
		return fmt.Errorf("%w: %d", ErrGone, pid)
	}
	return err
}

// parse /proc/PID/stat (proc_pid_stat(5)). The name stands in parentheses and may hold some itself.
func parse(stat []byte) (Process, error) {
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 1 || end < open {
		return Process{}, errors.New("stat is not understood")
	}
	f := strings.Fields(string(stat[end+1:])) // f[0] is field 3
	if len(f) < 22 {
		return Process{}, errors.New("stat is too short")
	}
	var err error
	number := func(field int) int64 {
		n, e := strconv.ParseInt(f[field-3], 10, 64)
		err = errors.Join(err, e)
		return n
	}
	p := Process{Name: string(stat[open+1 : end]), State: f[0], Parent: int(number(4)), CPUSeconds: (number(14) + number(15)) / ticks,
		Start: strconv.FormatInt(number(22), 10), Resident: number(24) * int64(os.Getpagesize())}
	pid, e := strconv.Atoi(strings.TrimSpace(string(stat[:open])))
	p.PID = pid
	return p, errors.Join(err, e)
}

// owner by /proc/PID/status: the user whose all four IDs it has. A process in the middle of changing them is root's, so that nobody
// else touches it.
func owner(status []byte) (uint32, error) {
	for _, line := range strings.Split(string(status), "\n") {
		if ids, ok := strings.CutPrefix(line, "Uid:"); ok {
			f := strings.Fields(ids)
			if len(f) != 4 {
				break
			}
			if f[0] != f[1] || f[0] != f[2] || f[0] != f[3] {
				return 0, nil
			}
			n, err := strconv.ParseUint(f[0], 10, 32)
			return uint32(n), err
		}
	}
	return 0, errors.New("status names no owner")
}

var bootID = sync.OnceValues(func() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || len(b) < 8 {
		return "", fmt.Errorf("this machine does not tell which boot it runs since: %w", err)
	}
	return string(b[:8]), nil
})

// UID of an account by name; of this process when empty.
func UID(name string) (uint32, error) {
	if name == "" {
		return uint32(os.Geteuid()), nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(u.Uid, 10, 32)
	return uint32(n), err
}

// Name of an account; its number when it has none.
func Name(uid uint32) string {
	n := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(n); err == nil {
		return u.Username
	}
	return n
}

// Probe tells whether processes can be named surely here.
func Probe() (string, error) {
	p, err := Look(os.Getpid())
	if err != nil {
		return "", err
	}
	h, err := open(p.PID)
	if err != nil {
		return "", err
	}
	return "processes by pidfd", h.Close()
}
