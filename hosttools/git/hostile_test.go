package git

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nisse.io/nisse/hosttools/program"
)

// hook writes a program that leaves a file behind when it is run.
func hook(t *testing.T, file, ran string) {
	t.Helper()
	write(t, file, "#!/bin/sh\ntouch "+ran+"\n")
	if err := os.Chmod(file, 0o755); err != nil {
		t.Fatal(err)
	}
}

// nothing was run.
func nothing(t *testing.T, ran string) {
	t.Helper()
	if _, err := os.Lstat(ran); err == nil {
		t.Errorf("a program of the repository's choosing was run: %s", ran)
	}
}

// A repository's own configuration may be anybody's. Each of these would make git run a program or speak with another place; none is
// used, whatever is asked.
func TestHostileConfiguration(t *testing.T) {
	for name, config := range map[string]string{
		"file system monitor":   "[core]\nfsmonitor = RUN",
		"hooks":                 "[core]\nhooksPath = DIR",
		"ssh":                   "[core]\nsshCommand = RUN",
		"proxy":                 "[core]\ngitProxy = RUN",
		"worktree elsewhere":    "[core]\nworktree = /etc",
		"alternate references":  "[core]\nalternateRefsCommand = RUN",
		"editor":                "[core]\neditor = RUN",
		"filter":                "[filter \"x\"]\nclean = RUN\nsmudge = RUN\nprocess = RUN\nrequired = true",
		"external diff":         "[diff]\nexternal = RUN",
		"diff driver":           "[diff \"x\"]\ncommand = RUN\ntextconv = RUN",
		"merge driver":          "[merge \"x\"]\ndriver = RUN",
		"signatures":            "[commit]\ngpgSign = true\n[gpg]\nprogram = RUN",
		"signatures by ssh":     "[gpg]\nformat = ssh\n[gpg \"ssh\"]\ndefaultKeyCommand = RUN",
		"credentials":           "[credential]\nhelper = !RUN",
		"credentials of a URL":  "[credential \"https://git.example\"]\nhelper = !RUN",
		"URL that is rewritten": "[url \"https://mallory.example/\"]\ninsteadOf = https://git.example/",
		"remote named as a URL": "[remote \"https://git.example/x\"]\nurl = https://mallory.example/",
		"program at the remote": "[remote \"origin\"]\nreceivepack = RUN\nuploadpack = RUN",
		"remote helper":         "[remote \"origin\"]\nvcs = x",
		"promisor":              "[remote \"origin\"]\npromisor = true",
		"submodule's update":    "[submodule \"x\"]\nupdate = !RUN",
		"include":               "[include]\npath = other",
		"include if":            "[includeIf \"gitdir:/\"]\npath = other",
		"configuration of more": "[extensions]\nworktreeConfig = true",
		"partial clone":         "[extensions]\npartialClone = origin",
		"HTTP without TLS":      "[http]\nsslVerify = false",
		"HTTP headers":          "[http \"https://git.example\"]\nextraHeader = x",
		"protocols":             "[protocol \"ext\"]\nallow = always",
		"alias":                 "[alias]\nstatus = !RUN",
		"trailers":              "[trailer \"x\"]\ncommand = RUN",
		"recent objects":        "[gc]\nrecentObjectsHook = RUN",
		"template":              "[commit]\ntemplate = /etc/shadow",
		"pack hook":             "[uploadpack]\npackObjectsHook = RUN",
		"not a configuration":   "[core",
	} {
		t.Run(name, func(t *testing.T) {
			w := tree(t)
			scratch := dir(t)
			ran, tool := filepath.Join(scratch, "ran"), filepath.Join(scratch, "post-commit")
			hook(t, tool, ran)
			write(t, filepath.Join(w.Path, ".git/other"), "[core]\nfsmonitor = "+tool+"\n")
			write(t, filepath.Join(w.Path, ".gitattributes"), "* filter=x diff=x merge=x\n")
			text := strings.NewReplacer("RUN", tool, "DIR", scratch).Replace(config)
			old, err := os.ReadFile(filepath.Join(w.Path, ".git/config"))
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(w.Path, ".git/config"), string(old)+"\n"+text+"\n")
			write(t, filepath.Join(w.Path, "a.txt"), "changed\n")
			if _, err := w.Status(t.Context(), 10); !errors.Is(err, program.ErrRefused) {
				t.Errorf("status: %v", err)
			}
			if _, err := w.Commit(t.Context(), []string{"a.txt"}, "x", "A <a@b.example>"); !errors.Is(err, program.ErrRefused) {
				t.Errorf("commit: %v", err)
			}
			if _, err := w.Push(t.Context(), "https://git.example/x", "main", ""); !errors.Is(err, program.ErrRefused) {
				t.Errorf("push: %v", err)
			}
			if _, err := at(filepath.Join(scratch, "clone")).Clone(t.Context(), "file://"+w.Path, "", 0); !errors.Is(err, program.ErrRefused) {
				t.Errorf("clone: %v", err)
			}
			nothing(t, ran)
		})
	}
}

