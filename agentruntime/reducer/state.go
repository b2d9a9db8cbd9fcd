// Package reducer decides what the runtime does next, from the log alone: the state is the fold of the events, and the next effect
// follows from the state. Nothing here reads a clock, a disk or a network, so a process that was killed anywhere decides the same
// again after it has read its log.
package reducer

import (
	"encoding/json"
	"fmt"

	"nisse.io/nisse/agentruntime/event"
	"nisse.io/nisse/internal/canonical"
)

// The platform's tools that end a turn.
const (
	SubmitPlan = "submit_plan"
	AskHuman   = "ask_human"
	Finish     = "finish"
)

// Bounds of a turn.
const (
	// DefaultCalls of tools in a turn before a person is asked.
	DefaultCalls = 12
	// terminalSlack more calls are left for ending a turn that has used up its calls.
	terminalSlack = 5
	// warnSame and stopSame identical calls in a turn.
	warnSame = 3
	stopSame = 5
	// maxBad answers in a row that nothing could be done with.
	maxBad = 3
)

// Waiting for what, outside this process.
type Waiting string

// Kinds of waiting.
const (
	Nothing  Waiting = ""
	Decision Waiting = "plan"     // of a plan
	Question Waiting = "question" // that was asked, to be answered
	Release  Waiting = "halt"     // of a halt
	Gate     Waiting = "gate"     // of one call
)

// State of everything in the log.
type State struct {
	logID string
	items map[string]*Item
}

// New is the state of an empty log.
func New(logID string) *State { return &State{logID: logID, items: map[string]*Item{}} }

// Item returns the state of one work item; of one without events, an empty state.
func (s *State) Item(name string) *Item {
	it := s.items[name]
	if it == nil {
		it = &Item{Name: name, logID: s.logID}
		s.items[name] = it
	}
	return it
}

// Item is where one work item stands.
type Item struct {
	Name  string
	logID string
	// Last event of the item.
	Last int64
	// Wake is the last event that wants an answer; Answered is how far the model has been shown the log when it answered last.
	Wake, Answered int64
	// ByPerson: the last event that wants an answer is a person's words.
	ByPerson bool
	// Open calls, oldest first: wanted, without a result.
	Open []Call
	Turn Turn
	// Waiting for something outside.
	Waiting Waiting
	// decided is the plan that was decided last.
	decided string
	// Finished: the broker took the item's end. Ended: the item is over.
	Finished, Ended bool
	// failed is the answer of the model whose call at failedAt, the first of them, did not succeed.
	failed   string
	failedAt int
	// Said last in the room, so that the same words are not said twice in a row.
	Said string
	// Model that answered last.
	Model string
}

// Turn is what counts against the bounds since a person last had a say.
type Turn struct {
	// Open: the model is to be asked, or calls are under way.
	Open bool
	// Calls made, without those of an approved plan's steps that succeeded: a person has counted those.
	Calls int
	// Bad answers in a row, and the request that gave the last.
	Bad    int
	badAsk string
	// Nudged: the model was reminded how a turn ends.
	Nudged bool
	// Same counts identical calls by their digest.
	Same map[string]int
	// Stop: the turn is to end, and a person is to be asked with this.
	Stop string
}

// Call that is open.
type Call struct {
	event.Call
	// Digest of tool and arguments.
	Digest string
	// Shown: the words that go with it are in the room.
	Shown bool
	// Cancelled: it will not be made, for this reason.
	Cancelled string
}

// behalf tells whether the runtime wants the call, not the model.
func (c Call) behalf() bool { return c.Origin == event.Runtime }

func terminal(tool string) bool { return tool == SubmitPlan || tool == AskHuman || tool == Finish }

// speech is what a person reads when the call is made, and must be in the room before it.
func (c Call) speech() string {
	var a struct{ Summary, Question string }
	if json.Unmarshal([]byte(c.Args), &a) != nil {
		return ""
	}
	switch c.Tool {
	case Finish:
		return a.Summary
	case AskHuman:
		return a.Question
	}
	return ""
}

func digest(tool, args string) string {
	if c, err := canonical.JSON([]byte(args)); err == nil {
		args = string(c)
	}
	return canonical.Hex([]byte(tool + "\x00" + args))
}

// id derives an ID from the log and a place in it: the same place always has the same ID, and another log never has it.
func (it *Item) id(prefix string, parts ...any) string {
	return prefix + canonical.Hex([]byte(fmt.Sprint("nisse.io/", prefix, "/v1\x00", it.logID, "\x00", it.Name, "\x00", fmt.Sprintln(parts...))))[:32]
}
