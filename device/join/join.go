// Package join makes a machine a device: an account, a key, a configuration and a unit of systemd. What is there already stays.
package join

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"nisse.io/nisse/device/config"
	"nisse.io/nisse/internal/dsse"
)

// Where everything goes on a machine.
const (
	account    = "nisse-device"
	program    = "/usr/local/bin/nisse-device"
	configFile = "/etc/nisse/device.yaml"
	stateDir   = "/var/lib/nisse-device"
	filesDir   = "/srv/nisse"
	unitFile   = "/etc/systemd/system/nisse-device.service"
	service    = "nisse-device.service"
)

// ErrOther is wrapped when the machine is something else already.
var ErrOther = errors.New("this machine is joined already")

// Options of who joins.
type Options struct {
	// Device is the name that the cluster knows the machine by.
	Device string
	// RootKey that the machine will believe, in base64.
	RootKey string
	// Listen is the mesh address and port.
	Listen string
	// Open lets it be an address that anybody can reach.
	Open bool
	// Namespace that is printed.
	Namespace string
	// Elevated lets the device be root, for Elevated manifests.
	Elevated bool
}

// machine that is joined. A test has one of its own.
type machine struct {
	root    string // that paths are below
	self    string // file of this program
	here    []Local
	resolve func(host string) ([]netip.Addr, error)
	// identity of the device's account, which is made if it is missing.
	identity func(ctx context.Context) (uid, gid int, made bool, err error)
	// admin is root.
	admin owner
	// holds tells whether a device of this config holds an Elevated manifest.
	holds func(ctx context.Context, c config.Config) bool
	// systemctl of a machine that runs systemd; nil on others.
	systemctl func(ctx context.Context, args ...string) error
	out       io.Writer
	changed   bool
}

var label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// join the machine, once everything that can be looked at beforehand has been.
func (m *machine) join(ctx context.Context, o Options) error {
	if !label.MatchString(o.Device) {
		return fmt.Errorf("%q is no name of a device: lower-case letters, digits and dashes, 63 at most; kubectl nisse enroll prints the whole line", o.Device)
	}
	if _, err := dsse.ParseKey(o.RootKey); err != nil {
		return fmt.Errorf("--root-key: %w; it is the root key's public half, and kubectl nisse enroll prints the whole line", err)
	}
	at, err := address(o.Listen, o.Open, m.here, m.resolve)
	if err != nil {
		return err
	}
	wanted := config.Config{Listen: []string{at.String()}, StateDir: stateDir, Device: o.Device, RootKey: o.RootKey, Key: config.KeyFile(stateDir)}
	if o.Elevated {
		wanted.AllowRoot, wanted.User = true, account
	}
	is, there, err := m.configured()
	if err != nil {
		return err
	}
	rises := false
	if there {
		if err := same(is, wanted); err != nil {
			return err
		}
		rises = wanted.AllowRoot && !is.AllowRoot
		wanted = is
	}
	uid, gid, made, err := m.identity(ctx)
	if err != nil {
		return err
	}
	m.tell(made, "account "+account)
	its := owner{uid, gid}
	self, other := its, m.admin // whom the device itself is, and whom it may have been
	if o.Elevated {
		self, other = other, self
	}
	if rises {
		if err := m.rest(ctx); err != nil {
			return err
		}
	}
	restart, err := m.program()
	if err != nil {
		return err
	}
	key, err := m.state(wanted, other, self)
	if err != nil {
		return err
	}
	if err := m.directory(filesDir, 0o755, its); err != nil {
		return err
	}
	switch {
	case rises:
		err = m.elevate(self)
	case !there:
		err = m.write(configFile, []byte(text(wanted)), 0o600, self)
	default:
		err = m.give(configFile, other, self)
	}
	if err != nil {
		return err
	}
	m.tell(!there || rises, configFile)
	unit, err := m.unit(o.Elevated)
	if err != nil {
		return err
	}
	if err := m.serve(ctx, o.Elevated, unit, restart || unit || !there || rises); err != nil {
		return err
	}
	if !o.Elevated && m.holds(ctx, wanted) {
		fmt.Fprintf(m.out, "\nThis device holds an Elevated manifest, and will not be root: what that lists for root is refused. To let it be, run this line again with --elevated.\n")
	}
	if !m.changed {
		fmt.Fprintln(m.out, "nothing was changed")
	}
	fmt.Fprintf(m.out, "\nThis machine is %s. Where kubectl is, let the cluster know its key:\n\n    kubectl nisse enroll %s -n %s --device-key %s\n",
		o.Device, o.Device, o.Namespace, dsse.EncodeKey(key.Public().(ed25519.PublicKey)))
	return nil
}

