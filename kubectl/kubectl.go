// Package kubectl is the plugin `kubectl nisse`: what people do with Nisse's objects that plain kubectl does badly. It acts with the
// person's own credentials and holds no right of its own.
package kubectl

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
)

// New plugin.
func New(version string) *cobra.Command {
	var c cluster
	root := &cobra.Command{
		Use: "nisse", Short: "Work with Nisse's gates, devices, their manifests and their jobs", Version: version,
		Annotations:  map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl nisse"},
		SilenceUsage: true, SilenceErrors: true,
	}
	f := root.PersistentFlags()
	f.StringVar(&c.rules.ExplicitPath, "kubeconfig", "", "path of the kubeconfig; what kubectl takes when empty")
	f.StringVar(&c.overrides.CurrentContext, "context", "", "context of the kubeconfig")
	f.StringVarP(&c.overrides.Context.Namespace, "namespace", "n", "", "namespace of the objects; the context's when empty")
	root.AddCommand(keygen(), manifestCommand(time.Now), deviceCommand(&c, time.Now), auditCommand(&c, time.Now), enroll(&c, time.Now), jobCommand(&c), approveCommand(&c, time.Now))
	return root
}

// cluster that kubectl would speak with, found when it is first needed: signing works without one.
type cluster struct {
	rules     clientcmd.ClientConfigLoadingRules
	overrides clientcmd.ConfigOverrides
	// date of the API server's last answer, in Unix seconds; 0 before one came.
	date atomic.Int64
}

// dated answers are remembered by their date, for the clock of a person's machine may be wrong.
type dated struct {
	to   http.RoundTripper
	date *atomic.Int64
}

func (d dated) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := d.to.RoundTrip(r)
	if err == nil {
		if at, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
			d.date.Store(at.Unix())
		}
	}
	return answer, err
}

// get an object, and say where it was looked for if it is not there: kubectl's namespace is seldom the one of the agents.
func get(ctx context.Context, cl client.Client, key client.ObjectKey, into client.Object) error {
	err := cl.Get(ctx, key, into)
	if !apierrors.IsNotFound(err) {
		return err
	}
	kind := "object"
	if gvk, kindErr := cl.GroupVersionKindFor(into); kindErr == nil {
		kind = gvk.Kind
	}
	return fmt.Errorf("there is no %s %s in namespace %s; -n names another one: %w", kind, key.Name, key.Namespace, err)
}

// connect returns a client and the namespace.
func (c *cluster) connect() (client.WithWatch, string, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.rules.ExplicitPath
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &c.overrides)
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, "", fmt.Errorf("read the kubeconfig: %w", err)
	}
	cfg, err := loader.ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("read the kubeconfig: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme), authenticationv1.AddToScheme(scheme)); err != nil {
		return nil, "", err
	}
	cfg.Wrap(func(to http.RoundTripper) http.RoundTripper { return dated{to, &c.date} })
	cl, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, "", fmt.Errorf("reach the API server: %w", err)
	}
	return cl, namespace, nil
}
