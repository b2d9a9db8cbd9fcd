package kubectl

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/manifest"
	"nisse.io/nisse/internal/names"
)

func deviceCommand(c *cluster, now func() time.Time) *cobra.Command {
	cmd := &cobra.Command{Use: "device", Short: "Work with devices"}
	cmd.AddCommand(deviceRevoke(c, now))
	return cmd
}

func deviceRevoke(c *cluster, now func() time.Time) *cobra.Command {
	var wait time.Duration
	cmd := &cobra.Command{
		Use: "revoke NAME", Short: "Kill what a device allows, at once and until its manifests are signed again", Args: cobra.ExactArgs(1),
		Long: `Kill every manifest that a device has now. The broker stops using it at once; the device is told within seconds, or as soon as it answers again,
and refuses whatever comes under those manifests. No key is needed for that. It comes back by 'kubectl nisse manifest sign', for which the root key is.`,
		Example: "  kubectl nisse device revoke web1 -n nisse",
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, namespace, err := c.connect()
			if err != nil {
				return err
			}
			return revoke(cmd, cl, client.ObjectKey{Namespace: namespace, Name: args[0]}, func() int64 { return c.clock(now()) }, wait)
		},
	}
	cmd.Flags().DurationVar(&wait, "wait", 15*time.Second, "how long to wait for the device to confirm; 0 does not wait")
	return cmd
}

// clock of the API server, by its last answer, in Unix seconds; this machine's before one came. A revocation by a clock that is years ahead would kill what
// is signed in all those years, and one by a clock that is behind what was signed just now would not.
func (c *cluster) clock(mine time.Time) int64 {
	if at := c.date.Load(); at > 0 {
		return at
	}
	return mine.Unix()
}

func revoke(cmd *cobra.Command, cl client.WithWatch, key client.ObjectKey, now func() int64, wait time.Duration) error {
	ctx := cmd.Context()
	var d v1alpha1.Device
	if err := get(ctx, cl, key, &d); err != nil {
		return err
	}
	epoch := max(d.Spec.RevokedEpoch, now())
	for _, p := range []v1alpha1.Privilege{v1alpha1.PrivilegeUser, v1alpha1.PrivilegeElevated} {
		var m v1alpha1.DeviceManifest
		err := cl.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: names.Manifest(d.Name, string(p))}, &m)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		// One that was signed by a clock ahead of this one. What nobody signed must not count, or whoever edits manifests could have every later one killed.
		if root, err := dsse.ParseKey(d.Spec.RootKey); err == nil {
			if signed, err := manifest.Open(m.Spec.Signature, []ed25519.PublicKey{root}); err == nil {
				epoch = max(epoch, signed.Epoch)
			}
		}
	}
	patch := fmt.Appendf(nil, `{"spec":{"revokedEpoch":%d}}`, epoch)
	if err := cl.Patch(ctx, &d, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "device %s: revoked up to epoch %d\n", d.Name, epoch)
	if wait == 0 {
		return nil
	}
	return confirmed(cmd, cl, &d, epoch, wait)
}

// confirmed waits until the device itself refuses.
func confirmed(cmd *cobra.Command, cl client.WithWatch, d *v1alpha1.Device, epoch int64, wait time.Duration) error {
	err := until(cmd.Context(), cl, d, wait, func(now *v1alpha1.Device) bool { return now.Status.RevokedEpoch >= epoch })
	if errors.Is(err, errTime) {
		return fmt.Errorf("device %s has not confirmed within %s; nothing is sent to it any more, and it is told as soon as it answers", d.Name, wait)
	}
	if err == nil {
		fmt.Fprintf(cmd.OutOrStdout(), "device %s: confirmed, it refuses\n", d.Name)
	}
	return err
}

var errTime = errors.New("it takes longer")

// until a device is as it should be; errTime when it is not in time.
func until(ctx context.Context, cl client.WithWatch, d *v1alpha1.Device, wait time.Duration, is func(*v1alpha1.Device) bool) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	w, err := cl.Watch(ctx, &v1alpha1.DeviceList{}, client.InNamespace(d.Namespace), client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", d.Name)})
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		got, ok := e.Object.(*v1alpha1.Device)
		switch {
		case e.Type == watch.Deleted:
			return fmt.Errorf("device %s was deleted", d.Name)
		case ok && is(got):
			return nil
		}
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return errTime
	}
	return ctx.Err()
}
