package gateway_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"nisse.io/nisse/gateway/metrics"
	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/internal/listen"
)

// However many connections one pod leaves open, another hears what is said to it, at once and when it waits for it.
func TestOnePodCannotShutTheDoorForOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	ops := r.pod("ops")
	refused := metrics.ConnectionsRefused.WithLabelValues("door")
	before := testutil.ToFloat64(refused)
	hold := func() {
		c, err := net.Dial("tcp", r.door)
		if err != nil {
			return // reset before it was known to be open
		}
		t.Cleanup(func() { _ = c.Close() }) // the gateway may have closed it before
		_, _ = io.WriteString(c, "GET /v1/inbox HT")
	}
	for range listen.PerAddress + 20 {
		hold()
	}
	r.wait("20 connections are refused", func(context.Context) error {
		if n := testutil.ToFloat64(refused) - before; n < 20 {
			hold() // where dialing took so long that the first were given up
			return fmt.Errorf("%v are", n)
		}
		return nil
	})

	r.client = &http.Client{Transport: &http.Transport{DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext}}
	epoch := r.epoch(ops)
	heard := make(chan doors.Inbox, 1)
	go func() {
		var in doors.Inbox
		if status := r.call(ops, http.MethodGet, "/v1/inbox?wait=30&after=0&epoch="+epoch, nil, &in); status != http.StatusOK {
			t.Errorf("the patient look got %d", status)
		}
		heard <- in
	}()
	r.say(r.lucas, "nginx", "")
	select {
	case in := <-heard:
		if len(in.Messages) != 1 || in.Messages[0].Text != "nginx" {
			t.Errorf("heard %+v", in)
		}
	case <-time.After(patience):
		t.Fatal("nothing is heard")
	}
}
