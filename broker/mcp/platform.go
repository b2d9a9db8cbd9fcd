package mcp

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/broker/dispatch"
	"nisse.io/nisse/broker/judge"
	"nisse.io/nisse/broker/report"
	"nisse.io/nisse/broker/tools"
	"nisse.io/nisse/internal/canonical"
	"nisse.io/nisse/internal/doors"
)

// ask files a question. The same call again is the same question.
func (s *Server) ask(ctx context.Context, agent, item, id string, args json.RawMessage) (doors.ToolResult, error) {
	var in struct {
		Question string `json:"question"`
	}
	if err := json.Unmarshal(args, &in); err != nil {
		return doors.ToolResult{}, fmt.Errorf("read question: %w", err)
	}
	w, err := s.Live.World(ctx, agent, "", "")
	if err != nil {
		return doors.ToolResult{}, err
	}
	for _, no := range []*judge.Decision{judge.Tool(tools.AskHuman, w.Agent), judge.Meant(item, w), judge.Item(w)} {
		if no != nil {
			return dispatch.Result(*no), nil
		}
	}
	if id == "" {
		id = rand.Text()
	}
	q := v1alpha1.Question{ID: "q-" + canonical.Hex([]byte(string(w.Item.UID) + "\x00" + id))[:32], Text: in.Question}
	open, answered, err := s.Report.Ask(ctx, w.Item, q)
	switch {
	case errors.Is(err, report.ErrOver), errors.Is(err, report.ErrHeld):
		return again(err), nil
	case err != nil:
		return doors.ToolResult{}, err
	case answered:
		return doors.ToolResult{Status: doors.Done, Message: "The question was asked, and people have answered; their words are in the conversation."}, nil
	case open.ID != q.ID && open.Text != q.Text:
		return refused("QuestionOpen", "Another question waits for an answer already. End your turn; ask this one when that is answered."), nil
	}
	return doors.ToolResult{Status: doors.Pending, Message: "The question is asked. The answer comes as a message. End your turn."}, nil
}

// finish files that the item is done.
func (s *Server) finish(ctx context.Context, agent, item string, args json.RawMessage) (doors.ToolResult, error) {
	var in struct {
		Summary string `json:"summary"`
	}
	if err := json.Unmarshal(args, &in); err != nil {
		return doors.ToolResult{}, fmt.Errorf("read summary: %w", err)
	}
	done := doors.ToolResult{Status: doors.Done, Message: "The work item is done."}
	w, err := s.Live.World(ctx, agent, "", "")
	if err != nil {
		return doors.ToolResult{}, err
	}
	if w.Agent == nil {
		return refused(judge.ToolNotAllowed, "There is no such agent (any more)."), nil
	}
	if no := judge.Meant(item, w); no != nil {
		// It may be the same call again, after the item was closed for it.
		it := &v1alpha1.WorkItem{}
		err := s.Live.API.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: item}, it)
		if err == nil && it.Spec.Agent == agent && it.Status.Runtime != nil && it.Status.Runtime.Finished != nil {
			return done, nil
		}
		if client.IgnoreNotFound(err) != nil {
			return doors.ToolResult{}, fmt.Errorf("read work item %s: %w", item, err)
		}
		return dispatch.Result(*no), nil
	}
	if w.Item != nil && w.Item.Status.Runtime != nil && w.Item.Status.Runtime.Finished != nil {
		return done, nil
	}
	if no := judge.Item(w); no != nil {
		return dispatch.Result(*no), nil
	}
	for i := range w.Jobs {
		if j := &w.Jobs[i]; j.Status.State == "" {
			return doors.ToolResult{Status: doors.Refused, Reason: judge.StepPending, Step: j.Spec.Step,
				Message: fmt.Sprintf("Step %d of %s has not ended yet; finish when it has.", j.Spec.Step, j.Spec.Gate.Name)}, nil
		}
	}
	err = s.Report.Finish(ctx, w.Item, in.Summary)
	if errors.Is(err, report.ErrOver) || errors.Is(err, report.ErrHeld) {
		return again(err), nil
	}
	if err != nil {
		return doors.ToolResult{}, err
	}
	return done, nil
}

// again is the answer when a person stopped or closed the item while the call was under way.
func again(err error) doors.ToolResult {
	if errors.Is(err, report.ErrOver) {
		return refused(judge.ItemOver, "The work item is over.")
	}
	return doors.ToolResult{Status: doors.Halted, Reason: judge.Stopped, Message: "The work item was stopped or halted meanwhile. Nothing runs until a person answers continue, replan or abandon."}
}
