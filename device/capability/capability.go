// Package capability does on this machine what a call says, under the rules of the manifest that allowed it, and puts what came of it
// into the shapes of device/wire.
package capability

import (
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
	// Env of commands; command.Environment when nil.
	Env []string
	// Never holds what no rule opens, as the kernel names it: the device's key and state.
	Never []string
	// Executable is the SHA-256, in hex, of the program that was approved; empty when nobody asked what it is.
	Executable string
}

// Run a call that the manifest allowed with this verdict. Ending ctx kills a command, and its
// cause says why; files are read and written to the end.
func (r Runner) Run(ctx context.Context, capability string, v manifest.Verdict) Outcome {
	switch a := v.Args.(type) {
	case manifest.ReadArgs:
		return r.read(r.place(capability, a.Path, v), a)
	case manifest.PathArgs:
		if capability == manifest.FSList {
			return list(r.place(capability, a.Path, v))
		}
		return stat(r.place(capability, a.Path, v))
	case manifest.WriteArgs:
		return write(r.place(capability, a.Path, v), a)
	case manifest.ExecArgs:
		return r.exec(ctx, a, v)
	}
	return r.machine(ctx, capability, v)
}

func (r Runner) place(capability, path string, v manifest.Verdict) fs.Place {
	return fs.Place{Path: path, Dir: fs.Dir(v.Glob), Never: r.Never, Guard: func(real string) error { return r.Manifest.LeadsTo(capability, path, real) }}
}

func failed(err error) Outcome {
	switch {
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

func (r Runner) read(p fs.Place, a manifest.ReadArgs) Outcome {
	limit := int64(r.Manifest.Limits.OutputBytes)
	if a.Limit > 0 {
		limit = min(limit, a.Limit)
	}
	c, err := fs.Read(p, a.Offset, limit)
	if err != nil {
		return failed(err)
	}
	return succeeded(func(keep int) any {
		content, encoding, used := text(c.Bytes, keep, c.More)
		return wire.ReadResult{Content: content, Encoding: encoding, Size: bounded(c.Size), Truncated: c.More || used < len(c.Bytes)}
	})
}

func list(p fs.Place) Outcome {
	entries, more, err := fs.List(p, MostEntries)
	if err != nil {
		return failed(err)
	}
	return succeeded(func(keep int) any {
		out := wire.ListResult{Entries: []wire.Entry{}, Truncated: more}
		for _, e := range entries {
			if keep -= len(e.Name) + len(e.Target) + 100; keep < 0 {
				out.Truncated = true
				break
			}
			out.Entries = append(out.Entries, entry(e))
		}
		return out
	})
}

func stat(p fs.Place) Outcome {
	e, err := fs.Stat(p)
	if err != nil {
		return failed(err)
	}
	return succeeded(func(int) any { return entry(e) })
}

func entry(e fs.Entry) wire.Entry {
	return wire.Entry{Name: e.Name, Kind: e.Kind, Size: bounded(e.Size), Mode: e.Mode, ModTime: e.ModTime.UTC().Truncate(time.Second).Format(time.RFC3339), Target: e.Target}
}

// bounded to what canonical JSON can say; sparse files can claim more.
func bounded(n int64) int64 { return min(n, 1<<53-1) }

func write(p fs.Place, a manifest.WriteArgs) Outcome {
	content, err := a.Bytes()
	if err != nil {
		return failed(err)
	}
	w, err := fs.Write(p, content)
	if err != nil {
		return failed(err)
	}
	return succeeded(func(int) any {
		return wire.WriteResult{Path: a.Path, Bytes: w.Bytes, SHA256: w.SHA256, Created: w.Created}
	})
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
		Argv: a.Argv, Timeout: time.Duration(v.TimeoutSeconds) * time.Second, Keep: r.Manifest.Limits.OutputBytes, Env: r.environment(), Confine: confined, SHA256: r.Executable,
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
