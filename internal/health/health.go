// Package health serves how a process of the cluster is: its metrics, and the checks that the kubelet restarts it by.
package health

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"nisse.io/nisse/internal/listen"
)

// last requests get this long to end when the process does.
const last = 5 * time.Second

// Scrapes at a time, and how long each may last: gathering costs what the checks beside it need.
const (
	scrapes = 4
	scrape  = 10 * time.Second
)

// Add to a manager, whose own metrics server would wait for what others leave open, a port with /metrics of the usual registry and checks
// by path. It is served before the caches are full and whoever leads. The address "0" serves nothing.
func Add(ctx context.Context, mgr manager.Manager, address string, checks map[string]http.Handler) error {
	if address == "0" {
		return nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return add(mgr, l, checks)
}

func add(mgr manager.Manager, l net.Listener, checks map[string]http.Handler) error {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{MaxRequestsInFlight: scrapes, Timeout: scrape}))
	for path, check := range checks {
		mux.Handle(path, check)
	}
	listener, server := listen.Metrics(l, mux)
	timeout := last
	if err := mgr.Add(&manager.Server{Name: "metrics", Server: server, Listener: listener, ShutdownTimeout: &timeout}); err != nil {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}
