// Command gateway is the room that faces people: it holds the chat accounts of the agents and the one that shows gates, takes in
// what people say, and hands it on. One runs at a time; its state directory says which.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	ctrl "sigs.k8s.io/controller-runtime"

	"nisse.io/nisse/gateway"
	"nisse.io/nisse/gateway/matrix"
	"nisse.io/nisse/gateway/store"
	"nisse.io/nisse/internal/memlimit"
	"nisse.io/nisse/internal/telemetry"
	"nisse.io/nisse/internal/version"
)

func main() {
	memlimit.Set()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	namespace := flag.String("namespace", "nisse", "namespace of the agents and of every object about them")
	homeserver := flag.String("homeserver-url", "", "base URL of the homeserver's client API, such as http://synapse.matrix.svc:8008 (required)")
	server := flag.String("server-name", "", "the homeserver's name, where accounts may be made; that of --approvals-user when empty")
	approvals := flag.String("approvals-user", "", "full user ID of the account that shows gates, such as @nisse-gates:example.org (required)")
	credentials := flag.String("credentials-dir", "", `directory of files named *.json, one an account: {"userID": "@ops:example.org", "password": "…"}`)
	registration := flag.String("registration-secret-file", "", "file with the homeserver's registration shared secret; accounts without a file are made with it")
	state := flag.String("state-dir", "/var/lib/nisse", "directory of the store")
	bind := flag.String("bind-address", ":8080", "address of the agents' door")
	metrics := flag.String("metrics-bind-address", ":9090", "address of /metrics, /healthz and /readyz")
	level := flag.String("log-level", "info", "debug, info, warn or error")
	flag.Parse()

	var l slog.Level
	if err := l.UnmarshalText([]byte(*level)); err != nil {
		return fmt.Errorf("--log-level: %w", err)
	}
	if *homeserver == "" {
		return errors.New("--homeserver-url is required")
	}
	local, domain, ok := strings.Cut(*approvals, ":")
	if !ok || domain == "" || len(local) < 2 || local[0] != '@' {
		return fmt.Errorf("--approvals-user %q is no full user ID, such as @nisse-gates:example.org", *approvals)
	}
	if *server == "" {
		*server = domain
	}
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the API server: %w", err)
	}
	cfg.UserAgent = "nisse-gateway/" + version.Version
	s, err := store.Open(ctx, *state)
	if err != nil {
		return fmt.Errorf("--state-dir: %w", err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return gateway.Serve(ctx, cfg, gateway.Options{
		Namespace: *namespace, Homeserver: *homeserver, Approvals: *approvals, Bind: *bind, Store: s,
		Credentials: matrix.Credentials{Dir: *credentials, RegistrationSecretFile: *registration, ServerName: *server},
		Log:         telemetry.New(os.Stdout, "gateway", l),
	}, *metrics)
}
