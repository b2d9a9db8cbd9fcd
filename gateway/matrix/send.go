package matrix

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"maunium.net/go/mautrix"
	"maunium.net/go/mautrix/event"
	"maunium.net/go/mautrix/id"

	"nisse.io/nisse/gateway/metrics"
	"nisse.io/nisse/gateway/store"
	"nisse.io/nisse/internal/crashpoint"
	"nisse.io/nisse/internal/telemetry"
)

// send empties the account's outbox, one message at a time, until the session ends. It returns an error only when the session is
// no good any more.
func (a *Account) send(ctx context.Context) error {
	fail := backoff{first: a.Timing.Backoff, most: a.Timing.MaxBackoff}
	for ctx.Err() == nil {
		changed := a.Store.Changed(store.TopicOutbox(a.Sender))
		left, err := a.sendAll(ctx)
		wait := time.Duration(0)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, mautrix.MUnknownToken):
			return err
		case err != nil:
			a.log.WarnContext(ctx, "send.failed", "error", err.Error())
			wait = fail.next()
			sleep(ctx, wait)
			continue
		case left:
			wait = a.Timing.Retry // its room is closed to us; perhaps not for ever
		}
		fail.ok()
		var timer <-chan time.Time
		if wait > 0 {
			timer = time.After(wait)
		}
		select {
		case <-changed:
		case <-a.wake:
		case <-timer:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// sendAll says what can be said. left tells that something waits for its room.
func (a *Account) sendAll(ctx context.Context) (left bool, err error) {
	closed := map[string]bool{} // rooms where nothing more is said in this round, to keep the order
	for {
		unsent, err := a.Store.Unsent(ctx, a.Sender, slices.Collect(maps.Keys(closed))...)
		if err != nil {
			return left, err
		}
		again := false
		shut := func(room string) { closed[room], left, again = true, true, true } // others' may stand behind all that waits for it
		for _, o := range unsent {
			if closed[o.Room] {
				continue
			}
			if time.Now().Before(o.NotBefore) {
				left = true
				continue
			}
			room := id.RoomID(o.Room)
			if !a.isReady(room) {
				in, err := a.admitted(ctx, room)
				switch {
				case err != nil:
					return true, err
				case !in:
					shut(o.Room)
					continue
				}
			}
			var unsure *unsureError
			switch err := a.say(ctx, o); {
			case err == nil:
				again = true
			case errors.As(err, &unsure):
				a.log.WarnContext(ctx, "send.unsure", "room", o.Room, "id", o.ID, "error", err.Error())
				if errors.Is(err, mautrix.MForbidden) {
					a.setReady(room, false)
				}
				shut(o.Room)
			case refused(err):
				if err := a.refuse(ctx, o, explain(err), 1); err != nil {
					return true, err
				}
				again = true
			case barred(err): // us, or this message
				in, askErr := a.admitted(ctx, room)
				switch {
				case askErr != nil:
					return true, askErr
				case !in:
					a.log.WarnContext(ctx, "send.forbidden", "room", o.Room, "id", o.ID, "error", err.Error())
					shut(o.Room)
					continue
				}
				if err := a.refuse(ctx, o, explain(err), maxTries); err != nil {
					return true, err
				}
				again = true
			case answered(err): // about this room, for all that is known; others are asked for themselves
				a.log.WarnContext(ctx, "send.failed", "room", o.Room, "id", o.ID, "error", err.Error())
				shut(o.Room)
			default:
				return true, err
			}
		}
		if !again { // nothing new comes up
			return left, nil
		}
	}
}

// task of an outbound, for logs.
func (a *Account) task(ctx context.Context, o store.Outbound) string {
	if a.Task == nil {
		return o.WorkItem
	}
	return a.Task(ctx, o.WorkItem)
}

// say one message. If an earlier attempt may have reached the homeserver, it is looked for first: the homeserver forgets transaction
// IDs when it restarts, and with a new login.
func (a *Account) say(ctx context.Context, o store.Outbound) error {
	if o.Sending {
		found, err := a.find(ctx, o)
		if err != nil {
			return doubt(err)
		}
		if found != "" {
			metrics.Reconciled.Inc()
			a.log.InfoContext(ctx, "message.reconciled", "id", o.ID, "event_id", found.String())
			return a.sent(ctx, o, found)
		}
	} else if ok, err := a.Store.Sending(ctx, o.ID, o.Room); err != nil || !ok {
		return err
	}
	body, err := compose(o)
	if err != nil {
		return err
	}
	crashpoint.Hit("gateway.outbox.before")
	e, err := a.home.send(ctx, id.RoomID(o.Room), body, transaction(o.ID))
	if err != nil {
		return fmt.Errorf("send %s: %w", o.ID, err)
	}
	crashpoint.Hit("gateway.outbox.after")
	if err := a.sent(ctx, o, e); err != nil {
		return err
	}
	telemetry.Changed(ctx, a.log, "message.sent", telemetry.Event{Agent: o.Agent, TaskID: a.task(ctx, o), Cause: o.ID})
	return nil
}

func (a *Account) sent(ctx context.Context, o store.Outbound, e id.EventID) error {
	if err := a.Store.Sent(ctx, o.ID, o.Room, e.String()); err != nil {
		return err
	}
	a.hidden(o)
	return nil
}

// find looks for a message in its room: back to one that we had there before it was first tried.
func (a *Account) find(ctx context.Context, o store.Outbound) (id.EventID, error) {
	from := ""
	for range maxPages {
		page, err := a.page(ctx, id.RoomID(o.Room), from)
		if err != nil {
			return "", fmt.Errorf("look for %s in %s: %w", o.ID, o.Room, err)
		}
		for _, e := range page.Chunk {
			if c, ok := read(e); ok && e.Sender == a.UserID && c.ID == o.ID {
				return e.ID, nil
			}
			if e.ID.String() == o.After || joins(e, a.UserID) {
				return "", nil
			}
		}
		if page.End == "" || page.End == from {
			return "", nil
		}
		from = page.End
	}
	return "", &unsureError{fmt.Errorf("%s was not found in %d events of %s, and it is not known whether it is there", o.ID, maxPages*pageSize, o.Room)}
}

// unsureError says that it cannot be found out whether a room has a message. Nothing more is said there for now; other rooms have
// nothing to do with it.
type unsureError struct{ error }

func (e *unsureError) Unwrap() error { return e.error }

// doubt tells, of an error of looking for a message, whether it is about the room alone: the homeserver answered, and did not end the
// session.
func doubt(err error) error {
	if answered(err) {
		return &unsureError{err}
	}
	return err
}

// transaction ID of an outbound: the same at every attempt.
func transaction(id string) string {
	h := sha256.Sum256([]byte(id))
	return "nisse" + hex.EncodeToString(h[:16])
}

// compose the content of an outbound: what it says, our ID, and what it relates to.
func compose(o store.Outbound) (map[string]any, error) {
	var said map[string]any
	if err := json.Unmarshal(o.Content, &said); err != nil {
		return nil, fmt.Errorf("read the content of %s: %w", o.ID, err)
	}
	if o.Refusals > 0 { // said before in full, and refused: nothing but the words, outside of threads
		return map[string]any{"msgtype": said["msgtype"], "body": said["body"], "m.mentions": said["m.mentions"], keyID: o.ID}, nil
	}
	if o.Replaces != "" {
		edit := map[string]any{
			"msgtype": said["msgtype"], "m.new_content": said, keyID: o.ID, "m.mentions": map[string]any{},
			"m.relates_to": map[string]any{"rel_type": event.RelReplace, "event_id": o.Original},
		}
		edit["body"], _ = said["body"].(string)
		if short, ok := said["io.nisse.short"].(string); ok { // what clients that know no edits show
			edit["body"] = "* " + short
			delete(said, "io.nisse.short")
		}
		return edit, nil
	}
	delete(said, "io.nisse.short")
	said[keyID] = o.ID
	relates := map[string]any{}
	if o.Thread != "" {
		answers := o.Thread
		if o.ReplyTo != "" {
			answers = o.ReplyTo
		}
		relates["rel_type"], relates["event_id"] = event.RelThread, o.Thread
		relates["is_falling_back"] = o.ReplyTo == ""
		relates["m.in_reply_to"] = map[string]any{"event_id": answers}
	} else if o.ReplyTo != "" {
		relates["m.in_reply_to"] = map[string]any{"event_id": o.ReplyTo}
	}
	if len(relates) > 0 {
		said["m.relates_to"] = relates
	}
	return said, nil
}
