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
	// maxPages of one gap: 50 000 events. Who floods a room beyond that loses the oldest of the flood.
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
	from := t.PrevBatch
	for range maxPages {
		var page *mautrix.RespMessages
		err := patiently(ctx, func() (err error) {
			page, err = a.client.Messages(ctx, room, from, "", mautrix.DirectionBackward, nil, pageSize)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("read the history of %s: %w", room, err)
		}
		for _, e := range page.Chunk {
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
	a.log.ErrorContext(ctx, "gap.too.long", "room", room.String(), "events", len(out))
	return a.filled(ctx, room, out), nil
}

func (a *Account) filled(ctx context.Context, room id.RoomID, newestFirst []*event.Event) []*event.Event {
	slices.Reverse(newestFirst)
	metrics.GapEvents.Add(float64(len(newestFirst)))
	a.log.InfoContext(ctx, "gap.filled", "room", room.String(), "events", len(newestFirst))
	return newestFirst
}
