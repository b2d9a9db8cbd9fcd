// Package manifest says what a device allows: which capabilities, on which paths, with which exact command lines, and which of
// them need a person's approval. The device enforces it; the broker reads the same text to refuse early and to tell a plan's
// reader what is what. Both call Check, so they cannot differ.
package manifest

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"nisse.io/nisse/internal/canonical"
	"nisse.io/nisse/internal/dsse"
)

// Version of the format.
const Version = 1

// Capability names. An MCP tool has the same name with _ for the dot.
const (
	FSRead         = "fs.read"
	FSWrite        = "fs.write"
	FSList         = "fs.list"
	FSStat         = "fs.stat"
	Exec           = "exec"
	GitStatus      = "git.status"
	GitCommit      = "git.commit"
	GitClone       = "git.clone"
	GitPush        = "git.push"
	PkgSearch      = "pkg.search"
	PkgInstall     = "pkg.install"
	ProcList       = "proc.list"
	ProcKill       = "proc.kill"
	DockerList     = "docker.container.list"
	DockerLogs     = "docker.container.logs"
	DockerExec     = "docker.container.exec"
	DisplayCapture = "display.capture"
	ClipboardRead  = "clipboard.read"
	ClipboardWrite = "clipboard.write"
)

// Privilege of a manifest: of the operator's own kind, or of the machine's administrator.
type Privilege string

// Privileges, as in the API.
const (
	User     Privilege = "User"
	Elevated Privilege = "Elevated"
)

// Confine tells whether Landlock must hold what runs.
type Confine string

const (
	// Available: where the kernel has it; what is absent means.
	Available Confine = "Available"
	// ConfineRequired: where the kernel lacks it, nothing runs that it should hold.
	ConfineRequired Confine = "Required"
)

// Manifest of one device for the agents of one privilege; the root key has signed it.
type Manifest struct {
	V      int    `json:"v"`
	Device string `json:"device"`
	// Privilege of the agents that may use it. A device holds at most one manifest of each.
	Privilege Privilege `json:"privilege"`
	// Epoch rises with every signing. A device takes no older text for the same privilege, and none at or below the epoch that was revoked.
	Epoch int64 `json:"epoch"`
	// ExpiresAt in RFC 3339, UTC. Nothing begins under the manifest from then on.
	ExpiresAt string `json:"expiresAt"`
	// User on the machine that commands run as and files are touched as; when empty the one that the device's configuration names, else the daemon's own.
	User string `json:"user,omitempty"`
	// Confine what runs; Available when absent.
	Confine Confine `json:"confine,omitempty"`
	// Environment that commands get beside a clean one, such as the operator's HOME, DISPLAY or SSH_AUTH_SOCK.
	Environment map[string]string `json:"environment,omitempty"`
	// Keys the device trusts, each in base64 (32 bytes).
	Keys Keys `json:"keys"`
	// Paths maps fs.read, fs.write, fs.list and fs.stat to rules. The first rule that matches decides.
	Paths map[string][]PathRule `json:"paths,omitempty"`
	// Commands that exec may run.
	Commands []Command `json:"commands,omitempty"`
	// Repositories that git works on.
	Repositories []RepositoryRule `json:"repositories,omitempty"`
	// Packages of the machine's package manager.
	Packages []PackageRule `json:"packages,omitempty"`
	// Processes of the machine.
	Processes []ProcessRule `json:"processes,omitempty"`
	// Containers of the Docker Engine.
	Containers []ContainerRule `json:"containers,omitempty"`
	// Desktop of the operator.
	Desktop []DesktopRule `json:"desktop,omitempty"`
	Limits  Limits        `json:"limits"`
}

// Keys that a device trusts.
type Keys struct {
	// Request keys: whose requests are looked at.
	Request []string `json:"request"`
	// Approval keys: whose statements count.
	Approval []string `json:"approval,omitempty"`
	// Persons and their own keys, for rules that demand a Person's signature.
	Persons map[string][]string `json:"persons,omitempty"`
}

// Command is an exact argument vector with typed slots.
type Command struct {
	// Argv: literals, and slots written {name}. The first element is an absolute path without slots.
	Argv []string `json:"argv"`
	// Slots by name.
	Slots map[string]Slot `json:"slots,omitempty"`
	Rule
	// TimeoutSeconds, at most Limits.TimeoutSeconds; 30 when absent.
	TimeoutSeconds int `json:"timeoutSeconds,omitempty"`
}

// Slot is what may stand in a command line's place.
type Slot struct {
	// Type: word ([A-Za-z0-9._@%+=:,-], 1 to 128), integer, path (absolute and clean, matching Glob) or enum.
	Type string `json:"type"`
	// Glob for path.
	Glob string `json:"glob,omitempty"`
	// Values for enum.
	Values []string `json:"values,omitempty"`
	// Dash lets a value begin with -, which most programs take for an option.
	Dash bool `json:"dash,omitempty"`
}

// Limits of one call.
type Limits struct {
	// WriteBytes of one fs.write.
	WriteBytes int `json:"writeBytes"`
	// OutputBytes of one result kept by the device: of fs.read, and of each of stdout and stderr.
	OutputBytes int `json:"outputBytes"`
	// TimeoutSeconds at most, 300 or less.
	TimeoutSeconds int `json:"timeoutSeconds"`
}

// Parse reads YAML or JSON, refusing unknown fields, and validates it.
func Parse(text []byte) (*Manifest, error) {
	j, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	return parseJSON(j)
}

func parseJSON(text []byte) (*Manifest, error) {
	c, err := canonical.JSON(text)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	var m Manifest
	if err := canonical.Strict(c, &m); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	if err := m.validate(); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	// Absent and empty are one in the canonical form: omitempty sees to all fields but the lists in this map.
	maps.DeleteFunc(m.Paths, func(_ string, rules []PathRule) bool { return len(rules) == 0 })
	return &m, nil
}

