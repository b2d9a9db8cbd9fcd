package reducer

import (
	"fmt"
	"slices"

	"nisse.io/nisse/agentruntime/event"
	"nisse.io/nisse/internal/doors"
)

// Apply folds one more event into the state.
func (s *State) Apply(e event.Event) error {
	it := s.Item(e.WorkItem)
	it.Last = e.Seq
	switch e.Type {
	case event.UserMessage:
		var w event.Words
		if err := e.Decode(&w); err != nil {
			return err
		}
		it.words(e.Seq, w)
	case event.AssistantText:
		var t event.Text
		if err := e.Decode(&t); err != nil {
			return err
		}
		it.text(t)
	case event.ToolCall:
		var c event.Call
		if err := e.Decode(&c); err != nil {
			return err
		}
		it.Open = append(it.Open, Call{Call: c, Digest: digest(c.Tool, c.Args)})
	case event.ToolResult:
		var r event.Result
		if err := e.Decode(&r); err != nil {
			return err
		}
		it.result(r)
	case event.PlanSubmitted, event.GateOpened, event.DelegationStarted, event.DelegationCompleted, event.Compaction, event.KnowledgeRetrieved:
		// They tell what happened beside the conversation; the results above carry what follows from it.
	}
	return nil
}

// wakes tells whether words want an answer.
func wakes(w event.Words) bool {
	switch {
	case w.Origin == event.Person:
		return w.MayInstruct
	case w.Topic == event.TopicPlan:
		return w.State != "Superseded"
	default:
		return w.Topic == event.TopicRequest || w.Topic == event.TopicAnswer
	}
}

func (it *Item) words(seq int64, w event.Words) {
	if w.Topic == event.TopicEnded {
		it.Ended = true
		it.Turn = Turn{}
		return
	}
	if w.Topic == event.TopicPlan {
		it.decided = w.Plan
	}
	if !wakes(w) {
		return
	}
	switch {
	case w.Topic == event.TopicAnswer,
		w.Topic == event.TopicPlan && (it.Waiting == Decision || it.Waiting == Gate),
		w.Origin == event.Person && it.Waiting == Question:
		it.Waiting = Nothing
	}
	it.Wake, it.ByPerson = seq, w.Origin == event.Person
	it.Said = ""
	// A person has had a say, so the counters begin anew.
	it.Turn = Turn{Open: true}
}

func (it *Item) text(t event.Text) {
	it.Answered = max(it.Answered, t.UpTo)
	if t.Origin == event.Model {
		it.Model = t.Model
		if t.Text != "" && t.Calls == 0 && t.Then != event.ThenAsk {
			it.Said = t.Text
		}
		if t.Problem != "" {
			it.bad(t.Ask)
		}
	}
	if t.Call != "" {
		it.Said = t.Text
		for i := range it.Open {
			if it.Open[i].ID == t.Call {
				it.Open[i].Shown = true
			}
		}
	}
	switch t.Then {
	case event.ThenNudge:
		it.Turn.Nudged = true
	case event.ThenAsk:
		if t.Origin == event.Model {
			it.stop(it.unended(t.Text))
		} else {
			it.stop(t.Text)
		}
	case event.ThenEnd:
		it.over("the turn has ended")
	}
}

func (it *Item) bad(ask string) {
	if it.Turn.badAsk == ask && ask != "" {
		return
	}
	it.Turn.Bad++
	it.Turn.badAsk = ask
	if it.Turn.Bad >= maxBad {
		it.stop(fmt.Sprintf("The model gave %d answers in a row that I could not use, so I stopped. Say how to go on, or try again later.", it.Turn.Bad))
	}
}

// stop ends the model's part of the turn: what is not under way is not begun, and a person is asked.
func (it *Item) stop(why string) {
	it.Turn.Stop = why
	it.cancel("the turn was stopped and a person was asked")
}

func (it *Item) over(why string) {
	it.cancel(why)
	it.Turn = Turn{Open: it.Wake > it.Answered}
}

// wait for something outside, unless the answer was quicker than the news that one is waited for.
func (it *Item) wait(w Waiting) {
	if it.Wake <= it.Answered {
		it.Waiting = w
	}
}

func (it *Item) cancel(why string) {
	for i := range it.Open {
		if it.Open[i].Cancelled == "" && !it.Open[i].behalf() {
			it.Open[i].Cancelled = why
		}
	}
}

func (it *Item) result(r event.Result) {
	i := slices.IndexFunc(it.Open, func(c Call) bool { return c.ID == r.Call })
	if i < 0 {
		return
	}
	c := it.Open[i]
	it.Open = slices.Delete(it.Open, i, i+1)
	if r.Status != doors.Done && r.Status != doors.Pending && (it.failed != c.Ask || c.Index < it.failedAt) {
		it.failed, it.failedAt = c.Ask, c.Index
	}
	if r.Stop != "" {
		it.stop(r.Stop)
		return
	}
	if r.Origin == event.Runtime && !r.Malformed {
		return // it was not made
	}
	if c.behalf() {
		if r.Status == doors.Pending {
			it.wait(Question)
		}
		it.over("the turn has ended")
		return
	}
	it.count(c, r)
	switch {
	case r.Malformed:
	case r.Status == doors.Halted:
		it.wait(Release)
		it.over("nothing runs until a person has answered the halt")
	case r.Status == doors.Refused || r.Status == doors.Failed || r.Status == doors.Unknown:
	case c.Tool == SubmitPlan:
		if r.Gate == "" || r.Gate != it.decided { // a quick decision may come before the result
			it.Waiting = Decision
		}
		it.over("the turn ended with the plan")
	case c.Tool == AskHuman && r.Status == doors.Done:
		// It was answered before the result came; the words are in the log, or on their way.
	case c.Tool == AskHuman:
		it.wait(Question)
		it.over("the turn ended with the question")
	case c.Tool == Finish:
		it.Finished = true
		it.over("the work is finished")
	case r.Status == doors.Pending:
		it.wait(Gate)
		it.over("an earlier call waits for a person")
	}
}

func (it *Item) count(c Call, r event.Result) {
	if r.Malformed {
		it.bad(c.Ask)
	} else {
		it.Turn.Bad, it.Turn.badAsk = 0, ""
	}
	if r.Step > 0 && r.Status == doors.Done {
		return
	}
	it.Turn.Calls++
	if it.Turn.Same == nil {
		it.Turn.Same = map[string]int{}
	}
	it.Turn.Same[c.Digest]++
}
