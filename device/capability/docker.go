package capability

import (
	"context"
	"fmt"
	"slices"
	"time"

	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/hosttools/command"
	"nisse.io/nisse/hosttools/docker"
	"nisse.io/nisse/internal/manifest"
)

func (r Runner) containerList(ctx context.Context, v manifest.Verdict) (func(int) any, error) {
	e, err := docker.Open(r.environment())
	if err != nil {
		return nil, err
	}
	all, err := e.Containers(ctx)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(c docker.Container) bool { return !v.MatchesName(c.Name) })
	return func(keep int) any {
		containers, more := rows(all, keep, func(c docker.Container) int { return len(c.Name) + len(c.Image) + len(c.Status) }, func(c docker.Container) wire.Container {
			return wire.Container{ID: c.ID, Name: c.Name, Image: c.Image, State: c.State, Status: c.Status, Created: time.Unix(c.Created, 0).UTC().Format(time.RFC3339)}
		})
		return wire.ContainerListResult{Containers: containers, Truncated: more}
	}, nil
}

func (r Runner) containerLogs(ctx context.Context, a manifest.ContainerLogsArgs) (func(int) any, error) {
	e, err := docker.Open(r.environment())
	if err != nil {
		return nil, err
	}
	tail := a.Tail
	if tail == 0 {
		tail = manifest.DefaultTail
	}
	out, errs, err := e.Logs(ctx, a.Container, tail, r.Manifest.Limits.OutputBytes)
	if err != nil {
		return nil, err
	}
	return func(keep int) any {
		w := wire.ContainerLogsResult{StdoutBytes: out.Total, StderrBytes: errs.Total}
		w.Stdout, w.Stderr, w.Encoding = streams(out, errs, keep)
		return w
	}, nil
}

func (r Runner) containerExec(ctx context.Context, a manifest.ContainerExecArgs) (func(int) any, error) {
	e, err := docker.Open(r.environment())
	if err != nil {
		return nil, err
	}
	ran, err := e.Exec(ctx, a.Container, a.ID, a.Argv, r.Manifest.Limits.OutputBytes)
	if ran.Container == "" {
		return nil, err
	}
	switch {
	case err != nil && ran.TimedOut:
		err = fmt.Errorf("%w: %s ran too long, could not be ended from here, and may still run in the container", command.ErrUnproven, a.Argv[0])
	case err != nil && ctx.Err() != nil:
		err = fmt.Errorf("%w: %s was to be killed because %w, could not be ended from here, and may still run in the container", command.ErrUnproven, a.Argv[0], context.Cause(ctx))
	case err != nil:
	case ran.TimedOut:
		err = fmt.Errorf("%s was killed for the time it took", a.Argv[0])
	case ctx.Err() != nil:
		err = fmt.Errorf("%s was killed because %w", a.Argv[0], context.Cause(ctx))
	case ran.ExitCode != 0:
		err = fmt.Errorf("%s exited with code %d", a.Argv[0], ran.ExitCode)
	}
	if ran.Cut != nil && err != nil {
		err = fmt.Errorf("%w; its output is not whole: %w", err, ran.Cut)
	}
	return func(keep int) any {
		w := wire.ContainerExecResult{Container: ran.Container, ExecResult: wire.ExecResult{ExitCode: ran.ExitCode, TimedOut: ran.TimedOut, StdoutBytes: ran.Stdout.Total, StderrBytes: ran.Stderr.Total}}
		w.Stdout, w.Stderr, w.Encoding = streams(ran.Stdout, ran.Stderr, keep)
		return w
	}, err
}
