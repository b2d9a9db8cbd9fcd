package git

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"nisse.io/nisse/hosttools/command"
	"nisse.io/nisse/hosttools/program"
	"nisse.io/nisse/internal/manifest"
)

// Clone a URL into the tree's path, which must not exist. branch is the remote's own choice when empty, and depth all when 0.
func (t Tree) Clone(ctx context.Context, url, branch string, depth int) (Commit, error) {
	if _, err := os.Lstat(t.Path); !errors.Is(err, fs.ErrNotExist) {
		return Commit{}, fmt.Errorf("%w: %s exists already", program.ErrRefused, t.Path)
	}
	if err := runsAs(t.Command).free(t.Path); err != nil {
		return Commit{}, err
	}
	env, err := reach(ctx, t.Command, url)
	if err != nil {
		return Commit{}, err
	}
	args := []string{"clone", "--quiet", "--no-recurse-submodules", "--no-shallow-submodules", "--template=", "--origin=origin"}
	if branch != "" {
		args = append(args, "--single-branch", "--branch="+branch)
	}
	if depth > 0 {
		args = append(args, "--depth="+strconv.Itoa(depth))
	}
	c := t.Command
	c.Dir = "/"
	if _, err := run(ctx, c, env, append(args, "--", url, t.Path)...); err != nil {
		return Commit{}, err
	}
	head, err := t.head(ctx)
	var f *program.Failure
	if errors.As(err, &f) && f.Cause == nil && f.Result.ExitCode == 128 {
		err = nil // an empty repository has no commit
	}
	return head, err
}

// Push a commit, or what the branch points to when it is empty, to the branch of the same name at the URL. Only forwards.
func (t Tree) Push(ctx context.Context, url, branch, commit string) (Commit, error) {
	if err := t.check(ctx); err != nil {
		return Commit{}, err
	}
	env, err := reach(ctx, t.Command, url)
	if err != nil {
		return Commit{}, err
	}
	what := commit
	if what == "" {
		what = "refs/heads/" + branch
	}
	id, err := t.line(ctx, "rev-parse", "--verify", what+"^{commit}")
	if err != nil {
		return Commit{}, err
	}
	args := []string{"push", "--quiet", "--porcelain", "--no-verify", "--no-signed", "--no-follow-tags", "--no-recurse-submodules"}
	if manifest.RemoteScheme(url) == "file" {
		args = append(args, "--receive-pack=git -c core.hooksPath=/dev/null receive-pack")
	}
	if r, err := t.git(ctx, env, append(args, "--", url, id+":refs/heads/"+branch)...); err != nil {
		if !untaken(r, err) {
			err = fmt.Errorf("%w, for the remote may have taken it: %w", command.ErrUnproven, err)
		}
		return Commit{}, err
	}
	return Commit{ID: id, Branch: branch}, nil
}

// untaken tells whether a push that failed surely changed nothing at the remote: git did not run, did not come to speak with it, or was told
// no. All else may have reached it, and only it knows.
func untaken(r command.Result, err error) bool {
	var f *program.Failure
	if !errors.As(err, &f) {
		return !errors.Is(err, command.ErrUnproven)
	}
	if r.TimedOut || r.Signal != "" || f.Cause != nil {
		return false
	}
	for line := range strings.Lines(r.Stdout.Text()) {
		if flag, rest, ok := strings.Cut(line, "\t"); ok && flag == "!" {
			return !strings.Contains(rest, "[remote failure]")
		}
	}
	// What git says when the first word of the remote did not come: before anything is sent.
	words := r.Stderr.Text()
	return strings.Contains(words, "fatal: unable to access ") || strings.Contains(words, "fatal: Could not read from remote repository.") ||
		strings.Contains(words, "does not appear to be a git repository")
}

// reach a URL: the one protocol that git may speak. ssh is named so that no configuration can name another; for a remote that is a
// directory of this machine, that directory's own repository must be harmless too.
func reach(ctx context.Context, c command.Command, url string) (env []string, err error) {
	scheme := manifest.RemoteScheme(url)
	switch scheme {
	case "":
		return nil, fmt.Errorf("%w: %q is no URL that git may speak with", program.ErrRefused, url)
	case "ssh":
		ssh, err := program.Find("ssh")
		if err != nil {
			return nil, err
		}
		env = append(env, "GIT_SSH_COMMAND="+ssh)
	case "file":
		if err := checkPlace(ctx, c, url[len("file://"):]); err != nil {
			return nil, err
		}
	}
	return append(env, "GIT_ALLOW_PROTOCOL="+scheme), nil
}

// checkPlace of a repository on this machine: bare, or below a working tree.
func checkPlace(ctx context.Context, c command.Command, dir string) error {
	dir = filepath.Clean(dir)
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return fmt.Errorf("%w: %w", program.ErrRefused, err)
	}
	if real != dir {
		return fmt.Errorf("%w: %s leads to %s; name that one", program.ErrRefused, dir, real)
	}
	// Of a working tree too: who adds a .git to it decides which repository it is.
	if err := runsAs(c).place(dir); err != nil {
		return err
	}
	info, err := os.Lstat(filepath.Join(dir, ".git"))
	switch {
	case err == nil && info.IsDir():
		dir = filepath.Join(dir, ".git")
	case err == nil:
		return fmt.Errorf("%w: %s keeps its repository elsewhere", program.ErrRefused, dir)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return checkRepository(ctx, c, dir)
}
