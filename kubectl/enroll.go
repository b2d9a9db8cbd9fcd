package kubectl

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/dsse"
)

// enrolment is what somebody asked for.
type enrolment struct {
	client.Client
	out       io.Writer
	now       time.Time
	namespace string
	system    string
	name      string
	url       string
	deviceKey string
	elevated  bool               // an Elevated manifest too
	days      int                // that it lasts
	user      string             // that its commands run as
	root      ed25519.PublicKey  // nil when it was not named
	sign      ed25519.PrivateKey // nil when only the public half was named
	changed   bool
	made      []v1alpha1.Privilege // manifests of these
}

func enroll(c *cluster, now func() time.Time) *cobra.Command {
	e := enrolment{}
	var rootFile, rootPublic string
	var rootSecret bool
	cmd := &cobra.Command{
		Use: "enroll NAME", Short: "Make a machine a device", Args: cobra.ExactArgs(1),
		Long: `Make a machine a device: its Device and the manifest that it starts with, and the line to run on the machine.

Two public keys change hands, and nothing that is secret. The line for the machine carries the root key's public half: whose manifests the machine
will believe. The machine makes its own key and prints the public half, which you bring back with --device-key; until then the cluster sends the
machine nothing. So neither side believes anything that somebody in between said, only what you carried.

What is there already is never changed: run it again to read what is still to be done. The starting manifest lets agents look around and read and
write in /srv/nisse; edit and sign it as you need.

With --elevated there is a second manifest, for agents of privilege Elevated: services, packages, settings below /etc, each change with a person's
approval. It lasts 90 days at most, and wants the device to be root: the line for the machine says --elevated too. Give a machine that is
enrolled already such a manifest the same way, and run that line there again.`,
		Example: `  kubectl nisse enroll web1 -n nisse --url https://10.8.0.7:7443 --root-key root.key
  kubectl nisse enroll web1 -n nisse --device-key 'GZvM…='
  kubectl nisse enroll web1 -n nisse --elevated --root-key root.key`,
		RunE: func(cmd *cobra.Command, args []string) error {
			e.name, e.out, e.now = args[0], cmd.OutOrStdout(), now()
			if err := errors.Join(e.valid(), e.validElevated(cmd.Flags().Changed)); err != nil {
				return err
			}
			cl, namespace, err := c.connect()
			if err != nil {
				return err
			}
			e.Client, e.namespace = cl, namespace
			if err := e.rootKey(cmd.Context(), rootFile, rootPublic, rootSecret); err != nil {
				return err
			}
			return e.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&e.url, "url", "", "`https://address:port` where the machine will listen, on the mesh")
	f.StringVar(&rootFile, "root-key", "", "`file` with the root key, which signs the starting manifest")
	f.StringVar(&rootPublic, "root-public-key", "", "the root key's public half in base64, or a `file` with it; the starting manifest stays unsigned")
	f.BoolVar(&rootSecret, "root-key-secret", false, "sign with the root key in the Secret nisse-root-key, which the chart makes with rootKey.inCluster")
	f.StringVar(&e.deviceKey, "device-key", "", "public `key` that nisse-device join printed on the machine")
	f.BoolVar(&e.elevated, "elevated", false, "make a manifest for agents of privilege Elevated too; the device is to be root for that")
	f.IntVar(&e.days, "elevated-days", mostDays, "for how many `days` the Elevated manifest holds, 90 at most")
	f.StringVar(&e.user, "elevated-user", "root", "`account` of the machine that commands of Elevated agents run as; another than root, where that is enough")
	f.StringVar(&e.system, "system-namespace", "nisse-system", "namespace in which Nisse runs")
	cmd.MarkFlagsMutuallyExclusive("root-key", "root-public-key", "root-key-secret")
	return cmd
}

var label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

func (e *enrolment) valid() error {
	if !label.MatchString(e.name) {
		return fmt.Errorf("%q is no name for a device: lower-case letters, digits and dashes, 63 at most", e.name)
	}
	if e.deviceKey != "" {
		if _, err := dsse.ParseKey(e.deviceKey); err != nil {
			return fmt.Errorf("--device-key: %w; it is the publicKey that nisse-device join prints on the machine", err)
		}
	}
	if e.url == "" {
		return nil
	}
	u, err := url.Parse(e.url)
	switch {
	case err != nil:
		return fmt.Errorf("--url: %w", err)
	case u.Scheme != "https":
		return fmt.Errorf("--url %q: a device is reached by https:// (its own key is the certificate; nothing is to be bought or renewed)", e.url)
	case u.Hostname() == "" || u.Port() == "":
		return fmt.Errorf("--url %q: name address and port, such as https://10.8.0.7:7443", e.url)
	case "https://"+u.Host != e.url:
		return fmt.Errorf("--url %q: nothing may follow the port: https://%s", e.url, u.Host)
	}
	return nil
}

// rootKey that was named, one way or another.
func (e *enrolment) rootKey(ctx context.Context, file, public string, secret bool) error {
	switch {
	case file != "":
		key, err := privateKey(file)
		if err != nil {
			return err
		}
		e.sign = key
	case secret:
		var s corev1.Secret
		if err := e.Get(ctx, client.ObjectKey{Namespace: e.system, Name: "nisse-root-key"}, &s); err != nil {
			return fmt.Errorf("--root-key-secret: %w; the chart makes it with rootKey.inCluster=true", err)
		}
		key, err := dsse.ParsePrivateKey(s.Data["key.pem"])
		if err != nil {
			return fmt.Errorf("--root-key-secret: Secret nisse-root-key: %w", err)
		}
		e.sign = key
	case public != "":
		key, err := publicHalf(public)
		if err != nil {
			return fmt.Errorf("--root-public-key: %w", err)
		}
		e.root = key
		return nil
	default:
		return nil
	}
	e.root = e.sign.Public().(ed25519.PublicKey)
	return nil
}

// publicHalf in base64, or in a file as keygen prints it.
func publicHalf(s string) (ed25519.PublicKey, error) {
	key, err := dsse.ParseKey(s)
	if err == nil {
		return key, nil
	}
	b, rerr := os.ReadFile(s)
	if errors.Is(rerr, os.ErrNotExist) {
		return nil, fmt.Errorf("neither a key nor a file: %w", err)
	}
	if rerr != nil {
		return nil, rerr
	}
	return dsse.ParseKey(strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(string(b)), "rootKey:")))
}

