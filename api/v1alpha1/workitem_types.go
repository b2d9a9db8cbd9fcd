package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WorkItemState is where a work item stands.
// +kubebuilder:validation:Enum=Open;Working;AwaitingApproval;AwaitingInput;Closed
type WorkItemState string

const (
	// WorkItemOpen: queued; the agent is busy with another item or not running.
	WorkItemOpen WorkItemState = "Open"
	// WorkItemWorking: the agent works on it.
	WorkItemWorking WorkItemState = "Working"
	// WorkItemAwaitingApproval: a plan waits for a person's decision.
	WorkItemAwaitingApproval WorkItemState = "AwaitingApproval"
	// WorkItemAwaitingInput: a question waits for an answer, or a halt for continue, replan or abandon.
	WorkItemAwaitingInput WorkItemState = "AwaitingInput"
	// WorkItemClosed: over. Nothing more runs for it.
	WorkItemClosed WorkItemState = "Closed"
)

// Result of a closed work item.
// +kubebuilder:validation:Enum=Done;Abandoned;Closed
type Result string

const (
	// ResultDone: the agent said it is finished.
	ResultDone Result = "Done"
	// ResultAbandoned: a person answered a halt with abandon.
	ResultAbandoned Result = "Abandoned"
	// ResultClosed: a person asked for the item to be closed.
	ResultClosed Result = "Closed"
)

// Reasons of a WorkItem's Ready condition. While its agent is stalled it has the agent's.
const (
	// ReasonProgressing: nothing hinders the item; its state says where it stands.
	ReasonProgressing = "Progressing"
	// ReasonAgentNotFound: the agent does not exist. Stalled.
	ReasonAgentNotFound = "AgentNotFound"
	// ReasonNoApprovers: nobody may approve for the agent, so no gate can open. Stalled.
	ReasonNoApprovers = "NoApprovers"
	// ReasonAdmissionMissing: the API server accepts forged approvals; no gate opens until that is mended.
	ReasonAdmissionMissing = "AdmissionMissing"
	// ReasonModelUnusable: the agent cannot use its model, because its address, name or key is wrong. It keeps trying.
	ReasonModelUnusable = "ModelUnusable"
	// ReasonPlanNotReady: the plan has no steps or cannot be read; it was not shown to anybody.
	ReasonPlanNotReady = "PlanNotReady"
	// ReasonForeignGate: the name of the gate is taken by a gate of something else. Stalled.
	ReasonForeignGate = "ForeignGate"
	// ReasonWorkflowUnknown: the agent's workflow is not known to this version, which is older than the object. Stalled.
	ReasonWorkflowUnknown = "WorkflowUnknown"
	// ReasonStopReused: a stop has the ID of one that was answered before. Stalled; nothing runs until it has another.
	ReasonStopReused = "StopReused"
	// ReasonQuestionEnded: the question how a held item goes on ended before anybody answered, and is not asked twice. Stalled; another
	// stop asks anew.
	ReasonQuestionEnded = "QuestionEnded"
	// ReasonAnswerUnknown: a halt was answered with something that this version, older than the answer, does not know. Stalled.
	ReasonAnswerUnknown = "AnswerUnknown"
)

// SourceKind tells where a work item came from.
// +kubebuilder:validation:Enum=Matrix;Kubernetes
type SourceKind string

const (
	// SourceMatrix: words in the agent's room.
	SourceMatrix SourceKind = "Matrix"
	// SourceKubernetes: an object made by hand.
	SourceKubernetes SourceKind = "Kubernetes"
)

// Source of a work item.
// +kubebuilder:validation:XValidation:rule="self.kind == 'Matrix' ? has(self.matrix) : !has(self.matrix)",message="matrix belongs to kind Matrix, and to it alone"
type Source struct {
	// kind of source.
	Kind SourceKind `json:"kind"`
	// matrix event it began with.
	// +optional
	Matrix *MatrixEvent `json:"matrix,omitempty"`
}

// MatrixEvent names one event by room and ID, and who sent it.
type MatrixEvent struct {
	// room ID.
	// +kubebuilder:validation:MaxLength=255
	Room string `json:"room"`
	// eventID in that room.
	// +kubebuilder:validation:MaxLength=255
	EventID string `json:"eventID"`
	// sender is the full user ID the homeserver authenticated.
	// +kubebuilder:validation:MaxLength=255
	Sender string `json:"sender"`
}

// StopRequest asks that nothing more runs until a person has decided how to go on.
type StopRequest struct {
	// id of this request. It holds while status.answeredStop differs from it; a later stop has another id.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9-]+$`
	ID string `json:"id"`
	// by whom, for people to read.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	By string `json:"by,omitempty"`
}

