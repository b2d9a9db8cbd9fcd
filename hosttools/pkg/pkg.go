// Package pkg searches the package manager of this machine and installs from it: exact names, nothing removed, nothing asked.
package pkg

import (
	"context"
	"fmt"
	"strings"

	"nisse.io/nisse/hosttools/command"
	"nisse.io/nisse/hosttools/program"
)

// Package of a package manager.
type Package struct {
	Name string
	// Version, where the manager tells.
	Version string
	// Description in one line, where it tells.
	Description string
}

// Manager of packages of this machine.
type Manager struct {
	// Name: apt, dnf or pacman.
	Name    string
	backend backend
}

// backend is one package manager.
type backend interface {
	search(ctx context.Context, query string) ([]Package, error)
	// plan what installing would do, doing nothing.
	plan(ctx context.Context, names []string) (transaction, error)
	// apply it.
	apply(ctx context.Context, names []string) (command.Result, error)
}

// transaction that a package manager would make.
type transaction struct {
	// install new packages, or newer ones of those that are there.
	install []Package
	// remove others.
	remove []string
	// already there, of those that were asked for.
	already []string
}

// Installed tells what an installation did.
type Installed struct {
	// Packages that are new or newer.
	Packages []Package
	// Already there, of those that were asked for.
	Already []string
	// Output of the package manager; nothing when there was nothing to do.
	Output command.Result
}

// mostPackages of one installation, dependencies included. What needs more changes the machine, not a package.
const mostPackages = 200

// Find the machine's package manager. c is how its programs are run.
func Find(c command.Command) (Manager, error) {
	if file, err := program.Find("apt-get"); err == nil {
		cache, err := program.Find("apt-cache")
		return Manager{"apt", apt{get: file, cache: cache, command: c}}, err
	}
	if file, err := program.Find("dnf5", "dnf", "dnf-3"); err == nil {
		rpm, err := program.Find("rpm")
		return Manager{"dnf", dnf{file: file, rpm: rpm, command: c}}, err
	}
	if file, err := program.Find("pacman"); err == nil {
		return Manager{"pacman", pacman{file: file, command: c}}, nil
	}
	return Manager{}, fmt.Errorf("%w: it has none of apt, dnf and pacman", program.ErrMissing)
}

// Probe tells which package manager this machine has.
func Probe() (string, error) {
	m, err := Find(command.Command{})
	return m.Name, err
}

// Search packages whose name contains the query.
func (m Manager) Search(ctx context.Context, query string) ([]Package, error) {
	return m.backend.search(ctx, query)
}

// Install packages by exact names. What it would do is looked at first: a name that the manager takes for something else, and anything
// that would be removed, is refused before anything is done. The manager is told not to remove anything besides.
func (m Manager) Install(ctx context.Context, names []string) (Installed, error) {
	t, err := m.backend.plan(ctx, names)
	if err != nil {
		return Installed{}, err
	}
	if err := t.check(names); err != nil {
		return Installed{}, err
	}
	done := Installed{Packages: t.install, Already: t.already}
	if len(t.install) == 0 {
		return done, nil
	}
	done.Output, err = m.backend.apply(ctx, names)
	return done, err
}

func (t transaction) check(names []string) error {
	if len(t.remove) > 0 {
		return fmt.Errorf("%w: it would remove %s, and nothing is ever removed here", program.ErrRefused, some(t.remove))
	}
	if len(t.install) > mostPackages {
		return fmt.Errorf("%w: it would change %d packages; at most %d are changed in one call", program.ErrRefused, len(t.install), mostPackages)
	}
	known := map[string]bool{}
	for _, p := range t.install {
		known[p.Name] = true
	}
	for _, n := range t.already {
		known[n] = true
	}
	var unknown []string
	for _, n := range names {
		if !known[n] {
			unknown = append(unknown, n)
		}
	}
	if len(unknown) > 0 {
		return fmt.Errorf("%w: no package is called %s exactly; search for it first", program.ErrRefused, some(unknown))
	}
	return nil
}

func some(names []string) string {
	if len(names) > 10 {
		return strings.Join(names[:10], ", ") + fmt.Sprintf(" and %d more", len(names)-10)
	}
	return strings.Join(names, ", ")
}

// literal text in a regular expression of any dialect. Names of packages hold no other special characters than these.
func literal(query string) string {
	return strings.NewReplacer(".", "[.]", "+", "[+]").Replace(query)
}

func run(ctx context.Context, c command.Command, env []string, argv ...string) (command.Result, error) {
	c.Argv, c.Dir, c.Stdin = argv, "/", nil
	c.Env = program.Env(program.Env(c.Env, "LC_ALL=C.UTF-8"), env...)
	return program.Run(ctx, c)
}

// lines of what a program printed.
func lines(r command.Result) []string {
	return strings.Split(strings.TrimRight(string(r.Stdout.Bytes()), "\n"), "\n")
}

// listing is how much of a list is kept.
const listing = 8 << 20
