package broker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"nisse.io/nisse/broker/meter"
	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/internal/listen"
	"nisse.io/nisse/test/apitest"
	"nisse.io/nisse/test/faultydevice"
)

// door opens the agents' door as a broker's process does, and lets the rig use it. A request has the time given to arrive, so that no test
// waits as long as a broker does; a header alone has more, so that what a test holds open stays so on a machine that is slow.
func (r *rig) door(requestTime time.Duration) (refused prometheus.Counter) {
	r.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(r.t, err)
	r.url = "http://" + l.Addr().String()
	refused = meter.Refused(prometheus.NewRegistry()).WithLabelValues("door")
	limited, srv := door(l, r.broker.Handler(), refused)
	srv.ReadTimeout, srv.ReadHeaderTimeout = requestTime, 5*time.Minute
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- keepOpen(ctx, limited, srv, &atomic.Bool{}) }()
	r.t.Cleanup(func() {
		cancel()
		must(r.t, <-ended)
	})
	return refused
}

// hold a connection to the door until the test ends, and say something on it. Nil when it was refused before it was open.
func (r *rig) hold(words string) net.Conn {
	r.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		return nil
	}
	r.t.Cleanup(func() { _ = c.Close() }) // the broker may have closed it before
	_, _ = io.WriteString(c, words)       // and so here
	return c
}

// unfinished is a request whose body does not come.
func (r *rig) unfinished(path string) string {
	return "POST " + path + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + r.token +
		"\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: 1000\r\n\r\n{"
}

// ends waits until the broker closes a connection, whatever it says before that.
func ends(t *testing.T, c net.Conn) (said string) {
	t.Helper()
	must(t, c.SetReadDeadline(time.Now().Add(20*time.Second)))
	b, err := io.ReadAll(c)
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		t.Errorf("the connection stays open; said %q", b)
	}
	return string(b)
}

// However many connections one pod leaves open, another's are served.
func TestOnePodCannotShutTheDoorForOthers(t *testing.T) {
	r := newRig(t, options{faults: true})
	refused := r.door(time.Minute)
	for range listen.PerAddress/2 + 20 {
		r.hold("")
		r.hold("POST /mcp HT")
	}
	apitest.Wait(t, time.Minute, func(context.Context) error {
		if n := testutil.ToFloat64(refused); n != 40 {
			return fmt.Errorf("%v connections were refused", n)
		}
		return nil
	})
	if c := r.hold("GET /v1/work HTTP/1.1\r\nHost: x\r\n\r\n"); c != nil {
		if said := ends(t, c); said != "" {
			t.Errorf("one more is answered %.100q", said)
		}
	}

	other := &http.Client{Transport: from{r.token, &http.Transport{DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext}}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+"/v1/work", nil)
	must(t, err)
	res, err := other.Do(req)
	must(t, err)
	defer res.Body.Close()
	if line, err := bufio.NewReader(res.Body).ReadString('\n'); err != nil || !strings.Contains(line, `"wi-1"`) {
		t.Errorf("another pod's work stream says %q, %v", line, err)
	}
}

// from is a way to the door of its own.
type from struct {
	token string
	way   http.RoundTripper
}

func (f from) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer "+f.token)
	return f.way.RoundTrip(req)
}

// Who is not known keeps no connection.
func TestARefusedRequestEndsItsConnection(t *testing.T) {
	r := newRig(t, options{faults: true})
	r.door(time.Minute)
	for name, token := range map[string]string{"no token": "", "nonsense": "x.y.z"} {
		t.Run(name, func(t *testing.T) {
			said := ends(t, r.hold("GET /v1/work HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+token+"\r\n\r\n"))
			if !strings.HasPrefix(said, "HTTP/1.1 401 ") {
				t.Errorf("answered %q", said)
			}
		})
	}
}

// A body that does not come is not waited for, whoever does not send it.
func TestABodyThatDoesNotCome(t *testing.T) {
	r := newRig(t, options{faults: true})
	r.door(300 * time.Millisecond)
	for _, path := range []string{"/mcp", "/v1/trouble", "/v1/other"} {
		t.Run(path, func(t *testing.T) { ends(t, r.hold(r.unfinished(path))) })
	}
	t.Run("of a stranger", func(t *testing.T) {
		ends(t, r.hold(strings.Replace(r.unfinished("/mcp"), r.token, "x.y.z", 1)))
	})
}

// What has come whole may take as long as it needs: the work stream stays open, and a call is answered when it has run.
func TestTheDoorIsPatientWithAnswers(t *testing.T) {
	r := newRig(t, options{faults: true})
	const requestTime = 2 * time.Second // a slow machine's calls arrive in less
	r.door(requestTime)
	gate := make(chan struct{})
	r.device.Set(faultydevice.Fault{Gate: gate})
	answer := make(chan doors.ToolResult, 1)
	s := r.session()
	go func() {
		res, err := r.call(s, "c1", "fs_read", `{"device":"web1","path":"/srv/a"}`)
		if err != nil {
			t.Error(err)
		}
		answer <- res
	}()
	const beat = 50 * time.Millisecond
	r.broker.stream.Keepalive = beat
	_, alive, stop := r.stream()
	defer stop()
	for range 2 * requestTime / beat {
		select {
		case <-alive:
		case <-time.After(time.Minute):
			t.Fatal("the work stream is cut off")
		}
	}
	close(gate)
	r.want(<-answer, doors.Done, "")
}
