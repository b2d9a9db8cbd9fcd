package stack

import (
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"nisse.io/nisse/internal/testrig/port"
)

// Link is a cable between clients and a server that can be pulled: connections are passed on byte by byte until Cut, which ends those
// that stand and refuses new ones until Mend. The address stays the same.
type Link struct {
	address string
	target  string

	mu       sync.Mutex
	listener net.Listener
	open     map[net.Conn]bool
	wg       sync.WaitGroup
}

// NewLink to a server, for the time of the test.
func NewLink(t testing.TB, target string) *Link {
	t.Helper()
	l := &Link{address: fmt.Sprintf("127.0.0.1:%d", port.For(t)), target: target, open: map[net.Conn]bool{}}
	l.Mend(t)
	t.Cleanup(func() { l.Cut(t) })
	return l
}

// Address for clients.
func (l *Link) Address() string { return l.address }

// Cut it. Nothing passes until Mend.
func (l *Link) Cut(t testing.TB) {
	t.Helper()
	l.mu.Lock()
	if l.listener != nil {
		if err := l.listener.Close(); err != nil {
			t.Error(err)
		}
		l.listener = nil
	}
	for c := range l.open {
		_ = c.Close() // whichever end closes first
	}
	l.mu.Unlock()
	l.wg.Wait()
}

// Mend it.
func (l *Link) Mend(t testing.TB) {
	t.Helper()
	listener, err := net.Listen("tcp", l.address)
	if err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listener = listener
	l.wg.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return // cut
			}
			l.wg.Go(func() { l.pass(c) })
		}
	})
}

// pass bytes both ways until either end closes.
func (l *Link) pass(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", l.target)
	if err != nil {
		return // the server is away, and so is its address
	}
	defer server.Close()
	if !l.add(client, server) {
		return
	}
	defer l.remove(client, server)
	done := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		go func() {
			_, _ = io.Copy(way[0], way[1]) // how it ended shows at the ends
			done <- struct{}{}
		}()
	}
	<-done
	_, _ = client.Close(), server.Close()
	<-done
}

func (l *Link) add(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listener == nil {
		return false
	}
	for _, c := range conns {
		l.open[c] = true
	}
	return true
}

func (l *Link) remove(conns ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range conns {
		delete(l.open, c)
	}
}
