package kubectl

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/device/wire/chain"
	"nisse.io/nisse/internal/checkpoint"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/names"
)

func auditReanchor(c *cluster, now func() time.Time) *cobra.Command {
	var system, keyFile, reason string
	var wait time.Duration
	cmd := &cobra.Command{
		Use: "reanchor DEVICE", Short: "Order a device to begin a new line of an audit that is broken", Args: cobra.ExactArgs(1),
		Long: `Order a device, by the root key, to begin a new line of its audit. Nothing is repaired: the rows of the line that is broken stay on the machine as they
are, and what was kept of it stays in the cluster, for ever. The first row of the new line is this order. Until then nothing that needs approval runs
on a device that has found its own audit broken.

Look into it before: kubectl nisse audit verify tells what is wrong, and from which row on. A device refuses an order when nothing is wrong.`,
		Example: "  kubectl nisse audit reanchor web1 -n nisse --key root.key --reason 'disk restored from the backup of Monday'",
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := privateKey(keyFile)
			if err != nil {
				return err
			}
			cl, namespace, err := c.connect()
			if err != nil {
				return err
			}
			return reanchor(cmd, cl, client.ObjectKey{Namespace: namespace, Name: args[0]}, system, key, reason, func() int64 { return c.clock(now()) }, wait)
		},
	}
	cmd.Flags().StringVar(&system, "system-namespace", "nisse-system", "namespace in which the manager keeps checkpoints")
	cmd.Flags().StringVar(&keyFile, "key", "", "`file` with the root key in PEM")
	cmd.Flags().StringVar(&reason, "reason", "", "why, in a sentence; it stays in the audit")
	cmd.Flags().DurationVar(&wait, "wait", 2*time.Minute, "how long to wait until the new line is kept; 0 does not wait")
	_ = cmd.MarkFlagRequired("key") // fails for unknown flags alone
	return cmd
}

func reanchor(cmd *cobra.Command, cl client.WithWatch, key client.ObjectKey, system string, root ed25519.PrivateKey, reason string, now func() int64, wait time.Duration) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	var d v1alpha1.Device
	if err := get(ctx, cl, key, &d); err != nil {
		return err
	}
	if public := dsse.EncodeKey(root.Public().(ed25519.PublicKey)); public != d.Spec.RootKey {
		return fmt.Errorf("the key is %s, and device %s has pinned the root key %s", public, d.Name, d.Spec.RootKey)
	}
	var m corev1.ConfigMap
	if err := cl.Get(ctx, client.ObjectKey{Namespace: system, Name: names.Audit(d.Namespace, d.Name)}, &m); err != nil {
		return fmt.Errorf("read what is kept of the audit of %s: %w", d.Name, err)
	}
	found, err := checkpoint.ReadBroken(m.Data)
	if err != nil {
		return fmt.Errorf("ConfigMap %s: %w", m.Name, err)
	}
	if found == nil {
		return fmt.Errorf("the manager has found nothing wrong with the audit of %s; kubectl nisse audit verify %s tells how it is", d.Name, d.Name)
	}
	last, err := lastKept(&d, &m)
	if err != nil {
		return err
	}
	at := now()
	a := checkpoint.Anchor{Device: d.Name, Line: max(at, last.Line+1), Before: last.Line, Rows: last.Rows, Root: last.Root.String(), Trouble: found.Trouble, Row: found.Row, Reason: reason, At: at}
	order, err := a.Sign(root)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"auditAnchor": order}})
	if err != nil {
		return err
	}
	if err := cl.Patch(ctx, &d, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		return err
	}
	fmt.Fprintf(out, "device %s: line %d is ordered, after %d rows of line %d (%s at row %d)\n", d.Name, a.Line, a.Rows, a.Before, a.Trouble, a.Row)
	if wait == 0 {
		return nil
	}
	return anchored(ctx, out, cl, &d, a.Line, wait)
}

// lastKept checkpoint: in the ConfigMap, or where somebody took that away once, in the status. None where the audit was broken before one came.
func lastKept(d *v1alpha1.Device, m *corev1.ConfigMap) (checkpoint.Checkpoint, error) {
	var last checkpoint.Checkpoint
	var err error
	if all := checkpoint.Keys(m.Data); len(all) > 0 {
		if _, last, err = checkpoint.ReadEntry(m.Data, all[len(all)-1]); err != nil {
			err = fmt.Errorf("ConfigMap %s: %w", m.Name, err)
		}
	} else if s := d.Status.AuditKept; s != nil {
		last.Line, last.Rows = s.Line, s.Rows
		if last.Root, err = checkpoint.ParseRoot(s.Root); err != nil {
			err = fmt.Errorf("device %s: status.auditKept: %w", d.Name, err)
		}
	}
	return last, err
}

// anchored waits until the manager has kept the new line.
func anchored(ctx context.Context, out io.Writer, cl client.WithWatch, d *v1alpha1.Device, line int64, wait time.Duration) error {
	said := ""
	err := until(ctx, cl, d, wait, func(now *v1alpha1.Device) bool {
		if c := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.ConditionOnline); c != nil {
			said = c.Message
		}
		return now.Status.AuditKept != nil && now.Status.AuditKept.Line >= line
	})
	if errors.Is(err, errTime) {
		return fmt.Errorf("device %s has not begun the line within %s; it is told as soon as it answers. Its condition Online says: %s", d.Name, wait, said)
	}
	if err == nil {
		fmt.Fprintf(out, "device %s: the new line is kept\n", d.Name)
	}
	return err
}

// showAnchor tells of the order that the line which is kept began by, if it did. rows are those of that line; none where they were not given.
func showAnchor(out io.Writer, d *v1alpha1.Device, system, order string, first string) error {
	if order == "" {
		return nil
	}
	root, err := dsse.ParseKey(d.Spec.RootKey)
	if err != nil {
		return fmt.Errorf("device %s: spec.rootKey: %w", d.Name, err)
	}
	a, err := checkpoint.OpenAnchor(order, d.Name, root)
	if err != nil {
		return fmt.Errorf("the line that is kept was not ordered by the root key that Device %s names: %w", d.Name, err)
	}
	fmt.Fprintf(out, "anchored: line %d, at row 1 by root key %s, ordered at %s (%q), for line %d was %s at row %d; what was kept of that is in ConfigMap %s of %s\n", a.Line, dsse.KeyID(root),
		time.Unix(a.At, 0).UTC().Format(time.RFC3339), a.Reason, a.Before, a.Trouble, a.Row, names.AuditLine(d.Namespace, d.Name, a.Before), system)
	if first == "" {
		return nil
	}
	if r, err := chain.Decode(first); err == nil && (r.Kind != chain.Anchor || r.Args != order) {
		return &checkpoint.Finding{Trouble: checkpoint.Forked, Row: 1, Detail: "the line does not begin with the order that it was begun by"}
	}
	return nil
}
