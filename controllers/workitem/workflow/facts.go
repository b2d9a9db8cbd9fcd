package workflow

import "nisse.io/nisse/api/v1alpha1"

// Facts of one item, as the API shows them now.
type Facts struct {
	// Active: the agent's activeWorkItem is this one.
	Active bool
	// PlanOpen: a plan's gate waits for a decision.
	PlanOpen bool
	// Asking: a question has no answer.
	Asking bool
	// Held: a stop or a halt has no answer.
	Held bool
	// Finished: the agent said that it is done.
	Finished bool
	// Abandoned: a person answered abandon.
	Abandoned bool
	// Closing: a person asked for the end.
	Closing bool
}

// Observe turns facts into the events an item sees, in order. People's words come first: an agent that reports "finished" does
// not get past a stop or a halt that a person has yet to answer.
func Observe(f Facts) []Event {
	switch {
	case f.Closing:
		return []Event{Close}
	case f.Abandoned:
		return []Event{Abandon}
	case f.Held:
		return []Event{Hold}
	case f.Finished:
		return []Event{Finish}
	case f.PlanOpen:
		return []Event{Propose}
	case f.Asking: // and no gate is open, wherever the item was: what it waited for there is over
		return []Event{Resume, Ask}
	case f.Active:
		return []Event{Resume, Activate}
	}
	return []Event{Resume, Queue}
}

// Advance moves an item from state to where its facts put it.
func Advance(w v1alpha1.Workflow, state v1alpha1.WorkItemState, f Facts) (v1alpha1.WorkItemState, []Effect, error) {
	var all []Effect
	for _, e := range Observe(f) {
		to, effects, err := Next(w, state, e)
		if err != nil {
			return state, nil, err
		}
		state, all = to, append(all, effects...)
	}
	return state, all, nil
}
