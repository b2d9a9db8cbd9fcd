package kubectl

import (
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
	"nisse.io/nisse/test/apitest"
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
	ahead := time.Now().Add(24 * time.Hour).Unix()
	m := &v1alpha1.DeviceManifest{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web1-user"}, Spec: v1alpha1.DeviceManifestSpec{
		Device: "web1", Privilege: v1alpha1.PrivilegeUser, Epoch: ahead, ExpiresAt: "2027-06-01T00:00:00Z",
		Keys: v1alpha1.ManifestKeys{Request: []string{publicKey(3)}, Approval: []string{publicKey(4)}}, Limits: v1alpha1.ManifestLimits{WriteBytes: 1, OutputBytes: 1, TimeoutSeconds: 1},
	}}
	for _, o := range []client.Object{d, m} {
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
	if _, _, err := run(t, "", "device", "revoke", "none", "--kubeconfig", file); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("%v", err)
	}
	d.Spec.RevokedEpoch = 1
	if err := admin.Update(t.Context(), d); err == nil || !strings.Contains(err.Error(), "stays revoked") {
		t.Errorf("what was revoked came back: %v", err)
	}
}
