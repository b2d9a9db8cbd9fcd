package manifest

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// ErrNotAllowed is wrapped when the manifest does not list a call.
var ErrNotAllowed = errors.New("the device's manifest does not allow this")

// Verdict on an allowed call.
type Verdict struct {
	// Rule that allowed it: what approval it needs, of what tier, and so on.
	Rule
	// Args as ParseArgs returned them.
	Args any
	// TimeoutSeconds it may take.
	TimeoutSeconds int
	// Glob of the rule that allowed a path; empty where there is none.
	Glob string
	// Paths that an exec hands to its program, with the glob that each must lead to.
	Paths []SlotPath
	// Names by glob that a listing or a search may tell of.
	Names []string
	// Owner whose processes may be touched.
	Owner Owner
}

// SlotPath is a path in a command line.
type SlotPath struct {
	Path string
	Glob string
}

// DefaultTimeoutSeconds of a call.
const DefaultTimeoutSeconds = 30

// Check judges one call. An error that wraps ErrNotAllowed means refused; any other error means that the arguments are malformed.
// It looks at names alone: what a path leads to is checked where the file is opened.
func (m *Manifest) Check(capability, args string) (Verdict, error) {
	a, err := ParseArgs(capability, args)
	if err != nil {
		return Verdict{}, err
	}
	v := Verdict{Args: a, TimeoutSeconds: min(DefaultTimeoutSeconds, m.Limits.TimeoutSeconds)}
	switch a := a.(type) {
	case ReadArgs:
		v.Rule, v.Glob, err = m.path(capability, a.Path)
	case PathArgs:
		v.Rule, v.Glob, err = m.path(capability, a.Path)
	case WriteArgs:
		b, _ := a.Bytes() // ParseArgs has decoded it
		if len(b) > m.Limits.WriteBytes {
			return Verdict{}, fmt.Errorf("%w: %d bytes to write, the limit is %d", ErrNotAllowed, len(b), m.Limits.WriteBytes)
		}
		v.Rule, v.Glob, err = m.path(capability, a.Path)
	case ExecArgs:
		var c Command
		if c, err = m.command(a.Argv); err == nil {
			v.Rule = c.Rule
			v.Paths = c.paths(a.Argv)
			v.TimeoutSeconds = timeout(c, v.TimeoutSeconds, a.TimeoutSeconds)
		}
	default:
		v, err = m.machine(capability, v)
	}
	if err != nil {
		return Verdict{}, err
	}
	return v, nil
}

// timeout of a listed command: its own, or less if less is asked for.
func timeout(c Command, usual, asked int) int {
	if c.TimeoutSeconds > 0 {
		usual = c.TimeoutSeconds
	}
	if asked > 0 {
		return min(usual, asked)
	}
	return usual
}

// LeadsTo judges what an allowed path turned out to lead to, symlinks followed: the manifest must allow that too, and on no stricter
// terms than the path that was asked for.
func (m *Manifest) LeadsTo(capability, asked, real string) error {
	want, _, err := m.path(capability, asked)
	if err != nil {
		return err
	}
	got, _, err := m.path(capability, real)
	if err != nil {
		return fmt.Errorf("%s leads to another place: %w", strconv.Quote(asked), err)
	}
	if got.Signature == PersonSignature && want.Signature != PersonSignature {
		return fmt.Errorf("%w: %s leads to %s, which needs a person's own signature", ErrNotAllowed, strconv.Quote(asked), strconv.Quote(real))
	}
	if got.Approval == Required && want.Approval != Required {
		return fmt.Errorf("%w: %s leads to %s, which needs approval", ErrNotAllowed, strconv.Quote(asked), strconv.Quote(real))
	}
	return nil
}

func (m *Manifest) path(capability, p string) (rule Rule, glob string, err error) {
	for _, r := range m.Paths[capability] {
		if ok, _ := doublestar.Match(r.Glob, p); ok { // the pattern was validated
			return r.Rule, r.Glob, nil
		}
	}
	return Rule{}, "", fmt.Errorf("%w: %s on %s", ErrNotAllowed, capability, strconv.Quote(p))
}

func (m *Manifest) command(argv []string) (Command, error) {
	for _, c := range m.Commands {
		if c.matches(argv) {
			return c, nil
		}
	}
	return Command{}, fmt.Errorf("%w: no command line of the list is %s", ErrNotAllowed, quoteAll(argv))
}

func (c Command) matches(argv []string) bool {
	if len(argv) != len(c.Argv) {
		return false
	}
	bound := map[string]string{}
	for i, want := range c.Argv {
		name, ok := slotName(want)
		if i == 0 || !ok {
			if argv[i] != want {
				return false
			}
			continue
		}
		if prev, seen := bound[name]; seen && prev != argv[i] {
			return false
		}
		if !c.Slots[name].accepts(argv[i]) {
			return false
		}
		bound[name] = argv[i]
	}
	return true
}

// paths that a matching argv put into the slots of type path.
func (c Command) paths(argv []string) []SlotPath {
	var all []SlotPath
	for i, want := range c.Argv[1:] {
		if name, ok := slotName(want); ok && c.Slots[name].Type == "path" {
			all = append(all, SlotPath{Path: argv[i+1], Glob: c.Slots[name].Glob})
		}
	}
	return all
}

var (
	word    = lazy(`^[A-Za-z0-9._@%+=:,-]{1,128}$`)
	integer = lazy(`^-?(0|[1-9][0-9]{0,14})$`)
)

func (s Slot) accepts(v string) bool {
	if strings.HasPrefix(v, "-") && !s.Dash {
		return false
	}
	switch s.Type {
	case "word":
		return word.MatchString(v)
	case "integer":
		return integer.MatchString(v)
	case "path":
		if len(v) > MaxPath || !path.IsAbs(v) || path.Clean(v) != v || strings.ContainsRune(v, 0) {
			return false
		}
		ok, _ := doublestar.Match(s.Glob, v)
		return ok
	case "enum":
		return slices.Contains(s.Values, v)
	}
	return false
}

func quoteAll(argv []string) string {
	q := make([]string, len(argv))
	for i, a := range argv {
		q[i] = strconv.Quote(a)
	}
	return strings.Join(q, " ")
}
