package routing

import (
	"slices"
	"strings"
	"time"
)

// Event is one message of a room, as the homeserver authenticated it.
type Event struct {
	ID     string
	Room   string
	Sender string // full user ID
	At     time.Time
	// Type is the msgtype: m.text, m.notice, m.image …
	Type string
	Body string
	// Thread is the root of the thread it was sent in, ReplyTo the event it answers. Empty when neither.
	Thread  string
	ReplyTo string
	// Edit of an earlier message, or a message that was forwarded from elsewhere. Neither ever decides.
	Edit      bool
	Forwarded bool
}

// View is what is known when a message is routed: the agent, its people, its work and its gates.
type View struct {
	// Agent by name; UserID is its account, ApprovalsUser the account that shows gates.
	Agent         string
	UserID        string
	ApprovalsUser string
	// People are all Persons; May holds the rights of those whom the Agent names.
	People []Person
	May    map[string]Rights
	// Active is the item that the agent works on or takes up next, as far as is known here; nil when none is.
	Active *Item
	// Thread is the item in whose thread the message was sent, or whose message it answers; nil when it belongs to none.
	Thread *Item
	// Gates of the agent, newest first, open ones and those that ended.
	Gates []Gate
	// Now is when the message came in, by the gateway's own clock.
	Now time.Time
	// event that is routed: what is advised depends on when it was said, and by whom.
	event Event
}

// Person is a human being with a chat identity.
type Person struct {
	Name   string
	Matrix string
}

// Rights with one agent.
type Rights struct {
	Instruct bool
	Approve  bool
}

// Item of work.
type Item struct {
	Name  string
	Title string
	// Over: it has ended or was asked to; words do not reach it any more.
	Over bool
	// Waits for a person's words or for the answer to a halt.
	Waits bool
	// Held: a stop or a halt that nobody has answered holds it, or a stop was said that is about to.
	Held bool
	// Unasked: it is held, and nobody is asked how to go on until another stop is said.
	Unasked bool
	// Question that is open; empty when none.
	Question string
}

// GateKind tells what a gate asks.
type GateKind string

// Kinds of gates, as in the API.
const (
	Plan GateKind = "Plan"
	Halt GateKind = "Halt"
)

// Gate that waits for a decision, or did.
type Gate struct {
	Name     string
	UID      string
	Digest   string
	Kind     GateKind
	Revision int32
	WorkItem string
	Title    string
	// Thread in which it was shown, by its root event: what opens in the thread of work that is over shares it. Empty where it is not known.
	Thread string
	// Approvers by name of Person.
	Approvers []string
	// Code that names this gate and no other.
	Code string
	// ByCode: nothing but the code approves it.
	ByCode bool
	// Sign is the command by which a person approves it with their own signature, which no message carries; empty where none is asked for.
	Sign string
	// Open while nobody has decided.
	Open bool
	// Shown: its message stood in the room's timeline before the message that is routed. What was not there cannot have been
	// meant.
	Shown bool
	// Glimpsed: something of it may have been read, in the room or, where the homeserver refused a part, elsewhere.
	Glimpsed bool
	// ShownAt is when the last part of its message was sent; zero where that is not known.
	ShownAt time.Time
	// Ended says in words how it ended, to who would decide it now; Became in a part of a sentence, "was replaced by rev-2 at 14:01".
	Ended  string
	Became string
	// EndedAt is when, zero while it is open; EndedBy is the Person whose decision ended it, empty where nobody's did.
	EndedAt time.Time
	EndedBy string
	// Answer that ended it: a halt's, or Approve or Reject.
	Answer string
}

// person resolves a sender: the identity of exactly one Person, compared byte by byte.
func (v View) person(sender string) (string, bool) {
	if c := v.claimants(sender); len(c) == 1 {
		return c[0], true
	}
	return "", false
}

// claimants are all Persons who claim an identity, sorted.
func (v View) claimants(sender string) []string {
	var names []string
	for _, p := range v.People {
		if p.Matrix == sender {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return names
}

// claimed tells a sender whom several Persons claim why nothing happens; strangers hear nothing, nor do people without rights here.
func (v View) claimed(sender string) (Route, bool) {
	claimants := v.claimants(sender)
	if !slices.ContainsFunc(claimants, func(name string) bool { return either(v.May[name]) }) {
		return Route{}, false
	}
	r := tell("Nothing was done: your account is claimed by more than one Person (" + list(claimants, "and") + "), and until that is mended it is nobody's.")
	r.Once = true
	return r, true
}

// who lists the people with a right, sorted.
func (v View) who(has func(Rights) bool) []string {
	var names []string
	for name, may := range v.May {
		if has(may) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// names by which the agent and the approvals account may be addressed.
func (v View) names() []string {
	return []string{v.UserID, v.ApprovalsUser, v.Agent, localpart(v.UserID), localpart(v.ApprovalsUser)}
}

// localpart of a user ID.
func localpart(user string) string {
	local, _, _ := strings.Cut(strings.TrimPrefix(user, "@"), ":")
	return local
}