func (e *enrolment) run(ctx context.Context) error {
	d, err := e.device(ctx)
	if err != nil {
		return err
	}
	all, err := e.manifests(ctx, d)
	if err != nil {
		return err
	}
	if !e.changed {
		fmt.Fprintln(e.out, "nothing was changed")
	}
	e.next(d, all)
	return nil
}

// device as it is now, made or completed.
func (e *enrolment) device(ctx context.Context) (*v1alpha1.Device, error) {
	d := &v1alpha1.Device{}
	err := e.Get(ctx, client.ObjectKey{Namespace: e.namespace, Name: e.name}, d)
	if apierrors.IsNotFound(err) {
		if e.url == "" || e.root == nil {
			return nil, fmt.Errorf("there is no Device %s in namespace %s; to make it name --url, and --root-key, --root-key-secret or --root-public-key", e.name, e.namespace)
		}
		d = &v1alpha1.Device{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: e.name},
			Spec: v1alpha1.DeviceSpec{URL: e.url, PublicKey: e.deviceKey, RootKey: dsse.EncodeKey(e.root)}}
		if err := e.Create(ctx, d); err != nil {
			return nil, err
		}
		e.tell("device", e.name, "created", "")
		return d, nil
	}
	if err != nil {
		return nil, err
	}
	for _, f := range []struct{ name, flag, is, asked string }{
		{"url", "--url", d.Spec.URL, e.url},
		{"rootKey", "the root key", d.Spec.RootKey, encoded(e.root)},
		{"publicKey", "--device-key", d.Spec.PublicKey, e.deviceKey},
	} {
		if f.asked != "" && f.is != "" && f.asked != f.is {
			return nil, fmt.Errorf("device %s has %s %s, and %s says %s. Enrolling changes nothing that is there. If it is to change, and you know why:\n\n    kubectl -n %s patch device %s --type merge -p '{\"spec\": {%q: %q}}'",
				e.name, f.name, f.is, f.flag, f.asked, e.namespace, e.name, f.name, f.asked)
		}
	}
	if e.deviceKey == "" || d.Spec.PublicKey == e.deviceKey {
		e.tell("device", e.name, "unchanged", "")
		return d, nil
	}
	was := d.DeepCopy()
	d.Spec.PublicKey = e.deviceKey
	if err := e.Patch(ctx, d, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{})); err != nil {
		return nil, err
	}
	e.tell("device", e.name, "knows its machine's key", "")
	return d, nil
}

func encoded(key ed25519.PublicKey) string {
	if key == nil {
		return ""
	}
	return dsse.EncodeKey(key)
}

func (e *enrolment) tell(kind, name, what, more string) {
	e.changed = e.changed || what != "unchanged"
	fmt.Fprintf(e.out, "%s/%s %s%s\n", kind, name, what, more)
}
