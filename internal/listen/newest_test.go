package listen_test

import (
	"errors"
	"net"
	"testing"
	"time"

	"nisse.io/nisse/internal/listen"
)

// Whoever comes is served, whatever one address leaves open; what was left open longest pays for it.
func TestTheNewestAreServed(t *testing.T) {
	const most = 4
	for name, words := range map[string]string{"idle from the start": "", "in the midst of a header": "GET / HT"} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			p := serve(t, port{t: t, address: l.Addr().String()}, listen.Newest(l, most), listen.Server(fine, time.Minute))
			var held []*client
			for range 3 * most {
				c := p.dial("127.0.0.1")
				c.say(words)
				held = append(held, c)
				if err := p.dial("127.0.0.1").served(); err != nil {
					t.Fatalf("with %d open: %v", len(held), err)
				}
			}
			for n, c := range held[:len(held)-most] {
				if _, err := c.r.ReadByte(); err == nil || isTimeout(err) {
					t.Errorf("connection %d stays open: %v", n+1, err)
				}
			}
			last := held[len(held)-1]
			last.say(get[len(words):])
			if _, err := last.answer(); err != nil {
				t.Errorf("the last one that was left open was closed: %v", err)
			}
		})
	}
}

// One that ended makes no other end.
func TestWhatHasEndedDoesNotCount(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := listen.Server(fine, time.Minute)
	s.SetKeepAlivesEnabled(false)
	p := serve(t, port{t: t, address: l.Addr().String()}, listen.Newest(l, 2), s)
	first := p.dial("127.0.0.1")
	for range 5 {
		c := p.dial("127.0.0.1")
		if err := c.served(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.r.ReadByte(); err == nil || isTimeout(err) {
			t.Fatalf("an answered connection stays open: %v", err)
		}
	}
	if err := first.served(); err != nil {
		t.Errorf("the first was closed: %v", err)
	}
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}
