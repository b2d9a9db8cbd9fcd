package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Decision of one person.
// +kubebuilder:validation:Enum=Approve;Reject
type Decision string

const (
	// DecisionApprove lets the subject run, or a halted item go on.
	DecisionApprove Decision = "Approve"
	// DecisionReject refuses it; text is the feedback.
	DecisionReject Decision = "Reject"
)

// HaltAnswer says how a halted item goes on.
// +kubebuilder:validation:Enum=Continue;Replan;Abandon
type HaltAnswer string

const (
	// AnswerContinue lets the plan in force go on.
	AnswerContinue HaltAnswer = "Continue"
	// AnswerReplan ends the plan in force; the agent makes another.
	AnswerReplan HaltAnswer = "Replan"
	// AnswerAbandon ends the item.
	AnswerAbandon HaltAnswer = "Abandon"
)

// Settlement says how a deed ended whose outcome nobody can prove, by the word of a person who looked.
// +kubebuilder:validation:Enum=Succeeded;Failed
type Settlement string

const (
	// SettledSucceeded: the deed had its effect; its step counts as done.
	SettledSucceeded Settlement = "Succeeded"
	// SettledFailed: the deed did not have its effect; its step counts as failed, and the plan is over.
	SettledFailed Settlement = "Failed"
)

// ChannelKind tells through what a decision came.
// +kubebuilder:validation:Enum=Kubernetes;Matrix
type ChannelKind string

const (
	// ChannelKubernetes: a person made the Approval with their own credentials.
	ChannelKubernetes ChannelKind = "Kubernetes"
	// ChannelMatrix: the gateway made it for a chat identity.
	ChannelMatrix ChannelKind = "Matrix"
)

// Evidence in a channel, from weakest to strongest.
// +kubebuilder:validation:Enum=Reaction;Typed;TypedCode
type Evidence string

const (
	// EvidenceReaction: a reaction on the gate's message. The gateway of this version takes no reactions; one would do at tier Low alone.
	EvidenceReaction Evidence = "Reaction"
	// EvidenceTyped: a typed decision that names exactly one open gate.
	EvidenceTyped Evidence = "Typed"
	// EvidenceTypedCode: a typed decision with the gate's code, which tier High asks for.
	EvidenceTypedCode Evidence = "TypedCode"
)

// Reasons of an Approval's status: why it does not count.
const (
	// ReasonOtherGate: it names another gate's UID; a namesake made later is not what was shown.
	ReasonOtherGate = "OtherGate"
	// ReasonGateDecided: the gate has an outcome already.
	ReasonGateDecided = "GateDecided"
	// ReasonTooLate: it was made at or after expiresAt.
	ReasonTooLate = "TooLate"
	// ReasonDigestMismatch: it decides other steps than the gate's.
	ReasonDigestMismatch = "DigestMismatch"
	// ReasonChannelMismatch: the approver's name and the channel do not belong together.
	ReasonChannelMismatch = "ChannelMismatch"
	// ReasonNotAPerson: the approver is not exactly one Person.
	ReasonNotAPerson = "NotAPerson"
	// ReasonMayNotApprove: that Person may not decide this gate.
	ReasonMayNotApprove = "MayNotApprove"
	// ReasonEvidenceTooWeak: the channel proves too little for the gate's tier.
	ReasonEvidenceTooWeak = "EvidenceTooWeak"
	// ReasonSignatureRequired: the gate takes only an approval that the Person's own key has signed.
	ReasonSignatureRequired = "SignatureRequired"
	// ReasonSignatureInvalid: its signature is not the Person's, or not of this gate, these steps and this time.
	ReasonSignatureInvalid = "SignatureInvalid"
	// ReasonAnswerMissing: a Halt gate wants continue, replan or abandon.
	ReasonAnswerMissing = "AnswerMissing"
	// ReasonAnswerUnexpected: a Plan gate takes no answer.
	ReasonAnswerUnexpected = "AnswerUnexpected"
	// ReasonSettleUnexpected: it settles a deed, and its gate asks about none whose outcome is unknown.
	ReasonSettleUnexpected = "SettleUnexpected"
	// ReasonSecondVote: the Person has decided this gate before.
	ReasonSecondVote = "SecondVote"
)

