package devices_test

import (
	"crypto/ed25519"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"nisse.io/nisse/broker/devices"
	"nisse.io/nisse/device/wire"
)

// What stands at a device's address cannot send the broker, and what it signs, to another one.
func TestRedirectsAreNotFollowed(t *testing.T) {
	var asked atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer elsewhere.Close()
	device := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	defer device.Close()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	c, at := devices.NewClient(private, time.Now), devices.Target{Name: "web1", URL: device.URL, Key: public}
	for name, ask := range map[string]func() error{
		"a call":     func() error { _, err := c.Call(t.Context(), at, wire.Request{Device: "web1", Deed: "d"}); return err },
		"a deed":     func() error { _, err := c.Deed(t.Context(), at, "d", "h"); return err },
		"the status": func() error { _, err := c.Status(t.Context(), at); return err },
	} {
		t.Run(name, func(t *testing.T) {
			if err := ask(); !errors.Is(err, devices.ErrNoAnswer) {
				t.Errorf("got %v", err)
			}
		})
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the other address was asked %d times", n)
	}
}
