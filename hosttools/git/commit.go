package git

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"nisse.io/nisse/hosttools/program"
)

// Commit that was made.
type Commit struct {
	ID     string
	Branch string
}

// Commit exactly these files, relative to the tree, as they lie there. author is Name <mail>; the operator's own when empty.
func (t Tree) Commit(ctx context.Context, files []string, message, author string) (Commit, error) {
	if err := t.check(ctx); err != nil {
		return Commit{}, err
	}
	for _, f := range files {
		if err := t.checkFile(f); err != nil {
			return Commit{}, err
		}
	}
	// Without its filter a file would go into the history as it must not, such as whole instead of LFS's pointer to it.
	r, err := t.git(ctx, nil, append([]string{"check-attr", "-z", "filter", "--"}, files...)...)
	if err != nil {
		return Commit{}, err
	}
	fields := strings.Split(string(r.Stdout.Bytes()), "\x00")
	for i := 0; i+2 < len(fields); i += 3 {
		if v := fields[i+2]; v != "unspecified" && v != "unset" {
			return Commit{}, fmt.Errorf("%w: %s goes through the filter %q, and filters are not run here; commit it by hand", program.ErrRefused, fields[i], v)
		}
	}
	name, mail, err := t.identity(ctx, author)
	if err != nil {
		return Commit{}, err
	}
	env := []string{"GIT_AUTHOR_NAME=" + name, "GIT_AUTHOR_EMAIL=" + mail, "GIT_COMMITTER_NAME=" + name, "GIT_COMMITTER_EMAIL=" + mail}
	if _, err := t.git(ctx, nil, append([]string{"add", "--all", "--"}, files...)...); err != nil {
		return Commit{}, err
	}
	args := []string{"commit", "--quiet", "--only", "--no-verify", "--no-post-rewrite", "--no-gpg-sign", "--no-status", "--cleanup=verbatim", "--message=" + message, "--"}
	if _, err := t.git(ctx, env, append(args, files...)...); err != nil {
		return Commit{}, err
	}
	return t.head(ctx)
}

// head of the tree.
func (t Tree) head(ctx context.Context) (Commit, error) {
	id, err := t.line(ctx, "rev-parse", "--verify", "HEAD^{commit}")
	if err != nil {
		return Commit{}, err
	}
	branch, err := t.line(ctx, "symbolic-ref", "--quiet", "--short", "HEAD")
	var f *program.Failure
	if errors.As(err, &f) && f.Result.ExitCode == 1 {
		err = nil // no branch is checked out
	}
	return Commit{ID: id, Branch: branch}, err
}

// checkFile: a plain file or symlink of this tree, or one that is gone. Nothing on the way to it may be a repository of its own, for
// git would run by that one's configuration, nor a symlink, for it would lead out of the tree.
func (t Tree) checkFile(f string) error {
	at := t.Path
	elements := strings.Split(f, "/")
	for _, e := range elements[:len(elements)-1] {
		at = filepath.Join(at, e)
		info, err := os.Lstat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case !info.IsDir():
			return fmt.Errorf("%w: %s is not a directory of the tree", program.ErrRefused, at)
		}
		if err := runsAs(t.Command).holds(at, unix.S_IFDIR, false); err != nil {
			return err
		}
		if _, err := os.Lstat(filepath.Join(at, ".git")); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: %s is in a repository of its own, %s", program.ErrRefused, f, at)
		}
	}
	info, err := os.Lstat(filepath.Join(t.Path, f))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.Mode().IsRegular() && info.Mode()&os.ModeSymlink == 0:
		return fmt.Errorf("%w: %s is not a file; name files one by one", program.ErrRefused, f)
	}
	return nil
}

// identity of the author: as given, or what the operator's own configuration says.
func (t Tree) identity(ctx context.Context, author string) (name, mail string, err error) {
	if author != "" {
		name, mail, _ = strings.Cut(strings.TrimSuffix(author, ">"), " <")
		return name, mail, nil
	}
	home := program.Variable(t.Command.Env, "HOME")
	c := t.Command
	c.Dir = "/"
	get := func(key string) string {
		r, err := run(ctx, c, []string{"GIT_DIR=/dev/null/none"}, "config", "--no-includes", "--file", filepath.Join(home, ".gitconfig"), "--get", key)
		if err != nil {
			return ""
		}
		return strings.TrimSpace(r.Stdout.Text())
	}
	if filepath.IsAbs(home) {
		name, mail = get("user.name"), get("user.email")
	}
	if name == "" || mail == "" {
		return "", "", fmt.Errorf("%w: who is the author? Give author, or let the manifest's environment name a HOME whose .gitconfig has user.name and user.email", program.ErrRefused)
	}
	return name, mail, nil
}
