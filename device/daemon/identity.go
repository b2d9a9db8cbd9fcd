package daemon

import (
	"crypto/ed25519"
	"fmt"
	"io"
	"os"

	"nisse.io/nisse/device/config"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/manifest"
)

func public(key ed25519.PrivateKey) ed25519.PublicKey { return key.Public().(ed25519.PublicKey) }

// Identity writes what a Device object pins, in the form of its spec.
func Identity(c config.Config, w io.Writer) error {
	key, err := config.PrivateKey(c.Key)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(c.Manifest)
	if err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	m, err := manifest.Parse(text)
	if err != nil {
		return err
	}
	digest, err := m.Digest()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "publicKey: %s\nmanifestDigest: %s\n", dsse.EncodeKey(public(key)), digest)
	return err
}
