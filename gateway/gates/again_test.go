package gates

import (
	"testing"
	"time"
)

func TestAgain(t *testing.T) {
	for name, tc := range map[string]struct{ age, want time.Duration }{
		"made by a clock that is ahead": {-time.Minute, time.Second},
		"just made":                     {0, time.Second},
		"ten seconds old":               {10 * time.Second, 5 * time.Second},
		"an hour old":                   {time.Hour, 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			if got := again(tc.age); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}
