package loop_test

import (
	"fmt"
	"strings"
	"testing"

	"nisse.io/nisse/internal/doors"
)

// What a call writes while it runs is shown in the room, a handful of lines at most, and is nothing that the model is told.
func TestACallThatRunsIsShown(t *testing.T) {
	r := start(t, scenario(t, talker))
	hold, tells := make(chan struct{}), make(chan string)
	r.change(func() { r.hold, r.tells = hold, tells })
	r.open("wi-1", "two")
	shown := func() (lines []string) {
		for _, o := range r.out {
			if o.Kind == doors.Progress && strings.HasPrefix(o.Text, "⏳ web1 fs.list") {
				lines = append(lines, o.Text)
			}
		}
		return lines
	}
	for n := range 5 {
		tells <- fmt.Sprintf("%d0 %%\u202e", n)
		r.until("the line shows", func() bool { return len(shown()) == n+1 })
		tells <- fmt.Sprintf("%d0 %%\u202e", n) // is no news
	}
	tells <- "more than a handful"
	r.change(func() { r.hold, r.tells = nil, nil })
	close(hold)
	r.until("its end shows", func() bool { return len(r.out) > 5 })
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := shown()
	if len(lines) != 5 || !strings.HasSuffix(lines[4], `: 40 %\u202e`) {
		t.Errorf("shown are %q", lines)
	}
	for _, e := range r.events() {
		if text := string(e.Payload); strings.Contains(text, "0 %") {
			t.Errorf("the log has %s", text)
		}
	}
}
