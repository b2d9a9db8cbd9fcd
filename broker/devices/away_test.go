package devices

import (
	"errors"
	"testing"
	"time"
)

// A silence that has only begun has no length worth telling.
func TestAwayTellsHowLongOnceThatIsNews(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		since time.Duration // before now; negative: nothing was noted
		want  string
	}{
		"nothing noted": {-1, "web1 does not answer; I have not tried again."},
		"just now":      {0, "web1 does not answer; I have not tried again."},
		"4 s":           {4 * time.Second, "web1 does not answer; I have not tried again."},
		"5 s":           {5 * time.Second, "web1 has not answered for 5 s (since 11:59 UTC); I have not tried again."},
		"an hour":       {time.Hour, "web1 has not answered for 60 min (since 11:00 UTC); I have not tried again."},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Registry{silent: map[string]time.Time{}, now: func() time.Time { return now }}
			if tc.since >= 0 {
				r.silent["web1"] = now.Add(-tc.since)
			}
			if got := r.Away("web1", errors.New("no route")); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}