// Channel a decision came through, with its evidence.
// +kubebuilder:validation:XValidation:rule="self.kind == 'Matrix' ? (has(self.matrix) && has(self.evidence)) : (!has(self.matrix) && !has(self.evidence))",message="matrix and evidence belong to kind Matrix, and to it alone"
type Channel struct {
	// kind of channel.
	Kind ChannelKind `json:"kind"`
	// evidence that the words name this gate. The gateway of this version makes Typed and TypedCode.
	// +optional
	Evidence Evidence `json:"evidence,omitempty"`
	// matrix event that carried the decision.
	// +optional
	Matrix *MatrixEvent `json:"matrix,omitempty"`
}

// GateRef names the one gate that an Approval decides.
type GateRef struct {
	// name of the Gate.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// uid of the Gate.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid"`
}

// ApprovalSpec is fixed at creation.
// +kubebuilder:validation:XValidation:rule="!has(self.signature) || (self.decision == 'Approve' && !has(self.answer))",message="only an approval of a plan or a call is signed"
// +kubebuilder:validation:XValidation:rule="!has(self.settle) || (has(self.answer) && self.answer == 'Continue')",message="settle goes with the answer Continue"
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="an approval is immutable"
// +kubebuilder:validation:XValidation:rule="!has(self.answer) || (self.answer == 'Abandon') == (self.decision == 'Reject')",message="abandon is a Reject; continue and replan are an Approve"
type ApprovalSpec struct {
	// gate it decides.
	Gate GateRef `json:"gate"`
	// digest repeats the gate's digest: these very steps.
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	Digest string `json:"digest"`
	// decision made.
	Decision Decision `json:"decision"`
	// answer, for a Halt gate.
	// +optional
	Answer HaltAnswer `json:"answer,omitempty"`
	// settle says how the deed ended that a Halt gate asks about because its outcome is unknown. Without it, Continue counts it as Succeeded.
	// +optional
	Settle Settlement `json:"settle,omitempty"`
	// text is feedback to the agent.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Text string `json:"text,omitempty"`
	// approver is the username that the API server authenticated, or for a chat identity matrix: and the user ID.
	// Admission refuses any other.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=320
	Approver string `json:"approver"`
	// channel it came through.
	Channel Channel `json:"channel"`
	// signature of the Person: a DSSE envelope of their consent by their own key, as kubectl nisse approve --key makes it. Only a gate that names
	// signers asks for one.
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	// +kubebuilder:validation:Pattern=`^\{"payloadType":"application/vnd\.nisse\.consent\.v1\+json","payload":"[A-Za-z0-9+/=]+","signatures":\[\{"keyid":"[0-9a-f]{16}","sig":"[A-Za-z0-9+/=]+"\}\]\}$`
	Signature string `json:"signature,omitempty"`
}

// ApprovalStatus is written by the manager, and only when the approval does not count.
type ApprovalStatus struct {
	// observedGeneration that the conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions: Ready=False and Stalled, with the reason below. An approval that counts has none: its gate names it among its decisions.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// reason in one word why it does not count, such as TooLate.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`
	// message for the person.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// Approval is one person's immutable decision about one gate.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=.spec.gate.name
// +kubebuilder:resource:categories=nisse,shortName=apr
// +kubebuilder:printcolumn:name="Gate",type=string,JSONPath=`.spec.gate.name`
// +kubebuilder:printcolumn:name="Decision",type=string,JSONPath=`.spec.decision`
// +kubebuilder:printcolumn:name="Approver",type=string,JSONPath=`.spec.approver`
// +kubebuilder:printcolumn:name="Refused",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Approval struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ApprovalSpec `json:"spec"`
	// +optional
	Status ApprovalStatus `json:"status,omitempty"`
}

// ApprovalList is a list of Approval.
// +kubebuilder:object:root=true
type ApprovalList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Approval `json:"items"`
}
