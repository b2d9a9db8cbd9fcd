// Relay lets pods reach a model endpoint that only this machine can reach: one on its loopback, or one behind a name that the
// cluster does not resolve. The agent's one way out is then the relay's address, whatever the endpoint's is.
//
//	relay -listen 172.30.0.1:8009 -to https://api.example.org/v1
//
// What asks for http://LISTEN/PATH gets TO/PATH. It keeps no key: the caller's Authorization header goes through.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const (
	readHeaderTimeout = 10 * time.Second
	shutdownTimeout   = 5 * time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	listen := flag.String("listen", "", "address and port to listen on")
	to := flag.String("to", "", "base URL of the model endpoint, such as http://127.0.0.1:11434/v1")
	flag.Parse()
	if err := run(ctx, *listen, *to); err != nil {
		fmt.Fprintln(os.Stderr, "relay:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, listen, to string) error {
	handler, err := newRelay(to)
	if err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("listen on %q: %w", listen, err)
	}
	fmt.Printf("http://%s to %s\n", l.Addr(), to)
	server := &http.Server{Handler: handler, ReadHeaderTimeout: readHeaderTimeout}
	go func() {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		_ = server.Shutdown(grace) // the process ends either way
	}()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

// newRelay forwards to the base URL and to nothing else.
func newRelay(to string) (http.Handler, error) {
	base, err := url.Parse(to)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" || base.RawQuery != "" || base.User != nil {
		return nil, fmt.Errorf("model endpoint %q: want a URL such as http://127.0.0.1:11434/v1", to)
	}
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(base) // the Host header becomes the endpoint's, as names behind TLS want
		},
		FlushInterval: -1, // an answer that is streamed arrives as it is written
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, "the model endpoint "+to+" cannot be reached: "+err.Error(), http.StatusBadGateway)
		},
	}, nil
}
