package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// GateKind tells what a gate asks.
// +kubebuilder:validation:Enum=Plan;Call;Halt
type GateKind string

const (
	// GatePlan asks whether a plan may run.
	GatePlan GateKind = "Plan"
	// GateCall asks whether one call may run that the agent made outside an approved plan. Its subject is the Plan that holds that call alone.
	GateCall GateKind = "Call"
	// GateHalt asks how a halted or stopped item goes on: continue, replan or abandon.
	GateHalt GateKind = "Halt"
)

// Tier tells how good the evidence of a decision must be.
// +kubebuilder:validation:Enum=Low;Standard;High
type Tier string

const (
	// TierLow: a reaction is enough. No gate of this version asks for so little; one that does is judged as it says.
	TierLow Tier = "Low"
	// TierStandard: a typed decision.
	TierStandard Tier = "Standard"
	// TierHigh: the gate's code, typed, or the person's own credentials at the API server. Rooms are plain in this version, so whoever
	// runs the homeserver could type it as well. Rejecting works as at Standard.
	TierHigh Tier = "High"
)

// GateOutcome is the commit point of a decision: once set it never changes.
// +kubebuilder:validation:Enum=Approved;Rejected;Expired;Superseded
type GateOutcome string

const (
	// GateApproved: enough people approved; statement is set in the same write.
	GateApproved GateOutcome = "Approved"
	// GateRejected: a person rejected it.
	GateRejected GateOutcome = "Rejected"
	// GateExpired: nobody decided before expiresAt.
	GateExpired GateOutcome = "Expired"
	// GateSuperseded: what it asked about was replaced or ended first.
	GateSuperseded GateOutcome = "Superseded"
)

// SubjectKind of a gate.
// +kubebuilder:validation:Enum=Plan;WorkItem
type SubjectKind string

const (
	// SubjectPlan: the gate decides a Plan.
	SubjectPlan SubjectKind = "Plan"
	// SubjectWorkItem: the gate decides how a WorkItem goes on.
	SubjectWorkItem SubjectKind = "WorkItem"
)

// GateSubject is what is decided.
type GateSubject struct {
	// kind of object.
	Kind SubjectKind `json:"kind"`
	// name of it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// uid of it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid"`
}

// GateHaltRef tells which stop and which halt an answer answers.
type GateHaltRef struct {
	// stop is the ID of the stop request, if one holds.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Stop string `json:"stop,omitempty"`
	// halt is the ID of the halt, if one holds.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Halt string `json:"halt,omitempty"`
}

// GateSigner is a Person whose own signature a gate takes, with the keys that make one.
type GateSigner struct {
	// person by name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Person string `json:"person"`
	// keys of that person, public, in base64, as the manifests name them.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=64
	Keys []string `json:"keys"`
}

// GateSpec is fixed at creation. Only the manager makes gates.
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a gate is immutable"
// +kubebuilder:validation:XValidation:rule="self.kind == 'Halt' ? (self.subject.kind == 'WorkItem' && has(self.halt)) : (self.subject.kind == 'Plan' && has(self.revision))",message="a Plan or Call gate decides a Plan's revision, a Halt gate a WorkItem's halt"
type GateSpec struct {
	// agent it is about.
	// +kubebuilder:validation:MaxLength=40
	Agent string `json:"agent"`
	// workItem it belongs to.
	WorkItem ObjectRef `json:"workItem"`
	// kind of question.
	Kind GateKind `json:"kind"`
	// subject that is decided.
	Subject GateSubject `json:"subject"`
	// revision of the plan, for kinds Plan and Call.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Revision int32 `json:"revision,omitempty"`
	// halt that is answered, for kind Halt.
	// +optional
	Halt *GateHaltRef `json:"halt,omitempty"`
	// rule that opened this gate, for people to read.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Rule string `json:"rule"`
	// digest (sha256) over the canonical preimage of what is decided. An Approval repeats it.
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	Digest string `json:"digest"`
	// tier of evidence asked for. This version opens every gate at Standard.
	Tier Tier `json:"tier"`
	// title in one line.
	// +kubebuilder:validation:MaxLength=200
	Title string `json:"title"`
	// message rendered from the subject alone, in plain text. Every channel shows this.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=65536
	Message string `json:"message"`
	// flags raised by code and policy, never by the plan.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=256
	Flags []string `json:"flags,omitempty"`
	// approvers are the Persons who may decide. An empty list lets nobody.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=63
	Approvers []string `json:"approvers,omitempty"`
	// signers, where a rule demands a Person's own signature: approving takes one of theirs (kubectl nisse approve --key). They are who may sign
	// for every step that demands it; the devices go by their manifests alone.
	// +optional
	// +listType=map
	// +listMapKey=person
	// +kubebuilder:validation:MaxItems=32
	Signers []GateSigner `json:"signers,omitempty"`
	// required number of different Persons.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=8
	Required int32 `json:"required"`
	// expiresAt is when the question lapses. A timeout never approves.
	ExpiresAt metav1.Time `json:"expiresAt"`
	// windowSeconds that an approval is good for, from the decision on.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	WindowSeconds int32 `json:"windowSeconds"`
}

