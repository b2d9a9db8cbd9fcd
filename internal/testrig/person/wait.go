package person

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"maunium.net/go/mautrix"
	"maunium.net/go/mautrix/event"
	"maunium.net/go/mautrix/id"
)

// longPoll is how long one sync may wait at the server for something new.
const longPoll = 20 * time.Second

// Want describes a message to wait for; every field that is set must hold.
type Want struct {
	Sender id.UserID
	Text   *regexp.Regexp // found anywhere in the body, after edits
	// After is an event that must come before the message or before its last edit, so that an old answer is not taken
	// for a new one.
	After  id.EventID
	Thread id.EventID // root of the thread it must be in
}

// WaitFor returns the first message that is as wanted, at once if it is there already, else when it comes. It waits as
// long as ctx allows; the error then says what was said instead.
func (p *Person) WaitFor(ctx context.Context, room id.RoomID, want Want) (Message, error) {
	began := time.Now()
	// The position is taken before the history is read: what comes in between is then seen twice rather than never.
	since, _, err := p.sync(ctx, room, "", 0)
	if err != nil {
		return Message{}, err
	}
	var seen Conversation
	failed := func(err error) error {
		if ctx.Err() != nil { // the request that was cut short says nothing about the room
			return &inVain{want: want, waited: time.Since(began), seen: seen, cause: ctx.Err()}
		}
		return fmt.Errorf("waiting for %s: %w", want, err)
	}
	for news := true; ; {
		if news {
			c, err := p.Conversation(ctx, room)
			if err != nil {
				return Message{}, failed(err)
			}
			seen = c
			if m, found := seen.find(want); found {
				return m, nil
			}
		}
		if since, news, err = p.sync(ctx, room, since, longPoll); err != nil {
			return Message{}, failed(err)
		}
	}
}

// sync asks whether anything happened in the room after since.
func (p *Person) sync(ctx context.Context, room id.RoomID, since string, wait time.Duration) (next string, news bool, err error) {
	none := &mautrix.FilterPart{NotTypes: []event.Type{{Type: "*"}}}
	filter, err := json.Marshal(mautrix.Filter{
		Presence:    none,
		AccountData: none,
		Room: &mautrix.RoomFilter{
			Rooms:       []id.RoomID{room},
			Timeline:    &mautrix.FilterPart{Limit: 1},
			State:       none,
			Ephemeral:   none,
			AccountData: none,
		},
	})
	if err != nil {
		return "", false, fmt.Errorf("write the sync filter: %w", err)
	}
	res, err := p.client.FullSyncRequest(ctx, mautrix.ReqSync{
		Since: since, FilterID: string(filter), Timeout: int(wait.Milliseconds()), SetPresence: event.PresenceOffline,
	})
	if err != nil {
		return "", false, fmt.Errorf("listen to %s: %w", room, err)
	}
	joined := res.Rooms.Join[room]
	return res.NextBatch, joined != nil && len(joined.Timeline.Events) > 0, nil
}

func (c Conversation) find(want Want) (Message, bool) {
	after := -1
	if want.After != "" {
		place, known := c.place[want.After]
		if !known { // nothing comes after what has not happened
			return Message{}, false
		}
		after = place
	}
	for _, m := range c.Messages {
		switch {
		case want.Sender != "" && m.Sender != want.Sender:
		case want.Thread != "" && m.Thread != want.Thread:
		case m.changed <= after:
		case want.Text != nil && !want.Text.MatchString(m.Body):
		default:
			return m, true
		}
	}
	return Message{}, false
}

func (w Want) String() string {
	s := "a message"
	if w.Sender != "" {
		s += " from " + w.Sender.String()
	}
	if w.Text != nil {
		s += fmt.Sprintf(" matching %q", w.Text)
	}
	if w.Thread != "" {
		s += " in thread " + w.Thread.String()
	}
	if w.After != "" {
		s += " after " + w.After.String()
	}
	return s
}

// inVain is the end of a wait that nothing came in.
type inVain struct {
	want   Want
	waited time.Duration
	seen   Conversation
	cause  error
}

func (e *inVain) Error() string {
	text := fmt.Sprintf("no%s in %s", strings.TrimPrefix(e.want.String(), "a"), e.waited.Round(time.Second))
	if len(e.seen.Messages) == 0 {
		return text + "; nobody said anything"
	}
	last := e.seen.Messages[len(e.seen.Messages)-1]
	return fmt.Sprintf("%s; the last of %d messages was %s: %q", text, len(e.seen.Messages), last.Sender, last.Body)
}

func (e *inVain) Unwrap() error { return e.cause }
