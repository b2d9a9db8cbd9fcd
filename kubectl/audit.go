package kubectl

import (
	"bufio"
	"cmp"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/device/wire/chain"
	"nisse.io/nisse/internal/checkpoint"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/names"
)

// longestRow of an audit, in bytes; a row holds 4 KiB of arguments at most.
const longestRow = 1 << 20

func auditCommand(c *cluster, now func() time.Time) *cobra.Command {
	cmd := &cobra.Command{Use: "audit", Short: "Look into the audits of devices"}
	cmd.AddCommand(auditVerify(c), auditReanchor(c, now))
	return cmd
}

func auditVerify(c *cluster) *cobra.Command {
	var system, rows, replica string
	cmd := &cobra.Command{
		Use: "verify DEVICE", Short: "Tell whether a device's audit is the one that was kept of it", Args: cobra.ExactArgs(1),
		Long: `Verify what is kept of a device's audit: each checkpoint by the device's own signature, the newest that the device has given by its proof. With
--rows, the rows themselves are compared with every checkpoint, and what is wrong is told apart (Edited, Gap, Duplicate, Forked, Truncated) and its
first row is named. The rows come from the machine, by a way that has nothing to do with the cluster. When the
machine is gone, --replica takes them from the broker's replica; that may end before the newest checkpoint does.

It ends with 0 when the audit is intact, with 2 when it is not, and with 1 when that could not be told: so it is, without --rows, when the device's
newest reply was given before what is kept.`,
		Example: `  kubectl nisse audit verify web1 -n nisse
  ssh web1 sudo nisse-device audit show --config /etc/nisse/device.yaml --json | kubectl nisse audit verify web1 -n nisse --rows -
  kubectl -n nisse-system exec deploy/nisse-broker -- broker replica web1 | kubectl nisse audit verify web1 -n nisse --replica -`,
		RunE: func(cmd *cobra.Command, args []string) error {
			cl, namespace, err := c.connect()
			if err != nil {
				return err
			}
			return verifyAudit(cmd, cl, client.ObjectKey{Namespace: namespace, Name: args[0]}, system, cmp.Or(replica, rows), replica != "")
		},
	}
	cmd.Flags().StringVar(&system, "system-namespace", "nisse-system", "namespace in which the manager keeps checkpoints")
	cmd.Flags().StringVar(&rows, "rows", "", "`file` with the device's rows, as 'nisse-device audit show --json' prints them; - for standard input")
	cmd.Flags().StringVar(&replica, "replica", "", "`file` with the broker's replica of them, as 'broker replica' prints it; - for standard input")
	cmd.MarkFlagsMutuallyExclusive("rows", "replica")
	return cmd
}

func verifyAudit(cmd *cobra.Command, cl client.Client, key client.ObjectKey, system, rows string, replicated bool) error {
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	var d v1alpha1.Device
	if err := get(ctx, cl, key, &d); err != nil {
		return err
	}
	public, err := dsse.ParseKey(d.Spec.PublicKey)
	if err != nil {
		return fmt.Errorf("device %s: spec.publicKey: %w", d.Name, err)
	}
	var m corev1.ConfigMap
	err = cl.Get(ctx, client.ObjectKey{Namespace: system, Name: names.Audit(d.Namespace, d.Name)}, &m)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("nothing is kept of the audit of %s: no ConfigMap %s in %s; a device gives its first checkpoint a minute after its first row", d.Name, names.Audit(d.Namespace, d.Name), system)
	}
	if err != nil {
		return err
	}
	seen, newest, err := checkpointsIn(out, m.Data, d.Name, public)
	if err != nil {
		return fmt.Errorf("ConfigMap %s: %w", m.Name, err)
	}
	if err := showAnchor(out, &d, system, m.Data[checkpoint.KeyAnchor], ""); err != nil {
		return err
	}
	found, err := checkpoint.ReadBroken(m.Data)
	if err != nil {
		return fmt.Errorf("ConfigMap %s: %w", m.Name, err)
	}
	var finding error
	if found != nil {
		finding = &found.Finding
		fmt.Fprintf(out, "found by the manager at %s: %s\n", found.At, found.Error())
	} else if finding = given(&d, newest, public); finding != nil && !isFinding(finding) {
		if rows == "" || !isNoNews(finding) {
			return finding
		}
		fmt.Fprintf(out, "%v\n", finding) // the rows themselves tell all the same
		finding = nil
	}
	if rows == "" {
		if finding == nil {
			fmt.Fprintln(out, "intact, as far as checkpoints tell; give --rows to compare the rows themselves")
		}
		return finding
	}
	in, done, err := open(cmd, rows)
	if err != nil {
		return err
	}
	defer done()
	if replicated {
		has := 0
		for _, err := range in {
			if err != nil {
				return fmt.Errorf("read the rows: %w", err)
			}
			has++
		}
		fmt.Fprintf(out, "the replica has %d rows, the newest checkpoint %d\n", has, newest.Rows)
		seen = slices.DeleteFunc(seen, func(e chain.Expect) bool { return e.Rows > int64(has) })
	}
	end, err := chain.Verify(in, seen...)
	switch {
	case isFinding(err):
		return err // it names the row better than who has seen no rows
	case err != nil:
		return fmt.Errorf("read the rows: %w", err)
	case finding != nil:
		return finding
	}
	for first, err := range in {
		if err != nil {
			return fmt.Errorf("read the rows: %w", err)
		}
		if err := showAnchor(io.Discard, &d, system, m.Data[checkpoint.KeyAnchor], first.Body); err != nil {
			return err
		}
		break
	}
	fmt.Fprintf(out, "intact: %d rows, head %s, and every checkpoint agrees with them\n", end.Rows, end.Head)
	return nil
}

