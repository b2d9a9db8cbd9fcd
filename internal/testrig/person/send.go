package person

import (
	"context"
	"fmt"

	"maunium.net/go/mautrix/event"
	"maunium.net/go/mautrix/id"
)

// Where says how a message hangs on others. The zero value is the room's main timeline.
type Where struct {
	ReplyTo id.EventID
	Thread  id.EventID // root of the thread
}

// Say sends text and returns the event's id.
func (p *Person) Say(ctx context.Context, room id.RoomID, text string, where Where) (id.EventID, error) {
	content := &event.MessageEventContent{MsgType: event.MsgText, Body: text, RelatesTo: where.relation()}
	res, err := p.client.SendMessageEvent(ctx, room, event.EventMessage, content)
	if err != nil {
		return "", fmt.Errorf("%s writes in %s: %w", p.client.UserID, room, err)
	}
	return res.EventID, nil
}

// React puts an emoji on a message.
func (p *Person) React(ctx context.Context, room id.RoomID, to id.EventID, emoji string) (id.EventID, error) {
	res, err := p.client.SendReaction(ctx, room, to, emoji)
	if err != nil {
		return "", fmt.Errorf("%s reacts to %s: %w", p.client.UserID, to, err)
	}
	return res.EventID, nil
}

// relation is what Element writes: inside a thread a plain message carries the thread's root as a reply too, marked as a
// fallback for clients that know no threads.
func (w Where) relation() *event.RelatesTo {
	switch {
	case w.Thread != "" && w.ReplyTo != "":
		return &event.RelatesTo{Type: event.RelThread, EventID: w.Thread, InReplyTo: &event.InReplyTo{EventID: w.ReplyTo}}
	case w.Thread != "":
		return (&event.RelatesTo{}).SetThread(w.Thread, w.Thread)
	case w.ReplyTo != "":
		return (&event.RelatesTo{}).SetReplyTo(w.ReplyTo)
	default:
		return nil
	}
}
