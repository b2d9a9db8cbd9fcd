package pkg

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"nisse.io/nisse/hosttools/command"
	"nisse.io/nisse/hosttools/program"
)

// pacman of Arch Linux and its kin. Where it would have to remove a package in another's favour it asks, and --noconfirm answers no.
type pacman struct {
	file    string
	command command.Command
}

func (p pacman) search(ctx context.Context, query string) ([]Package, error) {
	c := p.command
	c.Keep = listing
	r, err := run(ctx, c, nil, p.file, "--sync", "--search", "--color=never", "--", literal(query))
	var f *program.Failure
	if errors.As(err, &f) && f.Cause == nil && f.Result.ExitCode == 1 && f.Result.Stderr.Total == 0 {
		return nil, nil // it found nothing
	}
	if err != nil {
		return nil, err
	}
	var found []Package
	for _, l := range lines(r) {
		if strings.HasPrefix(l, " ") {
			if n := len(found); n > 0 {
				found[n-1].Description = strings.TrimSpace(l)
			}
			continue
		}
		// repository/name version [installed]
		if fields := strings.Fields(l); len(fields) > 1 {
			_, name, _ := strings.Cut(fields[0], "/")
			found = append(found, Package{Name: name, Version: fields[1]})
		}
	}
	// It matches descriptions too.
	var named []Package
	for _, f := range found {
		if strings.Contains(f.Name, query) {
			named = append(named, f)
		}
	}
	return named, nil
}

// plan by printing what would be installed. A group prints its members, which are not called by its name, and is refused.
func (p pacman) plan(ctx context.Context, names []string) (transaction, error) {
	c := p.command
	c.Keep = listing
	args := []string{p.file, "--sync", "--print", "--print-format=%n %v", "--needed", "--noconfirm", "--color=never", "--"}
	r, err := run(ctx, c, nil, append(args, names...)...)
	if err != nil {
		return transaction{}, fmt.Errorf("%w: %w", program.ErrRefused, err)
	}
	var t transaction
	for _, l := range lines(r) {
		if f := strings.Fields(l); len(f) == 2 {
			t.install = append(t.install, Package{Name: f[0], Version: f[1]})
		}
	}
	r, err = run(ctx, c, nil, append([]string{p.file, "--query", "--color=never", "--"}, names...)...)
	var f *program.Failure
	if err != nil && (!errors.As(err, &f) || f.Cause != nil) {
		return t, err
	}
	for _, l := range lines(r) {
		if f := strings.Fields(l); len(f) == 2 && !t.has(f[0]) {
			t.already = append(t.already, f[0])
		}
	}
	return t, nil
}

func (p pacman) apply(ctx context.Context, names []string) (command.Result, error) {
	args := []string{p.file, "--sync", "--needed", "--noconfirm", "--noprogressbar", "--color=never", "--"}
	return run(ctx, p.command, nil, append(args, names...)...)
}
