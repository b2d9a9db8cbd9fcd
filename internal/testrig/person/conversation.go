package person

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"maunium.net/go/mautrix"
	"maunium.net/go/mautrix/event"
	"maunium.net/go/mautrix/id"
)

// Message is one message as a person sees it now: with the last of its edits, and the reactions on it.
type Message struct {
	ID      id.EventID
	Sender  id.UserID
	At      time.Time
	Body    string
	Edits   int
	ReplyTo id.EventID
	Thread  id.EventID // root, for a message inside a thread
	Notice  bool       // a message of msgtype m.notice, as bots send
	Reacted []Reaction
	// Mentions are those whose clients make a sound.
	Mentions []id.UserID

	// changed is the place in the timeline of the message or of its last edit.
	changed int
}

// Reaction is an emoji that somebody put on a message.
type Reaction struct {
	Sender id.UserID
	Emoji  string
}

// Conversation is what was said in a room, oldest first, and where each event stands in its timeline.
type Conversation struct {
	Messages []Message

	place map[id.EventID]int
}

// pageSize is how many events one request for history asks for; servers allow at least this much.
const pageSize = 100

// Conversation reads the room from its beginning.
func (p *Person) Conversation(ctx context.Context, room id.RoomID) (Conversation, error) {
	var timeline []*event.Event
	for from := ""; ; {
		page, err := p.client.Messages(ctx, room, from, "", mautrix.DirectionBackward, nil, pageSize)
		if err != nil {
			return Conversation{}, fmt.Errorf("read the history of %s: %w", room, err)
		}
		timeline = append(timeline, page.Chunk...)
		if page.End == "" || len(page.Chunk) == 0 {
			break
		}
		from = page.End
	}
	slices.Reverse(timeline)
	return fold(timeline), nil
}

// fold turns a timeline, oldest first, into the messages that a client would show. An edit counts only from the author
// of what it edits.
func fold(timeline []*event.Event) Conversation {
	c := Conversation{place: make(map[id.EventID]int, len(timeline))}
	at := make(map[id.EventID]int) // index into c.Messages
	for place, evt := range timeline {
		if _, again := c.place[evt.ID]; again { // pages of history may overlap
			continue
		}
		c.place[evt.ID] = place
		if evt.StateKey != nil {
			continue
		}
		// Events from /messages come unparsed; one that does not parse has an empty content, which says nothing below.
		_ = evt.Content.ParseRaw(evt.Type)
		switch evt.Type.Type {
		case event.EventMessage.Type:
			content := evt.Content.AsMessage()
			if edited := content.RelatesTo.GetReplaceID(); edited != "" {
				i, known := at[edited]
				if known && c.Messages[i].Sender == evt.Sender && content.NewContent != nil {
					c.Messages[i].Body = content.NewContent.Body
					c.Messages[i].Edits++
					c.Messages[i].changed = place
				}
				continue
			}
			if content.MsgType == "" { // redacted, or not a message anyone could read
				continue
			}
			at[evt.ID] = len(c.Messages)
			var mentions []id.UserID
			if content.Mentions != nil {
				mentions = content.Mentions.UserIDs
			}
			c.Messages = append(c.Messages, Message{
				Mentions: mentions,
				ID:       evt.ID,
				Sender:   evt.Sender,
				At:       time.UnixMilli(evt.Timestamp),
				Body:     content.Body,
				ReplyTo:  content.RelatesTo.GetNonFallbackReplyTo(),
				Thread:   content.RelatesTo.GetThreadParent(),
				Notice:   content.MsgType == event.MsgNotice,
				changed:  place,
			})
		case event.EventEncrypted.Type:
			at[evt.ID] = len(c.Messages)
			c.Messages = append(c.Messages, Message{
				ID: evt.ID, Sender: evt.Sender, At: time.UnixMilli(evt.Timestamp), Body: "(encrypted)", changed: place,
			})
		case event.EventReaction.Type:
			relation := evt.Content.AsReaction().RelatesTo
			if i, known := at[relation.GetAnnotationID()]; known {
				c.Messages[i].Reacted = append(c.Messages[i].Reacted, Reaction{evt.Sender, relation.GetAnnotationKey()})
			}
		}
	}
	return c
}

// Print writes the conversation as a person would read it aloud: name, text, edits, threads and replies. Threads are
// indented under no root but in the order of the timeline, which is the order in which things happened.
func (c Conversation) Print(w io.Writer) error {
	width := 0
	for _, m := range c.Messages {
		width = max(width, len(name(m.Sender)))
	}
	for _, m := range c.Messages {
		margin := fmt.Sprintf("%s  %-*s  ", m.At.Format(time.TimeOnly), width, name(m.Sender))
		if m.Thread != "" {
			margin += "│ "
		}
		blank := strings.Repeat(" ", len(time.TimeOnly)+2+width+2)
		if m.Thread != "" {
			blank += "│ "
		}
		body := m.Body
		if m.ReplyTo != "" {
			body = c.quote(m.ReplyTo) + body
		}
		if m.Edits > 0 {
			body += "  (edited)"
		}
		for _, r := range m.Reacted {
			body += fmt.Sprintf("\n%s %s", r.Emoji, name(r.Sender))
		}
		for i, line := range strings.Split(body, "\n") {
			if i > 0 {
				margin = blank
			}
			if _, err := fmt.Fprintln(w, strings.TrimRight(margin+line, " ")); err != nil {
				return fmt.Errorf("print the conversation: %w", err)
			}
		}
	}
	return nil
}

// quote is the first line of the message that somebody replies to.
func (c Conversation) quote(to id.EventID) string {
	for _, m := range c.Messages {
		if m.ID == to {
			first, _, _ := strings.Cut(m.Body, "\n")
			return fmt.Sprintf("↳ %s: %s\n", name(m.Sender), first)
		}
	}
	return ""
}

// name is the local part: in a rig everybody is at home on the same server.
func name(user id.UserID) string {
	local, _, err := user.Parse()
	if err != nil {
		return user.String()
	}
	return local
}
