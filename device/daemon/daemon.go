// Package daemon runs a device as a service: it listens, hardens its process, and stops in order.
package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sys/unix"

	"nisse.io/nisse/device"
	"nisse.io/nisse/device/config"
	"nisse.io/nisse/device/wire/pin"
	"nisse.io/nisse/hosttools/command"
	"nisse.io/nisse/internal/listen"
)

// ErrRoot is wrapped when the daemon would run as root and the config does not say that it may.
var ErrRoot = errors.New("refusing to run as root")

// Version of this build: the module's, or the commit it was built from.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && info.Main.Version == "(devel)" {
			return s.Value
		}
	}
	return info.Main.Version
}

// MayRun tells why this process may not run by c.
func MayRun(c config.Config) error {
	if os.Geteuid() == 0 && !c.AllowRoot {
		return fmt.Errorf("%w: give nisse-device a user of its own that may do what its manifests list, or set allowRoot: true", ErrRoot)
	}
	return nil
}

// harden this process and what it will run: no core dump holds the key, no set-user-ID program gains anything by being run, and nothing
// outlives the command that started it.
func harden() error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("forbid core dumps: %w", err)
	}
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("forbid new privileges: %w", errno)
	}
	return command.AdoptOrphans()
}

// Run until ctx ends.
func Run(ctx context.Context, c config.Config, log *slog.Logger) error {
	if err := MayRun(c); err != nil {
		return err
	}
	if len(c.Listen) == 0 {
		return errors.New("config: listen is empty; name the machine's mesh address, such as 10.8.0.7:7443")
	}
	if err := harden(); err != nil {
		return err
	}
	o, err := options(c)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	o.Log, o.Registry, o.Rest = log, registry, debug.FreeOSMemory // what a burst of calls took is the machine's again, not Go's for later
	d, handler, err := device.New(ctx, o)
	if err != nil {
		return err
	}
	secure, err := pin.Server(o.Key, c.Device)
	if err == nil {
		err = serve(ctx, c, secure, handler, registry, log)
	}
	return errors.Join(err, d.Close())
}

// options of the device that a config describes.
func options(c config.Config) (device.Options, error) {
	key, err := config.PrivateKey(c.Key)
	if err != nil {
		return device.Options{}, err
	}
	root, err := c.Root()
	if err != nil {
		return device.Options{}, err
	}
	return device.Options{Dir: c.StateDir, Device: c.Device, RootKey: root, Key: key, User: c.User, Busy: c.Busy, Never: never(c), Version: Version()}, nil
}

// unitFile of systemd, with the drop-ins beside it.
const unitFile = "/etc/systemd/system/nisse-device.service"

// never is what no rule of any manifest opens, beside the state. To an account of the device's own the kernel keeps its program and settings
// closed; root could be told to write them, and with them whom this machine believes.
func never(c config.Config) []string {
	all := []string{c.Key}
	if os.Geteuid() != 0 {
		return all
	}
	self, err := os.Executable()
	if err != nil {
		self = ""
	}
	for _, p := range []string{c.File, self, unitFile, unitFile + ".d"} {
		if _, err := os.Stat(p); err == nil {
			all = append(all, p)
		}
	}
	return all
}

// longest a call may take to be answered: the manifest's most, and the time to write the answer.
const longest = 330 * time.Second

// maxHeader of a request: a query's envelope is in it.
const maxHeader = 64 << 10

// limits of what is open at one address of the device, for anybody on the mesh can connect to it. The broker is one address: it has a
// connection for each call that runs, and may ask about each. There is room for three more like it.
func limits(busy int, refused prometheus.Counter) listen.Limits {
	each := max(listen.PerAddress, 2*busy)
	return listen.Limits{PerAddress: each, Total: 4 * each, Refused: refused}
}

func serve(ctx context.Context, c config.Config, secure *tls.Config, handler http.Handler, registry *prometheus.Registry, log *slog.Logger) error {
	places := map[string]http.Handler{}
	for _, a := range c.Listen {
		places[a] = handler
	}
	if c.MetricsAddress != "" {
		places[c.MetricsAddress] = health(registry)
	}
	refused := prometheus.NewCounter(prometheus.CounterOpts{Name: "nisse_device_connections_refused_total",
		Help: "Connections closed at once because their address had as many as it may."})
	registry.MustRegister(refused)
	var servers []*http.Server
	failed := make(chan error, len(places))
	for address, h := range places {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err != nil {
			return errors.Join(fmt.Errorf("listen: %w", err), closeAll(servers))
		}
		s := listen.Server(h, longest)
		s.MaxHeaderBytes, s.ErrorLog = maxHeader, slog.NewLogLogger(log.Handler(), slog.LevelWarn)
		servers = append(servers, s)
		log.Info("device.listening", slog.String("address", l.Addr().String()))
		l = listen.Limit(l, limits(c.Busy, refused))
		if address != c.MetricsAddress {
			l = tls.NewListener(l, secure) // outside of the limits, so that handshakes count
		}
		go func() {
			if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				failed <- err
			}
		}()
	}
	select {
	case <-ctx.Done():
		log.Info("device.stopping")
		return closeAll(servers)
	case err := <-failed:
		return errors.Join(err, closeAll(servers))
	}
}

// closeAll servers without waiting for calls: the device kills what runs, and its answer is in the table.
func closeAll(servers []*http.Server) error {
	var err error
	for _, s := range servers {
		err = errors.Join(err, s.Close())
	}
	return err
}

func health(registry *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	for _, p := range []string{"/healthz", "/readyz"} {
		mux.HandleFunc("GET "+p, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	}
	return mux
}
