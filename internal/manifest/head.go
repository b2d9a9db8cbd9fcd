package manifest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"nisse.io/nisse/internal/dsse"
)

// How long a manifest may last when it is signed. Elevated rights are looked at again every quarter.
const (
	MaxUserLife     = 400 * 24 * time.Hour
	MaxElevatedLife = 90 * 24 * time.Hour
)

// MaxTimeoutSeconds of any call.
const MaxTimeoutSeconds = 300

var (
	label = lazy(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	// account as useradd accepts them.
	account  = lazy(`^[a-z_][a-z0-9_-]{0,31}$`)
	variable = lazy(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)
)

// Variables that make a program load or run what nobody approved: by how they begin, and by name. Whoever signs a manifest could list the program
// itself instead, so this keeps people from a mistake, not from an attack, and need not know every program's.
var (
	loader = []string{"LD_", "DYLD_", "GLIBC_", "PYTHON", "PERL", "RUBY", "NODE_", "LUA_", "BASH_", "GIT_", "GCONV_", "MALLOC_", "OPENSSL_", "DOTNET_", "CORECLR_", "COR_",
		"CARGO_", "RUSTC", "NPM_CONFIG_", "npm_config_"}
	loaders = []string{"CLASSPATH", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "MAVEN_OPTS", "GRADLE_OPTS", "GEM_PATH", "TCLLIBPATH", "PHPRC", "PHP_INI_SCAN_DIR",
		"GTK_MODULES", "GTK_PATH", "GIO_EXTRA_MODULES", "GIO_MODULE_DIR", "QT_PLUGIN_PATH", "QT_QPA_PLATFORM_PLUGIN_PATH", "MAKEFLAGS", "GOFLAGS", "PROMPT_COMMAND", "PS4",
		"EDITOR", "VISUAL", "PAGER", "BROWSER", "LESSOPEN", "LESSCLOSE", "SSH_ASKPASS", "SUDO_ASKPASS", "SUDO_EDITOR"}
)

// head is all but the keys and the rules.
func (m *Manifest) head() error {
	switch {
	case m.V != Version:
		return fmt.Errorf("v is %d, want %d", m.V, Version)
	case len(m.Device) > 63 || !label.MatchString(m.Device):
		return fmt.Errorf("device %q: want the name of its Device object (lower-case letters, digits and -, at most 63)", m.Device)
	case m.Privilege != User && m.Privilege != Elevated:
		return fmt.Errorf("privilege %q: want User or Elevated", m.Privilege)
	case m.Epoch < 1 || m.Epoch >= 1<<53:
		return fmt.Errorf("epoch %d: want a positive number; signing sets it", m.Epoch)
	case m.User != "" && !account.MatchString(m.User):
		return fmt.Errorf("user %q is not the name of an account", m.User)
	case m.Confine != "" && m.Confine != Available && m.Confine != ConfineRequired:
		return fmt.Errorf("confine %q: want Available or Required", m.Confine)
	}
	if _, err := m.Expiry(); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(m.Environment)) {
		if !variable.MatchString(name) || strings.ContainsRune(m.Environment[name], 0) {
			return fmt.Errorf("environment %q is not a variable", name)
		}
		if slices.ContainsFunc(loader, func(p string) bool { return strings.HasPrefix(name, p) }) || slices.Contains(loaders, name) {
			return fmt.Errorf("environment %s would let a program load what nobody approved", name)
		}
		if name == "PATH" || name == "IFS" || name == "SHELLOPTS" || name == "ENV" {
			return fmt.Errorf("environment %s is the device's own", name)
		}
	}
	return nil
}

// Expiry of the manifest.
func (m *Manifest) Expiry() (time.Time, error) {
	t, err := time.Parse(time.RFC3339, m.ExpiresAt)
	if err != nil || !strings.HasSuffix(m.ExpiresAt, "Z") {
		return time.Time{}, fmt.Errorf("expiresAt %q: want RFC 3339 in UTC, such as 2027-01-31T00:00:00Z", m.ExpiresAt)
	}
	return t, nil
}

// Lasting tells whether the manifest may be signed at a time: it ends later, and not too late for its privilege.
func (m *Manifest) Lasting(now time.Time) error {
	end, err := m.Expiry()
	if err != nil {
		return err
	}
	most := MaxUserLife
	if m.Privilege == Elevated {
		most = MaxElevatedLife
	}
	switch life := end.Sub(now); {
	case life <= 0:
		return fmt.Errorf("expiresAt %s is past", m.ExpiresAt)
	case life > most:
		return fmt.Errorf("expiresAt %s is %d days away; %s manifests last at most %d", m.ExpiresAt, int(life.Hours()/24), m.Privilege, int(most.Hours()/24))
	}
	return nil
}

// signable: what demands a Person's signature needs keys of Persons.
func (m *Manifest) signable() error {
	if len(m.Keys.Persons) > 0 {
		return nil
	}
	for r := range m.rules() {
		if r.Signature == PersonSignature {
			return errors.New("a rule demands a Person's signature and keys.persons is empty")
		}
	}
	return nil
}

// rules of every section.
func (m *Manifest) rules() func(yield func(Rule) bool) {
	return func(yield func(Rule) bool) {
		var all []Rule
		for _, c := range slices.Sorted(maps.Keys(m.Paths)) {
			for _, r := range m.Paths[c] {
				all = append(all, r.Rule)
			}
		}
		for _, r := range m.Commands {
			all = append(all, r.Rule)
		}
		for _, r := range m.Repositories {
			all = append(all, r.Rule)
		}
		for _, r := range m.Packages {
			all = append(all, r.Rule)
		}
		for _, r := range m.Processes {
			all = append(all, r.Rule)
		}
		for _, r := range m.Containers {
			all = append(all, r.Rule)
		}
		for _, r := range m.Desktop {
			all = append(all, r.Rule)
		}
		for _, r := range all {
			if !yield(r) {
				return
			}
		}
	}
}

func (k Keys) validate() error {
	if len(k.Request) == 0 {
		return errors.New("keys.request is empty: nobody could ask anything of this device")
	}
	seen := map[string]string{}
	use := func(section string, keys []string) error {
		for i, s := range keys {
			if _, err := dsse.ParseKey(s); err != nil {
				return fmt.Errorf("%s[%d]: %w", section, i, err)
			}
			if other, ok := seen[s]; ok && other != section {
				return fmt.Errorf("%s[%d] stands in %s too: who asks must not be able to approve, and who approves must not be able to sign for a Person", section, i, other)
			}
			seen[s] = section
		}
		return nil
	}
	if err := use("keys.request", k.Request); err != nil {
		return err
	}
	if err := use("keys.approval", k.Approval); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(k.Persons)) {
		if len(name) > 63 || !label.MatchString(name) {
			return fmt.Errorf("keys.persons: %q is not the name of a Person", name)
		}
		if err := use("keys.persons."+name, k.Persons[name]); err != nil {
			return err
		}
	}
	return nil
}
