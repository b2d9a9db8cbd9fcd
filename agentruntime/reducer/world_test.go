package reducer

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"nisse.io/nisse/agentruntime/event"
	"nisse.io/nisse/internal/canonical"
	"nisse.io/nisse/internal/doors"
)

// world is a log in memory and everything outside: what was said, which calls were made.
type world struct {
	t      testing.TB
	log    []event.Event
	state  *State
	say    []event.Outgoing
	asides int
	env    Env
}

func newWorld(t testing.TB) *world {
	return &world{t: t, state: New("log-1"), env: Env{Calls: 12, CanAsk: true, Begun: map[string]bool{}}}
}

func (w *world) it() *Item { return w.state.Item("wi-1") }

func (w *world) append(b Batch) {
	w.t.Helper()
	seen := map[string]bool{}
	for _, e := range w.log {
		seen[e.Source] = true
	}
	for _, n := range b.Events {
		if seen[n.Source] {
			continue
		}
		p, err := canonical.Marshal(n.Payload)
		if err != nil {
			w.t.Fatal(err)
		}
		e := event.Event{Seq: int64(len(w.log)) + 1, WorkItem: n.WorkItem, Type: n.Type, Source: n.Source, Payload: p}
		w.log = append(w.log, e)
		if err := w.state.Apply(e); err != nil {
			w.t.Fatal(err)
		}
	}
	for _, o := range b.Say {
		known := false
		for _, have := range w.say {
			known = known || have.ID == o.ID
		}
		if !known {
			w.say = append(w.say, o)
		}
	}
	w.asides += len(b.Asides)
}

func (w *world) person(text string) {
	w.append(Batch{Events: []event.New{{WorkItem: "wi-1", Type: event.UserMessage, Source: fmt.Sprintf("matrix/%d", len(w.log)),
		Payload: event.Words{Text: text, Origin: event.Person, From: "lucas", MayInstruct: true}}}})
}

func (w *world) platform(topic, state string) {
	w.append(Batch{Events: []event.New{{WorkItem: "wi-1", Type: event.UserMessage, Source: fmt.Sprintf("%s/%s/%d", topic, state, len(w.log)),
		Payload: event.Words{Text: topic + " " + state, Origin: event.Platform, Topic: topic, State: state}}}})
}

func check(tool, args string) error {
	var m map[string]any
	if err := json.Unmarshal([]byte(args), &m); err != nil {
		return fmt.Errorf("arguments are not a JSON object: %w", err)
	}
	switch tool {
	case "fs_read", "fs_write", SubmitPlan, AskHuman, Finish:
		return nil
	}
	return errors.New("there is no tool of that name")
}

func want(tool, args string) Wanted { return Wanted{ProviderID: tool + args, Tool: tool, Args: args} }

// ask answers the next effect, which must be AskModel, with r.
func (w *world) ask(r Reply) {
	w.t.Helper()
	a, ok := w.it().Next(w.env).(AskModel)
	if !ok {
		w.t.Fatalf("next effect is %#v, want AskModel", w.it().Next(w.env))
	}
	w.append(w.it().Replied(a, r, check, w.env))
}

// call answers the next effect, which must be CallTool of tool, with res.
func (w *world) call(tool string, res doors.ToolResult) Call {
	w.t.Helper()
	e := w.it().Next(w.env)
	c, ok := e.(CallTool)
	if !ok || c.Call.Tool != tool {
		w.t.Fatalf("next effect is %#v, want a call of %s", e, tool)
	}
	w.append(w.it().Resulted(c.Call, res, res.Status+" "+res.Message))
	return c.Call
}

// local does what needs nothing outside, until something else is next, and returns that.
func (w *world) local() Effect {
	w.t.Helper()
	for range 100 {
		switch e := w.it().Next(w.env).(type) {
		case Answer:
			w.append(w.it().NotMade(e))
		case Say:
			w.append(w.it().Spoken(e))
		case AskPerson:
			b, err := w.it().Asked(e)
			if err != nil {
				w.t.Fatal(err)
			}
			w.append(b)
		default:
			return e
		}
	}
	w.t.Fatal("the reducer goes round in circles")
	return nil
}

func (w *world) said() (out []string) {
	for _, o := range w.say {
		if o.Kind == doors.Say {
			out = append(out, o.Text)
		}
	}
	return out
}

func (w *world) results() (out []string) {
	for _, e := range w.log {
		if e.Type == event.ToolResult {
			var r event.Result
			if err := e.Decode(&r); err != nil {
				w.t.Fatal(err)
			}
			out = append(out, r.Status+": "+r.Text)
		}
	}
	return out
}

func isWait(t *testing.T, e Effect) {
	t.Helper()
	if _, ok := e.(Wait); !ok {
		t.Fatalf("next effect is %#v, want Wait", e)
	}
}

var (
	done    = doors.ToolResult{Status: doors.Done}
	pending = doors.ToolResult{Status: doors.Pending, Gate: "wi-1-rev-1", Revision: 1}
)
