package capability

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/hosttools/command"
	"nisse.io/nisse/hosttools/confine"
	"nisse.io/nisse/hosttools/program"
	"nisse.io/nisse/internal/manifest"
)

// machine runs the capabilities beside exec and fs.*. The time of the whole call is the verdict's, however many programs it takes.
func (r Runner) machine(ctx context.Context, capability string, v manifest.Verdict) Outcome {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(v.TimeoutSeconds)*time.Second)
	defer cancel()
	var result func(keep int) any
	// Whoever it is that the manifest names: a device that cannot be that account does nothing by it, also what would need no account.
	_, err := confine.Lookup(r.user())
	if err != nil {
		return failed(err)
	}
	switch a := v.Args.(type) {
	case manifest.GitStatusArgs:
		result, err = r.gitStatus(ctx, a, v)
	case manifest.GitCommitArgs:
		result, err = r.gitCommit(ctx, a, v)
	case manifest.GitCloneArgs:
		result, err = r.gitClone(ctx, a, v)
	case manifest.GitPushArgs:
		result, err = r.gitPush(ctx, a, v)
	case manifest.PkgSearchArgs:
		result, err = r.pkgSearch(ctx, a, v)
	case manifest.PkgInstallArgs:
		result, err = r.pkgInstall(ctx, a, v)
	case manifest.ProcListArgs:
		result, err = r.procList(a, v)
	case manifest.ProcKillArgs:
		result, err = r.procKill(a, v)
	case manifest.ContainerListArgs:
		result, err = r.containerList(ctx, v)
	case manifest.ContainerLogsArgs:
		result, err = r.containerLogs(ctx, a)
	case manifest.ContainerExecArgs:
		result, err = r.containerExec(ctx, a)
	case manifest.CaptureArgs:
		result, err = r.capture(ctx, v)
	case manifest.ClipboardReadArgs:
		result, err = r.clipboardRead(ctx, v)
	case manifest.ClipboardWriteArgs:
		result, err = r.clipboardWrite(ctx, a, v)
	default:
		err = fmt.Errorf("%w: %s is not built into this device", program.ErrMissing, capability)
	}
	if err == nil {
		return succeeded(result)
	}
	o := failed(err)
	if o.State != wire.Unknown && errors.Is(err, context.DeadlineExceeded) {
		o.Message = fmt.Sprintf("its %d s are up: %s", v.TimeoutSeconds, err)
	}
	if o.State == wire.Failed || o.State == wire.Unknown {
		o.Result = result
	}
	return o
}

// command that a call's programs are run as: what the manifest says of environment, time and output.
func (r Runner) command(v manifest.Verdict) command.Command {
	return command.Command{Timeout: time.Duration(v.TimeoutSeconds) * time.Second, Keep: r.Manifest.Limits.OutputBytes, Env: r.environment()}
}

// environment of commands: a clean one, and what the manifest grants.
func (r Runner) environment() []string {
	var granted []string
	for _, name := range slices.Sorted(maps.Keys(r.Manifest.Environment)) {
		granted = append(granted, name+"="+r.Manifest.Environment[name])
	}
	return program.Env(r.Env, granted...)
}

// rowBytes that one row of a list takes beside its strings, at most.
const rowBytes = 200

// rows of a list that fit into keep bytes; more tells that there are others.
func rows[T, R any](all []T, keep int, size func(T) int, render func(T) R) (out []R, more bool) {
	out = []R{}
	for i, e := range all {
		if keep -= size(e) + rowBytes; keep < 0 || i == MostEntries {
			return out, true
		}
		out = append(out, render(e))
	}
	return out, false
}

// streams as text when both are, in base64 otherwise.
func streams(out, errs command.Output, keep int) (stdout, stderr, encoding string) {
	out, errs = out.Shrink(keep), errs.Shrink(keep)
	if out.IsText() && errs.IsText() {
		return out.Text(), errs.Text(), UTF8
	}
	return out.Base64(), errs.Base64(), Base64
}
