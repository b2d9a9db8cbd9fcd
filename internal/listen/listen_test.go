package listen_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"nisse.io/nisse/internal/listen"
)

const patience = 10 * time.Second

// port of a real server that serves a handler within limits.
type port struct {
	t       *testing.T
	address string
	refused prometheus.Counter
}

func open(t *testing.T, perAddress, total int, s *http.Server) port {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := port{t, l.Addr().String(), prometheus.NewCounter(prometheus.CounterOpts{Name: "refused"})}
	return serve(t, p, listen.Limit(l, listen.Limits{PerAddress: perAddress, Total: total, Refused: p.refused}), s)
}

func serve(t *testing.T, p port, l net.Listener, s *http.Server) port {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return p
}

// dial from an address of this machine.
func (p port) dial(from string) *client {
	p.t.Helper()
	c, err := p.try(from)
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

func (p port) try(from string) (*client, error) {
	p.t.Helper()
	c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: patience}).DialContext(p.t.Context(), "tcp", p.address)
	if err != nil {
		return nil, err
	}
	p.t.Cleanup(func() { _ = c.Close() }) // the test may have closed it
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		p.t.Fatal(err)
	}
	return &client{c, bufio.NewReader(c)}, nil
}

type client struct {
	net.Conn
	r *bufio.Reader
}

// say something without waiting for an answer. A connection that was reset takes nothing.
func (c *client) say(s string) { _, _ = io.WriteString(c, s) }

// answer to what was said; an error when there is none.
func (c *client) answer() (*http.Response, error) {
	res, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return res, err
}

const get = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"

func (c *client) served() error {
	c.say(get)
	res, err := c.answer()
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return errors.New(res.Status)
	}
	return nil
}

var fine = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

// What an address has open beyond its share is closed, whatever it did with the rest, and others are served all the while.
func TestOneAddressHasItsShare(t *testing.T) {
	for name, keep := range map[string]func(*client) error{
		"idle from the start":      func(*client) error { return nil },
		"idle after an answer":     (*client).served,
		"in the midst of a header": func(c *client) error { c.say("GET / HT"); return nil },
		"in the midst of a body": func(c *client) error {
			c.say("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nx")
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := open(t, 4, 100, listen.Server(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }), time.Minute))
			var held []*client
			for range 4 {
				c := p.dial("127.0.0.1")
				if err := keep(c); err != nil {
					t.Fatal(err)
				}
				held = append(held, c)
			}
			for n := range 6 {
				if !p.turnsAway("127.0.0.1") {
					t.Errorf("connection %d stays open", 5+n)
				}
			}
			if n := testutil.ToFloat64(p.refused); n != 6 {
				t.Errorf("%v refusals were counted, want 6", n)
			}
			for n := range 4 {
				if err := p.dial("127.0.0.2").served(); err != nil {
					t.Errorf("another address, connection %d: %v", n+1, err)
				}
			}
			if err := held[0].Close(); err != nil {
				t.Fatal(err)
			}
			p.until("one that closed makes room for one", func() error {
				c, err := p.try("127.0.0.1")
				if err != nil {
					return err
				}
				return c.served()
			})
			if !p.turnsAway("127.0.0.1") {
				t.Error("and for one more")
			}
		})
	}
}

// turnsAway tells whether a connection from an address is closed at once, with nothing said on it.
func (p port) turnsAway(from string) bool {
	p.t.Helper()
	c, err := p.try(from)
	if err == nil {
		_, err = c.r.ReadByte()
	}
	return err != nil && !isTimeout(err)
}

func (p port) until(what string, ok func() error) {
	p.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("in vain: %s: %v", what, err)
		}
	}
}

// Nobody is turned away for what others hold: who comes when there are as many as may be is served when one of them ends.
func TestAllAddressesTogether(t *testing.T) {
	p := open(t, 2, 3, listen.Server(fine, time.Minute))
	var held []*client
	for n := range 3 {
		c := p.dial(fmt.Sprintf("127.0.0.%d", 1+n))
		if err := c.served(); err != nil {
			t.Fatal(err)
		}
		held = append(held, c)
	}
	late := p.dial("127.0.0.9")
	late.say(get)
	if err := late.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	var timeout net.Error
	if _, err := late.answer(); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Fatalf("a fourth was served or refused (%v), not kept waiting", err)
	}
	if err := errors.Join(late.SetReadDeadline(time.Now().Add(patience)), held[1].Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := late.answer(); err != nil {
		t.Errorf("it is not served when another has ended: %v", err)
	}
	if n := testutil.ToFloat64(p.refused); n != 0 {
		t.Errorf("%v refusals were counted", n)
	}
}

// A body that does not come costs its connection, and no answer waits for it.
func TestASlowBody(t *testing.T) {
	read := make(chan error, 1)
	s := listen.Server(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		read <- err
	}), time.Minute)
	s.ReadTimeout = 100 * time.Millisecond
	p := open(t, 2, 2, s)
	c := p.dial("127.0.0.1")
	c.say("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nx")
	var timeout net.Error
	select {
	case err := <-read:
		if !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("the handler read %v, want a timeout", err)
		}
	case <-time.After(patience):
		t.Fatal("the handler waits for the body")
	}
	if _, err := io.Copy(io.Discard, c.r); err != nil {
		t.Errorf("the connection stays open: %v", err)
	}
}

// The time that a request has to arrive ends with its arrival: a handler may wait, and stream, for longer.
func TestALongAnswer(t *testing.T) {
	for name, request := range map[string]string{
		"no body":        get,
		"a body":         "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
		"a chunked body": "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const requestTime = time.Second // a loaded machine delivers a request in less
			s := listen.Server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if _, err := io.ReadAll(r.Body); err != nil {
					t.Error(err)
				}
				for range 2 {
					select {
					case <-r.Context().Done():
						t.Error("the request was given up")
					case <-time.After(3 * requestTime / 4):
					}
					if _, err := io.WriteString(w, "x"); err != nil {
						t.Error(err)
					}
					if err := http.NewResponseController(w).Flush(); err != nil {
						t.Error(err)
					}
				}
			}), time.Minute)
			s.ReadTimeout = requestTime
			c := open(t, 2, 2, s).dial("127.0.0.1")
			for n := range 2 { // the connection serves for another
				c.say(request)
				if _, err := c.answer(); err != nil {
					t.Errorf("answer %d: %v", n+1, err)
				}
			}
		})
	}
}

func TestTooLargeAHeader(t *testing.T) {
	for name, tt := range map[string]struct {
		size   int
		served bool
	}{"a token of ordinary size": {2 << 10, true}, "far more": {32 << 10, false}} {
		t.Run(name, func(t *testing.T) {
			served := false
			s := listen.Server(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served = true }), time.Minute)
			c := open(t, 2, 2, s).dial("127.0.0.1")
			c.say("GET / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", tt.size) + "\r\n\r\n")
			res, err := c.answer() // none at all where the connection was closed before all was said
			if served != tt.served || served && err != nil {
				t.Errorf("served %v, want %v; %+v %v", served, tt.served, res, err)
			}
		})
	}
}
