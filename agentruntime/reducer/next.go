package reducer

import (
	"fmt"

	"nisse.io/nisse/agentruntime/event"
)

// Env is what the next effect depends on besides the log. All of it may be lost and found again.
type Env struct {
	// Calls of tools allowed in a turn.
	Calls int
	// CanAsk: the agent has ask_human.
	CanAsk bool
	// Begun are the calls whose intent is in the log without an outcome: they may have happened, so they are asked for again,
	// whatever else has changed.
	Begun map[string]bool
}

// Effect is one thing to do: AskModel, CallTool, Answer, AskPerson, Say or Wait.
type Effect interface{ effect() }

// AskModel for its next answer, with everything shown up to an event.
type AskModel struct {
	ID   string
	UpTo int64
}

// CallTool outside, under the call's own ID.
type CallTool struct{ Call Call }

// Answer a call without making it.
type Answer struct {
	Call Call
	Why  string
	// Stop the turn, telling people this.
	Stop string
}

// AskPerson with ask_human, on the model's behalf.
type AskPerson struct{ Question string }

// Say words in the room: those of a call before it is made, or the runtime's own that end the turn.
type Say struct {
	Text string
	Call string
	Then string
}

// Wait for something from outside.
type Wait struct{}

func (AskModel) effect()  {}
func (CallTool) effect()  {}
func (Answer) effect()    {}
func (AskPerson) effect() {}
func (Say) effect()       {}
func (Wait) effect()      {}

// Next is the next effect for the item.
func (it *Item) Next(env Env) Effect {
	switch {
	case it.Ended:
		return Wait{}
	case len(it.Open) > 0:
		return it.nextCall(it.Open[0], env)
	case it.Finished:
		return Wait{}
	case it.Turn.Stop != "" && it.Waiting == Nothing && env.CanAsk:
		return AskPerson{Question: it.Turn.Stop}
	case it.Turn.Stop != "":
		return Say{Text: it.Turn.Stop, Then: event.ThenEnd}
	case it.Turn.Open:
		return AskModel{ID: it.id("ask_", it.Last), UpTo: it.Last}
	}
	return Wait{}
}

func (it *Item) nextCall(c Call, env Env) Effect {
	if env.Begun[c.ID] {
		return CallTool{c}
	}
	if c.Cancelled != "" {
		return Answer{Call: c, Why: "not run: " + c.Cancelled}
	}
	if terminal(c.Tool) && it.Wake > it.Answered {
		return Answer{Call: c, Why: "not run: a person wrote meanwhile; read that first, then decide again"}
	}
	if c.Tool == Finish && !c.behalf() && it.failed == c.Ask && it.failedAt < c.Index {
		// Its summary was written before anybody knew how the calls before it would end.
		return Answer{Call: c, Why: "not run: a call before it in the same answer did not succeed; read its result, then decide again"}
	}
	if !c.behalf() {
		if a, stop := it.bounds(c, env); stop {
			return a
		}
	}
	if words := c.speech(); words != "" && !c.Shown && words != it.Said {
		return Say{Text: words, Call: c.ID}
	}
	return CallTool{c}
}

func (it *Item) bounds(c Call, env Env) (Answer, bool) {
	limit := env.Calls
	if limit <= 0 {
		limit = DefaultCalls
	}
	if terminal(c.Tool) {
		limit += terminalSlack
	}
	if it.Turn.Calls >= limit {
		return Answer{Call: c, Why: fmt.Sprintf("not run: %d calls in one turn is the limit", it.Turn.Calls),
			Stop: fmt.Sprintf("I made %d tool calls in one turn without coming to an end, so I stopped. Say how to go on.", it.Turn.Calls)}, true
	}
	if it.Turn.Same[c.Digest] >= stopSame-1 {
		return Answer{Call: c, Why: fmt.Sprintf("not run: the same call for the %dth time", stopSame),
			Stop: fmt.Sprintf("I was about to make the same call (%s) for the %dth time, so I stopped. Say how to go on.", c.Tool, stopSame)}, true
	}
	return Answer{}, false
}
