package person

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"maunium.net/go/mautrix/event"
)

func timeline(t *testing.T, lines ...string) []*event.Event {
	t.Helper()
	events := make([]*event.Event, len(lines))
	for i, line := range lines {
		if err := json.Unmarshal([]byte(line), &events[i]); err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
	}
	return events
}

const (
	asked  = `{"event_id":"$ask","sender":"@you:x","type":"m.room.message","content":{"msgtype":"m.text","body":"look"}}`
	answer = `{"event_id":"$ans","sender":"@ops:x","type":"m.room.message","content":{"msgtype":"m.notice","body":"Looking.","m.relates_to":{"rel_type":"m.thread","event_id":"$ask","is_falling_back":true,"m.in_reply_to":{"event_id":"$ask"}}}}`
	edit   = `{"event_id":"$ed","sender":"@ops:x","type":"m.room.message","content":{"msgtype":"m.notice","body":"* Done.","m.new_content":{"msgtype":"m.notice","body":"Done."},"m.relates_to":{"rel_type":"m.replace","event_id":"$ans"}}}`
)

func TestFold(t *testing.T) {
	for _, tc := range []struct {
		name     string
		timeline []string
		want     []Message
	}{
		{"nothing", nil, nil},
		{
			"a message in a thread is no reply",
			[]string{asked, answer},
			[]Message{
				{ID: "$ask", Sender: "@you:x", Body: "look"},
				{ID: "$ans", Sender: "@ops:x", Body: "Looking.", Thread: "$ask", Notice: true},
			},
		},
		{
			"an edit replaces the body",
			[]string{asked, answer, edit},
			[]Message{
				{ID: "$ask", Sender: "@you:x", Body: "look"},
				{ID: "$ans", Sender: "@ops:x", Body: "Done.", Thread: "$ask", Notice: true, Edits: 1},
			},
		},
		{
			"nobody edits another's message",
			[]string{asked, answer, strings.Replace(edit, "@ops:x", "@mallory:x", 1)},
			[]Message{
				{ID: "$ask", Sender: "@you:x", Body: "look"},
				{ID: "$ans", Sender: "@ops:x", Body: "Looking.", Thread: "$ask", Notice: true},
			},
		},
		{
			"pages of history that overlap count once",
			[]string{asked, asked},
			[]Message{{ID: "$ask", Sender: "@you:x", Body: "look"}},
		},
		{
			"reactions and replies",
			[]string{
				asked,
				`{"event_id":"$re","sender":"@ops:x","type":"m.reaction","content":{"m.relates_to":{"rel_type":"m.annotation","event_id":"$ask","key":"👍"}}}`,
				`{"event_id":"$rep","sender":"@ops:x","type":"m.room.message","content":{"msgtype":"m.text","body":"at what?","m.relates_to":{"m.in_reply_to":{"event_id":"$ask"}}}}`,
			},
			[]Message{
				{ID: "$ask", Sender: "@you:x", Body: "look", Reacted: []Reaction{{"@ops:x", "👍"}}},
				{ID: "$rep", Sender: "@ops:x", Body: "at what?", ReplyTo: "$ask"},
			},
		},
		{
			"redacted, malformed and state events say nothing",
			[]string{
				`{"event_id":"$1","sender":"@you:x","type":"m.room.message","content":{}}`,
				`{"event_id":"$2","sender":"@you:x","type":"m.room.message","content":{"msgtype":7,"body":[]}}`,
				`{"event_id":"$3","sender":"@you:x","type":"m.room.name","state_key":"","content":{"name":"x"}}`,
			},
			nil,
		},
		{
			"encrypted messages are seen but not read",
			[]string{`{"event_id":"$1","sender":"@you:x","type":"m.room.encrypted","content":{"algorithm":"m.megolm.v1.aes-sha2","ciphertext":"AA"}}`},
			[]Message{{ID: "$1", Sender: "@you:x", Body: "(encrypted)"}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := fold(timeline(t, tc.timeline...)).Messages
			ignore := []cmp.Option{cmpopts.IgnoreUnexported(Message{}), cmpopts.IgnoreFields(Message{}, "At")}
			if diff := cmp.Diff(tc.want, got, ignore...); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestFindAfter(t *testing.T) {
	later := `{"event_id":"$more","sender":"@you:x","type":"m.room.message","content":{"msgtype":"m.text","body":"and?"}}`
	for _, tc := range []struct {
		name     string
		timeline []string
		want     Want
		found    string
	}{
		{"first in order", []string{asked, answer, later}, Want{Sender: "@you:x"}, "$ask"},
		{"only what comes later", []string{asked, answer, later}, Want{Sender: "@you:x", After: "$ask"}, "$more"},
		{"an edit makes an old message new", []string{asked, answer, later, edit}, Want{Sender: "@ops:x", After: "$more"}, "$ans"},
		{"an old message stays old", []string{asked, answer, later}, Want{Sender: "@ops:x", After: "$more"}, ""},
		{"nothing comes after what never was", []string{asked, answer}, Want{After: "$never"}, ""},
		{"in a thread", []string{asked, answer, later}, Want{Thread: "$ask"}, "$ans"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, found := fold(timeline(t, tc.timeline...)).find(tc.want)
			if got.ID.String() != tc.found || found != (tc.found != "") {
				t.Errorf("find = %q, %v; want %q", got.ID, found, tc.found)
			}
		})
	}
}

func TestPrint(t *testing.T) {
	c := fold(timeline(t, asked, answer, edit,
		`{"event_id":"$rep","sender":"@you:x","type":"m.room.message","content":{"msgtype":"m.text","body":"thanks,\nreally","m.relates_to":{"m.in_reply_to":{"event_id":"$ans"}}}}`,
		`{"event_id":"$re","sender":"@ops:x","type":"m.reaction","content":{"m.relates_to":{"rel_type":"m.annotation","event_id":"$rep","key":"👍"}}}`,
	))
	var b strings.Builder
	if err := c.Print(&b); err != nil {
		t.Fatal(err)
	}
	at := c.Messages[0].At.Format("15:04:05")
	want := strings.ReplaceAll(`TIME  you  look
TIME  ops  │ Done.  (edited)
TIME  you  ↳ ops: Done.
               thanks,
               really
               👍 ops
`, "TIME", at)
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
