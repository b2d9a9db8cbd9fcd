// Package routing decides, purely, what becomes of a message: which work it belongs to, which gate it decides, or why it does
// nothing. What it decides is written beside the message before anything else happens, and is not decided again.
package routing

import (
	"fmt"
	"strings"

	"nisse.io/nisse/gateway/decision"
	"nisse.io/nisse/internal/sanitize"
)

// Kind of effect.
type Kind string

const (
	// Silence: nothing happens.
	Silence Kind = "silence"
	// Tell: the sender is told why nothing happens.
	Tell Kind = "tell"
	// Open: the words open a work item.
	Open Kind = "open"
	// Words of a person who may instruct, for an item that exists.
	Words Kind = "words"
	// Data: words of anybody else in the active item's thread; the agent sees them and is not woken.
	Data Kind = "data"
	// Decide: a gate is decided.
	Decide Kind = "decide"
	// Stop the item; with Wide, whatever the agent works on.
	Stop Kind = "stop"
	// Status is asked for.
	Status Kind = "status"
)

// Route of one message. It holds all that its effect needs, so that a later, different state of the world changes nothing.
type Route struct {
	Kind Kind `json:"kind"`
	// Person who sent it; empty for strangers.
	Person      string `json:"person,omitempty"`
	MayInstruct bool   `json:"mayInstruct,omitempty"`
	// WorkItem that is meant. Open leaves it empty: its name comes from the event.
	WorkItem string `json:"workItem,omitempty"`
	// Wide: said to the room and not in an item's thread, so that whatever runs is meant, whether it was known here or not.
	Wide bool `json:"wide,omitempty"`
	// Title of the item that opens.
	Title string `json:"title,omitempty"`
	// Text: words, or what goes with a decision.
	Text string `json:"text,omitempty"`
	// Question that the words answer.
	Question string `json:"question,omitempty"`
	// Gate that is decided, with how.
	Gate     string `json:"gate,omitempty"`
	GateUID  string `json:"gateUID,omitempty"`
	Digest   string `json:"digest,omitempty"`
	Approve  bool   `json:"approve,omitempty"`
	Answer   string `json:"answer,omitempty"`   // Continue, Replan or Abandon
	Evidence string `json:"evidence,omitempty"` // Typed or TypedCode
	// Tell is what the sender is told, beside the effect where there is another; Gates: by the approvals account, Once: at most once an hour.
	Tell  string `json:"tell,omitempty"`
	Gates bool   `json:"gates,omitempty"`
	Once  bool   `json:"once,omitempty"`
}

const (
	// maxTitle in runes.
	maxTitle = 120
	// MaxWords that reach an agent's pod in one message, in bytes. A homeserver may say more in one event, by mistake or by intent.
	MaxWords = 32 << 10
	// maxData of words that are data, in bytes.
	maxData = 8192
)

// For decides what becomes of a message.
func For(e Event, v View) Route {
	v.event = e
	if e.Sender == v.UserID || e.Sender == v.ApprovalsUser || e.Edit {
		return Route{Kind: Silence}
	}
	who, known := v.person(e.Sender)
	if !known {
		if r, ok := v.claimed(e.Sender); ok && e.Type == "m.text" {
			return r
		}
		return data(e, v, "")
	}
	may := v.May[who]
	switch e.Type {
	case "m.text", "m.emote":
	case "m.notice": // what bots send, also from a person's account
		return data(e, v, who)
	default:
		if may.Instruct {
			return Route{Kind: Tell, Person: who, Tell: "I can read text only; nothing was done with this.", Once: true}
		}
		return Route{Kind: Silence, Person: who}
	}
	c := decision.Command{Kind: decision.Words}
	if e.Type == "m.text" && !e.Forwarded {
		c = decision.Parse(e.Body, v.names()...)
	}
	r := command(c, e, v, who, may)
	r.Person = who
	return r
}

func command(c decision.Command, e Event, v View, who string, may Rights) Route {
	switch c.Kind {
	case decision.Approve, decision.Unclear:
		return v.approve(c, e, may)
	case decision.Reject:
		if len(v.shown()) == 0 && v.asking() {
			return words(e, v, who, may)
		}
		return v.reject(c, e, may)
	case decision.Continue, decision.Replan, decision.Abandon:
		// What follows a stop at its heels is its answer, not a sentence that happens to begin like one; nor is one with a code.
		halts := v.shownOf(Halt)
		if v.Thread != nil && v.asking() { // who answers a question in its thread does not mean a halt elsewhere
			halts = pick(halts, func(g Gate) bool { return g.WorkItem == v.Thread.Name })
		}
		if coded, _, _ := v.coded(c.Text); coded == nil && len(halts) == 0 && v.held() == nil && (v.asking() || c.Text != "") {
			return words(e, v, who, may)
		}
		return v.answer(c, e, may)
	case decision.Stop:
		return v.stop(may)
	case decision.Status:
		if !may.Instruct && !may.Approve {
			return tell("Only " + list(v.who(either), "or") + " can ask " + v.Agent + " that.")
		}
		return Route{Kind: Status}
	case decision.Nod:
		if r, ok := v.nod(may); ok {
			return r
		}
	case decision.Help:
		if either(may) {
			return tell(help)
		}
	case decision.Words:
	}
	return words(e, v, who, may)
}

