package devices

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/device/wire/pin"
	"nisse.io/nisse/internal/dsse"
)

// counted server, by TLS when there is a config, that counts what it is asked.
func counted(t *testing.T, config *tls.Config) (*httptest.Server, *atomic.Int64) {
	t.Helper()
	var asked atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		http.Error(w, "heard", http.StatusTeapot)
	}))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	if s.TLS = config; config != nil {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s, &asked
}

func shows(t *testing.T, seed byte) *tls.Config {
	t.Helper()
	c, err := pin.Server(key(seed), "web1")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// What does not prove to be the device, or is reached in a way that others can read or change, gets no request, and the Device says why.
func TestNothingIsSentInAnUnsafeWay(t *testing.T) {
	stolen := &tls.Config{Certificates: []tls.Certificate{{Certificate: shows(t, 3).Certificates[0].Certificate, PrivateKey: key(9)}}}
	old := shows(t, 3)
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	// On Linux 0.0.0.0 leads to this machine, and is no loopback address: without the rule the server would be reached.
	elsewhere := func(url string) string { return strings.Replace(url, "127.0.0.1", "0.0.0.0", 1) }
	plainly := func(url string) string { return strings.Replace(url, "http://", "https://", 1) }
	for _, c := range []struct {
		name   string
		config *tls.Config
		url    func(string) string
		key    string // of the Device; the right one when empty
		is     error
		reason string
		told   string
	}{
		{name: "another key", config: shows(t, 9), is: ErrUntrusted, reason: v1alpha1.ReasonKeyMismatch, told: dsse.EncodeKey(public(9))},
		{name: "a middleman with a certificate of his own", config: &tls.Config{}, is: ErrUntrusted, reason: v1alpha1.ReasonKeyMismatch},
		{name: "a middleman with the device's certificate and without its key", config: stolen, is: ErrInsecure, reason: v1alpha1.ReasonInsecure},
		{name: "TLS 1.2", config: old, is: ErrInsecure, reason: v1alpha1.ReasonInsecure, told: "TLS 1.3"},
		{name: "no TLS where it is to be", url: plainly, is: ErrInsecure, reason: v1alpha1.ReasonInsecure, told: "TLS 1.3"},
		{name: "plain HTTP to another address than a loopback one", url: elsewhere, is: ErrInsecure, reason: v1alpha1.ReasonInsecure, told: "https://"},
		{name: "a device whose key is not known yet", config: shows(t, 3), key: "none", is: ErrNotEnrolled, reason: v1alpha1.ReasonNotEnrolled, told: "nisse-device join"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, asked := counted(t, c.config)
			url := s.URL
			if c.url != nil {
				url = c.url(url)
			}
			d := &v1alpha1.Device{ObjectMeta: metav1.ObjectMeta{Name: "web1"}, Spec: v1alpha1.DeviceSpec{URL: url, PublicKey: dsse.EncodeKey(public(3))}}
			if c.key != "" {
				d.Spec.PublicKey = ""
			}
			cl := NewClient(key(1), time.Now)
			r := NewRegistry(cl, nil, "nisse", slog.New(slog.DiscardHandler), time.Now, prometheus.NewRegistry())
			got := online(r.look(t.Context(), d, nil), 0)
			if got.Status != metav1.ConditionFalse || got.Reason != c.reason || !strings.Contains(got.Message, c.told) {
				t.Errorf("Online is %s %s: %s", got.Status, got.Reason, got.Message)
			}
			to, err := TargetOf(d)
			if err == nil {
				_, err = cl.Call(t.Context(), to, wire.Request{Device: "web1", Deed: "d"})
				if !errors.Is(err, ErrNotSent) {
					t.Errorf("it is not told that nothing was sent: %v", err)
				}
			}
			if !errors.Is(err, c.is) {
				t.Errorf("got %v", err)
			}
			if n := asked.Load(); n != 0 {
				t.Errorf("it was asked %d times", n)
			}
		})
	}
}

// Connections to the holder of a key carry nothing for a Device that names another, not even at the same address.
func TestConnectionsBelongToAKey(t *testing.T) {
	s, asked := counted(t, shows(t, 3))
	cl := NewClient(key(1), time.Now)
	ask := func(name string, seed byte) error {
		_, err := cl.Status(t.Context(), Target{Name: name, URL: s.URL, Key: public(seed)})
		return err
	}
	for _, c := range []struct {
		name  string
		seed  byte
		heard bool
	}{{"web1", 3, true}, {"web1", 9, false}, {"web2", 9, false}, {"web1", 3, true}, {"web2", 3, true}} {
		before := asked.Load()
		if err := ask(c.name, c.seed); (asked.Load() > before) != c.heard || !c.heard && !errors.Is(err, ErrNotSent) {
			t.Errorf("%s with key %d: %v", c.name, c.seed, err)
		}
	}
	if cl.Forget("web1"); len(cl.ways.by) != 1 {
		t.Errorf("%d devices are known", len(cl.ways.by))
	}
}
