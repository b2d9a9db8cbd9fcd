package matrix

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"maunium.net/go/mautrix"
	"maunium.net/go/mautrix/event"
	"maunium.net/go/mautrix/id"

	"nisse.io/nisse/gateway/metrics"
	"nisse.io/nisse/gateway/store"
	"nisse.io/nisse/internal/crashpoint"
)

// sync reads until the session ends. started is closed after the first answer was stored: until then our own earlier messages may
// still come back and settle what is to be sent.
func (a *Account) sync(ctx context.Context, fail *backoff, started chan<- struct{}) error {
	first, limit := true, a.Timing.Timeline
	rooms := roomKeeper{Account: a, dirty: true}
	if a.Desk != nil {
		// Before anything is read it must be known which room counts. One that is not there yet holds nothing to read.
		var missing *roomError
		if _, err := a.resolve(ctx); err != nil && !errors.As(err, &missing) {
			return err
		}
	}
	for ctx.Err() == nil {
		since, err := a.Store.Since(ctx, a.UserID.String())
		if err != nil {
			return err
		}
		poll := a.Timing.Poll
		if first {
			poll = 0
		} else if !rooms.settled() {
			poll = min(poll, a.Timing.Retry)
		}
		err = a.read(ctx, since, limit, poll, &rooms)
		if err == nil {
			err = rooms.keep(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, mautrix.MUnknownToken):
			return err
		case tooLong(err) && limit > 1:
			limit = less(limit) // what is left out is fetched
			a.log.WarnContext(ctx, "sync.too.long", "events", limit)
			continue
		case err != nil:
			a.log.WarnContext(ctx, "sync.failed", "error", err.Error())
			a.unreachable(fail, err)
			rooms.recheck()
			sleep(ctx, fail.next())
			continue
		}
		fail.ok()
		limit = a.Timing.Timeline
		if first {
			first = false
			close(started)
		}
	}
	return ctx.Err()
}

// filter leaves out what nobody here reads, and all but the last events of each room.
func filter(last int) (string, error) {
	none := &mautrix.FilterPart{NotTypes: []event.Type{{Type: "*"}}}
	b, err := json.Marshal(mautrix.Filter{
		Presence: none, AccountData: none,
		Room: &mautrix.RoomFilter{
			Ephemeral: none, AccountData: none,
			State:    &mautrix.FilterPart{LazyLoadMembers: true},
			Timeline: &mautrix.FilterPart{Limit: last, LazyLoadMembers: true},
		},
	})
	return string(b), err
}

// batch is what one room's timeline brought, oldest first.
type batch struct {
	room   id.RoomID
	events []*event.Event
}

// read takes one answer of the homeserver, completes it, and stores it.
func (a *Account) read(ctx context.Context, since string, last int, poll time.Duration, rooms *roomKeeper) error {
	filter, err := filter(last)
	if err != nil {
		return fmt.Errorf("make a filter: %w", err)
	}
	reqCtx, cancel := context.WithTimeout(ctx, poll+time.Minute)
	defer cancel()
	res, err := a.home.sync(reqCtx, mautrix.ReqSync{Since: since, Timeout: int(poll.Milliseconds()), FilterID: filter, SetPresence: event.PresenceOffline})
	if err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	var batches []batch
	for room, joined := range res.Rooms.Join {
		events := joined.Timeline.Events
		if since != "" && joined.Timeline.Limited && a.cares(room) {
			missing, err := a.missing(ctx, room, joined.Timeline)
			switch {
			case err == nil:
			case a.Desk == nil && answered(err):
				// Nobody's words are lost: only messages of our own would be found there, and they are looked for before they are sent again.
				a.log.WarnContext(ctx, "gap.unreadable", "room", room.String(), "error", err.Error())
			default:
				return err
			}
			events = append(missing, events...)
		}
		batches = append(batches, batch{room, events})
	}
	slices.SortFunc(batches, func(x, y batch) int { return compare(x.room, y.room) })
	if err := a.store(ctx, since, res.NextBatch, batches); err != nil {
		return err
	}
	metrics.SyncedAt.WithLabelValues(a.UserID.String()).SetToCurrentTime()
	rooms.heard(res, batches)
	return nil
}

// cares tells whether a room matters to this account.
func (a *Account) cares(room id.RoomID) bool {
	if a.Desk == nil {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.room == room
}

// store what was read, what becomes of it, and how far it goes: all or nothing.
func (a *Account) store(ctx context.Context, since, next string, batches []batch) error {
	crashpoint.Hit("gateway.inbox.before")
	err := a.Store.Update(ctx, func(tx *store.Tx) error {
		for _, b := range batches {
			if !a.cares(b.room) {
				continue
			}
			// What was said before this account came is history. So is everything that a fresh account finds.
			history := since == ""
			entered := -1
			for i, e := range b.events {
				if joins(e, a.UserID) {
					entered = i
				}
			}
			for i, e := range b.events {
				if err := a.take(ctx, tx, b.room, e, history || i <= entered); err != nil {
					return err
				}
			}
			if n := len(b.events); n > 0 {
				if err := tx.SetMark(a.UserID.String(), b.room.String(), b.events[n-1].ID.String()); err != nil {
					return err
				}
			}
		}
		return tx.SetSince(a.UserID.String(), next)
	})
	if err != nil {
		return fmt.Errorf("store what was read: %w", err)
	}
	crashpoint.Hit("gateway.inbox.after")
	return nil
}

func (a *Account) take(ctx context.Context, tx *store.Tx, room id.RoomID, e *event.Event, history bool) error {
	c, ok := read(e)
	if !ok {
		return nil
	}
	if c.ID != "" {
		ours, err := a.echo(tx, room, e, c.ID)
		if err != nil || ours {
			return err
		}
	}
	if history || a.Desk == nil || e.Sender == a.UserID || e.Sender == a.Approvals {
		return nil
	}
	raw, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("keep %s: %w", e.ID, err)
	}
	if len(raw) > maxRaw {
		raw = fmt.Appendf(nil, `{"left_out": "an event of %d bytes"}`, len(raw))
	}
	crashpoint.Hit("gateway.route.before")
	if err := a.Desk.Take(ctx, tx, Message{Event: c.message(e, room), Raw: raw}); err != nil {
		return fmt.Errorf("take in %s: %w", e.ID, err)
	}
	crashpoint.Hit("gateway.route.after")
	metrics.EventDelay.Observe(time.Since(time.UnixMilli(e.Timestamp)).Seconds())
	return nil
}

// echo settles a message of ours that came back. Only the account that sends under a name is believed about it.
func (a *Account) echo(tx *store.Tx, room id.RoomID, e *event.Event, outbound string) (bool, error) {
	var sender string
	switch e.Sender {
	case a.UserID:
		sender = a.Sender
	case a.Approvals:
		sender = store.ByApprovals
	default:
		return false, nil
	}
	mine, err := tx.Mine(outbound, sender)
	if err != nil || !mine {
		return false, err
	}
	if err := tx.Sent(outbound, room.String(), e.ID.String()); err != nil {
		return false, err
	}
	if a.Desk == nil {
		return true, nil
	}
	at := time.UnixMilli(e.Timestamp)
	if now := time.Now(); at.After(now) { // a homeserver whose clock is ahead
		at = now
	}
	return true, tx.Seen(outbound, at)
}

func compare[T ~string](x, y T) int {
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}
