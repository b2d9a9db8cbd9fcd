package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/broker/meter"
	"nisse.io/nisse/internal/health"
	"nisse.io/nisse/internal/lead"
	"nisse.io/nisse/internal/listen"
)

// Addresses of a broker process.
type Addresses struct {
	// Door that agents' pods speak to.
	Door string
	// Metrics with /metrics, /healthz and /readyz.
	Metrics string
	// SystemNamespace holds the Lease.
	SystemNamespace string
}

// Serve runs a broker against an API server until the context ends. Only the holder of the Lease serves; a broker that loses it
// ends at once.
func Serve(ctx context.Context, cfg *rest.Config, c Config, at Addresses) error {
	ctrl.SetLogger(logr.FromSlogHandler(c.Log.Handler()))
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return fmt.Errorf("scheme: %w", err)
	}
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("reach the API server: %w", err)
	}
	me := lead.Identity()
	lock, err := lead.Lock(cfg, at.SystemNamespace, LeaseName, me)
	if err != nil {
		return err
	}
	duration, renew, retry := lead.Duration, lead.Renew, lead.Retry
	var ready atomic.Bool
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:                        scheme,
		Cache:                         cache.Options{DefaultNamespaces: map[string]cache.Config{c.Namespace: {}}, DefaultTransform: cache.TransformStripManagedFields()},
		LeaderElection:                true,
		LeaderElectionReleaseOnCancel: true, LeaderElectionResourceLockInterface: lock,
		LeaseDuration: &duration, RenewDeadline: &renew, RetryPeriod: &retry,
		Metrics: metricsserver.Options{BindAddress: "0"}, // served below, beside health
	})
	if err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	direct, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("reach the API server: %w", err)
	}
	b := New(c, World{
		Live: direct, Cached: mgr.GetCache(), Kube: kube, Fence: Lease{kube, at.SystemNamespace, me}, Events: mgr.GetEventRecorder("nisse-broker"), Metrics: metrics.Registry,
	})
	if err := b.Watch(ctx, mgr.GetCache()); err != nil {
		return err
	}
	if err := mgr.Add(leading(b.Run)); err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	refused := meter.Refused(metrics.Registry)
	if err := mgr.Add(leading(func(ctx context.Context) error {
		return openDoor(ctx, at.Door, b.Handler(), refused.WithLabelValues("door"), &ready)
	})); err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	if err := health.Add(ctx, mgr, at.Metrics, map[string]http.Handler{"/healthz": healthy(func() bool { return true }), "/readyz": healthy(ready.Load)}); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// leading runs only while the Lease is held.
type leading func(context.Context) error

func (l leading) Start(ctx context.Context) error { return l(ctx) }

func (leading) NeedLeaderElection() bool { return true }

// answers are written within this time: a call of a tool may take six minutes, and each line of the work stream has a deadline of its own.
const answers = 7 * time.Minute

// openDoor for agents at an address, and keep it open until the context ends.
func openDoor(ctx context.Context, address string, h http.Handler, refused prometheus.Counter, ready *atomic.Bool) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("open the agents' door: %w", err)
	}
	limited, srv := door(l, h, refused)
	return keepOpen(ctx, limited, srv, ready)
}

// door that nobody holds open for himself alone.
func door(l net.Listener, h http.Handler, refused prometheus.Counter) (net.Listener, *http.Server) {
	return listen.Limit(l, listen.Usual(refused)), listen.Server(h, answers)
}

// keepOpen serves until the context ends, then lets calls under way end.
func keepOpen(ctx context.Context, l net.Listener, srv *http.Server, ready *atomic.Bool) error {
	srv.BaseContext = func(net.Listener) context.Context { return ctx } // ends the streams when the broker does
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	ready.Store(true)
	defer ready.Store(false)
	select {
	case err := <-served:
		return fmt.Errorf("serve the agents' door: %w", err)
	case <-ctx.Done():
	}
	ready.Store(false)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 25*time.Second)
	defer cancel()
	if err := srv.Shutdown(closing); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("close the agents' door: %w", err)
	}
	return nil
}

func healthy(ok func() bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !ok() {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n")) // the prober is gone; nothing to add
	})
}
