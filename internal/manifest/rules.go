package manifest

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// Rule is what every rule says about the calls that it matches.
type Rule struct {
	// Approval that a call needs.
	Approval Approval `json:"approval"`
	// Tier of the gate: how good a person's evidence must be. Standard when absent; calls that need no approval have none.
	Tier Tier `json:"tier,omitempty"`
	// Irreversible calls are flagged to whoever decides.
	Irreversible bool `json:"irreversible,omitempty"`
	// Signature demands that a Person's own key (Keys.Persons) has signed the approval, beside the manager's. Check says so in its verdict;
	// who lets the call run verifies it.
	Signature Signature `json:"signature,omitempty"`
}

// Approval tells whether a call needs a person's decision.
type Approval string

const (
	// None: read-only; runs on the agent's word.
	None Approval = "None"
	// Required: runs only under an approval statement that covers this very call.
	Required Approval = "Required"
)

// Tier of a gate.
type Tier string

// Tiers, as in the API.
const (
	Low      Tier = "Low"
	Standard Tier = "Standard"
	High     Tier = "High"
)

// Signature that a call demands beside the statement.
type Signature string

// PersonSignature demands a Person's own.
const PersonSignature Signature = "Person"

// TierOf the gate that the rule's calls need.
func (r Rule) TierOf() Tier {
	switch {
	case r.Irreversible:
		return High
	case r.Tier == "":
		return Standard
	}
	return r.Tier
}

func (r Rule) validate() error {
	if r.Approval != None && r.Approval != Required {
		return fmt.Errorf("approval %q: want None or Required", r.Approval)
	}
	switch r.Tier {
	case "", Low, Standard, High:
	default:
		return fmt.Errorf("tier %q: want Low, Standard or High", r.Tier)
	}
	if r.Signature != "" && r.Signature != PersonSignature {
		return fmt.Errorf("signature %q: want Person or nothing", r.Signature)
	}
	if r.Approval == None && (r.Tier != "" || r.Irreversible || r.Signature != "") {
		return errors.New("tier, irreversible and signature say nothing about calls whose approval is None")
	}
	return nil
}

// PathRule allows paths by glob (doublestar, absolute).
type PathRule struct {
	Glob string `json:"glob"`
	Rule
}

func (r PathRule) validate(capability string) error {
	if err := validGlob(r.Glob); err != nil {
		return err
	}
	if capability == FSWrite && r.Approval == None {
		return errors.New("fs.write changes the machine and always needs approval: Required")
	}
	return r.Rule.validate()
}

// RepositoryRule allows operations of git on working trees, by the place of the tree and the URL of the remote.
type RepositoryRule struct {
	// Operations: git.status, git.commit, git.clone, git.push.
	Operations []string `json:"operations"`
	// Glob of the working tree (doublestar, absolute).
	Glob string `json:"glob"`
	// Remotes are URLs that git.clone and git.push may speak with, each exact or ending in /*.
	Remotes []string `json:"remotes,omitempty"`
	Rule
}

// PackageRule allows operations of the machine's package manager.
type PackageRule struct {
	// Operations: pkg.search, pkg.install.
	Operations []string `json:"operations"`
	// Names of packages by glob (*, ? and []).
	Names []string `json:"names"`
	Rule
}

// ProcessRule allows operations on processes.
type ProcessRule struct {
	// Operations: proc.list, proc.kill.
	Operations []string `json:"operations"`
	// Owner whose processes may be killed: Own (of the user that the manifest names) or Any.
	Owner Owner `json:"owner,omitempty"`
	// Signals that proc.kill may send; TERM alone when absent.
	Signals []string `json:"signals,omitempty"`
	Rule
}

// Owner of processes.
type Owner string

// Owners.
const (
	Own Owner = "Own"
	Any Owner = "Any"
)

// ContainerRule allows operations on containers of the Docker Engine.
type ContainerRule struct {
	// Operations: docker.container.list, docker.container.logs, docker.container.exec.
	Operations []string `json:"operations"`
	// Names of containers by glob.
	Names []string `json:"names"`
	// Commands that docker.container.exec may run in them; argv[0] is a path inside the container.
	Commands []Command `json:"commands,omitempty"`
	Rule
}

// DesktopRule allows operations on the operator's session.
type DesktopRule struct {
	// Operations: display.capture, clipboard.read, clipboard.write.
	Operations []string `json:"operations"`
	Rule
}

// changing operations alter the machine and always need approval.
var changing = []string{FSWrite, GitClone, GitCommit, GitPush, PkgInstall, ProcKill, DockerExec, ClipboardWrite}

