package capability

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"
	"golang.org/x/sys/unix"

	"nisse.io/nisse/hosttools/command"
	"nisse.io/nisse/hosttools/confine"
	"nisse.io/nisse/hosttools/fs"
	"nisse.io/nisse/internal/manifest"
)

// confinement of a command: the manifest's user, and what its paths open. A command that needs no approval changes nothing but its own
// temporary files, whatever it was thought to do when it was listed. held are the paths of this very call.
func (r Runner) confinement(v manifest.Verdict, held []confine.Held) (*confine.Confinement, error) {
	user, err := confine.Lookup(r.user())
	if err != nil {
		return nil, err
	}
	rules := &confine.Rules{Required: r.Manifest.Confine == manifest.ConfineRequired, Held: held, Never: r.Never,
		List: opened(r.Manifest.Paths[manifest.FSList], true), Read: opened(r.Manifest.Paths[manifest.FSRead], false)}
	if v.Approval != manifest.None {
		rules.Write = opened(r.Manifest.Paths[manifest.FSWrite], false)
	}
	return &confine.Confinement{User: user, Rules: rules}, nil
}

// Resolved is what a call would run.
type Resolved struct {
	// Executable and its SHA-256 in hex; empty for what runs no program of the caller's choice.
	Executable, SHA256 string
	// User that it would run as.
	User string
	// Confined by Landlock.
	Confined bool
}

// found program, or why there is none.
type found struct {
	path, sha256 string
	err          error
}

// Resolver of calls that are asked about together: a program that several of them name is read once.
type Resolver struct {
	Runner
	programs map[string]found
}

// Resolver of the runner's calls.
func (r Runner) Resolver() *Resolver { return &Resolver{Runner: r, programs: map[string]found{}} }

// Resolve a call that the manifest allowed with this verdict. Refused says why it would not run.
func (r *Resolver) Resolve(v manifest.Verdict) (resolved Resolved, refused Outcome) {
	a, ok := v.Args.(manifest.ExecArgs)
	if _, err := confine.Lookup(r.user()); err != nil {
		return Resolved{}, failed(err)
	}
	resolved.User = r.user()
	if resolved.User == "" {
		resolved.User = confine.Self()
	}
	if !ok {
		return resolved, Outcome{}
	}
	missing := confine.Missing()
	if missing != "" && r.Manifest.Confine == manifest.ConfineRequired {
		return Resolved{}, failed(fmt.Errorf("%w: %s", confine.ErrUnconfined, missing))
	}
	p, seen := r.programs[a.Argv[0]]
	if !seen {
		p.path, p.sha256, p.err = command.Resolve(a.Argv)
		if p.err == nil && !utf8.ValidString(p.path) { // it could not be shown as it is
			p.err = fmt.Errorf("%w: %s leads to %q, which is not text", command.ErrRefused, a.Argv[0], p.path)
		}
		r.programs[a.Argv[0]] = p
	}
	if p.err != nil {
		return Resolved{}, failed(p.err)
	}
	resolved.Executable, resolved.SHA256, resolved.Confined = p.path, p.sha256, missing == ""
	return resolved, Outcome{}
}

// asUser is command for programs that work on what belongs to the manifest's user: a working tree, a session. Landlock does not hold them;
// their arguments and settings are the device's own.
func (r Runner) asUser(v manifest.Verdict) (command.Command, error) {
	c := r.command(v)
	user, err := confine.Lookup(r.user())
	if err != nil {
		return command.Command{}, err
	}
	if user != nil {
		c.Confine = &confine.Confinement{User: user}
	}
	return c, nil
}

// opened paths of rules. Landlock knows no patterns, so a pattern opens what it means as a whole: a directory when it ends in /** or /*, a
// file that it names exactly, and nothing otherwise.
func opened(rules []manifest.PathRule, directories bool) []string {
	var all []string
	for _, r := range rules {
		base, dir := r.Glob, false
		for _, tail := range []string{"/**/*", "/**", "/*"} {
			if b, ok := strings.CutSuffix(r.Glob, tail); ok {
				base, dir = path.Clean("/"+b), true
				break
			}
		}
		if strings.ContainsAny(base, "*?[{") {
			continue
		}
		if info, err := os.Stat(base); err != nil || info.IsDir() && !dir && !directories {
			continue
		}
		all = append(all, base)
	}
	return all
}