// Canonical text of the manifest; its digest is what a Device object pins.
func (m *Manifest) Canonical() ([]byte, error) { return canonical.Marshal(m) }

// Digest of the canonical text.
func (m *Manifest) Digest() (string, error) { return canonical.Digest(m) }

func (m *Manifest) validate() error {
	if err := m.head(); err != nil {
		return err
	}
	if err := m.Keys.validate(); err != nil {
		return err
	}
	l := m.Limits
	if l.WriteBytes < 1 || l.WriteBytes > 1<<20 || l.OutputBytes < 1 || l.OutputBytes > 4<<20 || l.TimeoutSeconds < 1 || l.TimeoutSeconds > MaxTimeoutSeconds {
		return errors.New("limits: writeBytes 1 to 1048576, outputBytes 1 to 4194304 and timeoutSeconds 1 to 300 are all required")
	}
	for _, capability := range slices.Sorted(maps.Keys(m.Paths)) { // in order: what is said of a manifest stands in a status, and must not flap
		switch capability {
		case FSRead, FSWrite, FSList, FSStat:
		default:
			return fmt.Errorf("paths.%s: known are fs.read, fs.write, fs.list, fs.stat", capability)
		}
		if err := each("paths."+capability, m.Paths[capability], func(r PathRule) error { return r.validate(capability) }); err != nil {
			return err
		}
	}
	return errors.Join(
		each("commands", m.Commands, func(c Command) error { return c.validate(l.TimeoutSeconds) }),
		each("repositories", m.Repositories, RepositoryRule.validate),
		each("packages", m.Packages, func(r PackageRule) error { return r.validate(m.Privilege) }),
		each("processes", m.Processes, func(r ProcessRule) error { return r.validate(m.Privilege) }),
		each("containers", m.Containers, func(r ContainerRule) error { return r.validate(l.TimeoutSeconds) }),
		each("desktop", m.Desktop, DesktopRule.validate),
		m.signable(),
	)
}

func each[T any](section string, rules []T, validate func(T) error) error {
	for i, r := range rules {
		if err := validate(r); err != nil {
			return fmt.Errorf("%s[%d]: %w", section, i, err)
		}
	}
	return nil
}

// Trusted keys, parsed; the manifest was validated when it was read.
func trusted(encoded []string) []ed25519.PublicKey {
	keys := make([]ed25519.PublicKey, 0, len(encoded))
	for _, s := range encoded {
		if k, err := dsse.ParseKey(s); err == nil {
			keys = append(keys, k)
		}
	}
	return keys
}

// RequestKeys whose requests are looked at.
func (k Keys) RequestKeys() []ed25519.PublicKey { return trusted(k.Request) }

// ApprovalKeys whose statements count.
func (k Keys) ApprovalKeys() []ed25519.PublicKey { return trusted(k.Approval) }

// PersonKeys are the Persons' own, by name.
func (k Keys) PersonKeys() map[string][]ed25519.PublicKey {
	all := make(map[string][]ed25519.PublicKey, len(k.Persons))
	for name, keys := range k.Persons {
		all[name] = trusted(keys)
	}
	return all
}

func (c Command) validate(maxTimeout int) error {
	if len(c.Argv) == 0 || !path.IsAbs(c.Argv[0]) || path.Clean(c.Argv[0]) != c.Argv[0] || strings.ContainsAny(c.Argv[0], "{}") {
		return errors.New("argv must begin with the absolute path of a program")
	}
	if Wrapper(c.Argv[0]) {
		return fmt.Errorf("%s runs whatever it is given; list the program itself", c.Argv[0])
	}
	if err := c.Rule.validate(); err != nil {
		return err
	}
	if c.TimeoutSeconds < 0 || c.TimeoutSeconds > maxTimeout {
		return fmt.Errorf("timeoutSeconds %d: want 0 to %d", c.TimeoutSeconds, maxTimeout)
	}
	used := map[string]bool{}
	for _, a := range c.Argv[1:] {
		if name, ok := slotName(a); ok {
			s, ok := c.Slots[name]
			if !ok {
				return fmt.Errorf("slot %q is not described in slots", name)
			}
			if err := s.validate(); err != nil {
				return fmt.Errorf("slots.%s: %w", name, err)
			}
			used[name] = true
			continue
		}
		for name := range c.Slots {
			if strings.Contains(a, "{"+name+"}") {
				return fmt.Errorf("argument %q: a slot is an argument of its own", a)
			}
		}
		if strings.ContainsRune(a, 0) {
			return fmt.Errorf("argument %q contains a NUL byte", a)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Slots)) {
		if !used[name] {
			return fmt.Errorf("slots.%s is not used in argv", name)
		}
	}
	return nil
}

// slot matches an argument that is a slot. Anything else in braces is a literal, such as the templates of docker and go list.
var slot = lazy(`^\{([A-Za-z][A-Za-z0-9_]*)\}$`)

func slotName(arg string) (string, bool) {
	m := slot.FindStringSubmatch(arg)
	if m == nil {
		return "", false
	}
	return m[1], true
}

func (s Slot) validate() error {
	switch s.Type {
	case "word", "integer":
	case "path":
		return validGlob(s.Glob)
	case "enum":
		if len(s.Values) == 0 {
			return errors.New("values is empty")
		}
		for _, v := range s.Values {
			if strings.HasPrefix(v, "-") && !s.Dash {
				return fmt.Errorf("value %q begins with -, which would never be accepted; set dash: true if it is meant", v)
			}
		}
	default:
		return fmt.Errorf("type %q: want word, integer, path or enum", s.Type)
	}
	return nil
}
