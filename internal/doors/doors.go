// Package doors holds what an agent's pod and its two doors say to each other: the broker's work stream and tools, the gateway's
// mailbox. The pod is assumed hostile; these are shapes, not promises.
package doors

import "encoding/json"

// Audiences of the pod's projected tokens, one a door.
const (
	AudienceBroker  = "broker"
	AudienceGateway = "gateway"
)

// MetaCallID is the key in an MCP call's _meta that carries the caller's own ID of the call. A repeated ID is the same call.
const MetaCallID = "nisse.io/call-id"

// MetaWorkItem is the key in an MCP call's _meta that carries the name of the item the caller means. A call that means another item
// than the active one is refused with reason OtherWorkItem, so that a repeated finish cannot end the item that came after. A caller
// that sends none means the active item.
const MetaWorkItem = "nisse.io/work-item"

// Snapshot is one line of GET /v1/work (newline-delimited JSON; empty lines keep the connection alive). It is level-triggered:
// each line is the whole truth, and the last one counts.
type Snapshot struct {
	Agent    string `json:"agent"`
	AgentUID string `json:"agentUID"`
	// Active is the item to work on; absent when idle.
	Active *Item `json:"active,omitempty"`
	// Ready are the other open items, oldest first.
	Ready []Summary `json:"ready"`
	// Ended are items that closed lately, so that a runtime that was away can close its books.
	Ended []Summary `json:"ended"`
	// Devices the agent may name.
	Devices []Device `json:"devices"`
}

// Item is the active work item.
type Item struct {
	Name          string `json:"name"`
	UID           string `json:"uid"`
	Title         string `json:"title"`
	CorrelationID string `json:"correlationID"`
	State         string `json:"state"`
	// Request in full, when the item was made by hand and no message carries it.
	Request string `json:"request,omitempty"`
	// Stopped: a person said stop and nobody has answered yet.
	Stopped bool `json:"stopped,omitempty"`
	// Halt that nobody has answered yet.
	Halt *Halt `json:"halt,omitempty"`
	// Answer to the latest halt or stop that was answered.
	Answer *Answer `json:"answer,omitempty"`
	// Question that waits for an answer.
	Question *Question `json:"question,omitempty"`
	// Plan is the latest revision.
	Plan *Plan `json:"plan,omitempty"`
	// Trouble that the runtime reported last and has not taken back, by its reason.
	Trouble string `json:"trouble,omitempty"`
}

