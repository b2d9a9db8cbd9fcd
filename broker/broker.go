// Package broker is the agents' door to deeds: it knows which pod speaks, judges every call by live objects, does what a person
// approved and refuses the rest. It holds the request key; it cannot approve.
package broker

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/broker/devices"
	"nisse.io/nisse/broker/dispatch"
	"nisse.io/nisse/broker/live"
	"nisse.io/nisse/broker/mcp"
	"nisse.io/nisse/broker/meter"
	"nisse.io/nisse/broker/plan"
	"nisse.io/nisse/broker/replica"
	"nisse.io/nisse/broker/report"
	"nisse.io/nisse/broker/serial"
	"nisse.io/nisse/broker/trouble"
	"nisse.io/nisse/broker/work"
	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/internal/podauth"
	"nisse.io/nisse/internal/rates"
)

// Config of a broker.
type Config struct {
	// Namespace of the agents and of every object about them.
	Namespace string
	// RequestKey signs what devices are asked.
	RequestKey ed25519.PrivateKey
	// ApprovalKeys whose statements count. Devices check them again; here a bad statement only wastes no request.
	ApprovalKeys []ed25519.PublicKey
	Log          *slog.Logger
	Version      string
	// Replicas of devices' audits; nil keeps none.
	Replicas *replica.Store
}

// World that a broker lives in.
type World struct {
	// Live reads and writes the API server without a cache between. Judging depends on it.
	Live client.Client
	// Cached may lag: it feeds the work stream, the lists of tools and the background loops.
	Cached client.Reader
	// Kube reviews tokens, reads pods and renews Leases.
	Kube    kubernetes.Interface
	Fence   dispatch.Fence
	Events  report.Events
	Metrics prometheus.Registerer
}

// Broker serves agents.
type Broker struct {
	auth       *podauth.Authenticator
	stream     *work.Stream
	tools      *mcp.Server
	trouble    *trouble.Door
	hub        *work.Hub
	cached     client.Reader
	dispatcher *dispatch.Dispatcher
	registry   *devices.Registry
}

// New puts a broker together.
func New(c Config, w World) *Broker {
	now := time.Now
	reader := live.Reader{API: w.Live, Known: w.Cached, Namespace: c.Namespace, ApprovalKeys: c.ApprovalKeys, Now: now}
	reports := report.Writer{Live: w.Live, API: w.Live, Events: w.Events, Log: c.Log, Now: now}
	m := meter.New(w.Metrics)
	locks := &serial.Keys{}
	deviceClient := devices.NewClient(c.RequestKey, now)
	registry := devices.NewRegistry(deviceClient, statusWriter{w.Cached, w.Live}, c.Namespace, c.Log, now, w.Metrics)
	registry.Replicate(c.Replicas)
	registry.Renew(w.Kube.CoordinationV1().Leases(c.Namespace))
	plans := &plan.Submitter{Live: reader, API: w.Live, Devices: registry, Locks: locks, Rates: rates.New(now), Log: c.Log, Namespace: c.Namespace}
	dispatcher := &dispatch.Dispatcher{
		Live: reader, Asker: plans, API: w.Live, Devices: deviceClient, Registry: registry, Report: reports, Locks: locks, Fence: w.Fence, Events: w.Events,
		Meter: m, Log: c.Log, Now: now, Namespace: c.Namespace,
	}
	auth := podauth.New(w.Kube, c.Namespace, doors.AudienceBroker)
	hub := work.NewHub()
	return &Broker{
		trouble: &trouble.Door{Live: reader, Report: reports, Requests: rates.New(now), Log: c.Log},
		auth:    auth, hub: hub, cached: w.Cached, dispatcher: dispatcher, registry: registry,
		stream: &work.Stream{Objects: w.Cached, Hub: hub, Auth: auth, Opens: rates.New(now), Meter: m, Log: c.Log, Namespace: c.Namespace},
		tools: &mcp.Server{
			Agents: w.Cached, Live: reader, Dispatcher: dispatcher, Report: reports, Calls: rates.New(now), Requests: rates.New(now), Meter: m, Log: c.Log,
			Namespace: c.Namespace, Version: c.Version,
			Plans: plans,
		},
	}
}

// statusWriter reads from a cache and writes past it.
type statusWriter struct {
	client.Reader
	client.StatusClient
}

// Handler of the door's paths.
func (b *Broker) Handler() http.Handler {
	m := http.NewServeMux()
	m.Handle("GET /v1/work", b.stream)
	m.Handle("POST /v1/trouble", b.trouble)
	m.Handle("/mcp", b.tools.Handler())
	return b.auth.Require(m)
}

// Watch lets changes of the cache's objects wake the work streams and the looks at devices.
func (b *Broker) Watch(ctx context.Context, c ctrlcache.Informers) error {
	if err := b.hub.Watch(ctx, c); err != nil {
		return err
	}
	return b.registry.Watch(ctx, c)
}

// Run settles jobs that have not ended and looks at the devices, until the context ends.
func (b *Broker) Run(ctx context.Context) error {
	done := make(chan error, 2)
	go func() { done <- b.registry.Run(ctx) }()
	go func() { done <- b.dispatcher.Run(ctx, b.cached) }()
	for range 2 {
		if err := <-done; err != nil {
			return fmt.Errorf("background work: %w", err)
		}
	}
	return nil
}
