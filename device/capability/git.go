package capability

import (
	"context"

	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/hosttools/git"
	"nisse.io/nisse/internal/manifest"
)

// tree that a call names, where it leads to what the manifest's rule allows and holds nothing of the device's own.
func (r Runner) tree(path string, v manifest.Verdict) (git.Tree, error) {
	real, err := r.leads(manifest.SlotPath{Path: path, Glob: v.Glob})
	if err != nil {
		return git.Tree{}, err
	}
	// From here on the place is called what it was when the rule was asked, so that a symlink which changes later leads git nowhere else;
	// that the directories of this name stay what they are is git.Tree's to see.
	c, err := r.asUser(v)
	return git.Tree{Path: real, Command: c}, err
}

func (r Runner) gitStatus(ctx context.Context, a manifest.GitStatusArgs, v manifest.Verdict) (func(int) any, error) {
	t, err := r.tree(a.Path, v)
	if err != nil {
		return nil, err
	}
	s, err := t.Status(ctx, MostEntries)
	if err != nil {
		return nil, err
	}
	return func(keep int) any {
		changes, more := rows(s.Changes, keep, func(c git.Change) int { return len(c.Path) }, func(c git.Change) wire.GitChange { return wire.GitChange(c) })
		return wire.GitStatusResult{Branch: s.Branch, Commit: s.Commit, Upstream: s.Upstream, Ahead: s.Ahead, Behind: s.Behind, Changes: changes, Truncated: more || s.More}
	}, nil
}

func (r Runner) gitCommit(ctx context.Context, a manifest.GitCommitArgs, v manifest.Verdict) (func(int) any, error) {
	t, err := r.tree(a.Path, v)
	if err != nil {
		return nil, err
	}
	c, err := t.Commit(ctx, a.Files, a.Message, a.Author)
	return gitResult(c), err
}

func (r Runner) gitClone(ctx context.Context, a manifest.GitCloneArgs, v manifest.Verdict) (func(int) any, error) {
	t, err := r.tree(a.Path, v)
	if err != nil {
		return nil, err
	}
	c, err := t.Clone(ctx, a.URL, a.Branch, a.Depth)
	return gitResult(c), err
}

func (r Runner) gitPush(ctx context.Context, a manifest.GitPushArgs, v manifest.Verdict) (func(int) any, error) {
	t, err := r.tree(a.Path, v)
	if err != nil {
		return nil, err
	}
	c, err := t.Push(ctx, a.URL, a.Branch, a.Commit)
	return gitResult(c), err
}

// gitResult; nil when nothing was done.
func gitResult(c git.Commit) func(int) any {
	if c == (git.Commit{}) {
		return nil
	}
	return func(int) any { return wire.GitResult{Commit: c.ID, Branch: c.Branch} }
}
