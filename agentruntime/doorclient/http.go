// Package doorclient speaks with the pod's two doors: the work stream and the tools of the broker, the mailbox of the gateway.
// Every request bears the token that is in the file at that moment, since the kubelet replaces it while the pod runs.
package doorclient

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/internal/sanitize"
)

// maxBody of an answer. A door sends far less; this keeps one that went wrong from filling the pod's memory.
const maxBody = 16 << 20

// ErrRefused is wrapped when a door will give the same answer however often it is asked.
var ErrRefused = errors.New("refused")

var errTooLarge = errors.New("too large")

// Door is one of the two, by its URL and the file with the token for it.
type Door struct {
	URL       string
	TokenPath string
}

// client for this door. There is no timeout: streams stay open, and each request has its own context.
func (d Door) client() *http.Client {
	return &http.Client{
		Transport: bearer{path: d.TokenPath, base: &http.Transport{
			DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
			MaxIdleConnsPerHost:   4,
			IdleConnTimeout:       90 * time.Second,
			ResponseHeaderTimeout: 0, // a tool call answers when it has run
		}},
		// A door never redirects; following would carry the token to where it does not belong.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// bearer adds the token and caps what is read.
type bearer struct {
	path string
	base http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := os.ReadFile(b.path)
	if err != nil {
		return nil, fmt.Errorf("read the token for %s: %w", r.URL.Host, err)
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	res, err := b.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if res.StatusCode == http.StatusRequestEntityTooLarge {
		_ = res.Body.Close()
		return nil, fmt.Errorf("%w: %w by %s", ErrRefused, errTooLarge, r.URL.Host)
	}
	if !stream(res) {
		res.Body = &capped{ReadCloser: res.Body, left: maxBody}
	}
	return res, nil
}

// stream tells whether a body goes on as long as the connection does. Its readers cap each line or event.
func stream(res *http.Response) bool {
	t := res.Header.Get("Content-Type")
	return strings.HasPrefix(t, "application/x-ndjson") || strings.HasPrefix(t, "text/event-stream")
}

type capped struct {
	io.ReadCloser
	left int64
}

func (c *capped) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, fmt.Errorf("the answer has more than %d bytes", maxBody)
	}
	if int64(len(p)) > c.left {
		p = p[:c.left]
	}
	n, err := c.ReadCloser.Read(p)
	c.left -= int64(n)
	return n, err
}

// problem turns an answer that is not a success into an error. 4xx but for the passing ones will not change by asking again.
func problem(res *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(res.Body, 8<<10)) // what came of it is enough
	var p doors.Problem
	if json.Unmarshal(body, &p) != nil || p.Reason == "" {
		p.Reason, p.Message = http.StatusText(res.StatusCode), sanitize.Line(string(body), 200)
	}
	err := fmt.Errorf("%s answers %d %s: %s", res.Request.URL.Host, res.StatusCode, p.Reason, sanitize.Line(p.Message, 500))
	switch res.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return err // the token rotates, the pod becomes the current one, the limit passes
	}
	if res.StatusCode/100 == 4 {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return err
}
