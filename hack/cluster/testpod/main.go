// Command testpod is the one tool inside the pods of the smoke test, whose images have no shell:
//
//	testpod sleep                 wait for a signal
//	testpod serve ADDRESS         answer HTTP; prints the address it listens on
//	testpod get URL               one request, two seconds at most; exit 1 when there is no answer
//	testpod lookup NAME [SERVER]  addresses of a name
//	testpod cat FILE              print a file
//	testpod write FILE TEXT       replace a file
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const patience = 2 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "testpod:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	switch {
	case len(args) == 1 && args[0] == "sleep":
		<-ctx.Done()
		return nil
	case len(args) == 2 && args[0] == "serve":
		return serve(ctx, args[1], out)
	case len(args) == 2 && args[0] == "get":
		return get(ctx, args[1], out)
	case len(args) == 2 && args[0] == "lookup":
		return lookup(ctx, net.DefaultResolver, args[1], out)
	case len(args) == 3 && args[0] == "lookup":
		return lookup(ctx, resolver(args[2]), args[1], out)
	case len(args) == 2 && args[0] == "cat":
		content, err := os.ReadFile(args[1])
		if err == nil {
			_, err = out.Write(content)
		}
		return err
	case len(args) == 3 && args[0] == "write":
		return os.WriteFile(args[1], []byte(args[2]), 0o644)
	}
	return fmt.Errorf("unknown arguments %q", args)
}

func serve(ctx context.Context, address string, out io.Writer) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "listening on", listener.Addr())
	server := &http.Server{
		ReadHeaderTimeout: patience,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "hello from %s to %s\n", host, r.RemoteAddr)
		}),
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// resolver asks one server only.
func resolver(server string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, server)
	}}
}

func lookup(ctx context.Context, resolver *net.Resolver, name string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	addresses, err := resolver.LookupHost(ctx, name)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, strings.Join(addresses, " "))
	return err
}

func get(ctx context.Context, url string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(out, io.LimitReader(response.Body, 4096))
	return err
}
