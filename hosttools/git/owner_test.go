package git

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"nisse.io/nisse/hosttools/confine"
	"nisse.io/nisse/hosttools/program"
)

// TestMain makes places as an administrator would, whatever the umask of who runs the tests.
func TestMain(m *testing.M) {
	unix.Umask(0o022)
	os.Exit(m.Run())
}

// stranger to files: root gives them away, anybody else lets git be somebody else who does not get to run it.
func stranger(t *testing.T, w *Tree, files ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		w.Command.Confine = &confine.Confinement{User: &confine.User{Name: "stranger", UID: os.Geteuid() + 1, GID: os.Getegid() + 1}}
		return
	}
	for _, f := range files {
		if err := os.Lchown(f, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
}

func chmod(t *testing.T, file string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(file, mode); err != nil {
		t.Fatal(err)
	}
}

func refuses(t *testing.T, what string, err error, words ...string) {
	t.Helper()
	if !errors.Is(err, program.ErrRefused) {
		t.Errorf("%s: %v", what, err)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %v; it does not say %q", what, err, w)
		}
	}
}

// What another account could exchange between the look and git's own is not used, however harmless it is now.
func TestOthersMayNotExchange(t *testing.T) {
	const sticky = os.ModeSticky | 0o777
	for name, c := range map[string]struct {
		file  string // below the directory that the tree is in; the tree itself is tree
		mode  os.FileMode
		given bool // to another account
	}{
		"another's tree":                {file: "tree", given: true},
		"another's repository":          {file: "tree/.git", given: true},
		"another's configuration":       {file: "tree/.git/config", given: true},
		"another's parent":              {file: ".", given: true},
		"another's objects":             {file: "tree/.git/objects", given: true},
		"another's list of objects":     {file: "tree/.git/objects/info", given: true},
		"another's legacy remotes":      {file: "tree/.git/branches", given: true},
		"tree for the group":            {file: "tree", mode: 0o775},
		"tree for all":                  {file: "tree", mode: 0o757},
		"repository for the group":      {file: "tree/.git", mode: 0o775},
		"configuration for the group":   {file: "tree/.git/config", mode: 0o664},
		"configuration for all":         {file: "tree/.git/config", mode: 0o646},
		"parent for the group":          {file: ".", mode: 0o775},
		"tree where all may add":        {file: "tree", mode: sticky},
		"repository where all may add":  {file: "tree/.git", mode: sticky},
		"list of objects for the group": {file: "tree/.git/objects/info", mode: 0o775},
	} {
		t.Run(name, func(t *testing.T) {
			w := tree(t)
			legacy := filepath.Join(w.Path, ".git/branches")
			if err := os.MkdirAll(legacy, 0o755); err != nil {
				t.Fatal(err)
			}
			scratch := dir(t)
			if _, err := w.Status(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			if _, err := at(filepath.Join(scratch, "before")).Clone(t.Context(), "file://"+w.Path, "", 0); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(w.Path, "a.txt"), "changed\n")
			file, words := filepath.Join(filepath.Dir(w.Path), c.file), "belongs to"
			if c.given {
				stranger(t, &w, file)
			} else {
				chmod(t, file, c.mode)
				words = "write to " + file + " "
			}
			clone := Tree{Path: filepath.Join(scratch, "clone"), Command: w.Command}
			_, err := w.Status(t.Context(), 1)
			refuses(t, "status", err, words)
			_, err = w.Commit(t.Context(), []string{"a.txt"}, "x", "A <a@b.example>")
			refuses(t, "commit", err, words)
			_, err = w.Push(t.Context(), "https://git.example/x", "main", "")
			refuses(t, "push", err, words)
			_, err = clone.Clone(t.Context(), "file://"+w.Path, "", 0)
			refuses(t, "clone from there", err)
		})
	}
}

// What lies in a sticky directory cannot be taken from there; but where a clone shall be made, somebody could make something before.
func TestStickyDirectory(t *testing.T) {
	w := tree(t)
	chmod(t, filepath.Dir(w.Path), os.ModeSticky|0o777)
	if _, err := w.Status(t.Context(), 1); err != nil {
		t.Error(err)
	}
	_, err := at(filepath.Join(filepath.Dir(w.Path), "clone")).Clone(t.Context(), "file://"+w.Path, "", 0)
	refuses(t, "clone into it", err, "chmod go-w")
	if _, err := at(filepath.Join(dir(t), "new/clone")).Clone(t.Context(), "file://"+w.Path, "", 0); err != nil {
		t.Error(err)
	}
}

func TestCloneIntoAnothers(t *testing.T) {
	from, place := tree(t), dir(t)
	w := at(filepath.Join(place, "new/clone"))
	stranger(t, &w, place)
	_, err := w.Clone(t.Context(), "file://"+from.Path, "", 0)
	refuses(t, "clone", err, "belongs to")
	if _, err := os.Lstat(filepath.Join(place, "new")); err == nil {
		t.Error("something was made")
	}
}

// A directory of the tree that is another's could be a repository of its own by the time git comes there.
func TestCommitFromAnothersDirectory(t *testing.T) {
	w := tree(t)
	uploads := filepath.Join(w.Path, "uploads")
	write(t, filepath.Join(uploads, "x"), "x")
	if _, err := w.Commit(t.Context(), []string{"uploads/x"}, "x", "A <a@b.example>"); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(uploads, "x"), "y")
	chmod(t, uploads, 0o777)
	_, err := w.Commit(t.Context(), []string{"uploads/x"}, "x", "A <a@b.example>")
	refuses(t, "commit", err, uploads, "chmod go-w")
}

// git takes a name without a slash for a remote of its own first, and git@host:repo is one.
func TestLegacyRemotes(t *testing.T) {
	const url = "git@git.example:x"
	for name, text := range map[string]string{"remotes": "URL: git@mallory.example:x\n", "branches": "git@mallory.example:x\n"} {
		t.Run(name, func(t *testing.T) {
			w := tree(t)
			if err := os.MkdirAll(filepath.Join(w.Path, ".git", name), 0o755); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Status(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(w.Path, ".git", name, url), text)
			if name == "remotes" { // of the other, today's git says that such a name cannot be a branch's
				if to := person(t, w.Path, "ls-remote", "--get-url", url); to != "git@mallory.example:x" {
					t.Errorf("the trap is none: git itself goes to %s", to)
				}
			}
			_, err := w.Push(t.Context(), url, "main", "")
			refuses(t, "push", err, filepath.Join(".git", name, url))
		})
	}
}
