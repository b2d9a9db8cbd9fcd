package pkg

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"nisse.io/nisse/hosttools/command"
	"nisse.io/nisse/hosttools/program"
)

// apt of Debian and its kin.
type apt struct {
	get, cache string
	command    command.Command
}

// aptEnv lets no script of a package ask anything, and nothing restart services behind a person's back.
var aptEnv = []string{"DEBIAN_FRONTEND=noninteractive", "DEBIAN_PRIORITY=critical", "DEBCONF_NONINTERACTIVE_SEEN=true", "APT_LISTCHANGES_FRONTEND=none",
	"APT_LISTBUGS_FRONTEND=none", "NEEDRESTART_MODE=l", "NEEDRESTART_SUSPEND=1", "UCF_FORCE_CONFFOLD=1"}

var aptInstall = []string{"install", "--no-remove", "--no-install-recommends", "--quiet",
	"--option=APT::Install-Suggests=false", "--option=APT::Get::AutomaticRemove=false", "--option=APT::Get::Purge=false", "--option=APT::Get::AllowUnauthenticated=false",
	"--option=APT::Get::allow-downgrades=false", "--option=APT::Get::allow-change-held-packages=false", "--option=APT::Get::allow-remove-essential=false",
	"--option=DPkg::Use-Pty=false", "--option=DPkg::Lock::Timeout=20", "--option=DPkg::Options::=--force-confdef", "--option=DPkg::Options::=--force-confold"}

func (a apt) search(ctx context.Context, query string) ([]Package, error) {
	c := a.command
	c.Keep = listing
	r, err := run(ctx, c, aptEnv, a.cache, "search", "--names-only", "--", literal(query))
	if err != nil {
		return nil, err
	}
	var found []Package
	for _, l := range lines(r) {
		if name, description, ok := strings.Cut(l, " - "); ok {
			found = append(found, Package{Name: name, Description: description})
		}
	}
	return found, nil
}

var (
	// Inst name [old version] (version source [architecture])
	aptInst    = regexp.MustCompile(`^Inst ([^ :]+)(?::[a-z0-9]+)? (?:\[[^\]]*\] )?\(([^ )]+)`)
	aptRemv    = regexp.MustCompile(`^(?:Remv|Purg) ([^ :]+)`)
	aptAlready = regexp.MustCompile(`^([^ :]+)(?::[a-z0-9]+)? is already the newest version`)
)

// plan by apt's own simulation. A name that ends in + or -, holds a dot, or is virtual means something else to apt when there is no such
// package; what it means then is not called by that name, and refused.
func (a apt) plan(ctx context.Context, names []string) (transaction, error) {
	c := a.command
	c.Keep = listing
	args := append([]string{a.get}, aptInstall...)
	args = append(append(args, "--simulate", "--"), names...)
	r, err := run(ctx, c, aptEnv, args...)
	if err != nil {
		return transaction{}, fmt.Errorf("%w: %w", program.ErrRefused, err)
	}
	var t transaction
	for _, l := range lines(r) {
		if m := aptInst.FindStringSubmatch(l); m != nil {
			t.install = append(t.install, Package{Name: m[1], Version: m[2]})
		} else if m := aptRemv.FindStringSubmatch(l); m != nil {
			t.remove = append(t.remove, m[1])
		} else if m := aptAlready.FindStringSubmatch(l); m != nil {
			t.already = append(t.already, m[1])
		}
	}
	return t, nil
}

func (a apt) apply(ctx context.Context, names []string) (command.Result, error) {
	args := append([]string{a.get}, aptInstall...)
	return run(ctx, a.command, aptEnv, append(append(args, "--yes", "--"), names...)...)
}
