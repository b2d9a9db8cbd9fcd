package daemon

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"nisse.io/nisse/device/config"
	"nisse.io/nisse/device/wire/pin"
	"nisse.io/nisse/internal/listen"
	"nisse.io/nisse/internal/testrig"
	"nisse.io/nisse/internal/testrig/port"
)

// refusals that a device counted.
func refusals(t *testing.T, registry prometheus.Gatherer) (n float64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "nisse_device_connections_refused_total" {
			n = f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return n
}

// The broker is one address, and as many of its calls run at once as the machine allows.
func TestTheBrokerMayBeAsBusyAsTheConfigSays(t *testing.T) {
	for busy, want := range map[int]int{0: 64, 8: 64, 32: 64, 33: 66, 256: 512} {
		if m := limits(busy, nil); m.PerAddress != want || m.Total < 4*want {
			t.Errorf("busy %d: %d of one address and %d altogether, want %d and four times that", busy, m.PerAddress, m.Total, want)
		}
	}
}

// However many connections one machine of the mesh leaves open, the broker's are served.
func TestOneAddressCannotShutOutOthers(t *testing.T) {
	address := fmt.Sprintf("127.0.0.1:%d", port.For(t))
	registry := prometheus.NewRegistry()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize))
	secure, err := pin.Server(key, "web1")
	if err != nil {
		t.Fatal(err)
	}
	fine := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	go func() {
		ended <- serve(ctx, config.Config{Listen: []string{address}}, secure, fine, registry, slog.New(slog.DiscardHandler))
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	hold := func() bool {
		c, err := tls.Dial("tcp", address, pin.Client(public(key)))
		if err != nil {
			return false
		}
		t.Cleanup(func() { _ = c.Close() }) // the device may have closed it before
		_, _ = io.WriteString(c, "POST /v1/call HT")
		return true
	}
	testrig.Until(t, "the device to listen", hold)
	const more = 20
	for range listen.PerAddress + more - 1 {
		hold() // or is reset before it is known to be open
	}
	testrig.Until(t, "refusals", func() bool {
		if refusals(t, registry) >= more {
			return true
		}
		hold() // where dialing took so long that the first were given up
		return false
	})

	broker := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{TLSClientConfig: pin.Client(public(key)), DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext}}
	defer broker.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+address+"/v1/call", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := broker.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("another address got %s", res.Status)
	}
}
