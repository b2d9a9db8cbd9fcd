package clock

import (
	"testing"
	"time"
)

func TestTell(t *testing.T) {
	cet := time.FixedZone("CET", 3600)
	at := time.Date(2026, 11, 30, 23, 40, 12, 0, time.UTC)
	for name, tc := range map[string]struct {
		at, read time.Time
		want     string
	}{
		"the same day":                  {at, at.Add(-time.Hour), "23:40 UTC"},
		"the day before":                {at, at.Add(-24 * time.Hour), "23:40 UTC on 30 November"},
		"the day after":                 {at, at.Add(time.Hour), "23:40 UTC on 30 November"},
		"the same day a year later":     {at, at.AddDate(1, 0, 0), "23:40 UTC on 30 November 2026"},
		"the reader's zone is no other": {at, at.Add(-time.Hour).In(cet), "23:40 UTC"},
		"the zone of the time":          {at.In(cet), at, "00:40 CET"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Tell(tc.at, tc.read); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}
