package loop

import (
	"context"

	"nisse.io/nisse/agentruntime/backoff"
	"nisse.io/nisse/internal/doors"
)

// batch of messages on their way into the log; done is closed when they are in it.
type batch struct {
	in   doors.Inbox
	done chan struct{}
}

// readMail hands messages to the loop, one batch after the other.
func (l *Loop) readMail(ctx context.Context) {
	wait := backoff.New(l.Timing.First, l.Timing.Limit)
	ear := l.core.Ear(l.Mailbox)
	for ctx.Err() == nil {
		in, waited, err := ear.Listen(ctx)
		if err != nil {
			if ctx.Err() == nil {
				l.Logger.WarnContext(ctx, "inbox.retried", "error", err.Error())
				_ = wait.Wait(ctx, 0) // the loop looks at ctx
			}
			continue
		}
		wait.Reset()
		if waited {
			kick(l.said)
		}
		if len(in.Messages) == 0 {
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
		ear.Heard(in)
	}
}

// sayWords delivers queued messages in order.
func (l *Loop) sayWords(ctx context.Context) {
	wait := backoff.New(l.Timing.First, l.Timing.Limit)
	for ctx.Err() == nil {
		o, any, err := l.core.Say(ctx, l.Mailbox)
		switch {
		case err != nil:
			if ctx.Err() == nil {
				l.Logger.WarnContext(ctx, "words.retried", "task_id", o.WorkItem, "cause", o.ID, "error", err.Error())
				_ = wait.Wait(ctx, 0) // the loop looks at ctx
			}
		case any:
			wait.Reset()
			kick(l.said)
		default:
			select {
			case <-l.toSay:
			case <-ctx.Done():
			}
		}
	}
}
