package matrix

import (
	"errors"
	"net"
	"net/http"
	"time"

	"maunium.net/go/mautrix"
)

// requestTimeout of one request, whatever its context allows: longer than a sync waits for news.
const requestTimeout = 3 * time.Minute

// httpClient for a homeserver. It is asked at its own address only: a homeserver that redirects must not choose what the gateway, which
// stands inside the cluster, asks on its behalf, nor where tokens and passwords go.
func httpClient() *http.Client {
	return &http.Client{
		Timeout:       requestTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:       http.ProxyFromEnvironment,
			DialContext: (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext, ForceAttemptHTTP2: true,
			TLSHandshakeTimeout: 10 * time.Second, ExpectContinueTimeout: time.Second, MaxIdleConnsPerHost: 4, IdleConnTimeout: 90 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
		},
	}
}

// tooLong tells whether an answer had more bytes than are read.
func tooLong(err error) bool {
	return errors.Is(err, mautrix.ErrResponseTooLong) || errors.Is(err, mautrix.ErrBodyReadReachedLimit)
}

// redirected tells whether the homeserver sends us elsewhere.
func redirected(err error) bool {
	var he mautrix.HTTPError
	return errors.As(err, &he) && he.Response != nil && he.Response.StatusCode/100 == 3
}

// less of what was too long: fewer events at once, until it is one.
func less(events int) int { return max(events/4, 1) }
