package git

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
)

// Status of a working tree.
type Status struct {
	// Branch that is checked out; empty when none is.
	Branch string
	// Commit that it is at; empty before the first.
	Commit string
	// Upstream branch, and how many commits the branch is ahead of it and behind; empty and 0 when there is none.
	Upstream      string
	Ahead, Behind int64
	Changes       []Change
	// More changes than are listed.
	More bool
}

// Change of a file against the commit.
type Change struct {
	Path string
	// Index and Worktree as git writes them: . unchanged, M modified, T another type, A added, D deleted, U unmerged, ? untracked.
	Index, Worktree string
}

// Status of the tree, of at most so many changes. Nested repositories are not looked into.
func (t Tree) Status(ctx context.Context, most int) (Status, error) {
	if err := t.check(ctx); err != nil {
		return Status{}, err
	}
	t.Command.Keep = 6 << 20 // two thirds of it are the head
	r, err := t.git(ctx, nil, "--no-optional-locks", "status", "--porcelain=v2", "--branch", "-z", "--untracked-files=normal", "--ignore-submodules=all", "--no-renames", "--no-ahead-behind")
	if err != nil {
		return Status{}, err
	}
	text := r.Stdout.Head
	if r.Stdout.Missing() == 0 {
		text = r.Stdout.Bytes()
	} else {
		text = text[:bytes.LastIndexByte(text, 0)+1]
	}
	s, err := parse(string(text), most)
	s.More = s.More || r.Stdout.Missing() > 0
	if err == nil && s.Upstream != "" && s.Commit != "" {
		if counts, err := t.line(ctx, "rev-list", "--count", "--left-right", "HEAD...@{upstream}"); err == nil {
			_, _ = fmt.Sscan(counts, &s.Ahead, &s.Behind)
		}
	}
	return s, err
}

// parse the porcelain format, version 2, with NUL after each line (git-status(1)).
func parse(text string, most int) (Status, error) {
	var s Status
	for _, line := range strings.Split(strings.TrimSuffix(text, "\x00"), "\x00") {
		if key, value, ok := strings.Cut(strings.TrimPrefix(line, "# branch."), " "); ok && strings.HasPrefix(line, "# ") {
			switch key {
			case "oid":
				if value != "(initial)" {
					s.Commit = value
				}
			case "head":
				if value != "(detached)" {
					s.Branch = value
				}
			case "upstream":
				s.Upstream = value
			}
			continue
		}
		if line == "" {
			continue
		}
		// Fields before the path: 1 XY sub mH mI mW hH hI path, and u XY sub m1 m2 m3 mW h1 h2 h3 path.
		before := map[byte]int{'1': 8, 'u': 10, '?': 1}[line[0]]
		f := strings.SplitN(line, " ", before+1)
		if before == 0 || len(f) != before+1 || before > 1 && len(f[1]) != 2 {
			return s, fmt.Errorf("git status says %s, which is not understood", strconv.Quote(line))
		}
		if len(s.Changes) == most {
			s.More = true
			return s, nil
		}
		c := Change{Path: f[before], Index: "?", Worktree: "?"}
		if before > 1 {
			c.Index, c.Worktree = f[1][:1], f[1][1:]
		}
		s.Changes = append(s.Changes, c)
	}
	return s, nil
}
