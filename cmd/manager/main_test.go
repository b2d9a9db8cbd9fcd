package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/test/apitest"
)

func TestMain(m *testing.M) { apitest.Main(m) }

func keyFile(t *testing.T) string {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	pem, err := dsse.EncodePrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(path, pem, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRefusesWhatCannotRun(t *testing.T) {
	key := keyFile(t)
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"no image", []string{"--approval-key-file=" + key}, "--agent-image is required"},
		{"no key", []string{"--agent-image=x"}, "openssl genpkey"},
		{"a key that is not there", []string{"--agent-image=x", "--approval-key-file=" + key + ".not"}, "no such file"},
		{"a key that is none", []string{"--agent-image=x", "--approval-key-file=main_test.go"}, "not a PEM block"},
		{"pull policy", []string{"--agent-image=x", "--agent-image-pull-policy=Sometimes"}, "want Always, IfNotPresent or Never"},
		{"pull secret without a name", []string{"--agent-image-pull-secret="}, "name a Secret"},
		{"log level", []string{"--log-level=loud"}, "--log-level"},
		{"unknown flag", []string{"--sing"}, "not defined"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := run(tc.args); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// The whole binary against an API server: it becomes the leader, serves its health and metrics, and leaves when it is told.
func TestServesAndLeaves(t *testing.T) {
	cfg, admin := apitest.Start(t)
	ns := apitest.Namespace(t, admin)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	c := clientcmdapi.NewConfig()
	c.Clusters["test"] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	c.AuthInfos["test"] = &clientcmdapi.AuthInfo{ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData}
	c.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	c.CurrentContext = "test"
	if err := clientcmd.WriteToFile(*c, kubeconfig); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", kubeconfig)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()

	done := make(chan error, 1)
	go func() {
		done <- run([]string{"--agent-image=x", "--approval-key-file=" + keyFile(t), "--namespace=" + ns + ", ", "--system-namespace=" + ns,
			"--metrics-bind-address=" + address, "--leader-elect", "--log-level=error"})
	}()
	for path, want := range map[string]string{"/healthz": "ok", "/readyz": "ok", "/metrics": "nisse_manager_gates_open"} {
		apitest.Wait(t, 60*time.Second, func(ctx context.Context) error {
			select {
			case err := <-done:
				t.Fatal("it ended:", err)
			default:
			}
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
			if err != nil {
				return err
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			if resp.StatusCode != http.StatusOK || !strings.Contains(string(b), want) {
				return errors.Join(err, fmt.Errorf("%s: %s", path, resp.Status))
			}
			return nil
		})
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(60 * time.Second):
		t.Error("it does not leave")
	}
}