// GateDecision records one valid Approval.
type GateDecision struct {
	// approval it came by.
	// +kubebuilder:validation:MaxLength=253
	Approval string `json:"approval"`
	// person who decided.
	// +kubebuilder:validation:MaxLength=63
	Person string `json:"person"`
	// decision made.
	Decision Decision `json:"decision"`
	// answer, for a Halt gate.
	// +optional
	Answer HaltAnswer `json:"answer,omitempty"`
	// settle, where it settles a deed whose outcome was unknown.
	// +optional
	Settle Settlement `json:"settle,omitempty"`
	// text that came with it.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Text string `json:"text,omitempty"`
	// channel it came through.
	Channel ChannelKind `json:"channel"`
	// signature of the Person, where the gate asked for one; the broker sends it to the device.
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	Signature string `json:"signature,omitempty"`
	// at is the Approval's creation time.
	At metav1.Time `json:"at"`
}

// GateStatus is written by the manager alone.
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.outcome) || (has(self.outcome) && self.outcome == oldSelf.outcome)",message="an outcome never changes"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.outcome) || (has(self.statement) == has(oldSelf.statement) && (!has(self.statement) || self.statement == oldSelf.statement))",message="a statement comes with the outcome and never changes"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.outcome) || (has(self.decisions) == has(oldSelf.decisions) && (!has(self.decisions) || self.decisions == oldSelf.decisions) && has(self.decidedAt) == has(oldSelf.decidedAt) && (!has(self.decidedAt) || self.decidedAt == oldSelf.decidedAt))",message="a decision never changes"
// +kubebuilder:validation:XValidation:rule="!has(self.statement) || (has(self.outcome) && self.outcome == 'Approved')",message="only an approved gate has a statement"
type GateStatus struct {
	// observedGeneration of the last pass.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions: Ready, whose reason is the outcome. Every gate begins with Pending, without a write.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:default={{type: "Ready", status: "Unknown", reason: "Pending", message: "It waits for a person.", observedGeneration: 1, lastTransitionTime: "1970-01-01T00:00:00Z"}}
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// outcome commits the decision. Absent while the gate is open.
	// +optional
	Outcome GateOutcome `json:"outcome,omitempty"`
	// message tells people why, such as which revision replaced this one.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// decidedAt is when the outcome was committed.
	// +optional
	DecidedAt *metav1.Time `json:"decidedAt,omitempty"`
	// decisions that counted.
	// +optional
	// +listType=map
	// +listMapKey=approval
	// +kubebuilder:validation:MaxItems=16
	Decisions []GateDecision `json:"decisions,omitempty"`
	// statement is the DSSE envelope by the approval key over the approved calls; for kinds Plan and Call.
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	Statement string `json:"statement,omitempty"`
}

// Gate is one thing that waits for a person.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=.spec.workItem.name
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.outcome) || has(self.status)",message="an outcome never changes"
// +kubebuilder:resource:categories=nisse,shortName=gt
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.kind`
// +kubebuilder:printcolumn:name="For",type=string,JSONPath=`.spec.title`
// +kubebuilder:printcolumn:name="Tier",type=string,JSONPath=`.spec.tier`
// +kubebuilder:printcolumn:name="Approvers",type=string,JSONPath=`.spec.approvers`
// +kubebuilder:printcolumn:name="Outcome",type=string,JSONPath=`.status.outcome`
// +kubebuilder:printcolumn:name="Answer",type=string,JSONPath=`.status.decisions[0].answer`
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.spec.expiresAt`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Gate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec GateSpec `json:"spec"`
	// +optional
	// +kubebuilder:default={}
	Status GateStatus `json:"status,omitempty"`
}

// LetsRun tells whether the gate decides calls, and not how a held item goes on.
func (g *Gate) LetsRun() bool { return g.Spec.Kind == GatePlan || g.Spec.Kind == GateCall }

// Open tells whether the gate still waits for a decision.
func (g *Gate) Open() bool { return g.Status.Outcome == "" }

// GateList is a list of Gate.
// +kubebuilder:object:root=true
type GateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Gate `json:"items"`
}
