package manifest

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// machine judges the capabilities beside exec and fs.*. In each section the first rule that lists the operation and matches what it is
// asked for decides.
func (m *Manifest) machine(capability string, v Verdict) (Verdict, error) {
	var err error
	switch a := v.Args.(type) {
	case GitStatusArgs:
		v.Rule, v.Glob, err = m.repository(capability, a.Path, "")
	case GitCommitArgs:
		v.Rule, v.Glob, err = m.repository(capability, a.Path, "")
	case GitCloneArgs:
		v.TimeoutSeconds = m.asked(v.TimeoutSeconds, a.TimeoutSeconds)
		v.Rule, v.Glob, err = m.repository(capability, a.Path, a.URL)
	case GitPushArgs:
		v.TimeoutSeconds = m.asked(v.TimeoutSeconds, a.TimeoutSeconds)
		v.Rule, v.Glob, err = m.repository(capability, a.Path, a.URL)
	case PkgSearchArgs:
		v, err = m.listing(capability, v)
	case PkgInstallArgs:
		// A package manager that is stopped half-way leaves work for a person, so it gets all the time there is.
		v.TimeoutSeconds = m.asked(m.Limits.TimeoutSeconds, a.TimeoutSeconds)
		v.Rule, err = m.install(a.Names)
	case ProcListArgs:
		v.Rule, v.Owner, err = m.process(capability, "")
	case ProcKillArgs:
		v.Rule, v.Owner, err = m.process(capability, a.SignalOf())
	case ContainerListArgs:
		v, err = m.listing(capability, v)
	case ContainerLogsArgs:
		v.Rule, err = m.container(capability, a.Container)
	case ContainerExecArgs:
		var c Command
		if v.Rule, c, err = m.inside(a.Container, a.Argv); err == nil {
			v.TimeoutSeconds = timeout(c, v.TimeoutSeconds, a.TimeoutSeconds)
		}
	case CaptureArgs, ClipboardReadArgs:
		v.Rule, err = m.desktop(capability)
	case ClipboardWriteArgs:
		if len(a.Content) > m.Limits.WriteBytes {
			return Verdict{}, fmt.Errorf("%w: %d bytes to write, the limit is %d", ErrNotAllowed, len(a.Content), m.Limits.WriteBytes)
		}
		v.Rule, err = m.desktop(capability)
	default:
		err = fmt.Errorf("capability %q is not known", capability)
	}
	return v, err
}

// asked for by the call itself, within the manifest's limit.
func (m *Manifest) asked(usual, seconds int) int {
	if seconds > 0 {
		return min(seconds, m.Limits.TimeoutSeconds)
	}
	return usual
}

func (m *Manifest) repository(operation, p, url string) (Rule, string, error) {
	for _, r := range m.Repositories {
		if ok, _ := doublestar.Match(r.Glob, p); !ok || !slices.Contains(r.Operations, operation) {
			continue
		}
		if url == "" || slices.ContainsFunc(r.Remotes, func(pattern string) bool { return matchesRemote(pattern, url) }) {
			return r.Rule, r.Glob, nil
		}
	}
	if url != "" {
		return Rule{}, "", fmt.Errorf("%w: %s of %s with %s", ErrNotAllowed, operation, strconv.Quote(p), strconv.Quote(url))
	}
	return Rule{}, "", fmt.Errorf("%w: %s of %s", ErrNotAllowed, operation, strconv.Quote(p))
}

// matchesRemote: exactly, or below a pattern's directory. URLs are clean, so nothing climbs out of it.
func matchesRemote(pattern, url string) bool {
	if dir, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(url, dir) && len(url) > len(dir)
	}
	return pattern == url
}

func matchesName(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, _ := path.Match(p, name) // the pattern was validated
		return ok
	})
}

// MatchesName tells whether a listing or a search may tell of a name.
func (v Verdict) MatchesName(name string) bool { return matchesName(v.Names, name) }

// install of several packages: each needs a rule, and the strictest terms are those of the call.
func (m *Manifest) install(names []string) (Rule, error) {
	var all Rule
	for _, n := range names {
		i := slices.IndexFunc(m.Packages, func(r PackageRule) bool {
			return slices.Contains(r.Operations, PkgInstall) && matchesName(r.Names, n)
		})
		if i < 0 {
			return Rule{}, fmt.Errorf("%w: %s of %s", ErrNotAllowed, PkgInstall, strconv.Quote(n))
		}
		all = all.and(m.Packages[i].Rule)
	}
	return all, nil
}

