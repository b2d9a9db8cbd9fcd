package daemon

import (
	"crypto/ed25519"
	"fmt"
	"io"

	"nisse.io/nisse/device/config"
	"nisse.io/nisse/internal/dsse"
)

func public(key ed25519.PrivateKey) ed25519.PublicKey { return key.Public().(ed25519.PublicKey) }

// Identity writes what a Device object and this machine know each other by, in the form of the object's spec.
func Identity(c config.Config, w io.Writer) error {
	key, err := config.PrivateKey(c.Key)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "publicKey: %s\nrootKey: %s\n", dsse.EncodeKey(public(key)), c.RootKey)
	return err
}
