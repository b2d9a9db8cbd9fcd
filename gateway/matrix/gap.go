package matrix

import (
	"context"
	"fmt"
	"slices"

	"maunium.net/go/mautrix"
	"maunium.net/go/mautrix/event"
	"maunium.net/go/mautrix/id"

	"nisse.io/nisse/gateway/metrics"
)

const (
	// pageSize of a request for history.
	pageSize = 100
	// maxPages of one gap: 50 000 events, if they are not too long. Who floods a room beyond that loses the oldest of the flood.
	maxPages = 500
)

// missing fetches what a sync left out of a room, oldest first: back to the last event read before, to one that is known, or to
// where this account came in. The token of the earlier sync would say where to stop, but not every homeserver heeds it.
func (a *Account) missing(ctx context.Context, room id.RoomID, t mautrix.SyncTimeline) ([]*event.Event, error) {
	mark, err := a.Store.Mark(ctx, a.UserID.String(), room.String())
	if err != nil {
		return nil, err
	}
	seen := map[id.EventID]bool{}
	for _, e := range t.Events {
		if joins(e, a.UserID) || e.ID.String() == mark {
			return nil, nil // the sync reaches back far enough
		}
		seen[e.ID] = true
	}
	var out []*event.Event
	from, bytes := t.PrevBatch, 0
	for range maxPages {
		page, err := a.page(ctx, room, from)
		if err != nil {
			return nil, fmt.Errorf("read the history of %s: %w", room, err)
		}
		for _, e := range page.Chunk {
			if bytes += len(e.Content.VeryRaw); bytes > a.Timing.Gap {
				return a.cutOff(ctx, room, out), nil
			}
			if seen[e.ID] {
				continue // pages may overlap
			}
			seen[e.ID] = true
			known, err := a.Store.Known(ctx, e.ID.String())
			if err != nil {
				return nil, err
			}
			if known || e.ID.String() == mark {
				return a.filled(ctx, room, out), nil
			}
			out = append(out, e)
			if joins(e, a.UserID) {
				return a.filled(ctx, room, out), nil
			}
		}
		if page.End == "" || page.End == from {
			return a.filled(ctx, room, out), nil
		}
		from = page.End
	}
	return a.cutOff(ctx, room, out), nil
}

// page of a room's history, going back. One that is too long is asked for in fewer events.
func (a *Account) page(ctx context.Context, room id.RoomID, from string) (page *mautrix.RespMessages, err error) {
	for size := pageSize; ; size = less(size) {
		page, err = a.home.page(ctx, room, from, size)
		if !tooLong(err) || size == 1 {
			return page, err
		}
	}
}

// cutOff is a gap of which the oldest is lost: nobody can be made to keep a flood in memory.
func (a *Account) cutOff(ctx context.Context, room id.RoomID, newestFirst []*event.Event) []*event.Event {
	a.log.ErrorContext(ctx, "gap.too.long", "room", room.String(), "events", len(newestFirst))
	return a.filled(ctx, room, newestFirst)
}

func (a *Account) filled(ctx context.Context, room id.RoomID, newestFirst []*event.Event) []*event.Event {
	slices.Reverse(newestFirst)
	metrics.GapEvents.Add(float64(len(newestFirst)))
	a.log.InfoContext(ctx, "gap.filled", "room", room.String(), "events", len(newestFirst))
	return newestFirst
}
