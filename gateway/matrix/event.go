package matrix

import (
	"encoding/json"
	"time"

	"maunium.net/go/mautrix/event"
	"maunium.net/go/mautrix/id"

	"nisse.io/nisse/gateway/routing"
)

// keyID is the key in the content of our messages that holds the ID of the outbox. It is how we know our own again, whatever the
// homeserver has forgotten.
const keyID = "io.nisse.id"

// content is what we read of a message. A message whose content has other shapes says nothing.
type content struct {
	Type    string `json:"msgtype"`
	Body    string `json:"body"`
	ID      string `json:"io.nisse.id"`
	Relates struct {
		Type     string `json:"rel_type"`
		EventID  string `json:"event_id"`
		Fallback bool   `json:"is_falling_back"`
		ReplyTo  struct {
			EventID string `json:"event_id"`
		} `json:"m.in_reply_to"`
	} `json:"m.relates_to"`
	New       json.RawMessage `json:"m.new_content"`
	Forwarded json.RawMessage `json:"m.forwarded"`
	Forward   json.RawMessage `json:"org.matrix.msc2723.forwarded"`
}

const (
	// maxID of events, users and rooms, in bytes: what the specification allows. All of them are kept and handed on.
	maxID = 255
	// maxRaw of an event that is kept as it came. The specification allows half of it.
	maxRaw = 128 << 10
)

// read the content of a message; false for all that is none, redacted messages included.
func read(e *event.Event) (content, bool) {
	var c content
	if e.Type.Type != event.EventMessage.Type || e.StateKey != nil || len(e.ID) > maxID || len(e.Sender) > maxID {
		return c, false
	}
	if err := json.Unmarshal(e.Content.VeryRaw, &c); err != nil || c.Type == "" || len(c.Relates.EventID) > maxID || len(c.Relates.ReplyTo.EventID) > maxID {
		return content{}, false
	}
	return c, true
}

func (c content) message(e *event.Event, room id.RoomID) routing.Event {
	m := routing.Event{
		ID: e.ID.String(), Room: room.String(), Sender: e.Sender.String(), At: time.UnixMilli(e.Timestamp).UTC(),
		Type: c.Type, Body: c.Body,
		Edit:      c.Relates.Type == string(event.RelReplace) || c.New != nil,
		Forwarded: c.Forwarded != nil || c.Forward != nil,
	}
	if c.Relates.Type == string(event.RelThread) {
		m.Thread = c.Relates.EventID
	}
	if !c.Relates.Fallback {
		m.ReplyTo = c.Relates.ReplyTo.EventID
	}
	return m
}

// joins tells whether the event lets the user into the room. A changed name or picture is the same kind of event and does not.
func joins(e *event.Event, user id.UserID) bool {
	if e.Type.Type != event.StateMember.Type || e.StateKey == nil || *e.StateKey != user.String() || membership(e.Content.VeryRaw) != string(event.MembershipJoin) {
		return false
	}
	return e.Unsigned.PrevContent == nil || membership(e.Unsigned.PrevContent.VeryRaw) != string(event.MembershipJoin)
}

func membership(raw json.RawMessage) string {
	var c struct {
		Membership string `json:"membership"`
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return ""
	}
	return c.Membership
}
