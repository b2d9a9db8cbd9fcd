package controllers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/health"
	"nisse.io/nisse/internal/lead"
)

// Lease is the name of the leader's lease in the system namespace.
const Lease = "nisse-manager"

// Process says how the manager runs: where, and as one of how many.
type Process struct {
	// Namespaces of the agents. At least one; nothing elsewhere is read.
	Namespaces []string
	// LeaderElect makes one of several managers act. Decisions are safe without it: every commit bears an optimistic lock.
	LeaderElect bool
	// SystemNamespace holds the lease.
	SystemNamespace string
	// MetricsAddress serves /metrics, /healthz and /readyz; "0" serves nothing.
	MetricsAddress string
	// Shared allows several managers in one process.
	Shared bool
}

// New makes a manager with every controller, ready to start.
func New(ctx context.Context, cfg *rest.Config, p Process, o Options) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("scheme: %w", err)
	}
	if len(p.Namespaces) == 0 {
		return nil, errors.New("no namespace of agents is named")
	}
	cached, err := Cache(p.Namespaces)
	if err != nil {
		return nil, err
	}
	lock, err := lead.Lock(cfg, p.SystemNamespace, Lease, lead.Identity())
	if err != nil {
		return nil, err
	}
	duration, renew, retry := lead.Duration, lead.Renew, lead.Retry
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme, Cache: cached, Client: client.Options{Cache: &client.CacheOptions{DisableFor: Live()}},
		Logger:         logr.FromSlogHandler(o.Log.Handler()),
		Metrics:        server.Options{BindAddress: "0"}, // served below, beside health
		LeaderElection: p.LeaderElect, LeaderElectionResourceLockInterface: lock, LeaderElectionReleaseOnCancel: true,
		LeaseDuration: &duration, RenewDeadline: &renew, RetryPeriod: &retry,
		Controller: config.Controller{SkipNameValidation: &p.Shared},
	})
	if err != nil {
		return nil, fmt.Errorf("manager: %w", err)
	}
	if err := Setup(ctx, mgr, o); err != nil {
		return nil, err
	}
	if err := serveHealth(ctx, mgr, p.MetricsAddress); err != nil {
		return nil, err
	}
	return mgr, nil
}

// serveHealth puts the checks on the metrics' address, as every binary of Nisse has them.
func serveHealth(ctx context.Context, mgr ctrl.Manager, address string) error {
	checks := map[string]http.Handler{}
	for path, check := range map[string]healthz.Checker{
		"/healthz": healthz.Ping,
		"/readyz": func(r *http.Request) error {
			ctx, cancel := context.WithTimeout(r.Context(), time.Second)
			defer cancel()
			if !mgr.GetCache().WaitForCacheSync(ctx) {
				return errors.New("the cache is not filled yet: is the API server reachable, are the CRDs installed?")
			}
			return nil
		},
	} {
		checks[path] = http.StripPrefix(path, &healthz.Handler{Checks: map[string]healthz.Checker{"manager": check}})
	}
	return health.Add(ctx, mgr, address, checks)
}
