package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Caps of a plan. The canonical form of the whole spec counts towards PlanMaxBytes; the broker enforces it at submit_plan.
const (
	PlanMaxBytes = 16 * 1024
	PlanMaxSteps = 50
)

// ResolvedProgram is the program that a step's command line leads to, as its device told when the plan was submitted.
type ResolvedProgram struct {
	// executable is the file that the program's name leads to, symlinks followed.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^/`
	Executable string `json:"executable"`
	// sha256 of its bytes, in hex. The device runs no others for this step.
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	SHA256 string `json:"sha256"`
	// user that it runs as, by the device's manifest.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	User string `json:"user"`
}

// PlanStep is one literal call.
// +kubebuilder:validation:XValidation:rule="has(self.resolved) == (self.capability == 'exec')",message="a step of exec says in resolved which program it runs, and no other step does"
type PlanStep struct {
	// device the call goes to.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Device string `json:"device"`
	// capability of that device, such as fs.write.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[a-z]+([.][a-z]+)*$`
	Capability string `json:"capability"`
	// args in canonical JSON (RFC 8785; no floats, no integer at or beyond 2^53). These bytes are what runs.
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=16384
	Args string `json:"args"`
	// manifestDigest of the device when the plan was submitted; a device that changed since refuses.
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	ManifestDigest string `json:"manifestDigest"`
	// resolved is the program that would run, for steps whose arguments name one: those of exec. It is shown, approved and compared.
	// +optional
	Resolved *ResolvedProgram `json:"resolved,omitempty"`
}

// PlanSpec is fixed at creation.
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a plan is immutable; submit another revision"
// +kubebuilder:validation:XValidation:rule="!has(self.call) || !self.call || size(self.steps) == 1",message="a call is one step"
type PlanSpec struct {
	// agent that submitted it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=40
	Agent string `json:"agent"`
	// agentUID of that agent.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	AgentUID string `json:"agentUID"`
	// workItem it is for.
	WorkItem ObjectRef `json:"workItem"`
	// revision counts from 1 within the work item.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Revision int32 `json:"revision"`
	// callID of the submit_plan call, or of the call itself, so that the same call cannot make two plans.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	CallID string `json:"callID"`
	// toolSchemaDigest of the device tools' schemas the arguments were checked with.
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	ToolSchemaDigest string `json:"toolSchemaDigest"`
	// body is why, in the agent's words. It is shown last and marked as such.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Body string `json:"body,omitempty"`
	// call: the broker made it of one call that the agent made outside an approved plan. Its gate is of kind Call.
	// +optional
	Call bool `json:"call,omitempty"`
	// steps in order. A plan without steps is not ready and is shown to nobody.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=50
	Steps []PlanStep `json:"steps"`
}

// PlanState is derived from the plan's gate and its jobs.
// +kubebuilder:validation:Enum=NotReady;AwaitingApproval;Approved;Rejected;Expired;Superseded
type PlanState string

const (
	// PlanNotReady: it has no steps, or its gate could not be opened yet.
	PlanNotReady PlanState = "NotReady"
	// PlanAwaitingApproval: its gate is open, or about to be. Every plan begins with it, without a write.
	PlanAwaitingApproval PlanState = "AwaitingApproval"
	// PlanApproved: its gate was approved.
	PlanApproved PlanState = "Approved"
	// PlanRejected: its gate was rejected.
	PlanRejected PlanState = "Rejected"
	// PlanExpired: nobody decided in time.
	PlanExpired PlanState = "Expired"
	// PlanSuperseded: a later revision, a replan or the item's end came first.
	PlanSuperseded PlanState = "Superseded"
)

// PlanStatus is written by the manager, once nothing waits for a person any more or something hinders that.
type PlanStatus struct {
	// observedGeneration of the last pass.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions: Ready. Like the state, every plan begins with it.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:default={{type: "Ready", status: "Unknown", reason: "AwaitingApproval", message: "Its gate is open, or about to be.", observedGeneration: 1, lastTransitionTime: "1970-01-01T00:00:00Z"}}
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// state, derived from the gate.
	// +optional
	// +kubebuilder:default=AwaitingApproval
	State PlanState `json:"state,omitempty"`
}

// Plan is one immutable revision of what an agent wants to run, literally.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=.spec.workItem.name
// +kubebuilder:resource:categories=nisse,shortName=pl
// +kubebuilder:printcolumn:name="WorkItem",type=string,JSONPath=`.spec.workItem.name`
// +kubebuilder:printcolumn:name="Rev",type=integer,JSONPath=`.spec.revision`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Plan struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec PlanSpec `json:"spec"`
	// +optional
	// +kubebuilder:default={}
	Status PlanStatus `json:"status,omitempty"`
}

// PlanList is a list of Plan.
// +kubebuilder:object:root=true
type PlanList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Plan `json:"items"`
}
