package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"nisse.io/nisse/gateway/metrics"
	"nisse.io/nisse/internal/listen"
)

// answers of the door are written within this time; the longest is that of a patient look into the mailbox.
const answers = 90 * time.Second

// serve the door on an address until the context ends. Requests under way get a moment to end.
func serve(ctx context.Context, address string, h http.Handler) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", address, err)
	}
	srv := listen.Server(h, answers)
	srv.BaseContext = func(net.Listener) context.Context { return ctx }
	ended := make(chan error, 1)
	go func() {
		ended <- srv.Serve(listen.Limit(l, listen.Usual(metrics.ConnectionsRefused.WithLabelValues("door"))))
	}()
	select {
	case err := <-ended:
		return fmt.Errorf("serve on %s: %w", address, err)
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := srv.Shutdown(last); err != nil {
		return errors.Join(err, srv.Close())
	}
	return nil
}
