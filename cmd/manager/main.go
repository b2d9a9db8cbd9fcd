// Command manager runs the controllers: it opens gates, judges approvals, states what was approved, and keeps the agents' pods.
package main

import (
	"crypto/ed25519"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"nisse.io/nisse/controllers"
	"nisse.io/nisse/controllers/agent/children"
	"nisse.io/nisse/internal/approval"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/memlimit"
	"nisse.io/nisse/internal/telemetry"
	"nisse.io/nisse/internal/version"
)

func main() {
	memlimit.Set()
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "manager:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	f := flag.NewFlagSet("manager", flag.ContinueOnError)
	namespaces := f.String("namespace", "nisse", "namespaces of the agents, with commas between")
	keyFile := f.String("approval-key-file", "", "PEM file of the ed25519 key that states approvals")
	image := f.String("agent-image", "", "image of the agents' pods")
	pull := f.String("agent-image-pull-policy", "", "Always, IfNotPresent or Never, for the agents' image; the cluster's default when empty")
	var pullSecrets []string
	f.Func("agent-image-pull-secret", "`name` of a Secret in the agents' namespaces that pulls their image; may be given several times", func(name string) error {
		if name == "" {
			return errors.New("name a Secret")
		}
		pullSecrets = append(pullSecrets, name)
		return nil
	})
	broker := f.String("broker-url", "http://nisse-broker.nisse-system.svc:8080", "the agents' door to deeds")
	gateway := f.String("gateway-url", "http://nisse-gateway.nisse-system.svc:8080", "the agents' door to words")
	system := f.String("system-namespace", "nisse-system", "namespace of the doors and of the lease")
	metricsAddress := f.String("metrics-bind-address", ":9090", "address of /metrics, /healthz and /readyz")
	elect := f.Bool("leader-elect", false, "let one of several managers act")
	level := f.String("log-level", "info", "debug, info, warn or error")
	if err := f.Parse(args); err != nil {
		return err
	}
	var l slog.Level
	if err := l.UnmarshalText([]byte(*level)); err != nil {
		return fmt.Errorf("--log-level: %w", err)
	}
	if *image == "" {
		return errors.New("--agent-image is required: the image that runs agentruntime")
	}
	policy := corev1.PullPolicy(*pull)
	if !slices.Contains([]corev1.PullPolicy{"", corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever}, policy) {
		return fmt.Errorf("--agent-image-pull-policy %q: want Always, IfNotPresent or Never", *pull)
	}
	key, err := readKey(*keyFile)
	if err != nil {
		return fmt.Errorf("--approval-key-file: %w", err)
	}
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	cfg.QPS, cfg.Burst = 100, 200 // every decision is judged by several live reads
	cfg.UserAgent = "nisse-manager/" + version.Version
	log := telemetry.New(os.Stdout, "manager", l)
	ctrl.SetLogger(logr.FromSlogHandler(log.Handler()))

	ctx := ctrl.SetupSignalHandler()
	mgr, err := controllers.New(ctx, cfg,
		controllers.Process{Namespaces: list(*namespaces), LeaderElect: *elect, SystemNamespace: *system, MetricsAddress: *metricsAddress},
		controllers.Options{Sign: func(s approval.Statement) (string, error) { return s.Sign(key) }, Log: log, Now: time.Now, Metrics: metrics.Registry,
			Settings: children.Settings{Image: *image, PullPolicy: policy, PullSecrets: pullSecrets, BrokerURL: *broker, GatewayURL: *gateway, SystemNamespace: *system}})
	if err != nil {
		return err
	}
	log.Info("manager.started", "version", version.Version, "namespaces", *namespaces, "approval_key", dsse.EncodeKey(key.Public().(ed25519.PublicKey)))
	return mgr.Start(ctx)
}

func readKey(path string) (ed25519.PrivateKey, error) {
	if path == "" {
		return nil, errors.New("is required; make one with: openssl genpkey -algorithm ed25519")
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return dsse.ParsePrivateKey(b)
}

func list(s string) []string {
	var all []string
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			all = append(all, part)
		}
	}
	return all
}
