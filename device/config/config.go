// Package config reads the file that nisse-device runs by.
package config

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"nisse.io/nisse/internal/dsse"
)

// Config of nisse-device. Relative paths are relative to the file.
type Config struct {
	// Listen addresses, host:port. Name the mesh address (WireGuard, Tailscale), not 0.0.0.0.
	Listen []string `json:"listen"`
	// StateDir holds manifests, audit, deeds and clock.
	StateDir string `json:"stateDir"`
	// Device is the name of the Device object; manifests for another are refused.
	Device string `json:"device"`
	// RootKey pins the public key that manifests must be signed by: base64 of 32 bytes, as kubectl nisse keygen root prints it.
	RootKey string `json:"rootKey"`
	// Key file, made by nisse-device init.
	Key string `json:"key"`
	// AllowRoot lets the device run as root. Better is a user of its own that may do what the manifest lists, and no more.
	AllowRoot bool `json:"allowRoot,omitempty"`
	// User that commands run as and files are touched as where a manifest names none. Only a device that is root can be another than itself, and
	// one that is should be: so that being root takes a manifest that says so.
	User string `json:"user,omitempty"`
	// Busy is how many calls may run at once; 8 when absent.
	Busy int `json:"busy,omitempty"`
	// MetricsAddress serves /metrics, /healthz and /readyz when it is set; name a loopback address.
	MetricsAddress string `json:"metricsAddress,omitempty"`
	// File that this was read from.
	File string `json:"-"`
}

// Read a file, refusing fields that are not known.
func Read(file string) (Config, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return Config{}, fmt.Errorf("config: %w", err)
	}
	if err := ofOld(b); err != nil {
		return Config{}, fmt.Errorf("config %s: %w", file, err)
	}
	var c Config
	if err := yaml.UnmarshalStrict(b, &c); err != nil {
		return Config{}, fmt.Errorf("config %s: %w", file, err)
	}
	if c.StateDir == "" || c.Device == "" || c.RootKey == "" || c.Key == "" {
		return Config{}, fmt.Errorf("config %s: stateDir, device, rootKey and key are all required", file)
	}
	if _, err := c.Root(); err != nil {
		return Config{}, fmt.Errorf("config %s: %w", file, err)
	}
	if c.Busy < 0 || c.Busy > 256 {
		return Config{}, fmt.Errorf("config %s: busy %d: want 1 to 256", file, c.Busy)
	}
	dir, err := filepath.Abs(filepath.Dir(file))
	if err != nil {
		return Config{}, fmt.Errorf("config %s: %w", file, err)
	}
	for _, p := range []*string{&c.StateDir, &c.Key} {
		if !filepath.IsAbs(*p) {
			*p = filepath.Join(dir, *p)
		}
	}
	c.File = filepath.Join(dir, filepath.Base(file))
	return c, nil
}

// ofOld refuses a file of the time when a manifest lay beside it, and tells what has taken its place.
func ofOld(b []byte) error {
	var old map[string]any
	if err := yaml.Unmarshal(b, &old); err != nil {
		return nil // which the strict reading tells better
	}
	if _, ok := old["manifest"]; !ok {
		return nil
	}
	return errors.New("manifest: a device has no manifest file any more: take the line out, and name device and rootKey instead; " +
		"what the machine allows is a DeviceManifest that the root key signs (docs/install.md, Upgrade)")
}

// Root key that is pinned.
func (c Config) Root() (ed25519.PublicKey, error) {
	key, err := dsse.ParseKey(c.RootKey)
	if err != nil {
		return nil, fmt.Errorf("rootKey: %w", err)
	}
	return key, nil
}

// PrivateKey in the key file. A file that others may read is refused.
func PrivateKey(file string) (ed25519.PrivateKey, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, noKey(file, err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("device key %s may be read by others (%s): chmod 600 it, or make a new one if somebody may have", file, info.Mode().Perm())
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, noKey(file, err)
	}
	key, err := dsse.ParsePrivateKey(b)
	if err != nil {
		return nil, fmt.Errorf("device key %s: %w", file, err)
	}
	return key, nil
}

// noKey tells what to do about a key that cannot be read.
func noKey(file string, err error) error {
	made := KeyFile(filepath.Dir(file))
	switch {
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("device key: %w; it belongs to the device's user: run this as that user", err)
	case !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("device key: %w", err)
	case file != made:
		return fmt.Errorf("device key: %w; make one with: nisse-device init --dir %s, and name %s as key", err, filepath.Dir(file), made)
	}
	return fmt.Errorf("device key: %w; make one with: nisse-device init --dir %s, and give its publicKey to the Device", err, filepath.Dir(file))
}

// KeyFile in a directory made by MakeKey.
func KeyFile(dir string) string { return filepath.Join(dir, "device.key") }

// MakeKey in dir, 0600, unless there is one already; made tells which. A key is never overwritten: the cluster knows its public half.
func MakeKey(dir string) (key ed25519.PrivateKey, made bool, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, false, fmt.Errorf("device key: %w", err)
	}
	_, key, err = ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, false, fmt.Errorf("device key: %w", err)
	}
	b, err := dsse.EncodePrivateKey(key)
	if err != nil {
		return nil, false, err
	}
	f, err := os.OpenFile(KeyFile(dir), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		key, err = PrivateKey(KeyFile(dir))
		return key, false, err
	}
	if err != nil {
		return nil, false, fmt.Errorf("device key: %w", err)
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return nil, false, fmt.Errorf("device key: %w", errors.Join(err, os.Remove(KeyFile(dir))))
	}
	return key, true, nil
}