func operations(got, known []string, r Rule) error {
	if len(got) == 0 {
		return fmt.Errorf("operations is empty; known are %s", strings.Join(known, ", "))
	}
	for _, o := range got {
		if !slices.Contains(known, o) {
			return fmt.Errorf("operation %q: known are %s", o, strings.Join(known, ", "))
		}
		if r.Approval == None && slices.Contains(changing, o) {
			return fmt.Errorf("%s changes the machine and always needs approval: Required", o)
		}
	}
	return r.validate()
}

// names by path.Match's patterns, which know no directories.
func names(globs []string) error {
	if len(globs) == 0 {
		return errors.New("names is empty; write \"*\" for any")
	}
	for _, g := range globs {
		if _, err := path.Match(g, ""); err != nil || g == "" {
			return fmt.Errorf("name %q is not a pattern", g)
		}
	}
	return nil
}

// remote is a URL of a scheme that git speaks without running a helper of the repository's choosing, or host:path of ssh.
var remote = lazy(`^(https|ssh|http)://[A-Za-z0-9.@:\[\]_-]+/[A-Za-z0-9._~/+-]*\*?$|^[A-Za-z0-9._-]+@[A-Za-z0-9.-]+:[A-Za-z0-9._~/+-]*\*?$|^file:///[A-Za-z0-9._~/+-]*\*?$`)

func (r RepositoryRule) validate() error {
	if err := validGlob(r.Glob); err != nil {
		return err
	}
	far := slices.Contains(r.Operations, GitClone) || slices.Contains(r.Operations, GitPush)
	if far && len(r.Remotes) == 0 {
		return errors.New("remotes is empty; git.clone and git.push could speak with nobody")
	}
	for _, u := range r.Remotes {
		if !remote.MatchString(u) || (strings.HasSuffix(u, "*") && !strings.HasSuffix(u, "/*")) {
			return fmt.Errorf("remote %q: want an https, ssh, http or file URL, or user@host:path; * may stand alone at the end after /", u)
		}
	}
	return operations(r.Operations, []string{GitStatus, GitCommit, GitClone, GitPush}, r.Rule)
}

func (r PackageRule) validate(p Privilege) error {
	if err := names(r.Names); err != nil {
		return err
	}
	if err := operations(r.Operations, []string{PkgSearch, PkgInstall}, r.Rule); err != nil {
		return err
	}
	// The daemon's own rights do it, whatever user the manifest names: no package manager installs as anybody else.
	if p != Elevated && slices.Contains(r.Operations, PkgInstall) {
		return errors.New("pkg.install changes the machine for everybody and is for Elevated manifests")
	}
	return nil
}

// Signals that proc.kill knows.
var Signals = []string{"TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "KILL", "STOP", "CONT"}

func (r ProcessRule) validate(p Privilege) error {
	switch r.Owner {
	case "", Own:
	case Any:
		if p != Elevated {
			return errors.New("owner Any is for Elevated manifests: nobody kills another's process in user scope")
		}
	default:
		return fmt.Errorf("owner %q: want Own or Any", r.Owner)
	}
	for _, s := range r.Signals {
		if !slices.Contains(Signals, s) {
			return fmt.Errorf("signal %q: known are %s", s, strings.Join(Signals, ", "))
		}
	}
	return operations(r.Operations, []string{ProcList, ProcKill}, r.Rule)
}

func (r ContainerRule) validate(maxTimeout int) error {
	if err := names(r.Names); err != nil {
		return err
	}
	if slices.Contains(r.Operations, DockerExec) != (len(r.Commands) > 0) {
		return errors.New("docker.container.exec and commands belong together")
	}
	for i, c := range r.Commands {
		if err := c.validate(maxTimeout); err != nil {
			return fmt.Errorf("commands[%d]: %w", i, err)
		}
		if c.Approval == None {
			return fmt.Errorf("commands[%d]: what runs in a container always needs approval: Required", i)
		}
	}
	return operations(r.Operations, []string{DockerList, DockerLogs, DockerExec}, r.Rule)
}

func (r DesktopRule) validate() error {
	return operations(r.Operations, []string{DisplayCapture, ClipboardRead, ClipboardWrite}, r.Rule)
}

// validGlob wants patterns whose meaning is plain: escapes are refused because nobody reads them the way a matcher does.
func validGlob(glob string) error {
	if !path.IsAbs(glob) || path.Clean(glob) != glob || strings.ContainsAny(glob, "\\\x00") || !doublestar.ValidatePattern(glob) {
		return fmt.Errorf("glob %q must be an absolute, clean doublestar pattern without \\", glob)
	}
	if slices.Contains(strings.Split(glob, "/"), "..") {
		return fmt.Errorf("glob %q leads upwards with two dots", glob)
	}
	return nil
}
