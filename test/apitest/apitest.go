// Package apitest gives tests a real API server with Nisse's kinds. It is started once a package, by the first test that asks.
//
//	func TestMain(m *testing.M) { apitest.Main(m) }
//
//	func TestX(t *testing.T) {
//		cfg, admin := apitest.Start(t)
//		ns := apitest.Namespace(t, admin)
//		lucas := apitest.As(t, cfg, "lucas")
//		…
//	}
//
// Only the API server and etcd run: no other controller, so nothing is garbage-collected and no StatefulSet makes a pod.
package apitest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"nisse.io/nisse/api/v1alpha1"
)

// Assets is the environment variable that names the directory of kube-apiserver and etcd.
const Assets = "KUBEBUILDER_ASSETS"

var (
	once    sync.Once
	inMain  bool
	server  *envtest.Environment
	config  *rest.Config
	failure error
	scheme  = newScheme()
)

func newScheme() *kruntime.Scheme {
	s := kruntime.NewScheme()
	for _, add := range []func(*kruntime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err) // two kinds of one name: a mistake in the source
		}
	}
	return s
}

// Scheme with Kubernetes' own kinds and Nisse's.
func Scheme() *kruntime.Scheme { return scheme }

// Main runs the package's tests (m is a *testing.M, or what runs one) and stops the API server, which would otherwise outlive them. It
// ends the process, so what else is to be done at the end comes as after.
func Main(m interface{ Run() int }, after ...func()) {
	ctrllog.SetLogger(logr.Discard())
	inMain = true
	code := m.Run()
	if server != nil {
		if err := server.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop the API server:", err)
		}
	}
	for _, f := range after {
		f()
	}
	os.Exit(code)
}

// Start returns the API server's config and a client of the cluster's administrator. Objects of all tests of a package share the
// server: work in a Namespace of your own.
func Start(t testing.TB) (*rest.Config, client.Client) {
	t.Helper()
	if !inMain {
		t.Fatal("the package needs: func TestMain(m *testing.M) { apitest.Main(m) }")
	}
	once.Do(start)
	if failure != nil {
		t.Fatal(failure)
	}
	return rest.CopyConfig(config), Client(t, config)
}

func start() {
	if os.Getenv(Assets) == "" {
		failure = fmt.Errorf("%s names no directory with kube-apiserver and etcd; `make test` sets it", Assets)
		return
	}
	s := &envtest.Environment{
		CRDDirectoryPaths:     []string{Path("config", "crd", "bases")},
		ErrorIfCRDPathMissing: true,
		Scheme:                scheme,
	}
	for _, change := range changes {
		change(s)
	}
	config, failure = Boot(s)
	server = s
	if failure != nil {
		failure = fmt.Errorf("start an API server from %s: %w", Assets, failure)
	}
}

// Boot starts an API server and etcd with time to do so, for a package that makes one of its own kind.
func Boot(s *envtest.Environment) (*rest.Config, error) {
	s.ControlPlaneStartTimeout = 3 * time.Minute // a cold start beside a full build takes its time
	s.ControlPlaneStopTimeout = time.Minute
	// Their collector of garbage is a fifth of what they compute, and they live for a minute. Whoever runs the tests may have said otherwise.
	const collector = "GOGC"
	if os.Getenv(collector) == "" {
		if err := os.Setenv(collector, "400"); err != nil {
			return nil, err
		}
		defer os.Unsetenv(collector)
	}
	return s.Start()
}

// Client for a config.
func Client(t testing.TB, cfg *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Path of a file in the repository.
func Path(elem ...string) string {
	_, self, _, _ := runtime.Caller(0)
	return filepath.Join(append([]string{filepath.Dir(self), "..", ".."}, elem...)...)
}

// Wait until check returns nil. It fails the test with check's last error after within.
func Wait(t testing.TB, within time.Duration, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("after %s: %v", within, err)
		case <-tick.C:
		}
	}
}
