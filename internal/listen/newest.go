package listen

import (
	"container/list"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// metricsOpen is how many connections a port of metrics and checks keeps. Those that speak to it are a few, and each is gone in a moment.
	metricsOpen = 256
	// metricsTime is what a request there has to arrive in, and metricsAnswer what its answer has to be taken in.
	metricsTime   = 5 * time.Second
	metricsAnswer = 30 * time.Second
)

// Metrics serves what tells how a process is. Whoever asks is to be answered whatever others leave open, from the same address too: behind
// a node's masquerading the kubelet, which restarts what does not answer, may have that of every pod. So nobody is turned away: each
// connection is for one request, and one too many closes the oldest.
func Metrics(l net.Listener, h http.Handler) (net.Listener, *http.Server) {
	s := &http.Server{
		Handler: h, ReadHeaderTimeout: metricsTime, ReadTimeout: metricsTime, WriteTimeout: metricsAnswer, MaxHeaderBytes: maxHeader,
	}
	s.SetKeepAlivesEnabled(false)
	return Newest(l, metricsOpen), s
}

// Newest connections of a listener stay open, as many as are given: one more closes the oldest.
func Newest(l net.Listener, most int) net.Listener {
	return &newest{Listener: l, most: most, open: list.New()}
}

type newest struct {
	net.Listener
	most int

	mu   sync.Mutex
	open *list.List // of *aged, oldest first
}

func (l *newest) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	entered, oldest := l.enter(c)
	if oldest != nil {
		_ = oldest.Close() // its server learns of it by what it reads or writes next
	}
	return entered, nil
}

func (l *newest) enter(c net.Conn) (entered, oldest net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := &aged{Conn: c}
	place := l.open.PushBack(e)
	e.leave = func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.open.Remove(place) // nothing when it has left
	}
	if l.open.Len() > l.most {
		oldest = l.open.Remove(l.open.Front()).(*aged)
	}
	return e, oldest
}

type aged struct {
	net.Conn
	leave func()
}

// Close leaves first: who sees the end of a connection can rely on its place being free.
func (c *aged) Close() error {
	c.leave()
	return c.Conn.Close()
}
