// Package event holds the canonical log's vocabulary: ten types of events, what each carries, and nothing about where they are
// stored or how a model is shown them. A type's name is never reused for another meaning.
package event

import (
	"encoding/json"
	"fmt"
	"time"
)

// Type of an event.
type Type string

// The ten types.
const (
	// UserMessage: words that came from outside: of people, and of the platform about what people decided.
	UserMessage Type = "user_message"
	// AssistantText: the outcome of one request to the model, or words of the runtime itself.
	AssistantText Type = "assistant_text"
	// ToolCall that the model (or the runtime on its behalf) wants.
	ToolCall Type = "tool_call"
	// ToolResult: the outcome of one call.
	ToolResult Type = "tool_result"
	// PlanSubmitted: the broker took a plan.
	PlanSubmitted Type = "plan_submitted"
	// GateOpened: a person's decision is waited for.
	GateOpened Type = "gate_opened"
	// DelegationStarted, with its brief and caps.
	DelegationStarted Type = "delegation_started"
	// DelegationCompleted, with what was handed back.
	DelegationCompleted Type = "delegation_completed"
	// Compaction: a summary that stands for a range of events.
	Compaction Type = "compaction"
	// KnowledgeRetrieved: a document as it read at that time.
	KnowledgeRetrieved Type = "knowledge_retrieved"
)

// Valid tells whether t is one of the ten.
func (t Type) Valid() bool {
	switch t {
	case UserMessage, AssistantText, ToolCall, ToolResult, PlanSubmitted, GateOpened, DelegationStarted, DelegationCompleted, Compaction, KnowledgeRetrieved:
		return true
	}
	return false
}

// Event as it stands in the log.
type Event struct {
	Seq      int64
	ID       string
	WorkItem string
	Type     Type
	// Payload in canonical JSON; the shape belongs to the type.
	Payload json.RawMessage
	// Source names what the event came from. The log holds each source once, which is what makes storing an outcome twice harmless.
	Source   string
	Hash     string
	PrevHash string
	At       time.Time
}

// New is an event that is not in the log yet.
type New struct {
	WorkItem string
	Type     Type
	Source   string
	Payload  any
}

// Decode reads the payload of e into p.
func (e Event) Decode(p any) error {
	if err := json.Unmarshal(e.Payload, p); err != nil {
		return fmt.Errorf("event %d (%s): %w", e.Seq, e.Type, err)
	}
	return nil
}

// Origins of words, calls and results.
const (
	// Person spoke in the room.
	Person = "person"
	// Platform: code tells what people or controllers decided.
	Platform = "platform"
	// Model produced it.
	Model = "model"
	// Runtime: this process did it by itself, without the model.
	Runtime = "runtime"
	// Tool answered.
	Tool = "tool"
)

// Topics of the platform's words.
const (
	TopicRequest = "request" // the request of an item made by hand
	TopicPlan    = "plan"    // a plan was decided
	TopicAnswer  = "answer"  // a halt or a stop was answered
	TopicEnded   = "ended"   // the item is over
)

// Words is the payload of UserMessage.
type Words struct {
	Text   string `json:"text"`
	Origin string `json:"origin"`
	// From is the name of the Person; empty for strangers and the platform.
	From string `json:"from,omitempty"`
	// MayInstruct: without it, words are data and wake nobody.
	MayInstruct bool `json:"mayInstruct,omitempty"`
	// Topic of the platform's words.
	Topic string `json:"topic,omitempty"`
	// Plan and State that TopicPlan is about.
	Plan  string `json:"plan,omitempty"`
	State string `json:"state,omitempty"`
}

// Text is the payload of AssistantText.
type Text struct {
	Text   string `json:"text,omitempty"`
	Origin string `json:"origin"`
	// Model that produced it.
	Model string `json:"model,omitempty"`
	// Reasoning the model gave away. Kept for the record, never shown, never sent to a model again.
	Reasoning string `json:"reasoning,omitempty"`
	// Ask is the request it answers, UpTo the last event that request showed, Calls how many calls came with it.
	Ask   string `json:"ask,omitempty"`
	UpTo  int64  `json:"upTo,omitempty"`
	Calls int    `json:"calls,omitempty"`
	// Problem with the answer, told to the model next time.
	Problem string `json:"problem,omitempty"`
	// Then is what follows from words alone; empty: the turn goes on.
	Then string `json:"then,omitempty"`
	// Call whose words were shown in the room before it is made.
	Call string `json:"call,omitempty"`
}

// What follows from words alone.
const (
	// ThenNudge: the item is still open; the model is reminded, once, how a turn ends.
	ThenNudge = "nudge"
	// ThenAsk: the words become the question of an ask_human on the model's behalf.
	ThenAsk = "ask"
	// ThenEnd: the turn is over.
	ThenEnd = "end"
)

// Call is the payload of ToolCall.
type Call struct {
	// ID is ours, derived from the log. The provider's own never leaves this event.
	ID         string `json:"id"`
	Ask        string `json:"ask,omitempty"`
	Index      int    `json:"index"`
	Tool       string `json:"tool"`
	Args       string `json:"args"`
	Origin     string `json:"origin"`
	ProviderID string `json:"providerID,omitempty"`
}

// Result is the payload of ToolResult.
type Result struct {
	// Call it answers.
	Call   string `json:"call"`
	Tool   string `json:"tool"`
	Origin string `json:"origin"`
	// Status is one of the doors' statuses.
	Status string `json:"status"`
	// Text that the model is shown.
	Text string `json:"text"`
	// Malformed: the call could not be made as the model wrote it.
	Malformed bool `json:"malformed,omitempty"`
	// Stop: the turn ends here, and this is what people are told.
	Stop string `json:"stop,omitempty"`
	// Note to the model beside the result.
	Note string `json:"note,omitempty"`
	Gate string `json:"gate,omitempty"`
	// Step of the approved plan that ran, counted from 1.
	Step     int32 `json:"step,omitempty"`
	Revision int32 `json:"revision,omitempty"`
	// Aside is the digest under which the whole text is kept, when Text is a part of it.
	Aside string `json:"aside,omitempty"`
}

// Plan is the payload of PlanSubmitted.
type Plan struct {
	Call     string `json:"call"`
	Revision int32  `json:"revision"`
	Body     string `json:"body"`
	Model    string `json:"model,omitempty"`
}

// Gate is the payload of GateOpened.
type Gate struct {
	Call   string `json:"call"`
	Gate   string `json:"gate"`
	Reason string `json:"reason,omitempty"`
}

// Outgoing words for the room. The same ID is the same message.
type Outgoing struct {
	ID       string
	WorkItem string
	Kind     string
	Text     string
}

// Aside is a text too long for an event, kept under its digest.
type Aside struct {
	Digest string
	Body   string
}
