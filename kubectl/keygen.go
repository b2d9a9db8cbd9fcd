package kubectl

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"nisse.io/nisse/internal/dsse"
)

func keygen() *cobra.Command {
	var out, person string
	c := &cobra.Command{
		Use: "keygen", Short: "Make a root key, which signs the manifests of devices, or a key of your own", Args: cobra.NoArgs,
		Long: `Make a root key, which signs the manifests of devices.

Whoever holds it decides what agents may do on every device that pinned it. It is needed when a manifest changes, and never by the cluster:
keep it on a machine of yours that is not part of it, or on a stick in a drawer.

With --person it is a person's own key, which signs approvals (kubectl nisse approve --key) where a manifest demands that. Its public half goes into the manifest.`,
		Example: "  kubectl nisse keygen --out root.key\n  kubectl nisse keygen --out lucas.key --person lucas",
		RunE: func(cmd *cobra.Command, _ []string) error {
			public, private, err := ed25519.GenerateKey(rand.Reader)
			if err != nil {
				return err
			}
			pem, err := dsse.EncodePrivateKey(private)
			if err != nil {
				return err
			}
			if err := writeNew(out, pem); err != nil {
				return err
			}
			if person != "" {
				fmt.Fprintf(cmd.OutOrStdout(), "keys:\n  persons:\n    %s: [%q]\n", person, dsse.EncodeKey(public))
				fmt.Fprintf(cmd.ErrOrStderr(), "wrote %s; put the above into spec of the DeviceManifests, and sign them again\n", out)
				return nil
			}
			fmt.Fprintf(cmd.OutOrStdout(), "rootKey: %s\n", dsse.EncodeKey(public))
			fmt.Fprintf(cmd.ErrOrStderr(), "wrote %s; keep a copy in another place: without it no manifest can be changed\n", out)
			return nil
		},
	}
	c.Flags().StringVar(&out, "out", "", "`file` that receives the private key, which must not exist")
	c.Flags().StringVar(&person, "person", "", "`name` of the Person whose own key it is")
	_ = c.MarkFlagRequired("out") // fails for unknown flags alone
	return c
}

// writeNew file that only its owner reads. What is there already is never replaced: it may be the only copy of a key.
func writeNew(name string, content []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write the key: %w", err)
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
