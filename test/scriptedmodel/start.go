package scriptedmodel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"nisse.io/nisse/internal/testrig/port"
)

const (
	readHeaderTimeout = 10 * time.Second
	shutdownTimeout   = 5 * time.Second
)

// Serve answers on a listener until ctx ends. Requests that are still waiting out a delay are then cut off.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	// Requests end with ctx, so that a fault's delay does not hold up the end.
	server := &http.Server{Handler: s, ReadHeaderTimeout: readHeaderTimeout, BaseContext: func(net.Listener) context.Context { return ctx }}
	ended := make(chan error, 1)
	go func() {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		ended <- server.Shutdown(grace)
	}()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the scripted model: %w", err)
	}
	if err := <-ended; err != nil {
		return fmt.Errorf("stop the scripted model: %w", err)
	}
	return nil
}

// Running is a model that listens.
type Running struct {
	*Server
	BaseURL string // for clients of OpenAI: ends in /v1
	Key     string // the API key it wants

	address string
	cancel  context.CancelFunc
	ended   chan error
}

// Start runs a model on loopback for the time of a test.
func Start(t testing.TB, s *Scenario) *Running {
	t.Helper()
	m := &Running{Key: "sk-scripted", address: fmt.Sprintf("127.0.0.1:%d", port.For(t))}
	m.Server = New(s, m.Key)
	m.Restart(t)
	t.Cleanup(func() {
		if m.cancel != nil {
			m.Stop(t)
		}
	})
	return m
}

// Stop makes the model go away: connections are refused until Restart.
func (m *Running) Stop(t testing.TB) {
	t.Helper()
	m.cancel()
	m.cancel = nil
	if err := <-m.ended; err != nil {
		t.Error(err)
	}
}

// Restart brings it back at the same address.
func (m *Running) Restart(t testing.TB) {
	t.Helper()
	l, err := net.Listen("tcp", m.address)
	if err != nil {
		t.Fatalf("listen for the scripted model: %v", err)
	}
	m.address = l.Addr().String()
	m.BaseURL = "http://" + m.address + "/v1"
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel, m.ended = cancel, make(chan error, 1)
	go func() { m.ended <- m.Serve(ctx, l) }()
}
