package devices

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"nisse.io/nisse/device/wire/pin"
)

// dialTime is how long a connection may take to come about, and its handshake once more.
const dialTime = 3 * time.Second

// noWayError is why no connection came about; nothing of a request was written.
type noWayError struct{ err error }

func (e *noWayError) Error() string { return e.err.Error() }
func (e *noWayError) Unwrap() error { return e.err }

// ways to devices. Each device has connections of its own: one that was made to the holder of one key never carries a request for another,
// even where two Devices name the same address or one's key is replaced.
type ways struct {
	mu sync.Mutex
	by map[string]way
}

type way struct {
	key  string
	http *http.Client
}

// to a target; what was open to the holder of a key that no longer counts is closed.
func (w *ways) to(t Target) *http.Client {
	w.mu.Lock()
	defer w.mu.Unlock()
	got, ok := w.by[t.Name]
	if ok && got.key == string(t.Key) {
		return got.http
	}
	if ok {
		got.http.CloseIdleConnections()
	}
	if w.by == nil {
		w.by = map[string]way{}
	}
	made := way{key: string(t.Key), http: wayTo(t)}
	w.by[t.Name] = made
	return made.http
}

func (w *ways) forget(device string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if got, ok := w.by[device]; ok {
		got.http.CloseIdleConnections()
		delete(w.by, device)
	}
}

// wayTo a target: TLS to the holder of its key, or plainly within this machine.
func wayTo(t Target) *http.Client {
	config := pin.Client(t.Key)
	plain := &net.Dialer{Timeout: dialTime, ControlContext: loopbackOnly}
	any := &net.Dialer{Timeout: dialTime}
	return &http.Client{
		Transport: &http.Transport{
			// No proxy, whatever the environment says: a device is on the mesh.
			Proxy: nil,
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				c, err := plain.DialContext(ctx, network, address)
				if err != nil {
					return nil, &noWayError{err}
				}
				return c, nil
			},
			DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				c, err := any.DialContext(ctx, network, address)
				if err != nil {
					return nil, &noWayError{err}
				}
				return secured(ctx, c, config)
			},
			MaxIdleConnsPerHost: 4, IdleConnTimeout: 90 * time.Second,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// secured connection, once its other end has proven to hold the key.
func secured(ctx context.Context, c net.Conn, config *tls.Config) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	s := tls.Client(c, config)
	err := s.HandshakeContext(ctx)
	var network net.Error
	var op *net.OpError
	switch {
	case err == nil:
		return s, nil
	case errors.Is(err, pin.ErrOtherKey):
		err = fmt.Errorf("%w: %w", ErrUntrusted, err)
	case errors.As(err, &network) && (!errors.As(err, &op) || op.Op != "remote error"): // it broke off, or took too long; a remote error is an alert of TLS
	default:
		err = fmt.Errorf("%w: its address does not speak TLS 1.3 as nisse-device does: %w", ErrInsecure, err)
	}
	_ = c.Close() // nothing was said that could be lost
	return nil, &noWayError{err}
}

// loopbackOnly lets plain HTTP stay within the machine, by the address that a name has led to.
func loopbackOnly(_ context.Context, _, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	if !at.Addr().Unmap().IsLoopback() {
		return fmt.Errorf("%w: plain HTTP goes to loopback addresses alone, and this is %s: let the url begin with https://", ErrInsecure, at.Addr())
	}
	return nil
}
