package routing

import (
	"fmt"
	"slices"
	"strings"

	"nisse.io/nisse/gateway/decision"
	"nisse.io/nisse/internal/sanitize"
)

// Evidence as in the API.
const (
	typed     = "Typed"
	typedCode = "TypedCode"
)

// shown are the gates that a person in the room may decide now.
func (v View) shown() []Gate {
	var open []Gate
	for _, g := range v.Gates {
		if g.Open && g.Shown {
			open = append(open, g)
		}
	}
	return open
}

func (v View) shownOf(kind GateKind) []Gate {
	return pick(v.shown(), func(g Gate) bool { return g.Kind == kind })
}

// approve finds the one gate that the words name. A revision or a code must name exactly one open gate of the room, bare words
// need exactly one to be open at all; a thread narrows that further and never widens it.
//
// Words that name no one gate for good do not approve what they may not have meant. The code names one gate and is always good.
func (v View) approve(c decision.Command, e Event, may Rights) Route {
	open := v.shown()
	if c.Kind == decision.Unclear {
		return gates("Nothing was approved: that is not exactly an approval. " + v.how(open))
	}
	if !may.Approve {
		return gates("Only " + list(v.approvers(open), "or") + " can approve this.")
	}
	evidence := typed
	var named []Gate
	switch {
	case c.Code != "":
		evidence = typedCode
		named = pick(open, func(g Gate) bool { return g.Code == c.Code })
		switch {
		case len(named) == 0 && c.Word:
			return gates("Nothing was approved: I did not understand that as a decision. " + v.how(open))
		case len(named) == 0:
			return gates("No open plan has the code " + c.Code + ". " + v.how(open))
		}
	case c.Revision != 0:
		named = pick(v.shownOf(Plan), func(g Gate) bool { return g.Revision == c.Revision })
		if len(named) == 0 {
			return gates(v.notOpen(c.Revision) + " " + v.open(open))
		}
	default:
		named = open
		if len(named) == 0 {
			return gates("Nothing waits for a decision here" + strings.TrimPrefix(v.other(), " for a decision"))
		}
	}
	r := v.one(named, open)
	if r.Kind != Decide {
		return r
	}
	if g := named[0]; g.Sign != "" {
		return gates(fmt.Sprintf("Nothing was approved: rev-%d for %s takes the own signature of a person, and no message can carry one. Where your key is kept, run `%s`.", g.Revision, quoted(g), g.Sign))
	}
	if c.Code == "" {
		g := named[0]
		if g.ByCode {
			return gates(fmt.Sprintf("Nothing was approved: rev-%d for %s wants its code. Read it; if it is right: `approve %s`.", g.Revision, quoted(g), g.Code))
		}
		if doubt := v.meant(e, g, func(o Gate) bool { return o.Kind != Halt && (c.Revision == 0 || c.Revision == o.Revision) }); doubt != "" {
			return gates(fmt.Sprintf("Nothing was approved: %s. Read rev-%d for %s; if it is right: `approve %s`.", doubt, g.Revision, quoted(g), g.Code))
		}
	}
	r.Approve, r.Evidence = true, evidence
	return r
}

// reject finds the gate as approve does. A rejection runs nothing, and who is in a hurry to say no must be heard: it counts whatever
// took the place of what was read, but not against other work.
func (v View) reject(c decision.Command, e Event, may Rights) Route {
	open := v.shown()
	if !may.Approve {
		return gates("Only " + list(v.approvers(open), "or") + " can reject this.")
	}
	named, text, evidence := open, c.Text, typed
	switch coded, rest, unknown := v.coded(c.Text); {
	case c.Revision != 0:
		named = pick(v.shownOf(Plan), func(g Gate) bool { return g.Revision == c.Revision })
		if len(named) == 0 {
			return gates(v.notOpen(c.Revision) + " " + v.open(open))
		}
	case unknown != "":
		return gates(unknown)
	case coded != nil && !coded.Open:
		return gates(coded.Ended + " " + v.open(open))
	case coded != nil:
		named, text, evidence = []Gate{*coded}, rest, typedCode
	case len(named) == 0:
		return gates("Nothing waits for a decision here" + strings.TrimPrefix(v.other(), " for a decision"))
	}
	r := v.one(named, open)
	if r.Kind != Decide {
		return r
	}
	if g := named[0]; evidence == typed {
		other := func(o Gate) bool {
			return o.Kind != Halt && o.WorkItem != g.WorkItem && (c.Revision == 0 || c.Revision == o.Revision) && !v.otherwise(o, e, "Reject")
		}
		if doubt := v.echoed(e, g, other); doubt != "" {
			return gates(fmt.Sprintf("Nothing was rejected: %s. Open is rev-%d for %s; if you mean that: `reject %s <why>`.", doubt, g.Revision, quoted(g), g.Code))
		}
	}
	r.Text, r.Evidence = sanitize.Cap(text, 4000), evidence
	return r
}

