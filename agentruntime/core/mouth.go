package core

import (
	"context"
	"errors"

	"nisse.io/nisse/agentruntime/doorclient"
	"nisse.io/nisse/agentruntime/event"
	"nisse.io/nisse/internal/doors"
)

// Outbox at the gateway.
type Outbox interface {
	Send(ctx context.Context, o doors.Outgoing) error
}

// Say delivers the oldest message that waits; any is false when none does. The same message has the same ID however often it is sent.
// It may run in a goroutine of its own, one at a time.
func (c *Core) Say(ctx context.Context, box Outbox) (o event.Outgoing, any bool, err error) {
	o, any, err = c.Log.NextOut(ctx)
	if err != nil || !any {
		return o, any, err
	}
	err = box.Send(ctx, doors.Outgoing{ID: o.ID, WorkItem: o.WorkItem, Kind: o.Kind, Text: o.Text})
	var refused error
	if errors.Is(err, doorclient.ErrRefused) {
		refused, err = err, nil // the gateway will never take it; those behind it must not wait for it
	}
	if err != nil {
		return o, true, err
	}
	return o, true, c.Log.Delivered(ctx, o, refused)
}