// WorkItemSpec says what the work is. All but stop, close and externalRecord is fixed at creation.
// +kubebuilder:validation:XValidation:rule="self.agent == oldSelf.agent && self.title == oldSelf.title && self.source == oldSelf.source && has(self.request) == has(oldSelf.request) && (!has(self.request) || self.request == oldSelf.request) && has(self.correlationID) == has(oldSelf.correlationID) && (!has(self.correlationID) || self.correlationID == oldSelf.correlationID)",message="agent, title, request, source and correlationID are fixed once the item exists; make another item"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.externalRecord) || (has(self.externalRecord) && self.externalRecord == oldSelf.externalRecord)",message="externalRecord may be added once and not changed"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.close) || !oldSelf.close || (has(self.close) && self.close)",message="close cannot be taken back"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.stop) || has(self.stop)",message="a stop is answered by continue, replan or abandon, not taken back"
// +kubebuilder:validation:XValidation:rule="self.source.kind != 'Kubernetes' || has(self.request)",message="an item made by hand says what is asked for in request"
type WorkItemSpec struct {
	// agent that does it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=40
	Agent string `json:"agent"`
	// title in one line.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=200
	Title string `json:"title"`
	// request in full, for an item made by hand. Words from a room reach the agent by the mailbox instead.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=8192
	Request string `json:"request,omitempty"`
	// source it came from.
	Source Source `json:"source"`
	// correlationID in logs; the item's name when absent.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	CorrelationID string `json:"correlationID,omitempty"`
	// externalRecord links a ticket. It may be added once, later. It is for people and their tools: nothing in this version reads it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	ExternalRecord string `json:"externalRecord,omitempty"`
	// stop asks that nothing more runs until a person answers continue, replan or abandon.
	// +optional
	Stop *StopRequest `json:"stop,omitempty"`
	// close asks that the item ends as it stands.
	// +optional
	Close bool `json:"close,omitempty"`
}

// HaltReason tells why the broker halted an item. A step that fails is none: it ends the plan, and the agent submits another.
// +kubebuilder:validation:Enum=CallMismatch;OutcomeUnknown
type HaltReason string

const (
	// HaltCallMismatch: a call differed from the approved step.
	HaltCallMismatch HaltReason = "CallMismatch"
	// HaltOutcomeUnknown: nobody can prove whether a step ran.
	HaltOutcomeUnknown HaltReason = "OutcomeUnknown"
)

// HaltReport is what the broker saw when it stopped an item.
type HaltReport struct {
	// id of this halt; it holds while status.answeredHalt differs from it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id"`
	// reason in one word.
	Reason HaltReason `json:"reason"`
	// message for a person, rendered by the broker with untrusted text quoted.
	// +kubebuilder:validation:MaxLength=8192
	Message string `json:"message"`
	// revision of the plan in force.
	// +optional
	Revision int32 `json:"revision,omitempty"`
	// step concerned, counted from 1.
	// +optional
	Step int32 `json:"step,omitempty"`
	// at is when it was seen.
	At metav1.Time `json:"at"`
}

// Question the agent asked with ask_human.
type Question struct {
	// id of the question; it is open while status.conversation.answeredQuestion differs from it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id"`
	// text in the agent's words.
	// +kubebuilder:validation:MaxLength=4096
	Text string `json:"text"`
}

// FinishReport is what the agent said when it called finish.
type FinishReport struct {
	// summary in the agent's words.
	// +kubebuilder:validation:MaxLength=4096
	Summary string `json:"summary"`
	// at is when the broker accepted it.
	At metav1.Time `json:"at"`
}

// TroubleReason tells what keeps an agent from going on.
// +kubebuilder:validation:Enum=ModelUnusable
type TroubleReason string

// TroubleModelUnusable: the model's endpoint refuses to serve, because its address, the model's name or the key is wrong.
const TroubleModelUnusable TroubleReason = "ModelUnusable"

// TroubleReport is what the agent's runtime says keeps it from going on until a person mends it.
type TroubleReport struct {
	// reason in one word.
	Reason TroubleReason `json:"reason"`
	// message for a person, in the runtime's words.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// at is when the broker first heard of it.
	At metav1.Time `json:"at"`
}

// WorkItemRuntime is what the broker reports of the agent. Written by the broker alone.
type WorkItemRuntime struct {
	// halt is the latest halt.
	// +optional
	Halt *HaltReport `json:"halt,omitempty"`
	// question is the latest question.
	// +optional
	Question *Question `json:"question,omitempty"`
	// finished is set when the agent is done.
	// +optional
	Finished *FinishReport `json:"finished,omitempty"`
	// trouble is set while the agent cannot go on, and taken away when it can.
	// +optional
	Trouble *TroubleReport `json:"trouble,omitempty"`
}

// WorkItemConversation is what the gateway reports. Written by the gateway alone.
type WorkItemConversation struct {
	// answeredQuestion is the ID of the latest question that a person who may instruct has answered.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	AnsweredQuestion string `json:"answeredQuestion,omitempty"`
}

// PlanRef names the plan in force.
type PlanRef struct {
	// name of the Plan.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// revision of it.
	Revision int32 `json:"revision"`
}

