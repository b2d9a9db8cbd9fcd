// Package capability does on this machine what a call says, under the rules of the manifest that allowed it, and puts what came of it
// into the shapes of device/wire.
package capability

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/hosttools/command"
	"nisse.io/nisse/hosttools/confine"
	"nisse.io/nisse/hosttools/fs"
	"nisse.io/nisse/hosttools/program"
	"nisse.io/nisse/internal/manifest"
)

// Outcome of a call.
type Outcome struct {
	State wire.State
	// Reason when Refused: PathRefused, TargetRefused, Unavailable, Unconfined or ExecutableChanged.
	Reason wire.Reason
	// Message for people when not Succeeded.
	Message string
	// Result renders what came of it, keeping at most so many bytes of content; nil when nothing did.
	Result func(keep int) any
}

// MostEntries of a directory in one answer.
const MostEntries = 1000

// Runner runs calls.
type Runner struct {
	Manifest *manifest.Manifest
	// User of manifests that name none; this process's own when empty.
	User string
	// Env of commands; command.Environment when nil.
	Env []string
	// Never holds what no rule opens, as the kernel names it: the device's key and state.
	Never []string
	// Executable is the SHA-256, in hex, of the program that was approved; empty when nobody asked what it is.
	Executable string
	// Live is given what a program writes while it runs; nil when nobody looks.
	Live *command.Tail
}

// user that commands run as and files are touched as.
func (r Runner) user() string { return cmp.Or(r.Manifest.User, r.User) }

// Run a call that the manifest allowed with this verdict. Ending ctx kills a command, and its
// cause says why; files are read and written to the end.
func (r Runner) Run(ctx context.Context, capability string, v manifest.Verdict) Outcome {
	if _, runs := v.Args.(manifest.ExecArgs); !runs && r.Executable != "" {
		return failed(fmt.Errorf("%w: approved was a program, and %s runs none of the caller's choice", command.ErrChanged, capability))
	}
	switch a := v.Args.(type) {
	case manifest.ReadArgs, manifest.PathArgs, manifest.WriteArgs:
		return r.file(ctx, capability, v)
	case manifest.ExecArgs:
		return r.exec(ctx, a, v)
	}
	return r.machine(ctx, capability, v)
}

func failed(err error) Outcome {
	switch {
	case errors.Is(err, command.ErrUnproven):
		return Outcome{State: wire.Unknown, Message: err.Error()}
	case errors.Is(err, confine.ErrUnconfined):
		return Outcome{State: wire.Refused, Reason: wire.Unconfined, Message: err.Error()}
	case errors.Is(err, command.ErrChanged):
		return Outcome{State: wire.Refused, Reason: wire.ExecutableChanged, Message: err.Error()}
	}
	if errors.Is(err, fs.ErrRefused) || errors.Is(err, command.ErrRefused) {
		return Outcome{State: wire.Refused, Reason: wire.PathRefused, Message: err.Error()}
	}
	if errors.Is(err, program.ErrRefused) {
		return Outcome{State: wire.Refused, Reason: wire.TargetRefused, Message: err.Error()}
	}
	if errors.Is(err, program.ErrMissing) {
		return Outcome{State: wire.Refused, Reason: wire.Unavailable, Message: err.Error()}
	}
	return Outcome{State: wire.Failed, Message: err.Error()}
}

func succeeded(result func(keep int) any) Outcome {
	return Outcome{State: wire.Succeeded, Result: result}
}

func (r Runner) exec(ctx context.Context, a manifest.ExecArgs, v manifest.Verdict) Outcome {
	held, err := r.holdAll(v.Paths, v.Approval != manifest.None)
	if err != nil {
		return failed(err)
	}
	defer closeAll(held)
	confined, err := r.confinement(v, held)
	if err != nil {
		return failed(err)
	}
	res, err := command.Run(ctx, command.Command{
		Argv: a.Argv, Timeout: time.Duration(v.TimeoutSeconds) * time.Second, Keep: r.Manifest.Limits.OutputBytes, Env: r.environment(), Confine: confined, SHA256: r.Executable, Live: r.Live,
	})
	if err != nil {
		return failed(err)
	}
	o := Outcome{State: wire.Succeeded, Result: func(keep int) any { return execResult(res, keep) }}
	switch {
	case res.TimedOut:
		o.State, o.Message = wire.Failed, fmt.Sprintf("%s was killed after %d s", a.Argv[0], v.TimeoutSeconds)
	case res.Signal != "" && ctx.Err() != nil:
		o.State, o.Message = wire.Failed, fmt.Sprintf("%s was killed because %s", a.Argv[0], context.Cause(ctx))
	case res.Signal != "":
		o.State, o.Message = wire.Failed, fmt.Sprintf("%s was ended by a signal: %s", a.Argv[0], res.Signal)
	case res.ExitCode != 0:
		o.State, o.Message = wire.Failed, fmt.Sprintf("%s exited with code %d", a.Argv[0], res.ExitCode)
	}
	return o
}

// resolve symlinks of a path whose last elements need not exist. A symlink to nothing is refused: the program might make what it names.
func resolve(p string) (string, error) {
	for rest := ""; ; p, rest = filepath.Dir(p), filepath.Join(filepath.Base(p), rest) {
		real, err := filepath.EvalSymlinks(p)
		if err == nil {
			return filepath.Join(real, rest), nil
		}
		if _, lerr := os.Lstat(p); !errors.Is(lerr, os.ErrNotExist) || p == "/" {
			return "", err
		}
	}
}

func execResult(r command.Result, keep int) wire.ExecResult {
	out, errs := r.Stdout.Shrink(keep), r.Stderr.Shrink(keep)
	w := wire.ExecResult{ExitCode: r.ExitCode, Signal: r.Signal, TimedOut: r.TimedOut, StdoutBytes: out.Total, StderrBytes: errs.Total}
	if out.IsText() && errs.IsText() {
		w.Stdout, w.Stderr, w.Encoding = out.Text(), errs.Text(), UTF8
		return w
	}
	w.Stdout, w.Stderr, w.Encoding = out.Base64(), errs.Base64(), Base64
	return w
}
