package loop

import (
	"context"
	"errors"

	"nisse.io/nisse/agentruntime/backoff"
	"nisse.io/nisse/agentruntime/doorclient"
	"nisse.io/nisse/agentruntime/event"
	"nisse.io/nisse/agentruntime/eventlog"
	"nisse.io/nisse/internal/crashpoint"
	"nisse.io/nisse/internal/doors"
)

// batch of messages on their way into the log; done is closed when they are in it.
type batch struct {
	in   doors.Inbox
	done chan struct{}
}

// readMail hands messages to the loop and acknowledges them when they are on disk, never before.
func (l *Loop) readMail(ctx context.Context) {
	wait := backoff.New(l.Timing.First, l.Timing.Limit)
	failed := func(what string, err error) {
		if ctx.Err() == nil {
			l.Logger.WarnContext(ctx, what, "error", err.Error())
			_ = wait.Wait(ctx, 0) // the caller looks at ctx
		}
	}
	cursor, err := l.Log.InboxCursor(ctx)
	for err != nil && ctx.Err() == nil {
		failed("inbox.retried", err)
		cursor, err = l.Log.InboxCursor(ctx)
	}
	acked := false // a process that died between writing and acknowledging left that to this one
	for ctx.Err() == nil {
		if !acked && cursor.Seq > 0 {
			if err := l.Mailbox.Ack(ctx, cursor.Epoch, cursor.Seq); err != nil {
				failed("ack.retried", err)
				continue
			}
		}
		acked = true
		in, moved, err := l.Mailbox.Read(ctx, cursor.Epoch, cursor.Seq, !l.deaf.Load()) // after an outage: what is there now
		switch {
		case err != nil:
			l.deaf.Store(true)
			failed("inbox.retried", err)
			continue
		case moved && in.Epoch == cursor.Epoch:
			failed("inbox.retried", errors.New("the gateway calls an epoch wrong and names the same one"))
			continue
		case moved:
			cursor = eventlog.Cursor{Epoch: in.Epoch}
			continue
		}
		wait.Reset()
		if len(in.Messages) == 0 {
			cursor.Epoch = in.Epoch
			l.hear()
			continue
		}
		b := batch{in, make(chan struct{})}
		select {
		case l.mail <- b:
		case <-ctx.Done():
			return
		}
		select {
		case <-b.done:
		case <-ctx.Done():
			return
		}
		cursor = eventlog.Cursor{Epoch: in.Epoch, Seq: last(in)}
		acked = false
		l.hear()
	}
}

// hear notes that everything the gateway had is in the log, and lets what waited for that go on.
func (l *Loop) hear() {
	if l.deaf.Swap(false) {
		kick(l.said)
	}
}

func last(in doors.Inbox) (seq int64) {
	for _, m := range in.Messages {
		seq = max(seq, m.Seq)
	}
	return seq
}

// receive writes messages and the cursor in one go. One that the log has, from before an epoch changed, is left out by its ID.
func (l *Loop) receive(ctx context.Context, b batch) error {
	w := eventlog.Write{Cause: "inbox", Cursor: &eventlog.Cursor{Epoch: b.in.Epoch, Seq: last(b.in)}}
	for _, m := range b.in.Messages {
		w.Events = append(w.Events, event.New{WorkItem: m.WorkItem, Type: event.UserMessage, Source: "matrix/" + m.ID,
			Payload: event.Words{Text: m.Text, Origin: event.Person, From: m.Person, MayInstruct: m.MayInstruct && m.Person != ""}})
	}
	crashpoint.Hit("runtime.inbox.before")
	if err := l.write(ctx, w); err != nil {
		return err
	}
	crashpoint.Hit("runtime.inbox.after")
	close(b.done)
	return nil
}

// sayWords delivers queued messages in order. The same message has the same ID however often it is sent.
func (l *Loop) sayWords(ctx context.Context) {
	wait := backoff.New(l.Timing.First, l.Timing.Limit)
	for ctx.Err() == nil {
		o, ok, err := l.Log.NextOut(ctx)
		if err == nil && !ok {
			select {
			case <-l.toSay:
			case <-ctx.Done():
			}
			continue
		}
		if err == nil {
			err = l.Mailbox.Send(ctx, doors.Outgoing{ID: o.ID, WorkItem: o.WorkItem, Kind: o.Kind, Text: o.Text})
		}
		var refused error
		if errors.Is(err, doorclient.ErrRefused) {
			refused, err = err, nil // the gateway will never take it; those behind it must not wait for it
		}
		if err == nil {
			err = l.Log.Delivered(ctx, o, refused)
		}
		if err != nil {
			if ctx.Err() == nil {
				l.Logger.WarnContext(ctx, "words.retried", "task_id", o.WorkItem, "cause", o.ID, "error", err.Error())
				_ = wait.Wait(ctx, 0) // the loop looks at ctx
			}
			continue
		}
		wait.Reset()
		kick(l.said)
	}
}
