// Package git works on repositories whose content nobody vouches for: git is told to run nothing but itself and ssh, and a repository
// whose own configuration could make it run more is refused.
package git

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"nisse.io/nisse/hosttools/command"
	"nisse.io/nisse/hosttools/program"
)

// Tree is a working tree with a repository of its own.
type Tree struct {
	// Path of its top directory, absolute and clean.
	Path string
	// Command that git is run by: environment, time, output kept and whatever else holds for commands of this call.
	Command command.Command
}

// settings outrank every configuration file. They name what git would run of its own accord; what a repository can name freely
// (filters, drivers, helpers for one URL) is met by checkConfig.
var settings = []string{
	"core.hooksPath=/dev/null", "core.fsmonitor=false", "core.pager=cat", "core.editor=false", "core.askPass=", "core.attributesFile=/dev/null", "core.excludesFile=/dev/null",
	"credential.helper=", "protocol.ext.allow=never", "http.followRedirects=false", "transfer.bundleURI=false",
	"commit.gpgSign=false", "tag.gpgSign=false", "push.gpgSign=false", "gpg.program=false",
	"submodule.recurse=false", "fetch.recurseSubmodules=false", "push.recurseSubmodules=no",
	"gc.auto=0", "maintenance.auto=false",
}

// environment of git. Empty GIT_ASKPASS beats every helper that could ask, and an empty GIT_ALLOW_PROTOCOL allows none.
var environment = []string{
	"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_ATTR_NOSYSTEM=1",
	"GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=", "SSH_ASKPASS=", "SSH_ASKPASS_REQUIRE=never",
	"GIT_PAGER=cat", "GIT_EDITOR=false", "GIT_SEQUENCE_EDITOR=false",
	"GIT_LITERAL_PATHSPECS=1", "GIT_OPTIONAL_LOCKS=0", "GIT_NO_REPLACE_OBJECTS=1", "GIT_NO_LAZY_FETCH=1", "GIT_PROTOCOL_FROM_USER=0", "GIT_ALLOW_PROTOCOL=",
	"LC_ALL=C.UTF-8",
}

// run git with settings and environment that are this package's.
func run(ctx context.Context, c command.Command, env []string, args ...string) (command.Result, error) {
	file, err := program.Find("git")
	if err != nil {
		return command.Result{}, err
	}
	c.Argv = []string{file, "--no-pager"}
	for _, s := range settings {
		c.Argv = append(c.Argv, "-c", s)
	}
	c.Argv = append(c.Argv, args...)
	c.Env = program.Env(program.Env(c.Env, environment...), env...)
	return program.Run(ctx, c)
}

// git in the tree. Naming both directories keeps git from looking for others, above or by what a .git says.
func (t Tree) git(ctx context.Context, env []string, args ...string) (command.Result, error) {
	c := t.Command
	c.Dir = t.Path
	return run(ctx, c, env, append([]string{"--git-dir=" + t.dir(), "--work-tree=" + t.Path}, args...)...)
}

func (t Tree) dir() string { return filepath.Join(t.Path, ".git") }

// line that git prints.
func (t Tree) line(ctx context.Context, args ...string) (string, error) {
	r, err := t.git(ctx, nil, args...)
	return strings.TrimSpace(r.Stdout.Text()), err
}

// check that the tree has a repository of its own, of plain files that nobody else can exchange, whose configuration runs nothing.
func (t Tree) check(ctx context.Context) error {
	info, err := os.Lstat(t.dir())
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%w: %s is not the top directory of a git working tree", program.ErrRefused, t.Path)
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%w: %s keeps its repository elsewhere, as submodules and linked working trees do", program.ErrRefused, t.Path)
	}
	if err := runsAs(t.Command).place(t.Path); err != nil {
		return err
	}
	return checkRepository(ctx, t.Command, t.dir())
}

// Probe tells which git this machine has.
func Probe(ctx context.Context, c command.Command) (string, error) {
	r, err := run(ctx, c, nil, "version")
	return strings.TrimSpace(r.Stdout.Text()), err
}
