package reducer

import (
	"fmt"
	"strings"

	"nisse.io/nisse/agentruntime/event"
	"nisse.io/nisse/internal/canonical"
	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/internal/sanitize"
)

// Caps on what goes into the log and the room, in bytes.
const (
	MaxText      = 32 << 10 // of words: what the gateway takes
	MaxReasoning = 16 << 10
	MaxArgs      = 256 << 10
	MaxResult    = 16 << 10 // of a result in an event; the rest is kept aside
	MaxAside     = 4 << 20
	maxWanted    = 16 // calls in one answer
	maxProgress  = 240
)

// Batch is what an outcome puts in the log at once.
type Batch struct {
	Events []event.New
	Say    []event.Outgoing
	Asides []event.Aside
}

// Reply of the model, already cleared of reasoning.
type Reply struct {
	Text      string
	Reasoning string
	Model     string
	Wanted    []Wanted
	// Problem that makes the answer useless; told to the model next time.
	Problem string
}

// Wanted is a call as the model wrote it.
type Wanted struct {
	ProviderID string
	Tool       string
	Args       string
}

// Replied turns the model's answer into events. check tells why a call cannot be made as it is written.
func (it *Item) Replied(ask AskModel, r Reply, check func(tool, args string) error, env Env) Batch {
	t := event.Text{
		Text: sanitize.Cap(strings.TrimSpace(r.Text), MaxText), Reasoning: sanitize.Cap(r.Reasoning, MaxReasoning),
		Origin: event.Model, Model: r.Model, Ask: ask.ID, UpTo: ask.UpTo, Calls: len(r.Wanted), Problem: r.Problem,
	}
	if t.Text == "" && t.Calls == 0 && t.Problem == "" {
		t.Problem = "your answer was empty"
	}
	if t.Calls == 0 && t.Text != "" && t.Problem == "" {
		t.Then = it.then(ask, env)
	}
	b := Batch{Events: []event.New{{WorkItem: it.Name, Type: event.AssistantText, Source: "ask/" + ask.ID, Payload: t}}}
	b.Say = it.aloud(ask, t, r.Wanted)
	if t.Problem != "" {
		b.Say = append(b.Say, it.line(useless(t.Problem, it.Turn.Bad+1 < maxBad), "useless", ask.ID))
	}
	var results []event.New
	first := map[string]bool{}
	for i, w := range r.Wanted {
		c := event.Call{ID: it.id("call_", ask.ID, i), Ask: ask.ID, Index: i, Tool: w.Tool, Args: w.Args, Origin: event.Model, ProviderID: sanitize.Line(w.ProviderID, 64)}
		if strings.TrimSpace(c.Args) == "" {
			c.Args = "{}"
		}
		why := wrong(i, w, first[w.ProviderID], check)
		first[w.ProviderID] = w.ProviderID != ""
		if why != "" {
			c.Tool, c.Args = sanitize.Line(c.Tool, 64), sanitize.Cap(c.Args, MaxResult)
			results = append(results, event.New{WorkItem: it.Name, Type: event.ToolResult, Source: "result/" + c.ID,
				Payload: event.Result{Call: c.ID, Tool: c.Tool, Origin: event.Runtime, Status: doors.Refused, Text: why, Malformed: true}})
			if i <= maxWanted { // one line for the first that is too many says it for all
				b.Say = append(b.Say, it.line(notRun(c.Tool, why), c.ID))
			}
		}
		b.Events = append(b.Events, event.New{WorkItem: it.Name, Type: event.ToolCall, Source: "call/" + c.ID, Payload: c})
	}
	b.Events = append(b.Events, results...)
	return b
}

func wrong(i int, w Wanted, again bool, check func(tool, args string) error) string {
	switch {
	case i >= maxWanted:
		return fmt.Sprintf("not run: at most %d calls in one answer", maxWanted)
	case again:
		return "not run: two calls had one id, and only the first was taken; call again if you meant both"
	case len(w.Args) > MaxArgs:
		return fmt.Sprintf("not run: the arguments have %d bytes, and %d is the limit", len(w.Args), MaxArgs)
	}
	if strings.TrimSpace(w.Args) == "" {
		w.Args = "{}"
	}
	if err := check(w.Tool, w.Args); err != nil {
		return "not run: " + sanitize.Data(err.Error(), 2<<10)
	}
	return ""
}

// then is what follows from words without calls.
func (it *Item) then(ask AskModel, env Env) string {
	switch {
	case it.Wake > ask.UpTo:
		return "" // a person wrote meanwhile
	case it.Waiting != Nothing:
		return event.ThenEnd
	case !it.Turn.Nudged:
		return event.ThenNudge
	case env.CanAsk:
		return event.ThenAsk
	}
	return event.ThenEnd
}

// aloud is what of an answer is said in the room at once.
func (it *Item) aloud(ask AskModel, t event.Text, wanted []Wanted) []event.Outgoing {
	noEnd := t.Then == event.ThenEnd && it.Waiting == Nothing
	if t.Text == "" || t.Problem != "" || t.Then == event.ThenAsk || t.Text == it.Said && !noEnd {
		return nil
	}
	kind, text := doors.Say, t.Text
	if noEnd {
		text = it.unended(text)
	}
	if len(wanted) > 0 {
		kind, text = doors.Progress, sanitize.Line(t.Text, maxProgress)
	}
	for _, w := range wanted {
		if (Call{Call: event.Call{Tool: w.Tool, Args: w.Args}}).speech() == t.Text {
			return nil
		}
		if terminal(w.Tool) {
			kind, text = doors.Say, t.Text
		}
	}
	return []event.Outgoing{{ID: it.id("out_", ask.ID), WorkItem: it.Name, Kind: kind, Text: text}}
}

