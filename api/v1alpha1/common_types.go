package v1alpha1

// Labels that Nisse sets on what it makes. Values are object names, so they can be selected on.
const (
	// LabelAgent names the Agent an object belongs to.
	LabelAgent = "nisse.io/agent"
	// LabelWorkItem names the WorkItem an object belongs to.
	LabelWorkItem = "nisse.io/work-item"
	// LabelAgentAccess must be "true" on a Secret before an Agent may name it.
	LabelAgentAccess = "nisse.io/agent-access"
)

// Fields that the API server can select by.
const (
	// FieldGate of an Approval.
	FieldGate = "spec.gate.name"
	// FieldWorkItem of a Plan, a Gate or a DeviceJob.
	FieldWorkItem = "spec.workItem.name"
	// FieldAgent of a WorkItem.
	FieldAgent = "spec.agent"
)

// Condition types. Every condition carries observedGeneration.
const (
	// ConditionReady tells whether the object does what its spec asks. It is always present.
	ConditionReady = "Ready"
	// ConditionStalled is present and True when nothing will change until a person changes the spec. Never beside Ready=True.
	ConditionStalled = "Stalled"
	// ConditionConnected tells whether an Agent's conversation is connected. The manager derives it from status.conversation.
	ConditionConnected = "Connected"
	// ConditionUpdatePending is True while a newer pod template waits for a safe point.
	ConditionUpdatePending = "UpdatePending"
	// ConditionOnline tells whether a Device answered when it was last asked.
	ConditionOnline = "Online"
	// ConditionAuditIntact tells whether a Device's audit contains everything that the manager has kept of it.
	ConditionAuditIntact = "AuditIntact"
)

// ReasonPending, of a Gate's and a DeviceJob's Ready: it has not ended. The schema sets it, so that Ready is there without a write.
const ReasonPending = "Pending"

// ReasonRetrying, of any kind's Ready: no pass over the object has ended well yet, for a cause that may pass.
const ReasonRetrying = "Retrying"

// ObjectRef names one object by name and UID, so that a namesake made later is not mistaken for it.
type ObjectRef struct {
	// name of the object, in the same namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// uid of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid"`
}
