package modelcheck

import (
	"flag"
	"fmt"
	"path/filepath"
	"testing"
	"time"
)

var (
	seedFlag = flag.Uint64("seed", 0, "the one life to live again, as a failure named it")
	runsFlag = flag.Int("runs", 0, "how many lives, instead of the usual number")
	verbose  = flag.Bool("story", false, "tell what happened, also when nothing failed")
)

// The usual number of lives, and how long each is troubled.
const (
	usualRuns = 60
	troubles  = 220
)

// In any order of crashes, losses, repetitions and delays the product's runtime does, says and hears each thing once, and when the
// world is quiet the work comes to its end.
func TestAnHonestRuntimeComesToAnEnd(t *testing.T) {
	seeds := []uint64{*seedFlag}
	if *seedFlag == 0 {
		first := uint64(time.Now().UnixNano())
		seeds = nil
		for i := range lives() {
			seeds = append(seeds, first+uint64(i))
		}
	}
	var deeds, deaths, words, plans, asked int
	for _, seed := range seeds {
		h, found := run(seed, filepath.Join(t.TempDir(), fmt.Sprint(seed)), mutant{}, troubles)
		if *verbose {
			t.Log("\n  " + h.story())
		}
		if found != "" {
			t.Fatalf("seed %d: %s\nagain: go test ./test/modelcheck -run %s -seed %d\nwhat happened:\n  %s", seed, found, t.Name(), seed, h.story())
		}
		deeds, deaths, words, plans, asked = deeds+h.deeds, deaths+h.rt.deaths, words+len(h.room.out), plans+len(h.cluster.plans), asked+h.asked
	}
	if *seedFlag == 0 && (deeds == 0 || deaths == 0 || asked == 0) {
		t.Error("nothing ever ran, nobody was ever asked about a call, or nobody ever died: the check proves nothing")
	}
	t.Logf("%d lives: %d plans, %d of them single calls, %d deeds, %d messages; the runtime died %d times", len(seeds), plans, asked, deeds, words, deaths)
}

func lives() int {
	if *runsFlag > 0 {
		return *runsFlag
	}
	return usualRuns
}

// Faults that were built in are found: a check that cannot fail proves nothing.
func TestBuiltInFaultsAreFound(t *testing.T) {
	for _, m := range []mutant{
		{name: "the runtime asks again under a new call ID", newCallIDs: true, from: 4},
		{name: "the runtime says things again under a new ID", newWordIDs: true, from: 4},
		{name: "the runtime's log loses its last record", logForgets: true, from: 19},
		{name: "the runtime does not look at its intents when it starts", bootForgets: true, from: 36},
		{name: "the runtime acknowledges words that it has not written down", acksFirst: true, from: 12},
		{name: "the device forgets its table", deviceForgets: true, from: 31},
	} {
		t.Run(m.name, func(t *testing.T) {
			const most = 150
			for seed := m.from; seed < m.from+most; seed++ {
				if _, found := run(seed, filepath.Join(t.TempDir(), fmt.Sprint(seed)), m, troubles); found != "" {
					t.Logf("in life %d: %s", seed, found)
					return
				}
			}
			t.Errorf("%d lives went well with this fault", most)
		})
	}
}
