package kubectl

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"nisse.io/nisse/internal/dsse"
)

func manifestCommand(now func() time.Time) *cobra.Command {
	c := &cobra.Command{Use: "manifest", Short: "Sign what devices allow, and look at signatures"}
	c.AddCommand(manifestSign(now), manifestVerify(now))
	return c
}

func manifestSign(now func() time.Time) *cobra.Command {
	var in, keyFile string
	var inPlace bool
	c := &cobra.Command{
		Use: "sign", Short: "Sign DeviceManifests with the root key", Args: cobra.NoArgs,
		Long: `Sign every DeviceManifest of a file with the root key: spec.epoch and spec.signature are set, everything else, comments included, stays.

No cluster is needed or spoken with. Apply the result with kubectl or by Git; the broker brings it to the device, which believes the root key
that it pinned when it was enrolled. A manifest that is changed afterwards is unsigned until it is signed again.`,
		Example: `  kubectl nisse manifest sign -f web1.yaml --key root.key --in-place
  kubectl -n nisse get devicemanifest web1-user -o yaml | kubectl nisse manifest sign -f - --key root.key | kubectl apply --server-side --force-conflicts -f -`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if inPlace && in == "-" {
				return errors.New("--in-place needs a file, not standard input")
			}
			key, err := privateKey(keyFile)
			if err != nil {
				return err
			}
			text, err := read(cmd, in)
			if err != nil {
				return err
			}
			signed, all, err := signAll(text, key, now())
			if err != nil {
				return err
			}
			if inPlace {
				err = replace(in, signed)
			} else {
				_, err = cmd.OutOrStdout().Write(signed)
			}
			if err != nil {
				return err
			}
			for _, m := range all {
				fmt.Fprintf(cmd.ErrOrStderr(), "signed %s, epoch %d, until %s, by root key %s\n", m.name, m.manifest.Epoch, m.manifest.ExpiresAt, dsse.EncodeKey(key.Public().(ed25519.PublicKey)))
			}
			return nil
		},
	}
	c.Flags().StringVarP(&in, "filename", "f", "", "`file` with DeviceManifests in YAML, - for standard input")
	c.Flags().StringVar(&keyFile, "key", "", "`file` with the root key in PEM")
	c.Flags().BoolVar(&inPlace, "in-place", false, "write the file instead of standard output")
	for _, name := range []string{"filename", "key"} {
		_ = c.MarkFlagRequired(name) // fails for unknown flags alone
	}
	return c
}

func manifestVerify(now func() time.Time) *cobra.Command {
	var in, root string
	c := &cobra.Command{
		Use: "verify", Short: "Tell whether DeviceManifests are signed as they stand, and still last", Args: cobra.NoArgs,
		Example: "  kubectl -n nisse get devicemanifests -o yaml | kubectl nisse manifest verify -f - --root 'GZvM…='",
		RunE: func(cmd *cobra.Command, _ []string) error {
			key, err := dsse.ParseKey(root)
			if err != nil {
				return fmt.Errorf("--root: %w", err)
			}
			text, err := read(cmd, in)
			if err != nil {
				return err
			}
			return verifyAll(cmd.OutOrStdout(), text, key, now())
		},
	}
	c.Flags().StringVarP(&in, "filename", "f", "", "`file` with DeviceManifests in YAML, - for standard input")
	c.Flags().StringVar(&root, "root", "", "public root `key` in base64")
	for _, name := range []string{"filename", "root"} {
		_ = c.MarkFlagRequired(name) // fails for unknown flags alone
	}
	return c
}

func privateKey(file string) (ed25519.PrivateKey, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the key: %w", err)
	}
	key, err := dsse.ParsePrivateKey(pem)
	if err != nil {
		return nil, fmt.Errorf("read the key %s: %w", file, err)
	}
	return key, nil
}

func read(cmd *cobra.Command, file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(cmd.InOrStdin())
	}
	return os.ReadFile(file)
}

// replace a file as a whole, so that a full disk leaves the old one.
func replace(file string, content []byte) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // gone already when all went well
	_, err = tmp.Write(content)
	if err = errors.Join(err, tmp.Chmod(info.Mode().Perm()), tmp.Sync(), tmp.Close()); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return os.Rename(tmp.Name(), file)
}