// configured tells what the machine is already.
func (m *machine) configured() (c config.Config, there bool, err error) {
	c, err = config.Read(m.path(configFile))
	if errors.Is(err, os.ErrNotExist) {
		return c, false, nil
	}
	return c, err == nil, err
}

// same refuses to make a machine something else: a wrong line, typed where it does not belong, does no harm.
func same(is, wanted config.Config) error {
	for _, f := range []struct{ name, is, wanted string }{
		{"device", is.Device, wanted.Device}, {"rootKey", is.RootKey, wanted.RootKey},
	} {
		if f.is != f.wanted {
			return fmt.Errorf("%w: %s says %s: %s, and you say %s. If it is to be another, edit the file and restart the device; whoever holds the root key decides what is done here", ErrOther, configFile, f.name, f.is, f.wanted)
		}
	}
	if is.AllowRoot && !wanted.AllowRoot {
		return fmt.Errorf("%w: %s says allowRoot: true. Say --elevated; or, if the device shall not be root any more, take allowRoot and user out of that file and run this again", ErrOther, configFile)
	}
	if !slices.Equal(is.Listen, wanted.Listen) {
		return fmt.Errorf("%w: %s says listen: %q, and you say %q. If it is to be another, edit the file and restart the device", ErrOther, configFile, is.Listen, wanted.Listen)
	}
	return nil
}

func text(c config.Config) string {
	text := fmt.Sprintf(`# Written by nisse-device join, which changes nothing in it any more. After a change: systemctl restart nisse-device.
listen: [%q]
stateDir: %s
device: %s
rootKey: %s
key: %s
`, c.Listen[0], c.StateDir, c.Device, c.RootKey, c.Key)
	if c.AllowRoot {
		text += elevated
	}
	return text
}

func (m *machine) path(p string) string { return filepath.Join(m.root, p) }

func (m *machine) tell(changed bool, what string) {
	word := "unchanged"
	if changed {
		word, m.changed = "made", true
	}
	fmt.Fprintf(m.out, "%-9s %s\n", word, what)
}

// program at its place; true when it was put there.
func (m *machine) program() (bool, error) {
	new, err := os.ReadFile(m.self)
	if err != nil {
		return false, fmt.Errorf("read this program: %w", err)
	}
	old, err := os.ReadFile(m.path(program))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	changed := !bytes.Equal(old, new)
	if changed {
		if err := m.write(program, new, 0o755, unowned); err != nil {
			return false, err
		}
	}
	m.tell(changed, program)
	return changed, nil
}

// state directory and the key in it.
func (m *machine) state(c config.Config, other, self owner) (ed25519.PrivateKey, error) {
	if err := m.directory(c.StateDir, 0o700, self); err != nil {
		return nil, err
	}
	if err := m.give(c.StateDir, other, self); err != nil {
		return nil, err
	}
	file := m.path(c.Key)
	if _, err := os.Lstat(file); err == nil || c.Key != config.KeyFile(c.StateDir) {
		m.tell(false, c.Key)
		return config.PrivateKey(file)
	}
	key, made, err := config.MakeKey(filepath.Dir(file))
	if err != nil {
		return nil, err
	}
	if made {
		// Not through a symlink: the directory is the device's.
		if err := os.Lchown(file, self.uid, self.gid); err != nil {
			return nil, err
		}
	}
	m.tell(made, c.Key)
	return key, nil
}
