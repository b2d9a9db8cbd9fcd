package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"

	"nisse.io/nisse/hosttools/command"
	"nisse.io/nisse/hosttools/program"
)

// harmless keys of a repository's configuration. A list of what may stand there is the only one that stays right: git learns new keys
// that run programs, and drivers and filters have names of anybody's choosing.
var harmless = regexp.MustCompile(`^(?:` + strings.Join([]string{
	`core\.(?:repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks|autocrlf|eol|safecrlf|quotepath|untrackedcache|preloadindex|compression|loosecompression|bigfilethreshold|abbrev|commentchar|whitespace|sharedrepository|protecthfs|protectntfs|longpaths|trustctime|checkstat|commitgraph|multipackindex|sparsecheckout|sparsecheckoutcone)`,
	`extensions\.(?:objectformat|refstorage)`,
	// A remote whose name is a URL would be taken for that URL, and lead elsewhere.
	`remote\.[A-Za-z0-9._-]+\.(?:url|pushurl|fetch|push|tagopt|prune|mirror|skipdefaultupdate|skipfetchall|gh-resolved)`, `remote\.pushdefault`,
	`branch\..*`,
	`user\.(?:name|email|useconfigonly)`,
	`submodule\..*\.(?:url|active)`, `submodule\.active`,
	`receive\.(?:denycurrentbranch|denynonfastforwards|denydeletes|fsckobjects)`,
	`init\.defaultbranch`, `pull\.(?:rebase|ff)`, `push\.(?:default|autosetupremote|followtags)`, `fetch\.(?:prune|prunetags)`, `merge\.(?:ff|conflictstyle)`, `rerere\..*`,
	`color\..*`, `column\..*`, `advice\..*`, `gui\..*`, `gc\.(?:auto|autopacklimit|autodetach|pruneexpire|reflogexpire|reflogexpireunreachable)`, `pack\.[a-z]*`, `index\.[a-z]*`, `feature\..*`, `i18n\.[a-z]*`,
}, "|") + `)$`)

// mostConfig in bytes that is read.
const mostConfig = 1 << 20

// checkRepository in a directory that git takes for one.
func checkRepository(ctx context.Context, c command.Command, dir string) error {
	o := runsAs(c)
	if err := o.place(dir); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		if e.Type()&os.ModeSymlink != 0 {
			return fmt.Errorf("%w: %s is a symlink, so the repository is not in %s alone", program.ErrRefused, name, dir)
		}
		// What git itself keeps for a moment may be gone by now.
		if err := o.holds(name, 0, false); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if err := o.holds(filepath.Join(dir, "objects/info"), unix.S_IFDIR, false); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	// Here git once kept what a remote's name stands for, and still looks first: git@host:x is such a name too.
	for _, legacy := range []string{"remotes", "branches"} {
		names, err := os.ReadDir(filepath.Join(dir, legacy))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%w: %w", program.ErrRefused, err)
		}
		if len(names) > 0 {
			return fmt.Errorf("%w: %s could make a URL stand for another; a person may move it to the configuration", program.ErrRefused, filepath.Join(dir, legacy, names[0].Name()))
		}
	}
	for _, elsewhere := range []string{"commondir", "objects/info/alternates", "objects/info/http-alternates"} {
		if _, err := os.Lstat(filepath.Join(dir, elsewhere)); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%w: %s makes the repository use another one", program.ErrRefused, filepath.Join(dir, elsewhere))
		}
	}
	return checkConfig(ctx, c, filepath.Join(dir, "config"))
}

// checkConfig by git's own reading of the very bytes that were looked at, with nothing included.
func checkConfig(ctx context.Context, c command.Command, file string) error {
	f, err := os.OpenFile(file, os.O_RDONLY|nofollow, 0)
	if err != nil {
		return fmt.Errorf("%w: %w", program.ErrRefused, err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return fmt.Errorf("%w: %s is not a file", program.ErrRefused, file)
	}
	text, err := io.ReadAll(io.LimitReader(f, mostConfig+1))
	if err != nil {
		return fmt.Errorf("%w: %w", program.ErrRefused, err)
	}
	if len(text) > mostConfig {
		return fmt.Errorf("%w: %s is larger than %d bytes", program.ErrRefused, file, mostConfig)
	}
	if len(text) == 0 {
		return nil
	}
	c.Stdin, c.Keep, c.Dir = text, 4*mostConfig, "/"
	// The directory that is not there keeps git from finding a repository where it runs.
	r, err := run(ctx, c, []string{"GIT_DIR=/dev/null/none"}, "config", "--no-includes", "--null", "--list", "--name-only", "--file", "-")
	if err != nil {
		return fmt.Errorf("%w: %s cannot be read: %w", program.ErrRefused, file, err)
	}
	if r.Stdout.Missing() > 0 {
		return fmt.Errorf("%w: %s has too many keys", program.ErrRefused, file)
	}
	for _, key := range strings.Split(strings.TrimSuffix(string(r.Stdout.Bytes()), "\x00"), "\x00") {
		if !harmless.MatchString(key) {
			return fmt.Errorf("%w: %s sets %q, which is not known to be harmless: it could make git run a program or speak with another place; a person may take it out or run git there", program.ErrRefused, file, key)
		}
	}
	return nil
}
