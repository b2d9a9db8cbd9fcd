package workflow

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"nisse.io/nisse/api/v1alpha1"
)

const ops = v1alpha1.WorkflowOperations

func TestEveryStateKnowsEveryEvent(t *testing.T) {
	for w, table := range workflows {
		if len(table) != len(States) {
			t.Errorf("%s has %d states, want %d", w, len(table), len(States))
		}
		for _, s := range States {
			if len(table[s]) != len(Events) {
				t.Errorf("%s/%s knows %d events, want %d", w, s, len(table[s]), len(Events))
			}
			for _, e := range Events {
				to, _, err := Next(w, s, e)
				if err != nil {
					t.Errorf("%s: %v", w, err)
				}
				if !slices.Contains(States, to) {
					t.Errorf("%s/%s at %s leads to unknown state %q", w, s, e, to)
				}
			}
		}
	}
}

func TestNext(t *testing.T) {
	for _, tc := range []struct {
		name    string
		from    v1alpha1.WorkItemState
		event   Event
		to      v1alpha1.WorkItemState
		effects []Effect
	}{
		{"a new item without a state is taken up", "", Activate, working, nil},
		{"a new item waits behind another", "", Queue, open, nil},
		{"a queued item is taken up", open, Activate, working, nil},
		{"a queued item that is stopped asks", open, Hold, input, []Effect{OpenHaltGate}},
		{"a plan waits for a person", working, Propose, approval, nil},
		{"a question waits for a person", working, Ask, input, nil},
		{"a stop holds the work", working, Hold, input, []Effect{OpenHaltGate}},
		{"the end as the agent sees it", working, Finish, closed, []Effect{RecordDone}},
		{"the agent lost the item", working, Queue, open, nil},
		{"a decided plan goes on", approval, Resume, working, nil},
		{"a stop outranks a plan that waits", approval, Hold, input, []Effect{OpenHaltGate}},
		{"a question does not pass an open gate", approval, Ask, approval, nil},
		{"taking up does not pass an open gate", approval, Activate, approval, nil},
		{"an answered question goes on", input, Resume, working, nil},
		{"a hold that is seen again still wants its gate", input, Hold, input, []Effect{OpenHaltGate}},
		{"abandon ends it", input, Abandon, closed, []Effect{RecordAbandoned}},
		{"close ends it in any state", approval, Close, closed, []Effect{RecordClosed}},
		{"closed stays closed", closed, Activate, closed, nil},
		{"closed stays closed when closed again", closed, Close, closed, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			to, effects, err := Next(ops, tc.from, tc.event)
			if err != nil {
				t.Fatal(err)
			}
			if to != tc.to {
				t.Errorf("from %q at %s: %s, want %s", tc.from, tc.event, to, tc.to)
			}
			if diff := cmp.Diff(tc.effects, effects); diff != "" {
				t.Errorf("effects (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNextRefusesWhatItDoesNotKnow(t *testing.T) {
	for name, call := range map[string]func() (v1alpha1.WorkItemState, []Effect, error){
		"workflow": func() (v1alpha1.WorkItemState, []Effect, error) { return Next("Juggling", working, Activate) },
		"state":    func() (v1alpha1.WorkItemState, []Effect, error) { return Next(ops, "Floating", Activate) },
		"event":    func() (v1alpha1.WorkItemState, []Effect, error) { return Next(ops, working, "Sing") },
		"facts": func() (v1alpha1.WorkItemState, []Effect, error) {
			return Advance("Juggling", working, Facts{Held: true})
		},
	} {
		t.Run(name, func(t *testing.T) {
			to, effects, err := call()
			if err == nil || effects != nil {
				t.Errorf("got %s %v %v, want an error and no effect", to, effects, err)
			}
		})
	}
}

func anyState(t *rapid.T) v1alpha1.WorkItemState { return rapid.SampledFrom(States).Draw(t, "state") }

func anyFacts(t *rapid.T) Facts {
	b := func(name string) bool { return rapid.Bool().Draw(t, name) }
	return Facts{Active: b("active"), PlanOpen: b("planOpen"), Asking: b("asking"), Held: b("held"), Finished: b("finished"),
		Abandoned: b("abandoned"), Closing: b("closing")}
}

func advance(t *rapid.T, s v1alpha1.WorkItemState, f Facts) (v1alpha1.WorkItemState, []Effect) {
	to, effects, err := Advance(ops, s, f)
	if err != nil {
		t.Fatal(err)
	}
	return to, effects
}

func TestClosedNeverLeaves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		to, effects := advance(t, closed, anyFacts(t))
		if to != closed || len(effects) != 0 {
			t.Fatalf("closed went to %s with %v", to, effects)
		}
	})
}

// Deeds are possible while Working alone. So no facts may lead there while a person's word is awaited.
func TestNothingWorksPastAPerson(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyFacts(t)
		to, _ := advance(t, anyState(t), f)
		if to == working && (f.PlanOpen || f.Asking || f.Held || f.Closing || f.Abandoned || !f.Active) {
			t.Fatalf("Working with %+v", f)
		}
	})
}

// The pod reports Asking, Finished and (by submitting) PlanOpen. None of them leads out of a hold.
func TestAgentCannotLeaveAHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyFacts(t)
		f.Held, f.Closing, f.Abandoned = true, false, false
		from := rapid.SampledFrom([]v1alpha1.WorkItemState{open, working, approval, input}).Draw(t, "from")
		to, effects := advance(t, from, f)
		if to != input || !slices.Contains(effects, OpenHaltGate) {
			t.Fatalf("held, yet %s with %v", to, effects)
		}
	})
}

// Reconciling twice, or from wherever a crash left the state, ends in the same place.
func TestFactsAloneDecide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, from := anyFacts(t), anyState(t)
		once, _ := advance(t, from, f)
		twice, _ := advance(t, once, f)
		if once != twice {
			t.Fatalf("%+v: %s, then %s", f, once, twice)
		}
		if from == closed {
			return
		}
		fresh, _ := advance(t, "", f)
		if fresh != once {
			t.Fatalf("%+v: %s from %s, but %s from the beginning", f, once, from, fresh)
		}
	})
}

// The plan was decided and the agent asks something: nobody waits for an approval any more.
func TestAQuestionFollowsADecidedPlan(t *testing.T) {
	to, effects, err := Advance(ops, approval, Facts{Active: true, Asking: true})
	if err != nil || to != input || len(effects) != 0 {
		t.Errorf("%s with %v, %v", to, effects, err)
	}
}

// A transition into Closed records exactly one outcome; nothing else records any.
func TestOutcomeIsRecordedOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, f := anyState(t), anyFacts(t)
		to, effects := advance(t, from, f)
		records := 0
		for _, e := range effects {
			if e != OpenHaltGate {
				records++
			}
		}
		want := 0
		if from != closed && to == closed {
			want = 1
		}
		if records != want {
			t.Fatalf("%s → %s with %v: %d outcomes, want %d", from, to, effects, records, want)
		}
	})
}
