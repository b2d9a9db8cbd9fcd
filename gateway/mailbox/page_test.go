package mailbox

import (
	"encoding/json"
	"strings"
	"testing"

	"nisse.io/nisse/gateway/routing"
	"nisse.io/nisse/internal/doors"
)

// readable is half of what an agent's runtime reads of one answer.
const readable = 8 << 20

// Whatever a page holds, it is short enough to be read, and it brings its reader on.
func TestPage(t *testing.T) {
	for name, tc := range map[string]struct {
		each    string
		n, want int
	}{
		"none":                       {"", 0, 0},
		"short ones":                 {"nginx is down", 100, 100},
		"the longest, plain":         {strings.Repeat("x", routing.MaxWords), 100, 31},
		"the longest of what is <":   {strings.Repeat("<", routing.MaxWords), 100, 31},
		"the longest of what is NUL": {strings.Repeat("\x00", routing.MaxWords), 100, 5},
		"no UTF-8":                   {strings.Repeat("\xff", routing.MaxWords), 100, 5},
		"one that is too long":       {strings.Repeat("x", 2<<20), 3, 1},
	} {
		t.Run(name, func(t *testing.T) {
			letters := make([]doors.Message, tc.n)
			for i := range letters {
				letters[i] = doors.Message{Seq: int64(i + 1), ID: "$event", Text: tc.each}
			}
			got := page(letters)
			if len(got) != tc.want {
				t.Errorf("%d letters, want %d", len(got), tc.want)
			}
			b, err := encode(doors.Inbox{Epoch: "e", Messages: got})
			if err != nil || len(b) > readable {
				t.Errorf("%d bytes, %v", len(b), err)
			}
			var back doors.Inbox
			if err := json.Unmarshal(b, &back); err != nil || len(back.Messages) != len(got) {
				t.Errorf("read back %d letters, %v", len(back.Messages), err)
			}
		})
	}
}
