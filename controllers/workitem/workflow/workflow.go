// Package workflow says how work items move. It is a table: nothing here reads a clock, an API or a message.
package workflow

import (
	"fmt"

	"nisse.io/nisse/api/v1alpha1"
)

// Event is something that became true of a work item. Events are levels, not edges: an item may see the same one any number of
// times, and the second changes nothing.
type Event string

const (
	// Activate: the agent works on this item.
	Activate Event = "Activate"
	// Queue: the agent works on another item, or on none.
	Queue Event = "Queue"
	// Propose: a plan's gate is open.
	Propose Event = "Propose"
	// Ask: a question of the agent waits for an answer.
	Ask Event = "Ask"
	// Hold: a stop or a halt waits for an answer.
	Hold Event = "Hold"
	// Resume: nothing waits for a person.
	Resume Event = "Resume"
	// Finish: the agent said that it is done.
	Finish Event = "Finish"
	// Abandon: a person answered a halt with abandon.
	Abandon Event = "Abandon"
	// Close: a person asked for the item to end.
	Close Event = "Close"
)

// Events of all workflows.
var Events = []Event{Activate, Queue, Propose, Ask, Hold, Resume, Finish, Abandon, Close}

// States of the common workflow, which Operations uses as it is.
var States = []v1alpha1.WorkItemState{v1alpha1.WorkItemOpen, v1alpha1.WorkItemWorking, v1alpha1.WorkItemAwaitingApproval,
	v1alpha1.WorkItemAwaitingInput, v1alpha1.WorkItemClosed}

// Effect is what a transition asks of the controller. Each is idempotent.
type Effect string

const (
	// OpenHaltGate: a gate must ask how the item goes on.
	OpenHaltGate Effect = "OpenHaltGate"
	// RecordDone: outcome Done, with the agent's summary.
	RecordDone Effect = "RecordDone"
	// RecordAbandoned: outcome Abandoned, with the person's words.
	RecordAbandoned Effect = "RecordAbandoned"
	// RecordClosed: outcome Closed.
	RecordClosed Effect = "RecordClosed"
)

// step is one cell of the table.
type step struct {
	to      v1alpha1.WorkItemState
	effects []Effect
}

const (
	open     = v1alpha1.WorkItemOpen
	working  = v1alpha1.WorkItemWorking
	approval = v1alpha1.WorkItemAwaitingApproval
	input    = v1alpha1.WorkItemAwaitingInput
	closed   = v1alpha1.WorkItemClosed
)

var (
	halted    = step{input, []Effect{OpenHaltGate}}
	done      = step{closed, []Effect{RecordDone}}
	abandoned = step{closed, []Effect{RecordAbandoned}}
	ended     = step{closed, []Effect{RecordClosed}}
	stay      = step{to: closed}
)

// operations is the whole workflow: every state with every event. A cell that is missing is a mistake, and a test finds it.
var operations = map[v1alpha1.WorkItemState]map[Event]step{
	open: {
		Activate: {to: working}, Queue: {to: open}, Propose: {to: approval}, Ask: {to: input}, Hold: halted, Resume: {to: open},
		Finish: done, Abandon: abandoned, Close: ended,
	},
	working: {
		Activate: {to: working}, Queue: {to: open}, Propose: {to: approval}, Ask: {to: input}, Hold: halted, Resume: {to: working},
		Finish: done, Abandon: abandoned, Close: ended,
	},
	// An open gate outranks a question: only a decision, a stop or the item's end leads out of here.
	approval: {
		Activate: {to: approval}, Queue: {to: approval}, Propose: {to: approval}, Ask: {to: approval}, Hold: halted, Resume: {to: working},
		Finish: done, Abandon: abandoned, Close: ended,
	},
	input: {
		Activate: {to: input}, Queue: {to: input}, Propose: {to: approval}, Ask: {to: input}, Hold: halted, Resume: {to: working},
		Finish: done, Abandon: abandoned, Close: ended,
	},
	closed: {
		Activate: stay, Queue: stay, Propose: stay, Ask: stay, Hold: stay, Resume: stay, Finish: stay, Abandon: stay, Close: stay,
	},
}

var workflows = map[v1alpha1.Workflow]map[v1alpha1.WorkItemState]map[Event]step{
	v1alpha1.WorkflowOperations: operations,
}

// Next returns where an item goes from state at event, and what must be done. An item without a state is Open.
func Next(w v1alpha1.Workflow, state v1alpha1.WorkItemState, event Event) (v1alpha1.WorkItemState, []Effect, error) {
	table, ok := workflows[w]
	if !ok {
		return state, nil, fmt.Errorf("workflow %q is not known to this version", w)
	}
	if state == "" {
		state = open
	}
	s, ok := table[state][event]
	if !ok {
		return state, nil, fmt.Errorf("workflow %s has no step from %q at %q", w, state, event)
	}
	return s.to, s.effects, nil
}
