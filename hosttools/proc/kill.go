package proc

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"nisse.io/nisse/hosttools/program"
)

// signals by name.
var signals = map[string]unix.Signal{"TERM": unix.SIGTERM, "INT": unix.SIGINT, "HUP": unix.SIGHUP, "QUIT": unix.SIGQUIT, "USR1": unix.SIGUSR1, "USR2": unix.SIGUSR2,
	"KILL": unix.SIGKILL, "STOP": unix.SIGSTOP, "CONT": unix.SIGCONT}

// Target of a signal.
type Target struct {
	PID int
	// Start of the process, as Process.Start.
	Start string
	// Owner that it must have; anybody when nil.
	Owner *uint32
}

// handle of a process, which stays that process's whatever becomes of its number.
type handle struct{ *os.File }

func open(pid int) (handle, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	switch {
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.EINVAL):
		return handle{}, fmt.Errorf("%w: %d", ErrGone, pid)
	case err != nil:
		return handle{}, fmt.Errorf("%w: processes cannot be named surely here (pidfd_open: %w)", program.ErrMissing, err)
	}
	return handle{os.NewFile(uintptr(fd), "pidfd")}, nil
}

// Kill sends a signal, and tells whether the process ended within patience. An error that wraps program.ErrRefused means that the
// signal was not sent.
func Kill(t Target, signal string, patience time.Duration) (p Process, ended bool, err error) {
	s, ok := signals[signal]
	if !ok {
		return Process{}, false, fmt.Errorf("%w: signal %q is not known", program.ErrRefused, signal)
	}
	// First the handle, then the look: what has the number now and is the one that was named has had it all the time.
	h, err := open(t.PID)
	if errors.Is(err, ErrGone) {
		return Process{}, false, fmt.Errorf("%w: %w", program.ErrRefused, err)
	}
	if err != nil {
		return Process{}, false, err
	}
	defer h.Close()
	p, err = Look(t.PID)
	if errors.Is(err, ErrGone) {
		return Process{}, false, fmt.Errorf("%w: %w", program.ErrRefused, err)
	}
	if err != nil {
		return Process{}, false, err
	}
	if p.Start != t.Start {
		return p, false, fmt.Errorf("%w: process %d is another one than was named (%s, started %s); list processes again", program.ErrRefused, t.PID, p.Name, p.Start)
	}
	if t.Owner != nil && p.UID != *t.Owner {
		return p, false, fmt.Errorf("%w: process %d (%s) belongs to %s", program.ErrRefused, t.PID, p.Name, Name(p.UID))
	}
	if err := spared(p); err != nil {
		return p, false, err
	}
	fd := int(h.Fd())
	if err := unix.PidfdSendSignal(fd, s, nil, 0); err != nil {
		return p, false, fmt.Errorf("%w: signal %s to process %d: %w", program.ErrRefused, signal, t.PID, err)
	}
	return p, wait(fd, patience), nil
}

// spared are the machine's first process, the kernel's own, the device, and whatever keeps the device alive.
func spared(p Process) error {
	if p.PID <= 2 || p.Parent == 2 {
		return fmt.Errorf("%w: process %d (%s) is the machine's own", program.ErrRefused, p.PID, p.Name)
	}
	for pid, depth := os.Getpid(), 0; pid > 1 && depth < 64; depth++ {
		if pid == p.PID {
			return fmt.Errorf("%w: process %d (%s) is this device, or what runs it", program.ErrRefused, p.PID, p.Name)
		}
		above, err := Look(pid)
		if err != nil {
			return err
		}
		pid = above.Parent
	}
	return nil
}

// wait for the end of a process.
func wait(fd int, patience time.Duration) bool {
	end := time.Now().Add(patience)
	for {
		left := time.Until(end)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, max(0, int(left.Milliseconds())))
		if n > 0 || !errors.Is(err, unix.EINTR) || left <= 0 {
			return n > 0
		}
	}
}