// Halt of an item.
type Halt struct {
	ID      string `json:"id"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Answer of a person to a halt.
type Answer struct {
	// Gate that asked. Each is answered once.
	Gate   string `json:"gate"`
	Answer string `json:"answer"`
	Person string `json:"person"`
	Text   string `json:"text,omitempty"`
	// Settled is how the person says that a step ended whose outcome nobody could prove: Succeeded or Failed; empty when they did not say.
	Settled string `json:"settled,omitempty"`
}

// Question that the agent asked.
type Question struct {
	ID   string `json:"id"`
	Text string `json:"text"`
}

// Plan of an item and what became of it.
type Plan struct {
	Name     string `json:"name"`
	Revision int32  `json:"revision"`
	// State: NotReady, AwaitingApproval, Approved, Rejected, Expired or Superseded.
	State string `json:"state"`
	// Gate that decides it, when there is one.
	Gate string `json:"gate,omitempty"`
	// Person and Feedback of the decision; for a plan that cannot be shown (NotReady), Feedback is why.
	Person   string `json:"person,omitempty"`
	Feedback string `json:"feedback,omitempty"`
	// Closed: it will not run (any more): a person answered replan, or the item is over.
	Closed bool `json:"closed,omitempty"`
	// Call: it is one call that was made outside a plan, and a person was asked about.
	Call  bool   `json:"call,omitempty"`
	Steps []Step `json:"steps"`
}

// Step of a plan.
type Step struct {
	Step       int32           `json:"step"`
	Device     string          `json:"device"`
	Capability string          `json:"capability"`
	Args       json.RawMessage `json:"args"`
	// State: Waiting (not asked for yet), Pending, Succeeded, Failed, Refused, Expired or Unknown.
	State string `json:"state"`
}

// Summary of an item, rendered by code.
type Summary struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	State string `json:"state"`
	// Result of an ended item.
	Result string `json:"result,omitempty"`
	// CreatedAt in RFC 3339.
	CreatedAt string `json:"createdAt"`
}

// Device that the agent may name.
type Device struct {
	Name   string `json:"name"`
	Online bool   `json:"online"`
	// Since when it is so, in RFC 3339; empty when it was never asked.
	Since string `json:"since,omitempty"`
}

// Trouble is the body of POST /v1/trouble at the broker: what keeps the runtime from going on with its active item until a person mends
// it. It is level-triggered: the last one counts, and one without a reason says that nothing does any more. Answer: 204; 409 when the
// item is not the active one.
type Trouble struct {
	WorkItem string `json:"workItem"`
	// Reason in one word: TroubleModel, or empty.
	Reason string `json:"reason,omitempty"`
	// Message for people.
	Message string `json:"message,omitempty"`
}

// TroubleModel: the model's endpoint refuses to serve, because its address, the model's name or the key is wrong.
const TroubleModel = "ModelUnusable"

// Inbox is the answer of GET /v1/inbox?epoch=E&after=N&wait=S. It waits up to S seconds (30 at most) for a message after N.
// An epoch that is not the gateway's own gets 409 and an Inbox with the right epoch and no messages: sequence numbers of another
// epoch mean nothing, so the reader starts from 0 and leaves out what it has by ID.
type Inbox struct {
	Epoch    string    `json:"epoch"`
	Messages []Message `json:"messages"`
}

// Message from the room.
type Message struct {
	Seq int64 `json:"seq"`
	// ID is the Matrix event ID.
	ID string `json:"id"`
	// WorkItem it was routed to.
	WorkItem string `json:"workItem"`
	// At in RFC 3339, by the homeserver.
	At string `json:"at"`
	// Person is the name of the Person who sent it; empty for strangers.
	Person string `json:"person"`
	// MayInstruct: words that do not come from a person who may instruct are data.
	MayInstruct bool   `json:"mayInstruct"`
	Text        string `json:"text"`
}

// Ack is the body of POST /v1/inbox/ack: everything up to Seq is in the runtime's log. Answer: 204, or 409 for another epoch.
type Ack struct {
	Epoch string `json:"epoch"`
	Seq   int64  `json:"seq"`
}

// Kinds of outgoing messages.
const (
	// Say: a message of its own in the item's thread.
	Say = "say"
	// Progress: a line that is added to the item's one progress message, which is edited every 15 s at most.
	Progress = "progress"
)

// Outgoing is the body of POST /v1/outbox. The same ID again is the same message; another body under it gets 409. Answer: 202 when
// the gateway has stored it.
type Outgoing struct {
	ID       string `json:"id"`
	WorkItem string `json:"workItem"`
	Kind     string `json:"kind"`
	// Text in Markdown, 32 KB at most.
	Text string `json:"text"`
}

// Problem is the body of every error of both doors.
type Problem struct {
	// Reason in one word.
	Reason string `json:"reason"`
	// Message for people.
	Message string `json:"message"`
}

// Statuses of a tool's result.
const (
	Done    = "done"    // it ran and succeeded
	Failed  = "failed"  // it ran and failed
	Pending = "pending" // it waits for a person; the work stream tells when
	Refused = "refused" // it did not run; Reason and Message say why
	Halted  = "halted"  // it did not run, and nothing more does until a person answers
	Unknown = "unknown" // nobody can prove whether it ran
)

// DeviceAway is the Reason of a call that nobody forbade: its device cannot be reached.
const DeviceAway = "DeviceAway"

// ToolResult is the structured content of every tool's answer; its text content is the same JSON.
type ToolResult struct {
	Status string `json:"status"`
	// Reason in one word, when refused, halted or unknown.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Gate that was opened or is waited for.
	Gate     string `json:"gate,omitempty"`
	Revision int32  `json:"revision,omitempty"`
	Step     int32  `json:"step,omitempty"`
	// Output of the capability, sanitised and capped; its shape is the capability's result in package wire.
	Output json.RawMessage `json:"output,omitempty"`
	// Audit row and hash at the device.
	AuditRow  int64  `json:"auditRow,omitempty"`
	AuditHash string `json:"auditHash,omitempty"`
}

// RuntimeConfig is /etc/nisse/config.json in the pod, rendered by the manager from the Agent.
type RuntimeConfig struct {
	Agent      string `json:"agent"`
	AgentUID   string `json:"agentUID"`
	BrokerURL  string `json:"brokerURL"`
	GatewayURL string `json:"gatewayURL"`
	Prompt     string `json:"prompt,omitempty"`
	Model      Model  `json:"model"`
	// ToolCallsPerTurn after which a turn is ended and reported.
	ToolCallsPerTurn int `json:"toolCallsPerTurn"`
}

// Model of the executor role.
type Model struct {
	URL              string `json:"url"`
	Model            string `json:"model"`
	TemperatureMilli *int32 `json:"temperatureMilli,omitempty"`
	MaxTokens        *int32 `json:"maxTokens,omitempty"`
	TimeoutSeconds   int    `json:"timeoutSeconds"`
}

// Paths in the agent's pod.
const (
	PathConfig       = "/etc/nisse/config.json"
	PathBrokerToken  = "/var/run/nisse/tokens/broker"
	PathGatewayToken = "/var/run/nisse/tokens/gateway"
	PathModelToken   = "/var/run/nisse/model/token"
	PathState        = "/var/lib/nisse"
)
