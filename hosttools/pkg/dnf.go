package pkg

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"nisse.io/nisse/hosttools/command"
	"nisse.io/nisse/hosttools/program"
)

// dnf of Fedora and its kin, versions 4 and 5.
type dnf struct {
	file, rpm string
	command   command.Command
}

// dnfInstall never erases: packages that make others obsolete do not replace them.
var dnfInstall = []string{"install", "--setopt=obsoletes=False", "--setopt=install_weak_deps=False", "--setopt=clean_requirements_on_remove=False"}

func (d dnf) search(ctx context.Context, query string) ([]Package, error) {
	c := d.command
	c.Keep = listing
	r, err := run(ctx, c, nil, d.file, "--quiet", "repoquery", "--available", "--latest-limit=1", "--queryformat=%{name}\t%{evr}\t%{summary}\n", "*"+query+"*")
	if err != nil {
		return nil, err
	}
	var found []Package
	for _, l := range lines(r) {
		// The pattern matches versions and files too.
		if f := strings.SplitN(l, "\t", 3); len(f) == 3 && strings.Contains(f[0], query) {
			found = append(found, Package{Name: f[0], Version: f[1], Description: f[2]})
		}
	}
	return found, nil
}

// plan from the table that dnf shows before it asks, with no as the answer.
func (d dnf) plan(ctx context.Context, names []string) (transaction, error) {
	c := d.command
	c.Keep = listing
	args := append([]string{d.file, "--assumeno"}, dnfInstall...)
	r, err := run(ctx, c, nil, append(args, names...)...)
	text := string(r.Stdout.Bytes())
	var f *program.Failure
	// Having been told no, dnf exits with 1.
	if said := errors.As(err, &f) && f.Cause == nil && f.Result.ExitCode == 1 && strings.Contains(text, "Transaction Summary"); err != nil && !said {
		return transaction{}, fmt.Errorf("%w: %w", program.ErrRefused, err)
	}
	t := dnfTable(text)
	t.already, err = d.installed(ctx, names, t)
	return t, err
}

// dnfTable reads sections such as "Installing:", each with one line for each package:
//
//	name  architecture  version  repository  size
//
// A long name has a line of its own, and the rest of its columns the next.
func dnfTable(text string) transaction {
	var t transaction
	section := ""
	for _, l := range strings.Split(text, "\n") {
		f := strings.Fields(l)
		switch {
		case len(f) == 0:
		case strings.HasPrefix(l, "Transaction Summary"):
			return t
		case !strings.HasPrefix(l, " "):
			section = ""
			if title, ok := strings.CutSuffix(strings.TrimSpace(l), ":"); ok {
				section = title
			}
		case section == "":
		case f[0] == "replacing" && len(f) > 1:
			// dnf 5 says so of every older version, too; dnf 4 writes name.architecture.
			name := f[1]
			if i := strings.LastIndexByte(name, '.'); i > 0 && len(f) < 6 {
				name = name[:i]
			}
			if n := len(t.install); n == 0 || t.install[n-1].Name != name {
				t.remove = append(t.remove, name)
			}
		case strings.HasPrefix(l, "  "):
			if n := len(t.install); n > 0 && t.install[n-1].Version == "" && len(f) > 1 {
				t.install[n-1].Version = f[1]
			}
		case strings.HasPrefix(section, "Installing") || strings.HasPrefix(section, "Upgrading") || strings.HasPrefix(section, "Reinstalling"):
			p := Package{Name: f[0]}
			if len(f) > 2 {
				p.Version = f[2]
			}
			t.install = append(t.install, p)
		case strings.HasPrefix(section, "Skipping"):
		default: // Removing, Downgrading, and what later versions may come up with
			t.remove = append(t.remove, f[0])
		}
	}
	return t
}

// installed already, of names that are not in the transaction.
func (d dnf) installed(ctx context.Context, names []string, t transaction) ([]string, error) {
	var already []string
	for _, n := range names {
		r, err := run(ctx, d.command, nil, d.rpm, "--query", "--queryformat=%{NAME}\n", "--", n)
		var f *program.Failure
		if err != nil && (!errors.As(err, &f) || f.Cause != nil) {
			return nil, err
		}
		if err == nil && lines(r)[0] == n && !t.has(n) {
			already = append(already, n)
		}
	}
	return already, nil
}

func (t transaction) has(name string) bool {
	for _, p := range t.install {
		if p.Name == name {
			return true
		}
	}
	return false
}

func (d dnf) apply(ctx context.Context, names []string) (command.Result, error) {
	args := append([]string{d.file, "--assumeyes"}, dnfInstall...)
	return run(ctx, d.command, nil, append(args, names...)...)
}