// coded finds the gate that a text names by its code, in front of the rest: one that was shown, open or not. unknown says that the code
// which is there names none.
func (v View) coded(text string) (g *Gate, rest, unknown string) {
	code, rest, sure := decision.Lead(text)
	if code == "" {
		return nil, text, ""
	}
	for i := range v.Gates {
		if g := &v.Gates[i]; g.Code == code && g.Shown {
			return g, rest, ""
		}
	}
	if sure {
		return nil, text, "Nothing here has the code " + code + ". " + v.open(v.shown())
	}
	return nil, text, "" // a word
}

// one turns the named gates into a decision about a plan, or says why not.
func (v View) one(named, open []Gate) Route {
	if len(named) != 1 {
		return gates("That could mean more than one. " + v.open(open))
	}
	g := named[0]
	if g.Kind == Halt {
		return gates(quoted(g) + " is stopped: answer " + v.answers(g) + ".")
	}
	if r, elsewhere := v.elsewhere(g); elsewhere {
		return r
	}
	return Route{Kind: Decide, WorkItem: g.WorkItem, Gate: g.Name, GateUID: g.UID, Digest: g.Digest}
}

// answer is for the one halt that waits in the room, or that is named by its code. Words without the code do not answer what they may
// not have meant.
func (v View) answer(c decision.Command, e Event, may Rights) Route {
	halts := v.shownOf(Halt)
	if !may.Approve {
		return gates("Only " + list(v.approvers(halts), "or") + " can answer this.")
	}
	coded, text, unknown := v.coded(c.Text)
	switch {
	case unknown != "":
		return gates(unknown)
	case coded != nil && !coded.Open:
		return gates(coded.Ended + " " + v.open(v.shown()))
	case coded != nil && coded.Kind != Halt:
		return gates(quoted(*coded) + " is not stopped. " + v.open(v.shown()))
	case coded != nil:
		halts = []Gate{*coded}
	case len(halts) == 0:
		switch item := v.held(); {
		case item == nil:
		case item.Unasked:
			return gates(sanitize.Quote(item.Title) + " is stopped, and its question has ended: this changed nothing. Type `stop` to be asked again.")
		default:
			return gates(sanitize.Quote(item.Title) + " is stopped, and its question is not in the room yet: this changed nothing. Answer when it is.")
		}
		if c.Kind == decision.Abandon && len(v.shown()) > 0 {
			return gates("Nothing is stopped here. To say no to a plan: `reject <why>`. To close the work: `stop` first, then `abandon`.")
		}
		return gates("Nothing is stopped here.")
	case len(halts) > 1:
		if v.Thread != nil {
			halts = pick(halts, func(g Gate) bool { return g.WorkItem == v.Thread.Name })
		}
		if len(halts) != 1 {
			return gates("More than one is stopped: answer in the thread of the one you mean.")
		}
	}
	g := halts[0]
	if r, elsewhere := v.elsewhere(g); elsewhere {
		return r
	}
	answer := map[decision.Kind]string{decision.Continue: "Continue", decision.Replan: "Replan", decision.Abandon: "Abandon"}[c.Kind]
	fits := func(o Gate) bool {
		// That nothing more runs counts as a rejection does: against the same work at once, whatever stopped it before.
		return o.Kind == Halt && (c.Kind != decision.Abandon || o.WorkItem != g.WorkItem && !v.otherwise(o, e, answer))
	}
	evidence := typed
	if coded != nil {
		evidence = typedCode
	} else if doubt := v.meant(e, g, fits); doubt != "" {
		return gates(fmt.Sprintf("Nothing was answered: %s. Read why %s is stopped now; then answer `continue %s`, `replan %s <advice>` or `abandon %s`.",
			doubt, quoted(g), g.Code, g.Code, g.Code))
	}
	return Route{
		Kind: Decide, WorkItem: g.WorkItem, Gate: g.Name, GateUID: g.UID, Digest: g.Digest, Evidence: evidence,
		Approve: c.Kind != decision.Abandon, Answer: answer, Text: sanitize.Cap(text, 4000),
	}
}

// elsewhere: who writes in the thread of one item does not mean another's gate.
func (v View) elsewhere(g Gate) (Route, bool) {
	if v.Thread == nil || v.Thread.Name == g.WorkItem {
		return Route{}, false
	}
	return gates("Nothing waits for a decision in this thread; what is open belongs to " + quoted(g) + ". Answer there."), true
}

