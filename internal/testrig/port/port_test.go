package port_test

import (
	"net"
	"strconv"
	"testing"

	"nisse.io/nisse/internal/testrig/port"
)

// A kept port is there for its server again and again, also after connections were cut.
func TestAServerComesBackToItsPort(t *testing.T) {
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port.For(t)))
	for range 3 {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		client, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		for _, end := range []interface{ Close() error }{server, client, l} {
			if err := end.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Nobody else is given it: neither who asks for any port, nor who connects.
func TestTheSystemGivesItToNobodyElse(t *testing.T) {
	kept := map[int]bool{}
	for range 500 {
		n := port.For(t)
		if kept[n] {
			t.Fatalf("port %d is kept twice", n)
		}
		kept[n] = true
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 2000 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		other, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range []net.Addr{c.LocalAddr(), other.Addr()} {
			if n := a.(*net.TCPAddr).Port; kept[n] {
				t.Fatalf("the system gave %s away", a)
			}
		}
		// A reset leaves no port behind that waits.
		_ = c.(*net.TCPConn).SetLinger(0)
		_, _ = c.Close(), other.Close()
	}
}