// Should the configuration change between the look and the run, what git would run of its own accord is still outranked.
func TestSettingsOutrank(t *testing.T) {
	w := tree(t)
	scratch := dir(t)
	ran := filepath.Join(scratch, "ran")
	for _, h := range []string{"pre-commit", "commit-msg", "prepare-commit-msg", "post-commit", "post-index-change", "reference-transaction", "fsmonitor-watchman"} {
		hook(t, filepath.Join(scratch, h), ran)
		hook(t, filepath.Join(w.Path, ".git/hooks", h), ran)
	}
	tool := filepath.Join(scratch, "post-commit")
	for key, value := range map[string]string{"core.fsmonitor": tool, "core.hooksPath": scratch, "core.editor": tool, "core.pager": tool, "commit.gpgSign": "true", "gpg.program": tool} {
		person(t, w.Path, "config", key, value)
	}
	write(t, filepath.Join(w.Path, "a.txt"), "changed\n")
	for _, args := range [][]string{{"status"}, {"add", "--all", "--", "a.txt"}, {"commit", "--quiet", "--message=x", "--", "a.txt"}} {
		if _, err := w.git(t.Context(), []string{"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@b"}, args...); err != nil {
			t.Errorf("%s: %v", args[0], err)
		}
	}
	nothing(t, ran)
	person(t, w.Path, "-c", "gpg.program=true", "-c", "commit.gpgSign=false", "status")
	if _, err := os.Lstat(ran); err != nil {
		t.Error("the trap is none: git itself does not run it")
	}
}

func TestHostileLayout(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, w Tree, other Tree){
		"no repository": func(t *testing.T, w, _ Tree) {
			move(t, filepath.Join(w.Path, ".git"), filepath.Join(w.Path, "git"))
		},
		"below another tree's top": func(t *testing.T, w, _ Tree) {
			move(t, filepath.Join(w.Path, ".git"), filepath.Join(filepath.Dir(w.Path), ".git"))
		},
		".git is a file": func(t *testing.T, w, other Tree) {
			move(t, filepath.Join(w.Path, ".git"), filepath.Join(w.Path, "old"))
			write(t, filepath.Join(w.Path, ".git"), "gitdir: "+filepath.Join(other.Path, ".git")+"\n")
		},
		".git is a symlink": func(t *testing.T, w, other Tree) {
			move(t, filepath.Join(w.Path, ".git"), filepath.Join(w.Path, "old"))
			link(t, filepath.Join(other.Path, ".git"), filepath.Join(w.Path, ".git"))
		},
		"configuration is a symlink": func(t *testing.T, w, other Tree) {
			move(t, filepath.Join(w.Path, ".git/config"), filepath.Join(w.Path, "old"))
			link(t, filepath.Join(other.Path, ".git/config"), filepath.Join(w.Path, ".git/config"))
		},
		"objects are a symlink": func(t *testing.T, w, other Tree) {
			move(t, filepath.Join(w.Path, ".git/objects"), filepath.Join(w.Path, "old"))
			link(t, filepath.Join(other.Path, ".git/objects"), filepath.Join(w.Path, ".git/objects"))
		},
		"common directory elsewhere": func(t *testing.T, w, other Tree) {
			write(t, filepath.Join(w.Path, ".git/commondir"), filepath.Join(other.Path, ".git"))
		},
		"objects of another": func(t *testing.T, w, other Tree) {
			write(t, filepath.Join(w.Path, ".git/objects/info/alternates"), filepath.Join(other.Path, ".git/objects"))
		},
		"configuration too large": func(t *testing.T, w, _ Tree) {
			write(t, filepath.Join(w.Path, ".git/config"), strings.Repeat("# x\n", mostConfig/4+1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, other := tree(t), tree(t)
			if _, err := w.Status(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			spoil(t, w, other)
			if _, err := w.Status(t.Context(), 1); !errors.Is(err, program.ErrRefused) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A tree whose nested repository would run a program when git looks into it.
func TestNestedRepository(t *testing.T) {
	w := tree(t)
	ran := filepath.Join(dir(t), "ran")
	tool := ran + "-tool"
	hook(t, tool, ran)
	nested := filepath.Join(w.Path, "nested")
	write(t, filepath.Join(nested, "x"), "x")
	person(t, nested, "init", "-q")
	person(t, nested, "add", ".")
	person(t, nested, "commit", "-qm", "x")
	person(t, w.Path, "-c", "advice.addEmbeddedRepo=false", "add", "nested")
	person(t, w.Path, "commit", "-qm", "nested")
	person(t, nested, "config", "core.fsmonitor", tool)
	person(t, nested, "config", "filter.x.clean", tool)
	write(t, filepath.Join(nested, ".gitattributes"), "* filter=x\n")
	write(t, filepath.Join(nested, "x"), "y")
	write(t, filepath.Join(w.Path, "a.txt"), "changed\n")
	if s, err := w.Status(t.Context(), 10); err != nil || len(s.Changes) != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := w.Commit(t.Context(), []string{"a.txt"}, "x", "A <a@b.example>"); err != nil {
		t.Error(err)
	}
	nothing(t, ran)
	person(t, w.Path, "status")
	if _, err := os.Lstat(ran); err != nil {
		t.Error("the trap is none: git itself does not run it")
	}
}

func move(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, to, from string) {
	t.Helper()
	if err := os.Symlink(to, from); err != nil {
		t.Fatal(err)
	}
}
