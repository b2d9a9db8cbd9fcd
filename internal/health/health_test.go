package health

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// However much one address leaves open, a probe that comes from there too is answered.
func TestProbesAreAnswered(t *testing.T) {
	mgr, err := ctrl.NewManager(&rest.Config{Host: "http://127.0.0.1:1"}, ctrl.Options{Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	sick := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	fine := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	if err := add(mgr, l, map[string]http.Handler{"/healthz": fine, "/readyz": sick}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	kubelet := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	probe := func(path string, want int, says string) {
		t.Helper()
		res, err := kubelet.Get("http://" + l.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != want || !strings.Contains(string(b), says) {
			t.Errorf("%s: %s %v, %.200q", path, res.Status, err, b)
		}
	}
	for n := range 600 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatalf("connection %d: %v", n+1, err)
		}
		t.Cleanup(func() { _ = c.Close() }) // the server may have closed it before
		if n%2 == 0 {
			_, _ = fmt.Fprint(c, "GET /healthz HT") // and so here
		}
		if n%50 == 49 {
			probe("/healthz", http.StatusOK, "")
		}
	}
	probe("/readyz", http.StatusServiceUnavailable, "")
	probe("/metrics", http.StatusOK, "go_goroutines")
}