// notOpen says what became of a revision.
func (v View) notOpen(revision int32) string {
	item := v.here()
	for _, g := range v.Gates {
		if g.Kind != Plan || g.Revision != revision || g.Open || (item != nil && g.WorkItem != item.Name) {
			continue
		}
		return g.Ended
	}
	return fmt.Sprintf("No plan rev-%d waits for a decision here.", revision)
}

// nod answers a yes or no to the gate that it may be meant for; ok is false where it is words. Alone it is never work.
func (v View) nod(may Rights) (r Route, ok bool) {
	open := v.shown()
	if v.Thread != nil {
		open = pick(open, func(g Gate) bool { return g.WorkItem == v.Thread.Name })
	}
	here := v.here()
	switch {
	case !either(may), v.asking() && v.held() == nil:
		return Route{}, false
	case len(open) > 0 && may.Approve:
		return gates("That decides nothing here. " + v.how(open)), true
	case len(open) > 0:
		return gates("Only " + list(v.approvers(open), "or") + " can decide this."), true
	case v.held() != nil:
		return gates(here.stopped()), true
	case here != nil && !here.Over && (v.Thread != nil || here.Waits): // the agent said something, and this is about that
		return Route{}, false
	}
	return tell("Nothing waits for a yes or no here. Say in a sentence what you want done."), true
}

// how to decide what is open.
func (v View) how(open []Gate) string {
	switch {
	case len(open) != 1:
		return v.open(open)
	case open[0].Kind == Halt:
		return "Type exactly " + v.answers(open[0]) + "."
	}
	if open[0].Sign != "" {
		return fmt.Sprintf("Run `%s` where your key is kept, or type exactly `reject <why>`.", open[0].Sign)
	}
	return fmt.Sprintf("Type exactly `approve %s`, or `reject <why>`.", v.handle(open[0], open))
}

// handle is what names a plan for good when it is typed next: its revision, or its code where nothing else would be taken.
func (v View) handle(g Gate, open []Gate) string {
	same := func(o Gate) bool { return o.Kind == Plan && o.Revision == g.Revision }
	if g.ByCode || len(pick(open, same)) > 1 || v.meant(v.event, g, same) != "" {
		return g.Code
	}
	return fmt.Sprintf("rev-%d", g.Revision)
}

// answers to a halt, with its code where they would not be taken without.
func (v View) answers(g Gate) string {
	if v.meant(v.event, g, func(o Gate) bool { return o.Kind == Halt }) == "" {
		return answers
	}
	return fmt.Sprintf("`continue %s`, `replan %s <advice>` or `abandon %s`", g.Code, g.Code, g.Code)
}

// answers to a halt.
const answers = "`continue`, `replan <advice>` or `abandon`"

// open lists what may be decided and how.
func (v View) open(open []Gate) string {
	if len(open) == 0 {
		return "Nothing else waits" + v.other()
	}
	var b strings.Builder
	b.WriteString("Open:")
	for _, g := range open {
		b.WriteString("\n• ")
		if g.Kind == Halt {
			b.WriteString(quoted(g) + " is stopped: " + v.answers(g))
			continue
		}
		if g.Sign != "" {
			fmt.Fprintf(&b, "rev-%d for %s: `%s`", g.Revision, quoted(g), g.Sign)
			continue
		}
		fmt.Fprintf(&b, "rev-%d for %s: `approve %s`", g.Revision, quoted(g), v.handle(g, open))
	}
	return b.String()
}

// other is the end of a sentence that says that no gate waits: what does all the same.
func (v View) other() string {
	for _, item := range []*Item{v.Thread, v.Active} {
		switch {
		case item == nil || item.Over:
		case item.Held:
			return ". " + item.stopped()
		case item.Question != "":
			return " for a decision. " + v.Agent + " has a question about " + sanitize.Quote(item.Title) + ": answer it in words."
		}
	}
	return "."
}

// approvers are those who may approve for the agent, and where one gate is open, who of them may decide it.
func (v View) approvers(open []Gate) []string {
	all := v.who(approve)
	if len(open) != 1 {
		return all
	}
	var some []string
	for _, name := range all {
		if slices.Contains(open[0].Approvers, name) {
			some = append(some, name)
		}
	}
	if len(some) == 0 {
		return all
	}
	return some
}

func quoted(g Gate) string { return sanitize.Quote(g.Title) }

func gates(text string) Route { return Route{Kind: Tell, Tell: strings.TrimSpace(text), Gates: true} }

func pick(gates []Gate, want func(Gate) bool) []Gate {
	var out []Gate
	for _, g := range gates {
		if want(g) {
			out = append(out, g)
		}
	}
	return out
}
