package matrix

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"maunium.net/go/mautrix"

	"nisse.io/nisse/gateway/metrics"
	"nisse.io/nisse/internal/sanitize"
)

// backoff grows from failure to failure.
type backoff struct {
	first, most time.Duration
	failures    int
	began       time.Time
}

// since is when the first of the failures in a row was.
func (b *backoff) since() time.Time {
	if b.began.IsZero() {
		b.began = time.Now()
	}
	return b.began
}

func (b *backoff) next() time.Duration {
	b.since()
	d := b.most
	if b.failures < 16 {
		d = min(b.first<<b.failures, b.most)
	}
	b.failures++
	return d/2 + rand.N(d/2+1) // not all accounts at once
}

func (b *backoff) ok() { b.failures, b.began = 0, time.Time{} }

// sleep until the time is over or the context is.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// patiently calls f again for as long as the homeserver answers 429, waiting as long as it asks for. A 429 says that nothing was
// done, so anything may be repeated.
func patiently(ctx context.Context, f func() error) error {
	for {
		err := f()
		wait, limited := retryAfter(err)
		if !limited {
			return err
		}
		metrics.RateLimited.Inc()
		sleep(ctx, wait)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// retryAfter reads how long a 429 asks to wait: the header of today, or the field of before Matrix 1.10.
func retryAfter(err error) (time.Duration, bool) {
	var he mautrix.HTTPError
	if !errors.As(err, &he) || !he.IsStatus(http.StatusTooManyRequests) {
		return 0, false
	}
	const most = 10 * time.Minute
	wait := 5 * time.Second
	if he.RespError != nil {
		if ms, ok := he.RespError.ExtraData["retry_after_ms"].(float64); ok && ms >= 0 {
			wait = time.Duration(min(ms, float64(most.Milliseconds()))) * time.Millisecond
		}
	}
	if he.Response != nil {
		if s, err := strconv.Atoi(he.Response.Header.Get("Retry-After")); err == nil && s >= 0 {
			s = min(s, int(most.Seconds())) // a number of seconds may be more than a Duration holds
			wait = max(wait, time.Duration(s)*time.Second)
			if he.RespError == nil || he.RespError.ExtraData["retry_after_ms"] == nil {
				wait = time.Duration(s) * time.Second
			}
		}
	}
	return min(wait+50*time.Millisecond, most), true
}

// away tells whether an error says that the homeserver is not there, rather than that it refuses.
func away(err error) bool {
	var lacks *lackError
	var he mautrix.HTTPError
	if !errors.As(err, &he) {
		return errors.As(err, &lacks) || errors.Is(err, context.DeadlineExceeded)
	}
	if he.RespError == nil && he.WrappedError != nil {
		return true // no answer at all, or not one of a homeserver
	}
	return he.Response == nil || he.Response.StatusCode >= 500 || he.IsStatus(http.StatusTooManyRequests) || he.RespError == nil
}

// answered tells whether there was an answer to a request, good or not, that leaves the session as it is: other requests may fare better.
func answered(err error) bool {
	var lacks *lackError
	var he mautrix.HTTPError
	return !errors.Is(err, mautrix.MUnknownToken) && (errors.As(err, &lacks) || errors.As(err, &he) && he.Response != nil && !he.IsStatus(http.StatusTooManyRequests))
}

// explain an error to a person, on one line, without the URL and what else the client adds.
func explain(err error) string {
	switch {
	case redirected(err):
		return "it sends us to another address, which is not followed; name the homeserver's own address (--homeserver-url)"
	case tooLong(err):
		return "its answer is longer than is read"
	}
	var re mautrix.RespError
	if errors.As(err, &re) && re.Err != "" {
		return sanitize.Line(re.ErrCode+": "+re.Err, 300)
	}
	return sanitize.Line(err.Error(), 300)
}
