// Package listen keeps those who can reach a server's port from taking the server down by what they leave open: connections, headers
// and bodies that never end.
package listen

import (
	"net"
	"net/netip"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/netutil"
)

const (
	// PerAddress is how many connections one address may hold open, unless a server says otherwise. An agent's runtime holds six at most:
	// the work stream, one or two calls of tools and a report at the broker, the mailbox's long poll and what it says at the gateway. An
	// address is a pod's own in most clusters; where a node's masquerading lets all of its pods look like one, ten runtimes fit behind it.
	PerAddress = 64
	// Total of all addresses, unless a server says otherwise. An open connection that is idle costs about 20 KB, one with as large a header
	// as it may have about twice that: 1024 are 40 MB.
	Total = 1024
)

// Limits of one port's open connections.
type Limits struct {
	PerAddress int
	Total      int
	// Refused counts connections that were closed at once because their address had enough.
	Refused prometheus.Counter
}

// Usual limits of a port.
func Usual(refused prometheus.Counter) Limits {
	return Limits{PerAddress: PerAddress, Total: Total, Refused: refused}
}

// Limit the connections of a listener. One that is too much for its address is reset at once. While there are as many as may be
// altogether, others wait in the kernel's queue until one ends, each in its turn: who holds none yet is not to lose by that.
//
// Addresses are taken one by one, of IPv6 as well: the pods of a node share a /64, so one of them would use up what a whole prefix may.
func Limit(l net.Listener, m Limits) net.Listener {
	return netutil.LimitListener(&perAddress{Listener: l, limits: m, open: map[netip.Addr]int{}}, m.Total)
}

type perAddress struct {
	net.Listener
	limits Limits

	mu   sync.Mutex
	open map[netip.Addr]int
}

func (l *perAddress) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := address(c.RemoteAddr())
		if l.enter(from) {
			return &conn{Conn: c, leave: sync.OnceFunc(func() { l.leave(from) })}, nil
		}
		l.limits.Refused.Inc()
		if t, ok := c.(*net.TCPConn); ok {
			_ = t.SetLinger(0) // reset: nothing of it is to stay with the kernel either
		}
		_ = c.Close() // nothing was said that could be lost
	}
}

func (l *perAddress) enter(from netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[from] >= l.limits.PerAddress {
		return false
	}
	l.open[from]++
	return true
}

func (l *perAddress) leave(from netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[from]--; l.open[from] == 0 {
		delete(l.open, from)
	}
}

// address without its port. What has none, such as a Unix socket's end, counts as one.
func address(a net.Addr) netip.Addr {
	at, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap()
}

type conn struct {
	net.Conn
	leave func()
}

func (c *conn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
