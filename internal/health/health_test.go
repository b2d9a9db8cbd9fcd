package health

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// serve the port until the test ends; its address.
func serve(t *testing.T, checks map[string]http.Handler) string {
	t.Helper()
	mgr, err := ctrl.NewManager(&rest.Config{Host: "http://127.0.0.1:1"}, ctrl.Options{Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := add(mgr, l, checks); err != nil {
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
	return l.Addr().String()
}

func fine(http.ResponseWriter, *http.Request) {}

// slow is what a scrape waits for.
type slow struct {
	begun, end chan struct{}
}

func (slow) Describe(to chan<- *prometheus.Desc) {
	to <- prometheus.NewDesc("slow", "What a scrape waits for.", nil, nil)
}

func (s slow) Collect(chan<- prometheus.Metric) {
	s.begun <- struct{}{}
	<-s.end
}

// However many scrape, few are worked for at a time, and checks are answered beside them.
func TestScrapesAreFew(t *testing.T) {
	address := serve(t, map[string]http.Handler{"/healthz": http.HandlerFunc(fine)})
	s := slow{make(chan struct{}), make(chan struct{})}
	if err := metrics.Registry.Register(s); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { metrics.Registry.Unregister(s) })
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(path string) int {
		res, err := client.Get("http://" + address + path)
		if err != nil {
			t.Error(err)
			return 0
		}
		defer res.Body.Close()
		_, _ = io.Copy(io.Discard, res.Body) // the code is what counts
		return res.StatusCode
	}
	var all sync.WaitGroup
	for range scrapes {
		all.Go(func() {
			if code := get("/metrics"); code != http.StatusOK {
				t.Errorf("a scrape under way ended with %d", code)
			}
		})
		<-s.begun
	}
	if code := get("/metrics"); code != http.StatusServiceUnavailable {
		t.Errorf("one more scrape: %d", code)
	}
	if code := get("/healthz"); code != http.StatusOK {
		t.Errorf("the check: %d", code)
	}
	close(s.end)
	all.Wait()
}

// However much one address leaves open, a probe that comes from there too is answered.
func TestProbesAreAnswered(t *testing.T) {
	sick := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	address := serve(t, map[string]http.Handler{"/healthz": http.HandlerFunc(fine), "/readyz": sick})
	kubelet := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	probe := func(path string, want int, says string) {
		t.Helper()
		res, err := kubelet.Get("http://" + address + path)
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
		c, err := net.Dial("tcp", address)
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
