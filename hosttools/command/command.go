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

	"nisse.io/nisse/hosttools/confine"
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
	// Live is given both streams while the program runs; nil when nobody looks.
	Live *Tail
	// Env of the program; Environment when nil.
	Env []string
	// Dir it runs in; / when empty.
	Dir string
	// Stdin that it reads; nothing when nil.
	Stdin []byte
	// Confine the program; when nil, it runs by its name, as this process's user, with this process's rights.
	Confine *confine.Confinement
	// SHA256 in hex that the program must have; any when empty. It needs Confine, for a name can lead elsewhere meanwhile.
	SHA256 string
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

// ErrChanged is wrapped when the program is another than its SHA256 says. Nothing was run.
var ErrChanged = errors.New("the program has changed")

// ErrUnproven is wrapped when what was begun may have had its effect, or a part of it, and nobody can tell. It is not done again.
var ErrUnproven = errors.New("nobody can tell how it ended")

// grace for pipes after the program has ended: who still holds them has left the process group.
const grace = 500 * time.Millisecond

// Run the command and wait for it. When ctx ends, the process group is killed as on a timeout, but TimedOut stays false. An error means
// that the program did not run: it wraps ErrRefused when it may not, ErrUnproven when it may have begun for a moment, and is the system's otherwise.
func Run(ctx context.Context, c Command) (Result, error) {
	real, err := check(c)
	if err != nil {
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
	p, started, end, err := prepare(c, real)
	if err != nil {
		out.abandon(outWriter)
		errs.abandon(errsWriter)
		return Result{}, err
	}
	defer end()
	p.Stdin, p.Stdout, p.Stderr = in, outWriter, errsWriter
	if err := orphans.start(p); err != nil {
		out.abandon(outWriter)
		errs.abandon(errsWriter)
		return Result{}, fmt.Errorf("start %s: %w", c.Argv[0], err)
	}
	out.live, errs.live = c.Live, c.Live
	out.collect(outWriter)
	errs.collect(errsWriter)
	if err := started(p.Process.Pid); err != nil {
		_ = unix.Kill(-p.Process.Pid, unix.SIGKILL)
		orphans.reap(p)
		out.end(0)
		errs.end(0)
		return Result{}, fmt.Errorf("%s: %w", c.Argv[0], silent(err))
	}

	timedOut := supervise(ctx, p.Process.Pid, c.Timeout)
	orphans.reap(p)
	r := Result{ExitCode: p.ProcessState.ExitCode(), TimedOut: timedOut, Stdout: out.end(grace), Stderr: errs.end(grace)}
	if w, ok := p.ProcessState.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		r.Signal = w.Signal().String()
	}
	return r, nil
}

// silent shims may have become the program a moment before they were killed; one that reported did not.
func silent(err error) error {
	if errors.Is(err, confine.ErrSilent) {
		return fmt.Errorf("%w: %w", ErrUnproven, err)
	}
	return err
}

// prepare the process: by the program's name, or by a shim that becomes the open file. started waits until it is the program; end lets go
// of what the start held.
func prepare(c Command, real string) (p *exec.Cmd, started func(pid int) error, end func(), err error) {
	if c.Env == nil {
		c.Env = Environment
	}
	if c.Dir == "" {
		c.Dir = "/"
	}
	if c.Confine == nil {
		if c.SHA256 != "" {
			return nil, nil, nil, fmt.Errorf("%w: %s is not confined, so nobody can tell what its name leads to", ErrRefused, c.Argv[0])
		}
		p = &exec.Cmd{Path: c.Argv[0], Args: c.Argv, Env: c.Env, Dir: c.Dir, SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}}
		return p, func(pid int) error { limits(pid, c.Timeout); return nil }, func() {}, nil
	}
	program, err := confine.Open(real)
	if err != nil {
		return nil, nil, nil, refused(err)
	}
	s, err := start(c, program)
	if err != nil {
		program.Close()
		return nil, nil, nil, err
	}
	return s.Cmd, func(int) error { return s.Started(c.Timeout) }, func() { s.Close(); program.Close() }, nil
}

// start an open program, if it is the one that was meant.
func start(c Command, program *confine.Program) (*confine.Start, error) {
	if c.SHA256 != "" {
		got, err := program.SHA256()
		if err != nil {
			return nil, err
		}
		if got != c.SHA256 {
			return nil, fmt.Errorf("%w: %s has SHA-256 %s, approved was %s; ask for approval anew", ErrChanged, program.Path, got, c.SHA256)
		}
	}
	return c.Confine.Prepare(program, c.Argv, c.Env, c.Dir, confine.Limits{CPU: c.Timeout + cpuGrace})
}

func refused(err error) error {
	if errors.Is(err, confine.ErrProgram) {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return err
}

// check that the program may be run, and tell its path with symlinks resolved. The manifest's list was judged by name; here a symlink
// cannot make a listed name a shell.
func check(c Command) (real string, err error) {
	if len(c.Argv) == 0 || !filepath.IsAbs(c.Argv[0]) || filepath.Clean(c.Argv[0]) != c.Argv[0] {
		return "", fmt.Errorf("%w: the program must be an absolute, clean path", ErrRefused)
	}
	real, err = filepath.EvalSymlinks(c.Argv[0])
	if err != nil {
		return "", fmt.Errorf("start %s: %w", c.Argv[0], err)
	}
	if manifest.Wrapper(c.Argv[0]) || manifest.Wrapper(real) && !manifest.MultiCall(real) {
		return "", fmt.Errorf("%w: %s is %s, which runs whatever it is given", ErrRefused, c.Argv[0], real)
	}
	info, err := os.Stat(real)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%w: %s is not a regular file", ErrRefused, real)
	}
	return real, nil
}

// Resolve tells what a command line would run: the file that its program's name leads to, and the SHA-256 of what would be executed.
func Resolve(argv []string) (path, sha256 string, err error) {
	real, err := check(Command{Argv: argv})
	if err != nil {
		return "", "", err
	}
	program, err := confine.Open(real)
	if err != nil {
		return "", "", refused(err)
	}
	defer program.Close()
	sha256, err = program.SHA256()
	return real, sha256, err
}

// cpuGrace over the time that a command may take.
const cpuGrace = 5 * time.Second

// limits of a program that no shim sets, modest and beside what the service manager sets. They take hold within its first moments, for Go
// cannot set them between fork and exec; the size of core dumps it inherits.
func limits(pid int, timeout time.Duration) {
	seconds := uint64((timeout + cpuGrace) / time.Second)
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
