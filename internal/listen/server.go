package listen

import (
	"net/http"
	"time"
)

const (
	// header of a request has 10 s to arrive whole, and may have 16 KiB: a pod's token has one or two.
	headerTime = 10 * time.Second
	maxHeader  = 16 << 10
	// requestTime is that of header and body together. It holds until the body has been read to its end; net/http lifts it then, so that
	// long polls and streams go on for as long as they like.
	requestTime = 30 * time.Second
	idleTime    = 2 * time.Minute
)

// Server for a handler whose answers are written within the time given from the end of a request's header on. One that goes on for longer
// sets a deadline of its own for each piece.
func Server(h http.Handler, answers time.Duration) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: headerTime, ReadTimeout: requestTime, WriteTimeout: answers, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
	}
}
