package core

import (
	"context"
	"errors"

	"nisse.io/nisse/agentruntime/event"
	"nisse.io/nisse/agentruntime/eventlog"
	"nisse.io/nisse/internal/crashpoint"
	"nisse.io/nisse/internal/doors"
)

// Inbox at the gateway.
type Inbox interface {
	Read(ctx context.Context, epoch string, seq int64, patient bool) (in doors.Inbox, moved bool, err error)
	Ack(ctx context.Context, epoch string, seq int64) error
}

// Ear reads the mailbox, and acknowledges messages when they are on disk, never before. It may run in a goroutine of its own.
type Ear struct {
	core   *Core
	box    Inbox
	cursor eventlog.Cursor
	// found: the cursor was read. acked: nothing before it waits to be acknowledged.
	found, acked bool
}

// Ear for a mailbox.
func (c *Core) Ear(box Inbox) *Ear { return &Ear{core: c, box: box} }

// Listen makes one exchange with the gateway. What it brings is to be Received by the core, and the ear told that it was Heard.
// waited tells that words which an effect may have waited for cannot be waiting any more.
func (e *Ear) Listen(ctx context.Context) (in doors.Inbox, waited bool, err error) {
	in, err = e.exchange(ctx)
	if err != nil {
		e.core.heardAll.Store(false)
		return doors.Inbox{}, false, err
	}
	if len(in.Messages) > 0 || in.Epoch != e.cursor.Epoch {
		// They are in hand and not yet in the log, and there may be more: what ends an item waits until an empty read says that all is heard.
		e.core.heardAll.Store(false)
		return in, false, nil
	}
	return in, !e.core.heardAll.Swap(true), nil
}

func (e *Ear) exchange(ctx context.Context) (doors.Inbox, error) {
	if !e.found {
		var err error
		if e.cursor, err = e.core.Log.InboxCursor(ctx); err != nil {
			return doors.Inbox{}, err
		}
		e.found = true
	}
	if !e.acked && e.cursor.Seq > 0 { // also by a process that died between writing and acknowledging
		if err := e.box.Ack(ctx, e.cursor.Epoch, e.cursor.Seq); err != nil {
			return doors.Inbox{}, err
		}
	}
	e.acked = true
	in, moved, err := e.box.Read(ctx, e.cursor.Epoch, e.cursor.Seq, e.core.heardAll.Load()) // else: what is there now
	switch {
	case err != nil:
		return in, err
	case moved && in.Epoch == e.cursor.Epoch:
		return in, errors.New("the gateway calls an epoch wrong and names the same one")
	case moved: // all is to be read anew
		e.core.heardAll.Store(false)
		e.cursor = eventlog.Cursor{Epoch: in.Epoch}
		return doors.Inbox{}, nil
	}
	if len(in.Messages) == 0 {
		e.cursor.Epoch = in.Epoch
	}
	return in, nil
}

// Heard tells the ear that the log holds what it brought.
func (e *Ear) Heard(in doors.Inbox) {
	e.cursor = eventlog.Cursor{Epoch: in.Epoch, Seq: last(in)}
	e.acked = false
}

func last(in doors.Inbox) (seq int64) {
	for _, m := range in.Messages {
		seq = max(seq, m.Seq)
	}
	return seq
}

// Receive writes messages and the cursor in one go. One that the log has, from before an epoch changed, is left out by its ID.
func (c *Core) Receive(ctx context.Context, in doors.Inbox) error {
	w := eventlog.Write{Cause: "inbox", Cursor: &eventlog.Cursor{Epoch: in.Epoch, Seq: last(in)}}
	for _, m := range in.Messages {
		w.Events = append(w.Events, event.New{WorkItem: m.WorkItem, Type: event.UserMessage, Source: "matrix/" + m.ID,
			Payload: event.Words{Text: m.Text, Origin: event.Person, From: m.Person, MayInstruct: m.MayInstruct && m.Person != ""}})
	}
	crashpoint.Hit("runtime.inbox.before")
	if err := c.write(ctx, w); err != nil {
		return err
	}
	crashpoint.Hit("runtime.inbox.after")
	return nil
}