// noResult follows the words by which a model ended its turn: people are not to take them for the end of the work.
const noResult = "I ended here without a result. Say what to do, or type `stop`."

// unended are words that ended a turn and are no result, as they are said; what stands in the room already is not said once more.
func (it *Item) unended(words string) string {
	if words == it.Said {
		return noResult
	}
	return words + "\n\n" + noResult
}

// Failed turns a request that failed for good into events: people are told, and the turn ends.
func (it *Item) Failed(ask AskModel, why string) Batch {
	return Batch{Events: []event.New{{WorkItem: it.Name, Type: event.AssistantText, Source: "ask/" + ask.ID,
		Payload: event.Text{Text: sanitize.Cap(why, MaxText), Origin: event.Runtime, Ask: ask.ID, UpTo: ask.UpTo, Then: event.ThenAsk}}}}
}

// Resulted turns a tool's answer into events. text is what the tool returned, as it came.
func (it *Item) Resulted(c Call, res doors.ToolResult, text string) Batch {
	r := event.Result{
		Call: c.ID, Tool: c.Tool, Origin: event.Tool, Status: res.Status, Text: sanitize.Cap(text, MaxResult),
		Gate: res.Gate, Step: res.Step, Revision: res.Revision,
	}
	var b Batch
	if len(text) > MaxResult {
		body := sanitize.Cap(text, MaxAside)
		r.Aside = canonical.DigestBytes([]byte(body))
		b.Asides = []event.Aside{{Digest: r.Aside, Body: body}}
	}
	if n := it.Turn.Same[c.Digest] + 1; n >= warnSame && res.Step == 0 && !terminal(c.Tool) {
		r.Note = fmt.Sprintf("You have made this same call %d times in this turn. Another one will tell you nothing new; the %dth ends the turn.", n, stopSame)
	}
	b.Events = []event.New{{WorkItem: it.Name, Type: event.ToolResult, Source: "result/" + c.ID, Payload: r}}
	if c.Tool == SubmitPlan && res.Status == doors.Pending {
		b.Events = append(b.Events, event.New{WorkItem: it.Name, Type: event.PlanSubmitted, Source: "plan-submitted/" + c.ID,
			Payload: event.Plan{Call: c.ID, Revision: res.Revision, Body: c.Args, Model: it.Model}})
	}
	if res.Status == doors.Pending && res.Gate != "" {
		b.Events = append(b.Events, event.New{WorkItem: it.Name, Type: event.GateOpened, Source: "gate/" + c.ID,
			Payload: event.Gate{Call: c.ID, Gate: res.Gate, Reason: res.Reason}})
	}
	// What ends a turn speaks for itself when it succeeds: a gate, a question, the last words.
	if refused := res.Status != doors.Done && res.Status != doors.Pending && res.Status != doors.Halted; !terminal(c.Tool) || refused {
		b.Say = []event.Outgoing{it.line(progress(c, res, text), c.ID)}
	}
	return b
}

// line for the item's progress message.
func (it *Item) line(text string, place ...any) event.Outgoing {
	return event.Outgoing{ID: it.id("out_", place...), WorkItem: it.Name, Kind: doors.Progress, Text: text}
}

// NotMade turns a call that is not made into its event.
func (it *Item) NotMade(a Answer) Batch {
	return Batch{Events: []event.New{{WorkItem: it.Name, Type: event.ToolResult, Source: "result/" + a.Call.ID,
		Payload: event.Result{Call: a.Call.ID, Tool: a.Call.Tool, Origin: event.Runtime, Status: doors.Refused, Text: a.Why, Stop: a.Stop}}}}
}

// Asked turns a question on the model's behalf into a call of ask_human.
func (it *Item) Asked(a AskPerson) (Batch, error) {
	args, err := canonical.Marshal(map[string]string{"question": sanitize.Cap(a.Question, 4000)}) // a WorkItem's question holds 4096
	if err != nil {
		return Batch{}, fmt.Errorf("ask a person: %w", err)
	}
	c := event.Call{ID: it.id("call_", "behalf", it.Last), Tool: AskHuman, Args: string(args), Origin: event.Runtime}
	return Batch{Events: []event.New{{WorkItem: it.Name, Type: event.ToolCall, Source: "call/" + c.ID, Payload: c}}}, nil
}

// Spoken turns words that are said into their event and the message.
func (it *Item) Spoken(s Say) Batch {
	key := s.Call
	if key == "" {
		key = it.id("say_", it.Last)
	}
	text := sanitize.Cap(s.Text, MaxText)
	return Batch{
		Events: []event.New{{WorkItem: it.Name, Type: event.AssistantText, Source: "say/" + key, Payload: event.Text{Text: text, Origin: event.Runtime, Call: s.Call, Then: s.Then}}},
		Say:    []event.Outgoing{{ID: it.id("out_", "say", key), WorkItem: it.Name, Kind: doors.Say, Text: text}},
	}
}

// Noticed turns a notice to people into its event and the message. It changes nothing about the turn, and key says it once.
func (it *Item) Noticed(key, text string) Batch {
	return Batch{
		Events: []event.New{{WorkItem: it.Name, Type: event.AssistantText, Source: "notice/" + key, Payload: event.Text{Text: text, Origin: event.Runtime}}},
		Say:    []event.Outgoing{{ID: it.id("out_", "notice", key), WorkItem: it.Name, Kind: doors.Say, Text: text}},
	}
}
