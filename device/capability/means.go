package capability

import (
	"context"
	"time"

	"nisse.io/nisse/hosttools/clipboard"
	"nisse.io/nisse/hosttools/command"
	"nisse.io/nisse/hosttools/display"
	"nisse.io/nisse/hosttools/docker"
	"nisse.io/nisse/hosttools/git"
	"nisse.io/nisse/hosttools/pkg"
	"nisse.io/nisse/hosttools/proc"
	"nisse.io/nisse/internal/manifest"
)

// Mean that this machine has for some capabilities, or lacks.
type Mean struct {
	Name string
	// Capabilities that are done with it.
	Capabilities []string
	// What it is, such as git version 2.39.5.
	What string
	// Err tells why there is none.
	Err error
}

// Means of this machine under a manifest, whose environment names socket and display.
func Means(ctx context.Context, m *manifest.Manifest) []Mean {
	env := Runner{Manifest: m}.environment()
	mean := func(name string, probe func() (string, error), capabilities ...string) Mean {
		what, err := probe()
		return Mean{Name: name, Capabilities: capabilities, What: what, Err: err}
	}
	return []Mean{
		mean("git", func() (string, error) {
			return git.Probe(ctx, command.Command{Timeout: 10 * time.Second, Keep: 1000, Env: env})
		}, manifest.GitStatus, manifest.GitCommit, manifest.GitClone, manifest.GitPush),
		mean("packages", pkg.Probe, manifest.PkgSearch, manifest.PkgInstall),
		mean("processes", proc.Probe, manifest.ProcList, manifest.ProcKill),
		mean("containers", func() (string, error) { return docker.Probe(ctx, env) }, manifest.DockerList, manifest.DockerLogs, manifest.DockerExec),
		mean("display", func() (string, error) { return display.Probe(env) }, manifest.DisplayCapture),
		mean("clipboard", func() (string, error) { return clipboard.Probe(env) }, manifest.ClipboardRead, manifest.ClipboardWrite),
	}
}
