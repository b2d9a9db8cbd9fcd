// Command broker is the agents' door to deeds: work stream and tools for their pods, signed requests for the devices.
package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"

	ctrl "sigs.k8s.io/controller-runtime"

	"nisse.io/nisse/broker"
	"nisse.io/nisse/broker/replica"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/memlimit"
	"nisse.io/nisse/internal/telemetry"
)

func main() {
	memlimit.Set()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	do := run
	if len(os.Args) > 1 && os.Args[1] == "replica" {
		do = func(context.Context) error { return show(os.Args[2:], os.Stdout) }
	}
	if err := do(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "broker:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	namespace := flag.String("namespace", "nisse", "namespace of the agents and of every object about them")
	system := flag.String("system-namespace", "nisse-system", "namespace of the Lease")
	keyFile := flag.String("request-key-file", "", "PEM file of the ed25519 key that signs requests to devices")
	approval := flag.String("approval-public-key", "", "public key of the manager's approval key, base64 of 32 bytes; several with commas between")
	door := flag.String("bind-address", ":8080", "address of the agents' door")
	metrics := flag.String("metrics-bind-address", ":9090", "address of /metrics, /healthz and /readyz")
	state := flag.String("state-dir", "", "directory for replicas of devices' audits; none are kept when empty")
	most := flag.Int64("replica-bytes", 256<<20, "most bytes of one device's replica")
	level := flag.String("log-level", "info", "debug, info, warn or error")
	flag.Parse()

	var l slog.Level
	if err := l.UnmarshalText([]byte(*level)); err != nil {
		return fmt.Errorf("--log-level: %w", err)
	}
	key, err := readKey(*keyFile)
	if err != nil {
		return fmt.Errorf("--request-key-file: %w", err)
	}
	trusted, err := parseKeys(*approval)
	if err != nil {
		return fmt.Errorf("--approval-public-key: %w", err)
	}
	var replicas *replica.Store
	if *state != "" {
		if replicas, err = replica.Open(replicaDir(*state), *most); err != nil {
			return fmt.Errorf("--state-dir: %w", err)
		}
	}
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	cfg.QPS, cfg.Burst = 200, 400 // every call is judged by several live reads
	return broker.Serve(ctx, cfg,
		broker.Config{Namespace: *namespace, RequestKey: key, ApprovalKeys: trusted, Log: telemetry.New(os.Stdout, "broker", l), Version: version(), Replicas: replicas},
		broker.Addresses{Door: *door, Metrics: *metrics, SystemNamespace: *system})
}

func replicaDir(state string) string { return filepath.Join(state, "audits") }

// show the replica of a device's audit, one row a line, as kubectl nisse audit verify --rows reads it.
func show(args []string, w io.Writer) error {
	f := flag.NewFlagSet("replica", flag.ContinueOnError)
	state := f.String("state-dir", "/var/lib/nisse", "directory with the replicas")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() != 1 {
		return errors.New("replica: name a device")
	}
	return replica.Show(replicaDir(*state), f.Arg(0), w)
}

func readKey(path string) (ed25519.PrivateKey, error) {
	if path == "" {
		return nil, fmt.Errorf("is required; make one with: openssl genpkey -algorithm ed25519")
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return dsse.ParsePrivateKey(b)
}

func parseKeys(list string) ([]ed25519.PublicKey, error) {
	var keys []ed25519.PublicKey
	for s := range strings.SplitSeq(list, ",") {
		k, err := dsse.ParseKey(strings.TrimSpace(s))
		if err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	return keys, nil
}

func version() string {
	if b, ok := debug.ReadBuildInfo(); ok && b.Main.Version != "" {
		return b.Main.Version
	}
	return "devel"
}
