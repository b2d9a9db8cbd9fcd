package command

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"nisse.io/nisse/hosttools/confine"
)

// mostAnswer of a function.
const mostAnswer = 64 << 20

// Call a function of this program (see confine.Serve) as a user, in a process of its own, and return what it answers. When ctx ends or the
// time is up, the process is killed, and nobody knows what it did: an error that wraps ErrUnproven says so. Any other error means that it
// did not begin.
func Call(ctx context.Context, user *confine.User, function string, in []byte, timeout time.Duration) ([]byte, error) {
	s, err := confine.Function(user, function)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	out, writer, err := pipe(mostAnswer)
	if err != nil {
		return nil, err
	}
	stdin, err := input(in)
	if err != nil {
		out.abandon(writer)
		return nil, err
	}
	defer stdin.Close()
	// As in Run.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	s.Cmd.Stdin, s.Cmd.Stdout = stdin, writer
	if err := orphans.start(s.Cmd); err != nil {
		out.abandon(writer)
		return nil, fmt.Errorf("%s as %s: %w", function, user.Name, err)
	}
	out.collect(writer)
	if err := s.Started(timeout); err != nil {
		_ = unix.Kill(-s.Cmd.Process.Pid, unix.SIGKILL)
		orphans.reap(s.Cmd)
		out.end(0)
		return nil, silent(err)
	}
	timedOut := supervise(ctx, s.Cmd.Process.Pid, timeout)
	orphans.reap(s.Cmd)
	answer := out.end(grace)
	switch {
	case timedOut:
		return nil, fmt.Errorf("%w: %s as %s was killed after %s", ErrUnproven, function, user.Name, timeout)
	case ctx.Err() != nil && !s.Cmd.ProcessState.Success():
		return nil, fmt.Errorf("%w: %s as %s was killed because %w", ErrUnproven, function, user.Name, context.Cause(ctx))
	case !s.Cmd.ProcessState.Success() || answer.Missing() > 0:
		return nil, fmt.Errorf("%w: %s as %s ended with %s", ErrUnproven, function, user.Name, s.Cmd.ProcessState)
	}
	return answer.Bytes(), nil
}
