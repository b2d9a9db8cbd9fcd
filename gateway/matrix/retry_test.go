package matrix

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"maunium.net/go/mautrix"
)

// How long a 429 asks to wait, by the header of today, by the field of before, by both, by neither, and by nonsense.
func TestRetryAfter(t *testing.T) {
	const slack = 50 * time.Millisecond
	answer := func(status int, header string, body map[string]any) error {
		e := mautrix.HTTPError{Response: &http.Response{StatusCode: status, Header: http.Header{}}}
		if header != "" {
			e.Response.Header.Set("Retry-After", header)
		}
		if body != nil {
			e.RespError = &mautrix.RespError{ErrCode: "M_LIMIT_EXCEEDED", StatusCode: status, ExtraData: body}
		}
		return fmt.Errorf("send: %w", e)
	}
	ms := func(v any) map[string]any { return map[string]any{"retry_after_ms": v} }
	for name, tc := range map[string]struct {
		err     error
		want    time.Duration
		limited bool
	}{
		"no error":                   {nil, 0, false},
		"another error":              {errors.New("no route"), 0, false},
		"another status":             {answer(http.StatusBadGateway, "3", ms(100.0)), 0, false},
		"no answer at all":           {fmt.Errorf("send: %w", mautrix.HTTPError{WrappedError: errors.New("connection refused")}), 0, false},
		"the header":                 {answer(http.StatusTooManyRequests, "3", map[string]any{}), 3*time.Second + slack, true},
		"the header, of a proxy":     {answer(http.StatusTooManyRequests, "3", nil), 3*time.Second + slack, true},
		"the header, at once":        {answer(http.StatusTooManyRequests, "0", nil), slack, true},
		"the field":                  {answer(http.StatusTooManyRequests, "", ms(1500.0)), 1500*time.Millisecond + slack, true},
		"the field, at once":         {answer(http.StatusTooManyRequests, "", ms(0.0)), slack, true},
		"both, the header longer":    {answer(http.StatusTooManyRequests, "2", ms(1500.0)), 2*time.Second + slack, true},
		"both, the field longer":     {answer(http.StatusTooManyRequests, "1", ms(1500.0)), 1500*time.Millisecond + slack, true},
		"neither":                    {answer(http.StatusTooManyRequests, "", nil), 5*time.Second + slack, true},
		"a date":                     {answer(http.StatusTooManyRequests, "Mon, 30 Nov 2026 12:00:00 GMT", nil), 5*time.Second + slack, true},
		"a negative header":          {answer(http.StatusTooManyRequests, "-3", nil), 5*time.Second + slack, true},
		"a negative field":           {answer(http.StatusTooManyRequests, "", ms(-1.0)), 5*time.Second + slack, true},
		"a field that is no number":  {answer(http.StatusTooManyRequests, "", ms("soon")), 5*time.Second + slack, true},
		"a header beyond the cap":    {answer(http.StatusTooManyRequests, "86400", nil), 10 * time.Minute, true},
		"a field beyond the cap":     {answer(http.StatusTooManyRequests, "", ms(86400000.0)), 10 * time.Minute, true},
		"a field beyond all bounds":  {answer(http.StatusTooManyRequests, "", ms(1e300)), 10 * time.Minute, true},
		"a header beyond all bounds": {answer(http.StatusTooManyRequests, "9223372036854775807", nil), 10 * time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, limited := retryAfter(tc.err)
			if got != tc.want || limited != tc.limited {
				t.Errorf("wait %s, limited %t; want %s, %t", got, limited, tc.want, tc.limited)
			}
		})
	}
}
