package kubectl

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/manifest"
	"nisse.io/nisse/test/apitest"
	"nisse.io/nisse/test/signed"
)

func TestMain(m *testing.M) { apitest.Main(m) }

// kubeconfig of the test's API server.
func kubeconfig(t *testing.T, cfg *rest.Config, namespace string) string {
	t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	c.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData, Token: cfg.BearerToken}
	c.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u", Namespace: namespace}
	c.CurrentContext = "x"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*c, file); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestDeviceRevoke(t *testing.T) {
	cfg, admin := apitest.Start(t)
	ns := apitest.Namespace(t, admin)
	file := kubeconfig(t, cfg, ns)
	d := &v1alpha1.Device{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web1"},
		Spec: v1alpha1.DeviceSpec{URL: "https://192.0.2.1:7443", PublicKey: publicKey(1), RootKey: publicKey(2)}}
	of := func(p manifest.Privilege, epoch int64) *v1alpha1.DeviceManifest {
		text := fmt.Sprintf("{v: 1, device: web1, privilege: %s, epoch: %d, expiresAt: %s, keys: {request: [%q], approval: [%q]}, limits: {writeBytes: 1, outputBytes: 1, timeoutSeconds: 1}}",
			p, epoch-1, time.Now().Add(48*time.Hour).UTC().Format(time.RFC3339), publicKey(3), publicKey(4))
		m, err := manifest.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		signature, err := m.Sign(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{2}, ed25519.SeedSize)), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		o, err := signed.Object(ns, m, signature)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	ahead := time.Now().Add(24 * time.Hour).Unix()
	far := of(manifest.Elevated, 2) // somebody has edited it
	far.Spec.Epoch = 1<<53 - 1
	for _, o := range []client.Object{d, of(manifest.User, ahead), far} {
		if err := admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}

	out, _, err := run(t, "", "device", "revoke", "web1", "--kubeconfig", file, "--wait", "100ms")
	if err == nil || !strings.Contains(err.Error(), "has not confirmed") {
		t.Errorf("nobody confirmed: %q, %v", out, err)
	}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(d), d); err != nil {
		t.Fatal(err)
	}
	if d.Spec.RevokedEpoch != ahead {
		t.Errorf("revoked up to %d, want %d: a manifest that was signed by a clock ahead lives on", d.Spec.RevokedEpoch, ahead)
	}

	d.Status.RevokedEpoch = ahead
	if err := admin.Status().Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	out, _, err = run(t, "", "device", "revoke", "web1", "--kubeconfig", file)
	if err != nil || !strings.Contains(out, "confirmed, it refuses") {
		t.Errorf("%q, %v", out, err)
	}
	if _, _, err := run(t, "", "device", "revoke", "none", "--kubeconfig", file); err == nil || !strings.Contains(err.Error(), "there is no Device none in namespace") {
		t.Errorf("%v", err)
	}
	d.Spec.RevokedEpoch = 1
	if err := admin.Update(t.Context(), d); err == nil || !strings.Contains(err.Error(), "stays revoked") {
		t.Errorf("what was revoked came back: %v", err)
	}
}

// A clock that is years ahead, or behind, on the machine of who revokes: the API server's counts.
func TestRevokeByTheServersClock(t *testing.T) {
	cfg, admin := apitest.Start(t)
	ns := apitest.Namespace(t, admin)
	file := kubeconfig(t, cfg, ns)
	for name, years := range map[string]int{"ahead": 10, "behind": -10} {
		d := &v1alpha1.Device{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: v1alpha1.DeviceSpec{URL: "https://192.0.2.1:7443", PublicKey: publicKey(1), RootKey: publicKey(2)}}
		if err := admin.Create(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		before := time.Now().Unix()
		c := &cluster{}
		c.rules.ExplicitPath = file
		cmd := deviceCommand(c, func() time.Time { return time.Now().AddDate(years, 0, 0) })
		cmd.SetArgs([]string{"revoke", name, "--wait", "0"})
		cmd.SetOut(io.Discard)
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(d), d); err != nil {
			t.Fatal(err)
		}
		if e := d.Spec.RevokedEpoch; e < before-1 || e > time.Now().Unix()+1 {
			t.Errorf("%s: revoked up to %d, and it is %d", name, e, before)
		}
	}
}
