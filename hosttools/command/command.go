// Package command runs one program with exact arguments on the local machine: no shell, an environment of its own, a process group of
// its own that does not outlive the call, and output that cannot grow without bound.
package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"nisse.io/nisse/internal/manifest"
)

// ErrRefused is wrapped when the program may not be run. Nothing was run.
var ErrRefused = errors.New("command refused")

// Environment of a command when it names none: enough for programs to find each other and to write one language.
var Environment = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "HOME=/"}

// Command is one program with its arguments.
type Command struct {
	// Argv; the first is the program by absolute path.
	Argv []string
	// Timeout after which the whole process group is killed.
	Timeout time.Duration
	// Keep is how many bytes of each of stdout and stderr are kept: the first two thirds and the last third.
	Keep int
	// Env of the program; Environment when nil.
	Env []string
	// Dir it runs in; / when empty.
	Dir string
	// Stdin that it reads; nothing when nil.
	Stdin []byte
}

// Result of a program that ran.
type Result struct {
	// ExitCode; -1 when a signal ended it.
	ExitCode int
	// Signal that ended it, such as killed.
	Signal string
	// TimedOut tells that it was killed for the time it took.
	TimedOut bool
	Stdout   Output
	Stderr   Output
}

// grace for pipes after the program has ended: who still holds them has left the process group.
const grace = 500 * time.Millisecond

// Run the command and wait for it. When ctx ends, the process group is killed as on a timeout, but TimedOut stays false. An error means
// that the program did not run: it wraps ErrRefused when it may not, and is the system's otherwise.
func Run(ctx context.Context, c Command) (Result, error) {
	if err := check(c); err != nil {
		return Result{}, err
	}
	out, outWriter, err := pipe(c.Keep)
	if err != nil {
		return Result{}, err
	}
	errs, errsWriter, err := pipe(c.Keep)
	if err != nil {
		out.abandon(outWriter)
		return Result{}, err
	}
	in, err := input(c.Stdin)
	if err != nil {
		out.abandon(outWriter)
		errs.abandon(errsWriter)
		return Result{}, err
	}
	defer in.Close()

	// The kernel sends the parent-death signal when the thread that forked ends, so this goroutine keeps its thread until the child is gone.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p := exec.Cmd{
		Path: c.Argv[0], Args: c.Argv, Env: c.Env, Dir: c.Dir,
		Stdin: in, Stdout: outWriter, Stderr: errsWriter,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	}
	if p.Env == nil {
		p.Env = Environment
	}
	if p.Dir == "" {
		p.Dir = "/"
	}
	if err := p.Start(); err != nil {
		out.abandon(outWriter)
		errs.abandon(errsWriter)
		return Result{}, fmt.Errorf("start %s: %w", c.Argv[0], err)
	}
	out.collect(outWriter)
	errs.collect(errsWriter)
	limits(p.Process.Pid, c.Timeout)

	timedOut := supervise(ctx, p.Process.Pid, c.Timeout)
	_ = p.Wait() // the state says it all; stdin, stdout and stderr are files, so there is nothing to copy
	r := Result{ExitCode: p.ProcessState.ExitCode(), TimedOut: timedOut, Stdout: out.end(grace), Stderr: errs.end(grace)}
	if w, ok := p.ProcessState.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		r.Signal = w.Signal().String()
	}
	return r, nil
}

// check that the program may be run. The manifest's list was judged by name; here a symlink cannot make a listed name a shell.
func check(c Command) error {
	if len(c.Argv) == 0 || !filepath.IsAbs(c.Argv[0]) || filepath.Clean(c.Argv[0]) != c.Argv[0] {
		return fmt.Errorf("%w: the program must be an absolute, clean path", ErrRefused)
	}
	real, err := filepath.EvalSymlinks(c.Argv[0])
	if err != nil {
		return fmt.Errorf("start %s: %w", c.Argv[0], err)
	}
	if manifest.Wrapper(c.Argv[0]) || manifest.Wrapper(real) && !manifest.MultiCall(real) {
		return fmt.Errorf("%w: %s is %s, which runs whatever it is given", ErrRefused, c.Argv[0], real)
	}
	info, err := os.Stat(real)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%w: %s is not a regular file", ErrRefused, real)
	}
	return nil
}

// limits of a program, modest and beside what the service manager sets. They take hold within its first moments, for Go cannot set them
// between fork and exec; the size of core dumps it inherits.
func limits(pid int, timeout time.Duration) {
	seconds := uint64(timeout/time.Second) + 5
	for resource, limit := range map[int]uint64{unix.RLIMIT_CORE: 0, unix.RLIMIT_NOFILE: 1024, unix.RLIMIT_FSIZE: 1 << 30, unix.RLIMIT_CPU: seconds} {
		var was unix.Rlimit
		if unix.Prlimit(pid, resource, nil, &was) == nil && was.Max > limit {
			_ = unix.Prlimit(pid, resource, &unix.Rlimit{Cur: limit, Max: limit}, nil)
		}
	}
}

// supervise waits until the process has ended, by itself or killed after timeout or with ctx, and then kills what is left of its group.
// It does not reap it, so that the group's number cannot be anybody else's meanwhile.
func supervise(ctx context.Context, pid int, timeout time.Duration) (timedOut bool) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
			if !errors.Is(err, unix.EINTR) {
				return
			}
		}
	}()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		timedOut = true
		_ = unix.Kill(-pid, unix.SIGKILL)
		<-ended
	case <-ctx.Done():
		_ = unix.Kill(-pid, unix.SIGKILL)
		<-ended
	}
	_ = unix.Kill(-pid, unix.SIGKILL)
	return timedOut
}