// here is the item that words said here and now are about.
func (v View) here() *Item {
	if v.Thread != nil {
		return v.Thread
	}
	return v.Active
}

// asking tells whether words said here and now would answer a question.
func (v View) asking() bool {
	item := v.here()
	return item != nil && item.Question != "" && !item.Over
}

// held is the item here if a stop or a halt holds it.
func (v View) held() *Item {
	if item := v.here(); item != nil && item.Held && !item.Over {
		return item
	}
	return nil
}

// stopped says of an item that is held how it goes on.
func (i Item) stopped() string {
	how := "answer " + answers + "."
	if i.Unasked {
		how = "type `stop` to be asked again how to go on."
	}
	return sanitize.Quote(i.Title) + " is stopped: " + how
}

func words(e Event, v View, who string, may Rights) Route {
	text := decision.Said(e.Body, v.names()...)
	if text == "" {
		return Route{Kind: Silence}
	}
	if !may.Instruct {
		if r := data(e, v, who); r.Kind == Data {
			return r
		}
		r := tell("Only " + list(v.who(instruct), "or") + " can give " + v.Agent + " work.")
		r.Once = true
		return r
	}
	to := Route{Kind: Words, MayInstruct: true}
	var whole bool
	if to.Text, whole = Letter(text); !whole {
		to.Tell = fmt.Sprintf("That is too long to hand on whole: I read the beginning and the end, %d KB of it. Say the rest in messages of their own, or put it into a file.", MaxWords>>10)
	}
	switch {
	case v.Thread != nil && !v.Thread.Over:
		to.WorkItem, to.Question = v.Thread.Name, v.Thread.Question
		if v.Thread.Held { // nobody reads it now, and silence would look as if somebody did
			to.Tell = strings.TrimSpace(to.Tell + "\n" + v.Thread.stopped() + " What you said is kept until then.")
		}
	case v.Thread == nil && v.Active != nil && v.Active.Waits && !v.Active.Over && !v.Active.Held:
		to.WorkItem, to.Question = v.Active.Name, v.Active.Question
	default:
		to.Kind, to.Title = Open, Title(text)
	}
	return to
}

// Letter is what an agent's pod gets of words: all of them, or as much as it may be made to read at once, with a sentence that says so.
func Letter(text string) (letter string, whole bool) {
	if len(text) <= MaxWords {
		return text, true
	}
	said := fmt.Sprintf("\n\n[This message had %d bytes, which is more than is handed on. The person was told.]", len(text))
	return sanitize.Cap(text, MaxWords-len(said)) + said, false
}

// data hands on what others say about the work at hand, and nothing else of theirs.
func data(e Event, v View, who string) Route {
	text := sanitize.Data(e.Body, maxData)
	if text == "" || v.Thread == nil || v.Active == nil || v.Thread.Name != v.Active.Name || v.Active.Over {
		return Route{Kind: Silence, Person: who}
	}
	return Route{Kind: Data, Person: who, WorkItem: v.Thread.Name, Text: text}
}

func (v View) stop(may Rights) Route {
	if !may.Instruct {
		return tell("Only " + list(v.who(instruct), "or") + " can stop " + v.Agent + ".")
	}
	// Whether there is anything to stop is not decided here: what is known may lag, and "nothing is running" must be true when it is said.
	r := Route{Kind: Stop, Wide: v.Thread == nil}
	if item := v.here(); item != nil {
		r.WorkItem = item.Name
	}
	return r
}

// Title of an item: the first line of the words, on one line, at most 120 runes.
func Title(text string) string {
	for line := range lines(text) {
		if title := cut(sanitize.Line(line, maxTitle), maxTitle); title != "" {
			return title
		}
	}
	return "(no words)"
}

// help is the answer to a call for it. It comes from here and not from a model: it must be right, and there when nothing else is.
const help = "What you can type, each in a message of its own:\n" +
	"• what you want done: a request. In the thread of a request: words about it\n" +
	"• while a question waits: your next words answer it\n" +
	"• `status`: what is worked on, and what waits for whom\n" +
	"• `approve rev-1`, or `approve` and the code that a plan shows: run exactly that plan\n" +
	"• `reject <why>`: do not run it; the agent reads why\n" +
	"• `stop`: nothing more runs until one of these is typed:\n" +
	"• `continue`: go on · `replan <advice>`: make another plan · `abandon`: close the work\n" +
	"• `help` or `?`: this"

func tell(text string) Route { return Route{Kind: Tell, Tell: text} }

func instruct(r Rights) bool { return r.Instruct }

func approve(r Rights) bool { return r.Approve }

func either(r Rights) bool { return r.Instruct || r.Approve }
