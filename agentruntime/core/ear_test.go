package core

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"nisse.io/nisse/agentruntime/event"
	"nisse.io/nisse/agentruntime/eventlog"
	"nisse.io/nisse/internal/doors"
)

// box is a mailbox that hands out pages, or fails.
type box struct {
	pages   [][]doors.Message
	readErr error
	ackErr  error
	acked   int64
	patient []bool
}

func (b *box) Read(_ context.Context, _ string, _ int64, patient bool) (doors.Inbox, bool, error) {
	b.patient = append(b.patient, patient)
	in := doors.Inbox{Epoch: "e1"}
	if b.readErr == nil && len(b.pages) > 0 {
		in.Messages, b.pages = b.pages[0], b.pages[1:]
	}
	return in, false, b.readErr
}

func (b *box) Ack(_ context.Context, _ string, seq int64) error {
	if b.ackErr == nil {
		b.acked = seq
	}
	return b.ackErr
}

// ending is a core whose log wants finish next.
func ending(t *testing.T) *Core {
	t.Helper()
	log, err := eventlog.Open(t.Context(), t.TempDir(), "ops", time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	if _, err := log.Commit(t.Context(), eventlog.Write{Events: []event.New{
		{WorkItem: "wi", Type: event.UserMessage, Source: "matrix/$1", Payload: event.Words{Text: "do it", Origin: event.Person, From: "lucas", MayInstruct: true}},
		{WorkItem: "wi", Type: event.AssistantText, Source: "ask/1", Payload: event.Text{Origin: event.Model, Ask: "1", UpTo: 1, Calls: 1}},
		{WorkItem: "wi", Type: event.ToolCall, Source: "call/1", Payload: event.Call{ID: "call_1", Ask: "1", Tool: "finish", Args: `{}`, Origin: event.Model}},
	}}); err != nil {
		t.Fatal(err)
	}
	c := New(Parts{Config: doors.RuntimeConfig{Agent: "ops"}, Log: log, Logger: slog.New(slog.DiscardHandler), Meter: NewMeter(prometheus.NewRegistry()), Now: time.Now, Settle: time.Minute, Queued: func() {}})
	if err := c.Boot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Observe(t.Context(), doors.Snapshot{Agent: "ops", Active: &doors.Item{Name: "wi", UID: "u", State: "Working"}}); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *Core) ends(t *testing.T) bool {
	t.Helper()
	f, err := c.Advance(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return f != nil && f.Call != nil && f.Call.Tool == "finish"
}

// listen takes in what one exchange brings.
func (c *Core) listen(t *testing.T, e *Ear) error {
	t.Helper()
	in, _, err := e.Listen(t.Context())
	if err != nil || len(in.Messages) == 0 {
		return err
	}
	if err := c.Receive(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	e.Heard(in)
	return nil
}

// An item does not end on words that wait at the gateway: not after a restart, not behind the first page, not while the gateway
// cannot be told what was read.
func TestNothingEndsUnheard(t *testing.T) {
	other := []doors.Message{{Seq: 1, ID: "$2", WorkItem: "other", Person: "lucas", MayInstruct: true, Text: "something else"}}
	away := errors.New("away")
	for name, tt := range map[string]struct {
		box  *box
		when func(t *testing.T, c *Core, e *Ear, b *box)
		want bool
	}{
		"a process that has just begun": {&box{}, func(*testing.T, *Core, *Ear, *box) {}, false},
		"nothing waits":                 {&box{}, func(t *testing.T, c *Core, e *Ear, _ *box) { _ = c.listen(t, e) }, true},
		"a page, and there may be more": {&box{pages: [][]doors.Message{other}}, func(t *testing.T, c *Core, e *Ear, _ *box) { _ = c.listen(t, e) }, false},
		"the last page was read": {&box{pages: [][]doors.Message{other}}, func(t *testing.T, c *Core, e *Ear, _ *box) {
			_ = c.listen(t, e)
			_ = c.listen(t, e)
		}, true},
		"words in hand, not in the log yet": {&box{}, func(t *testing.T, c *Core, e *Ear, b *box) {
			_ = c.listen(t, e)
			b.pages = [][]doors.Message{{{Seq: 1, ID: "$2", WorkItem: "wi", Person: "lucas", MayInstruct: true, Text: "wait"}}}
			if in, _, err := e.Listen(t.Context()); err != nil || len(in.Messages) != 1 {
				t.Fatalf("%+v, %v", in, err)
			}
		}, false},
		"more may follow what came after all was heard": {&box{}, func(t *testing.T, c *Core, e *Ear, b *box) {
			_ = c.listen(t, e)
			b.pages = [][]doors.Message{other}
			_ = c.listen(t, e)
		}, false},
		"the gateway does not answer": {&box{readErr: away}, func(t *testing.T, c *Core, e *Ear, _ *box) { _ = c.listen(t, e) }, false},
		"it went away later": {&box{}, func(t *testing.T, c *Core, e *Ear, b *box) {
			_ = c.listen(t, e)
			b.readErr = away
			_ = c.listen(t, e)
		}, false},
		"it cannot be told what was read": {&box{}, func(t *testing.T, c *Core, e *Ear, b *box) {
			_ = c.listen(t, e)
			b.pages, b.ackErr = [][]doors.Message{other}, away
			_ = c.listen(t, e)
			_ = c.listen(t, e)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := ending(t)
			tt.when(t, c, c.Ear(tt.box), tt.box)
			if got := c.ends(t); got != tt.want {
				t.Errorf("the item ends: %v, want %v", got, tt.want)
			}
		})
	}
}

// After an outage the mailbox is not read patiently, because something may wait for what is there; afterwards it is.
func TestPatienceWhenNothingWaits(t *testing.T) {
	c := ending(t)
	b := &box{}
	e := c.Ear(b)
	for _, err := range []error{nil, nil, errors.New("away"), nil, nil} {
		b.readErr = err
		_ = c.listen(t, e)
	}
	want := []bool{false, true, true, false, true}
	for i, p := range b.patient {
		if p != want[i] {
			t.Errorf("read %d: patient %v, want %v", i, p, want[i])
		}
	}
}

// A process that died between writing and acknowledging leaves the second to the next one.
func TestWhatWasWrittenIsAcknowledgedOnce(t *testing.T) {
	c := ending(t)
	b := &box{pages: [][]doors.Message{{{Seq: 7, ID: "$2", WorkItem: "wi", Text: "and?"}}}}
	if err := c.listen(t, c.Ear(b)); err != nil {
		t.Fatal(err)
	}
	if b.acked != 0 {
		t.Errorf("acknowledged %d before it was known to be on disk", b.acked)
	}
	if err := c.listen(t, c.Ear(b)); err != nil {
		t.Fatal(err)
	}
	if b.acked != 7 {
		t.Errorf("acknowledged %d, want 7", b.acked)
	}
}
