package modelcheck

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"nisse.io/nisse/agentruntime/doorclient"
	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/doors"
)

var errLine = errors.New("the line is dead")

// room is the gateway, as the runtime's mailbox sees it.
type room struct {
	h     *house
	epoch string
	// letters that nobody acknowledged, and all that were ever posted.
	letters, all []doors.Message
	out          []doors.Outgoing
	// answered question that the cluster has not been told of.
	answered string
}

const page = 2

func (r *room) post(text string) {
	h := r.h
	m := doors.Message{Seq: int64(len(r.all) + 1), ID: fmt.Sprint("$", len(r.all)+1), WorkItem: "wi", Person: "lucas", MayInstruct: true, Text: text}
	h.note("lucas writes %s %q", m.ID, text)
	r.all, r.letters = append(r.all, m), append(r.letters, m)
	if it := &h.cluster.item; it.Asking() {
		r.answered = it.Status.Runtime.Question.ID
	}
}

// tellCluster that a question was answered.
func (r *room) tellCluster() {
	if r.answered != "" {
		r.h.cluster.item.Status.Conversation = &api.WorkItemConversation{AnsweredQuestion: r.answered}
		r.answered = ""
	}
}

// restore the gateway from a copy that knows of no acknowledgement.
func (r *room) restore() {
	r.epoch = fmt.Sprint("e", r.h.next())
	r.letters = slices.Clone(r.all)
}

// exchange with the gateway, in which the request or the answer may get lost, or the process be killed.
func (r *room) exchange(f func() error) error {
	if r.h.mishap(0.08) {
		return errLine
	}
	r.h.rt.boundary()
	err := f()
	r.h.rt.boundary()
	if r.h.mishap(0.08) {
		return errLine
	}
	return err
}

func (r *room) Read(_ context.Context, epoch string, seq int64, _ bool) (in doors.Inbox, moved bool, err error) {
	err = r.exchange(func() error {
		in, moved = doors.Inbox{Epoch: r.epoch}, epoch != r.epoch
		for _, m := range r.letters {
			if !moved && m.Seq > seq && len(in.Messages) < page {
				in.Messages = append(in.Messages, m)
			}
		}
		return nil
	})
	return in, moved, err
}

func (r *room) Ack(_ context.Context, epoch string, seq int64) error {
	return r.exchange(func() error {
		if epoch == r.epoch {
			r.letters = slices.DeleteFunc(r.letters, func(m doors.Message) bool { return m.Seq <= seq })
		}
		return nil
	})
}

func (r *room) Send(_ context.Context, o doors.Outgoing) error {
	if r.h.mutant.newWordIDs {
		o.ID += fmt.Sprint("-", r.h.next())
	}
	return r.exchange(func() error {
		i := slices.IndexFunc(r.out, func(have doors.Outgoing) bool { return have.ID == o.ID })
		switch {
		case i < 0:
			r.h.note("in the room: %s %q", o.ID, o.Text)
			r.out = append(r.out, o)
		case r.out[i] != o:
			r.h.Fatalf("one ID with two messages: %+v and %+v", r.out[i], o)
		}
		if r.h.mishap(0.01) {
			return fmt.Errorf("too long: %w", doorclient.ErrRefused)
		}
		return nil
	})
}