// and also: the stricter of two rules in everything. The rule of nothing yet is no rule at all.
func (r Rule) and(other Rule) Rule {
	if r.Approval != Required {
		if r.Approval == "" || other.Approval == Required {
			return other
		}
		return r
	}
	if other.Approval != Required {
		return r
	}
	tiers := []Tier{Low, Standard, High}
	r.Tier = tiers[max(slices.Index(tiers, r.TierOf()), slices.Index(tiers, other.TierOf()))]
	r.Irreversible = r.Irreversible || other.Irreversible
	if other.Signature != "" {
		r.Signature = other.Signature
	}
	return r
}

// listing of names: the first rule that lists the operation decides, and told are the names of all rules that are no stricter.
func (m *Manifest) listing(operation string, v Verdict) (Verdict, error) {
	tell := func(operations, names []string, r Rule) {
		switch {
		case !slices.Contains(operations, operation):
		case v.Rule == Rule{}:
			v.Rule, v.Names = r, slices.Clone(names)
		case r == v.Rule || r.Approval == None:
			v.Names = append(v.Names, names...)
		}
	}
	for _, r := range m.Packages {
		tell(r.Operations, r.Names, r.Rule)
	}
	for _, r := range m.Containers {
		tell(r.Operations, r.Names, r.Rule)
	}
	if v.Names == nil {
		return v, fmt.Errorf("%w: %s", ErrNotAllowed, operation)
	}
	return v, nil
}

func (m *Manifest) process(operation, signal string) (Rule, Owner, error) {
	for _, r := range m.Processes {
		signals := r.Signals
		if len(signals) == 0 {
			signals = Signals[:1]
		}
		if slices.Contains(r.Operations, operation) && (signal == "" || slices.Contains(signals, signal)) {
			if r.Owner == Any {
				return r.Rule, Any, nil
			}
			return r.Rule, Own, nil
		}
	}
	if signal != "" {
		return Rule{}, "", fmt.Errorf("%w: %s with %s", ErrNotAllowed, operation, signal)
	}
	return Rule{}, "", fmt.Errorf("%w: %s", ErrNotAllowed, operation)
}

func (m *Manifest) container(operation, name string) (Rule, error) {
	for _, r := range m.Containers {
		if slices.Contains(r.Operations, operation) && matchesName(r.Names, name) {
			return r.Rule, nil
		}
	}
	return Rule{}, fmt.Errorf("%w: %s of %s", ErrNotAllowed, operation, strconv.Quote(name))
}

// inside a container: the container's rule and the command's hold both.
func (m *Manifest) inside(name string, argv []string) (Rule, Command, error) {
	for _, r := range m.Containers {
		if !slices.Contains(r.Operations, DockerExec) || !matchesName(r.Names, name) {
			continue
		}
		for _, c := range r.Commands {
			if c.matches(argv) {
				return r.and(c.Rule), c, nil
			}
		}
	}
	return Rule{}, Command{}, fmt.Errorf("%w: no command line of the list for %s is %s", ErrNotAllowed, strconv.Quote(name), quoteAll(argv))
}

func (m *Manifest) desktop(operation string) (Rule, error) {
	for _, r := range m.Desktop {
		if slices.Contains(r.Operations, operation) {
			return r.Rule, nil
		}
	}
	return Rule{}, fmt.Errorf("%w: %s", ErrNotAllowed, operation)
}

// Has tells whether the manifest lists the capability at all.
func (m *Manifest) Has(capability string) bool {
	lists := func(operations []string) bool { return slices.Contains(operations, capability) }
	return len(m.Paths[capability]) > 0 || capability == Exec && len(m.Commands) > 0 ||
		slices.ContainsFunc(m.Repositories, func(r RepositoryRule) bool { return lists(r.Operations) }) ||
		slices.ContainsFunc(m.Packages, func(r PackageRule) bool { return lists(r.Operations) }) ||
		slices.ContainsFunc(m.Processes, func(r ProcessRule) bool { return lists(r.Operations) }) ||
		slices.ContainsFunc(m.Containers, func(r ContainerRule) bool { return lists(r.Operations) }) ||
		slices.ContainsFunc(m.Desktop, func(r DesktopRule) bool { return lists(r.Operations) })
}
