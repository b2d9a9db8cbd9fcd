package gateway

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/gateway/metrics"
	"nisse.io/nisse/internal/health"
)

// Serve runs the gateway until the context ends, with metrics and health on an address of their own.
func Serve(ctx context.Context, cfg *rest.Config, o Options, metricsAddress string) error {
	ctrl.SetLogger(logr.FromSlogHandler(o.Log.Handler()))
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return fmt.Errorf("know the kinds: %w", err)
		}
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme,
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{o.Namespace: {}},
			DefaultTransform:  cache.TransformStripManagedFields(),
		},
		Metrics:                metricsserver.Options{BindAddress: "0"}, // served below, beside health
		HealthProbeBindAddress: "0",
	})
	if err != nil {
		return fmt.Errorf("reach the API server: %w", err)
	}
	if err := Setup(mgr, o); err != nil {
		return fmt.Errorf("set the gateway up: %w", err)
	}
	if err := metrics.Register(ctrlmetrics.Registry, func() (int, int) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		inbox, outbox, err := o.Store.Depths(ctx)
		if err != nil {
			return -1, -1
		}
		return inbox, outbox
	}, func() (files, reusable, free int64) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		space, err := o.Store.Space(ctx)
		if err != nil {
			return -1, -1, -1
		}
		return space.Files, space.Reusable, space.Free
	}); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	ready := make(chan struct{})
	err = mgr.Add(manager.RunnableFunc(func(context.Context) error { // begun once the caches are full
		close(ready)
		return nil
	}))
	if err != nil {
		return err
	}
	if err := health.Add(ctx, mgr, metricsAddress, checks(ready)); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

func checks(ready <-chan struct{}) map[string]http.Handler {
	return map[string]http.Handler{
		"/healthz": http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		"/readyz": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			select {
			case <-ready:
			default:
				http.Error(w, "the API server's objects are not known yet", http.StatusServiceUnavailable)
			}
		}),
	}
}
