// Command agentruntime is the process in an agent's pod: it hears people by the gateway, asks the model, and acts by the broker
// alone. It holds no Kubernetes credentials and no key that acts.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"nisse.io/nisse/agentruntime/core"
	"nisse.io/nisse/agentruntime/doorclient"
	"nisse.io/nisse/agentruntime/eventlog"
	"nisse.io/nisse/agentruntime/loop"
	"nisse.io/nisse/agentruntime/model"
	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/internal/memlimit"
	"nisse.io/nisse/internal/telemetry"
)

type options struct {
	config, state, brokerToken, gatewayToken, modelToken, bind string
	level                                                      slog.Level
}

func main() {
	memlimit.Set()
	var o options
	flag.StringVar(&o.config, "config", doors.PathConfig, "file with the agent's configuration, as the manager renders it")
	flag.StringVar(&o.state, "state", doors.PathState, "directory of the event log; one process at a time uses it")
	flag.StringVar(&o.brokerToken, "broker-token", doors.PathBrokerToken, "file with the pod's token for the broker")
	flag.StringVar(&o.gatewayToken, "gateway-token", doors.PathGatewayToken, "file with the pod's token for the gateway")
	flag.StringVar(&o.modelToken, "model-token", doors.PathModelToken, "file with the key for the model; it may be absent")
	flag.StringVar(&o.bind, "metrics-bind-address", ":9090", "address of /metrics, /healthz and /readyz")
	flag.TextVar(&o.level, "log-level", slog.LevelInfo, "debug, info, warn or error")
	flag.Parse()
	log := telemetry.New(os.Stderr, "agentruntime", o.level)
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	if err := run(ctx, o, log); err != nil {
		log.Error("agentruntime.failed", "error", err.Error())
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, log *slog.Logger) (err error) {
	cfg, err := read(o.config)
	if err != nil {
		return err
	}
	events, err := eventlog.Open(ctx, o.state, cfg.Agent, time.Now, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, events.Close()) }()
	broker := doorclient.Door{URL: cfg.BrokerURL, TokenPath: o.brokerToken}
	tools := doorclient.NewTools(broker, log)
	defer tools.Close()
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	l := loop.New(loop.Parts{
		Config: cfg, Log: events, Model: mendable(cfg.Model, o), Tools: tools, Work: doorclient.NewWork(broker, log),
		Mailbox:  doorclient.NewMailbox(doorclient.Door{URL: cfg.GatewayURL, TokenPath: o.gatewayToken}),
		Troubles: doorclient.NewTroubles(broker),
		Logger:   log, Timing: loop.Usual, Meter: core.NewMeter(registry),
	})
	listener, err := net.Listen("tcp", o.bind)
	if err != nil {
		return fmt.Errorf("serve metrics and health: %w", err)
	}
	server := &http.Server{Handler: health(l, registry), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("health.failed", "error", err.Error())
		}
	}()
	defer server.Close()
	return l.Run(ctx)
}

// mendable asks what the configuration names, also when that is mended while the process runs.
func mendable(cfg doors.Model, o options) model.Model {
	return model.NewMendable(cfg,
		func() (doors.Model, error) {
			now, err := read(o.config)
			return now.Model, err
		},
		func(m doors.Model) model.Model { return model.NewOpenAI(m, o.modelToken) })
}

func read(path string) (cfg doors.RuntimeConfig, err error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return cfg, fmt.Errorf("read the agent's configuration: %w", err)
	}
	if err := json.Unmarshal(raw, &cfg); err != nil {
		return cfg, fmt.Errorf("read the agent's configuration %s: %w", filepath.Base(path), err)
	}
	for what, value := range map[string]string{"agent": cfg.Agent, "brokerURL": cfg.BrokerURL, "gatewayURL": cfg.GatewayURL, "model.url": cfg.Model.URL, "model.model": cfg.Model.Model} {
		if value == "" {
			return cfg, fmt.Errorf("the agent's configuration %s has no %s; the manager writes it from the Agent", path, what)
		}
	}
	return cfg, nil
}

// health says that the loop goes round (alive), and that the broker has told what to work on (ready).
func health(l *loop.Loop, registry *prometheus.Registry) http.Handler {
	answer := func(ok func() bool, not string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if !ok() {
				http.Error(w, not, http.StatusServiceUnavailable)
				return
			}
			_, _ = w.Write([]byte("ok\n"))
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/healthz", answer(l.Alive, "the loop has not gone round for two minutes"))
	mux.HandleFunc("/readyz", answer(l.Ready, "the broker's work stream is not connected"))
	return mux
}
