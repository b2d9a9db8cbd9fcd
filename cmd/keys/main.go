// Command keys makes the approval key and the request key where they are missing, and publishes their public halves. Told so, it makes
// a root key too, which is the easy way and not the safe one: who reads it decides what devices allow. The chart runs it before everything else. It never replaces a key: devices trust the ones that exist.
package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"flag"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"nisse.io/nisse/internal/dsse"
)

const keyFile = "key.pem"

func main() {
	namespace := flag.String("namespace", "nisse-system", "namespace of the Secrets nisse-approval-key and nisse-request-key and the ConfigMap nisse-public-keys")
	root := flag.Bool("root-key", false, "make a root key too, in the Secret nisse-root-key: whoever reads Secrets of the namespace then decides what devices allow")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	names := []string{"approval", "request"}
	if *root {
		names = append(names, "root")
	}
	if err := run(ctx, *namespace, names); err != nil {
		fmt.Fprintln(os.Stderr, "keys:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, namespace string, names []string) error {
	// A pod's own account, or what KUBECONFIG names.
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	// The core group alone: clients of every group would be most of the binary.
	c, err := corev1client.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("reach the API server: %w", err)
	}
	public := map[string]string{}
	for _, name := range names {
		pub, err := ensure(ctx, c, namespace, "nisse-"+name+"-key")
		if err != nil {
			return err
		}
		public[name] = dsse.EncodeKey(pub)
		fmt.Printf("%s key: public %s, id %s\n", name, public[name], dsse.KeyID(pub))
	}
	return publish(ctx, c, namespace, public)
}

// ensure returns the public half of the key in the Secret, making both if there is none. Two runs at once agree: the one whose
// create loses reads what the other made.
func ensure(ctx context.Context, c corev1client.CoreV1Interface, namespace, name string) (ed25519.PublicKey, error) {
	secrets := c.Secrets(namespace)
	s, err := secrets.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, private, kerr := ed25519.GenerateKey(rand.Reader)
		if kerr != nil {
			return nil, fmt.Errorf("make %s: %w", name, kerr)
		}
		pem, kerr := dsse.EncodePrivateKey(private)
		if kerr != nil {
			return nil, fmt.Errorf("make %s: %w", name, kerr)
		}
		s, err = secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{keyFile: pem}}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			s, err = secrets.Get(ctx, name, metav1.GetOptions{})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("secret %s/%s: %w", namespace, name, err)
	}
	private, err := dsse.ParsePrivateKey(s.Data[keyFile])
	if err != nil {
		return nil, fmt.Errorf("secret %s/%s, entry %s: %w; it is left as it is", namespace, name, keyFile, err)
	}
	return private.Public().(ed25519.PublicKey), nil
}

func publish(ctx context.Context, c corev1client.CoreV1Interface, namespace string, public map[string]string) error {
	maps := c.ConfigMaps(namespace)
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "nisse-public-keys"}, Data: public}
	_, err := maps.Create(ctx, m, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = maps.Update(ctx, m, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("configmap %s/%s: %w", namespace, m.Name, err)
	}
	return nil
}
