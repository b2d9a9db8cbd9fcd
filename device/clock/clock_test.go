package clock

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"nisse.io/nisse/device/store"
	"nisse.io/nisse/device/wire"
)

const now = built + 1_000_000

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name               string
		clock              Clock
		now, at, expiresAt int64
		want               wire.Reason
	}{
		{"fresh", Clock{}, now, now, now + 60, ""},
		{"its last second", Clock{}, now, now - 59, now + 1, ""},
		{"its end", Clock{}, now, now - 60, now, wire.Expired},
		{"within the skew", Clock{}, now, now + wire.SkewSeconds, now + 60, ""},
		{"past the skew", Clock{}, now, now + wire.SkewSeconds + 1, now + 60, wire.NotYet},
		{"the longest window", Clock{}, now, now, now + wire.MaxWindowSeconds, ""},
		{"a longer one", Clock{}, now, now, now + wire.MaxWindowSeconds + 1, wire.WindowTooLong},
		{"1970", Clock{}, 10, 10, 60, wire.NotYet},
		{"1970, of now", Clock{}, 10, now, now + 60, wire.NotYet},
		{"behind the floor", Clock{Floor: now + 100}, now, now, now + 60, wire.NotYet},
		{"behind the floor within the skew", Clock{Floor: now + wire.SkewSeconds}, now, now, now + 60, ""},
		{"ahead of the floor", Clock{Floor: now - 100}, now, now, now + 60, ""},
		{"told to be over", Clock{Told: now + 60}, now, now, now + 60, wire.Expired},
		{"told, but not to be over", Clock{Told: now + 59}, now, now, now + 60, ""},
		{"told in 1970 too", Clock{Told: now}, 10, 10, now, wire.Expired},
		{"a window backwards", Clock{}, now, now + 20, now + 10, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, message := c.clock.Judge(c.now, c.at, c.expiresAt)
			if got != c.want || (message == "") != (got == "") {
				t.Errorf("got %q, %q", got, message)
			}
		})
	}
}

func TestAccept(t *testing.T) {
	for _, c := range []struct {
		name           string
		floor, now, at int64
		want           int64
	}{
		{"agreeing", 0, now, now - 1, now - 1},
		{"in the skew ahead", 0, now, now + wire.SkewSeconds, now + wire.SkewSeconds},
		{"an old request", 5, now, now - wire.SkewSeconds - 1, 5},
		{"from the future", 5, now, now + wire.SkewSeconds + 1, 5},
		{"never down", now + 20, now, now, now + 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := (Clock{Floor: c.floor}).Accept(c.now, c.at).Floor; got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
	if got := (Clock{Told: 9}).Tell(5); got.Told != 9 {
		t.Errorf("it takes back what it told: %d", got.Told)
	}
}

func TestSaved(t *testing.T) {
	st, err := store.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	want := Clock{Floor: now, Told: now + 7}
	if c, err := Load(t.Context(), st.DB()); err != nil || c != (Clock{}) {
		t.Errorf("got %+v, %v", c, err)
	}
	if err := want.Save(t.Context(), st.DB()); err != nil {
		t.Fatal(err)
	}
	got, err := Load(t.Context(), st.DB())
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Error(d, err)
	}
	if (Clock{}).Problem(10) == "" || (Clock{}).Problem(now) != "" {
		t.Error("the problem is not told when it is one")
	}
}
