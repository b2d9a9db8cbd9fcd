// Package manifest says what a device allows: which capabilities, on which paths, with which exact command lines, and which of
// them need a person's approval. The device enforces it; the broker reads the same text to refuse early and to tell a plan's
// reader what is what. Both call Check, so they cannot differ.
package manifest

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"sigs.k8s.io/yaml"

	"nisse.io/nisse/internal/canonical"
	"nisse.io/nisse/internal/dsse"
)

// Version of the format.
const Version = 1

// Capability names. An MCP tool has the same name with _ for the dot.
const (
	FSRead  = "fs.read"
	FSWrite = "fs.write"
	FSList  = "fs.list"
	FSStat  = "fs.stat"
	Exec    = "exec"
)

// Approval tells whether a capability needs a person's decision.
type Approval string

const (
	// None: read-only; runs on the agent's word.
	None Approval = "None"
	// Required: runs only under an approval statement that covers this very call.
	Required Approval = "Required"
)

// Manifest of one device.
type Manifest struct {
	V      int    `json:"v"`
	Device string `json:"device"`
	// Keys the device trusts, each in base64 (32 bytes).
	Keys Keys `json:"keys"`
	// Paths maps fs.read, fs.write, fs.list and fs.stat to rules. The first rule that matches decides.
	Paths map[string][]PathRule `json:"paths,omitempty"`
	// Commands that exec may run.
	Commands []Command `json:"commands,omitempty"`
	Limits   Limits    `json:"limits"`
}

// Keys that a device trusts.
type Keys struct {
	// Request keys: whose requests are looked at.
	Request []string `json:"request"`
	// Approval keys: whose statements count.
	Approval []string `json:"approval"`
}

// PathRule allows paths by glob (doublestar, absolute).
type PathRule struct {
	Glob     string   `json:"glob"`
	Approval Approval `json:"approval"`
}

// Command is an exact argument vector with typed slots.
type Command struct {
	// Argv: literals, and slots written {name}. The first element is an absolute path without slots.
	Argv []string `json:"argv"`
	// Slots by name.
	Slots map[string]Slot `json:"slots,omitempty"`
	// Approval it needs.
	Approval Approval `json:"approval"`
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
	c, err := canonical.JSON(j)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	var m Manifest
	if err := strict(c, &m); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	if err := m.validate(); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	return &m, nil
}

// Canonical text of the manifest; its digest is what a Device object pins.
func (m *Manifest) Canonical() ([]byte, error) { return canonical.Marshal(m) }

// Digest of the canonical text.
func (m *Manifest) Digest() (string, error) { return canonical.Digest(m) }

func (m *Manifest) validate() error {
	if m.V != Version {
		return fmt.Errorf("v is %d, want %d", m.V, Version)
	}
	if len(m.Device) > 63 || !deviceName.MatchString(m.Device) {
		return fmt.Errorf("device %q: want the name of its Device object (lower-case letters, digits and -, at most 63)", m.Device)
	}
	if err := m.Keys.validate(); err != nil {
		return err
	}
	l := m.Limits
	if l.WriteBytes < 1 || l.WriteBytes > 1<<20 || l.OutputBytes < 1 || l.OutputBytes > 4<<20 || l.TimeoutSeconds < 1 || l.TimeoutSeconds > 300 {
		return errors.New("limits: writeBytes 1 to 1048576, outputBytes 1 to 4194304 and timeoutSeconds 1 to 300 are all required")
	}
	for capability, rules := range m.Paths {
		switch capability {
		case FSRead, FSWrite, FSList, FSStat:
		default:
			return fmt.Errorf("paths.%s: known are fs.read, fs.write, fs.list, fs.stat", capability)
		}
		for i, r := range rules {
			if err := r.validate(capability); err != nil {
				return fmt.Errorf("paths.%s[%d]: %w", capability, i, err)
			}
		}
	}
	for i, c := range m.Commands {
		if err := c.validate(l.TimeoutSeconds); err != nil {
			return fmt.Errorf("commands[%d]: %w", i, err)
		}
	}
	return nil
}

var deviceName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

func (k Keys) validate() error {
	if len(k.Request) == 0 {
		return errors.New("keys.request is empty: nobody could ask anything of this device")
	}
	for _, use := range []struct {
		name string
		keys []string
	}{{"request", k.Request}, {"approval", k.Approval}} {
		for i, s := range use.keys {
			if _, err := dsse.ParseKey(s); err != nil {
				return fmt.Errorf("keys.%s[%d]: %w", use.name, i, err)
			}
			if use.name == "approval" && slices.Contains(k.Request, s) {
				return fmt.Errorf("keys.approval[%d] is a request key too: who asks must not be able to approve", i)
			}
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

func (r PathRule) validate(capability string) error {
	if err := validGlob(r.Glob); err != nil {
		return err
	}
	if r.Approval != None && r.Approval != Required {
		return fmt.Errorf("approval %q: want None or Required", r.Approval)
	}
	if capability == FSWrite && r.Approval == None {
		return errors.New("fs.write changes the machine and always needs approval: Required")
	}
	return nil
}

func (c Command) validate(maxTimeout int) error {
	if len(c.Argv) == 0 || !path.IsAbs(c.Argv[0]) || path.Clean(c.Argv[0]) != c.Argv[0] || strings.ContainsAny(c.Argv[0], "{}") {
		return errors.New("argv must begin with the absolute path of a program")
	}
	if Wrapper(c.Argv[0]) {
		return fmt.Errorf("%s runs whatever it is given; list the program itself", c.Argv[0])
	}
	if c.Approval != None && c.Approval != Required {
		return fmt.Errorf("approval %q: want None or Required", c.Approval)
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
	for name := range c.Slots {
		if !used[name] {
			return fmt.Errorf("slots.%s is not used in argv", name)
		}
	}
	return nil
}

// slot matches an argument that is a slot. Anything else in braces is a literal, such as the templates of docker and go list.
var slot = regexp.MustCompile(`^\{([A-Za-z][A-Za-z0-9_]*)\}$`)

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

func strict(b []byte, out any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(out); err != nil {
		return err
	}
	if d.More() {
		return errors.New("data after the value")
	}
	return nil
}