// Outcome of a closed item.
type Outcome struct {
	// result in one word.
	Result Result `json:"result"`
	// summary for people.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Summary string `json:"summary,omitempty"`
	// steps of the revision that was approved last: how many succeeded, of how many. Absent when nothing was approved.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	Steps string `json:"steps,omitempty"`
	// undone says which of these steps did not succeed, and how they ended; absent when all did. It comes from gates and jobs, not from the agent.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Undone string `json:"undone,omitempty"`
	// at is when it closed.
	At metav1.Time `json:"at"`
}

// WorkItemStatus is written by the manager, but for runtime (broker) and conversation (gateway).
type WorkItemStatus struct {
	// conditions: Ready, Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration of the last pass that ended well or in a known stall.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// state it is in.
	// +optional
	State WorkItemState `json:"state,omitempty"`
	// waitingFor tells a person whom the item waits for: names of people, the agent, its model, or another item.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	WaitingFor string `json:"waitingFor,omitempty"`
	// plan is the latest revision taken up.
	// +optional
	Plan *PlanRef `json:"plan,omitempty"`
	// closedRevision: plans of this revision and below never run (again): a person answered replan, or the item is over.
	// +optional
	ClosedRevision int32 `json:"closedRevision,omitempty"`
	// answeredStop is the ID of the latest stop that a person has answered.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	AnsweredStop string `json:"answeredStop,omitempty"`
	// answeredHalt is the ID of the latest halt that a person has answered.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	AnsweredHalt string `json:"answeredHalt,omitempty"`
	// outcome when Closed.
	// +optional
	Outcome *Outcome `json:"outcome,omitempty"`
	// runtime is written by the broker.
	// +optional
	Runtime *WorkItemRuntime `json:"runtime,omitempty"`
	// conversation is written by the gateway.
	// +optional
	Conversation *WorkItemConversation `json:"conversation,omitempty"`
}

// Stopped tells whether a stop that nobody has answered yet holds the item.
func (w *WorkItem) Stopped() bool {
	return w.Spec.Stop != nil && w.Spec.Stop.ID != w.Status.AnsweredStop
}

// Halted tells whether a halt that nobody has answered yet holds the item.
func (w *WorkItem) Halted() bool {
	return w.Status.Runtime != nil && w.Status.Runtime.Halt != nil && w.Status.Runtime.Halt.ID != w.Status.AnsweredHalt
}

// Unasked tells whether a stop or halt holds the item whose question has ended, or cannot be asked: another stop asks anew.
func (w *WorkItem) Unasked() bool {
	return (w.Stopped() || w.Halted()) && slices.ContainsFunc(w.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == ConditionStalled && c.Status == metav1.ConditionTrue && (c.Reason == ReasonQuestionEnded || c.Reason == ReasonStopReused)
	})
}

// Asking tells whether a question waits for an answer.
func (w *WorkItem) Asking() bool {
	if w.Status.Runtime == nil || w.Status.Runtime.Question == nil {
		return false
	}
	return w.Status.Conversation == nil || w.Status.Conversation.AnsweredQuestion != w.Status.Runtime.Question.ID
}

// Over tells whether the item has ended, or was asked to end.
func (w *WorkItem) Over() bool {
	return w.Status.State == WorkItemClosed || w.Spec.Close || !w.DeletionTimestamp.IsZero()
}

// Unread tells whether nobody reads words to the item any more: it is over, or its agent has finished.
func (w *WorkItem) Unread() bool {
	return w.Over() || w.Status.Runtime != nil && w.Status.Runtime.Finished != nil
}

// Correlation is the ID that ties logs of this item together.
func (w *WorkItem) Correlation() string {
	if w.Spec.CorrelationID != "" {
		return w.Spec.CorrelationID
	}
	return w.Name
}

// WorkItem is one piece of work that a person gave to an agent. Its name is wi- and a ULID made from the time and the hash of
// the event it began with, so that the same words can never make two.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=.spec.agent
// +kubebuilder:resource:categories=nisse,shortName=wi
// +kubebuilder:printcolumn:name="Agent",type=string,JSONPath=`.spec.agent`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Waiting-For",type=string,JSONPath=`.status.waitingFor`
// +kubebuilder:printcolumn:name="Rev",type=integer,JSONPath=`.status.plan.revision`
// +kubebuilder:printcolumn:name="Outcome",type=string,JSONPath=`.status.outcome.result`
// +kubebuilder:printcolumn:name="Steps",type=string,JSONPath=`.status.outcome.steps`
// +kubebuilder:printcolumn:name="Title",type=string,JSONPath=`.spec.title`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && size(self.metadata.name) <= 50",message="a WorkItem's name is a DNS label of at most 50 characters: its plans and gates are named from it"
type WorkItem struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec WorkItemSpec `json:"spec"`
	// +optional
	Status WorkItemStatus `json:"status,omitempty"`
}

// WorkItemList is a list of WorkItem.
// +kubebuilder:object:root=true
type WorkItemList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []WorkItem `json:"items"`
}