// holdAll paths in a command line, for a command that may write to them or not. Close what it returns.
func (r Runner) holdAll(paths []manifest.SlotPath, write bool) (held []confine.Held, err error) {
	for _, s := range paths {
		h, err := r.hold(s, write)
		if err != nil {
			closeAll(held)
			return nil, err
		}
		if h.File != nil {
			held = append(held, h)
		}
	}
	return held, nil
}

func closeAll(held []confine.Held) {
	for _, h := range held {
		h.File.Close()
	}
}

// leads tells where a path leads, as the kernel names it, if that is what its glob says and nothing of the device's own lies there, above
// it or below: who may use a directory may use all of it.
func (r Runner) leads(s manifest.SlotPath) (real string, err error) {
	if real, err = resolve(s.Path); err != nil {
		return "", fmt.Errorf("%w: %s: %w", fs.ErrRefused, s.Path, err)
	}
	if err := r.clear(real, s); err != nil {
		return "", err
	}
	dir, named := fs.Dir(s.Glob), real
	// Symlinks in the glob's own directory are the administrator's.
	if realDir, err := filepath.EvalSymlinks(dir); err == nil {
		if rel, err := filepath.Rel(realDir, real); err == nil && (rel == "." || filepath.IsLocal(rel)) {
			named = filepath.Join(dir, rel)
		}
	}
	if ok, _ := doublestar.Match(s.Glob, named); !ok {
		return "", fmt.Errorf("%w: %s leads to %s, which is not in %s", fs.ErrRefused, s.Path, named, s.Glob)
	}
	return real, nil
}

// clear of what is the device's own is a place that a path leads to.
func (r Runner) clear(real string, s manifest.SlotPath) error {
	if fs.Within(r.Never, real) {
		return fmt.Errorf("%w: %s is not for anybody's use", fs.ErrRefused, s.Path)
	}
	for _, never := range r.Never {
		if fs.Within([]string{real}, never) {
			return fmt.Errorf("%w: for %s it takes %s, which holds what is the device's own; name what lies beside that", fs.ErrRefused, s.Path, real)
		}
	}
	return nil
}

// hold what a path in a command line leads to, or, for a command that may write, the directory where it would make it. What is not there
// opens nothing to a command that may not write. The program opens it later by its name; who exchanges it meanwhile leads it to what it
// was not given.
func (r Runner) hold(s manifest.SlotPath, write bool) (confine.Held, error) {
	real, err := r.leads(s)
	if err != nil {
		return confine.Held{}, err
	}
	there := real
	var f *os.File
	for ; ; there = filepath.Dir(there) {
		if f, err = os.OpenFile(there, unix.O_PATH|unix.O_NOFOLLOW, 0); err == nil {
			break
		}
		if !os.IsNotExist(err) || there == "/" {
			return confine.Held{}, err
		}
		if !write {
			return confine.Held{}, nil
		}
	}
	if now, err := fs.NameOf(f); err != nil || now != there {
		f.Close()
		return confine.Held{}, fmt.Errorf("%w: %s was exchanged while it was looked at", fs.ErrRefused, s.Path)
	}
	if there == real {
		return confine.Held{File: f, Write: write}, nil
	}
	if err := r.room(there, s); err != nil {
		f.Close()
		return confine.Held{}, err
	}
	return confine.Held{File: f, Make: true}, nil
}

// room for what is not there yet: a directory that may be opened to make it. One above what the glob fixes would open what the glob leaves out.
func (r Runner) room(there string, s manifest.SlotPath) error {
	dir, err := filepath.EvalSymlinks(fs.Dir(s.Glob))
	if err != nil || !fs.Within([]string{dir}, there) {
		return fmt.Errorf("%w: %s is not there, and neither is %s; make that directory first", fs.ErrRefused, s.Path, fs.Dir(s.Glob))
	}
	return r.clear(there, s)
}