func isFinding(err error) bool {
	var f *checkpoint.Finding
	return errors.As(err, &f)
}

// errNoReply: the device answers, and gives none.
var errNoReply = errors.New("the device gives no checkpoint that can be used, and its audit may be anything")

// isNoNews tells an error of no reply, or of one that was given to who had kept another checkpoint than the newest.
func isNoNews(err error) bool {
	return errors.Is(err, errNoReply) || errors.Is(err, checkpoint.ErrOtherSince) || errors.Is(err, checkpoint.ErrOlder) || errors.Is(err, checkpoint.ErrAnchored)
}

// checkpointsIn a keeping, each verified, and the newest.
func checkpointsIn(out io.Writer, data map[string]string, device string, key ed25519.PublicKey) (seen []chain.Expect, newest checkpoint.Checkpoint, err error) {
	foreign := 0
	for _, at := range checkpoint.Keys(data) {
		e, k, err := checkpoint.ReadEntry(data, at)
		if err != nil {
			return nil, checkpoint.Checkpoint{}, err
		}
		if c, err := checkpoint.Open(e.Note, device, key); err != nil || c != k {
			foreign++
		}
		seen, newest = append(seen, chain.Expect{Rows: k.Rows, Root: k.Root}), k
	}
	if len(seen) == 0 {
		return nil, checkpoint.Checkpoint{}, nil
	}
	fmt.Fprintf(out, "checkpoints kept: %d, up to row %d\n", len(seen), newest.Rows)
	if foreign > 0 {
		return nil, checkpoint.Checkpoint{}, fmt.Errorf("%d of them are not signed by the key that Device %s names", foreign, device)
	}
	return seen, newest, nil
}

// given is what the newest reply of the device says; nil when it is in order, or when there is none.
func given(d *v1alpha1.Device, newest checkpoint.Checkpoint, key ed25519.PublicKey) error {
	if d.Status.Audit == nil {
		return nil
	}
	if d.Status.Audit.Reply == "" {
		return fmt.Errorf("%w; so it was at %s: %s; compare the rows themselves (--rows)", errNoReply, d.Status.Audit.At.UTC().Format(time.RFC3339), d.Status.Audit.Finding)
	}
	o, err := checkpoint.OpenReply([]byte(d.Status.Audit.Reply), d.Name, key)
	if err != nil {
		return fmt.Errorf("what the broker brought last proves nothing: %w", err)
	}
	if err = checkpoint.Judge(newest, o); isNoNews(err) {
		// Whoever carries replies can play an old one for as long as they like, so that no news is not good news.
		return fmt.Errorf("what the broker brought last does not tell whether the audit is intact: %w; ask again in a minute, and if it stays so compare the rows themselves (--rows)", err)
	}
	return err
}

// open rows, one a line. They can be read again, so they are held.
func open(cmd *cobra.Command, file string) (iter.Seq2[chain.Record, error], func(), error) {
	in, done := cmd.InOrStdin(), func() {}
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, nil, err
		}
		in, done = f, func() { _ = f.Close() } // read-only
	}
	var all []string
	s := bufio.NewScanner(in)
	s.Buffer(nil, longestRow)
	for s.Scan() {
		if line := strings.TrimSpace(s.Text()); line != "" {
			all = append(all, line)
		}
	}
	if err := s.Err(); err != nil {
		done()
		return nil, nil, fmt.Errorf("read the rows: %w", err)
	}
	return func(yield func(chain.Record, error) bool) {
		for _, body := range all {
			if !yield(chain.Record{Body: body}, nil) {
				return
			}
		}
	}, done, nil
}
