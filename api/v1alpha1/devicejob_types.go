package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// JobState is how a deed ended. Absent means pending: asked for, and not known to have ended.
// +kubebuilder:validation:Enum=Succeeded;Failed;Refused;Expired;Unknown
type JobState string

const (
	// JobSucceeded: it ran and succeeded.
	JobSucceeded JobState = "Succeeded"
	// JobFailed: it ran and failed.
	JobFailed JobState = "Failed"
	// JobRefused: the device refused it; it did not run.
	JobRefused JobState = "Refused"
	// JobExpired: the device proves that it never ran, and its time is over.
	JobExpired JobState = "Expired"
	// JobUnknown: nobody can prove whether it ran. Terminal; a person's matter.
	JobUnknown JobState = "Unknown"
)

// DeviceJobSpec is fixed at creation. Creating it is the step cursor: the deed was asked for.
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a device job is immutable"
type DeviceJobSpec struct {
	// agent on whose behalf.
	// +kubebuilder:validation:MaxLength=40
	Agent string `json:"agent"`
	// agentUID of that agent.
	// +kubebuilder:validation:MaxLength=64
	AgentUID string `json:"agentUID"`
	// workItem it is part of.
	WorkItem ObjectRef `json:"workItem"`
	// device it goes to.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Device string `json:"device"`
	// deviceKey of the machine that it goes to, as the Device had it. Another machine that gets the device's name later knows nothing of this deed,
	// and so cannot prove that it never ran.
	// +optional
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9+/]{43}=$`
	DeviceKey string `json:"deviceKey,omitempty"`
	// manifestDigest the device must hold.
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	ManifestDigest string `json:"manifestDigest"`
	// capability that runs.
	// +kubebuilder:validation:MaxLength=64
	Capability string `json:"capability"`
	// args in canonical JSON: the stored bytes of the plan.
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=16384
	Args string `json:"args"`
	// deed identifies the deed: sha256 over gate UID, step and attempt.
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	Deed string `json:"deed"`
	// gate that was approved.
	Gate GateRef `json:"gate"`
	// step of the plan, counted from 1.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=50
	Step int32 `json:"step"`
	// attempt at it, counted from 1.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	Attempt int32 `json:"attempt"`
	// expiresAt ends every request for this deed, however often it is sent.
	ExpiresAt metav1.Time `json:"expiresAt"`
}

// JobSettlement is how a person closed a job whose outcome nobody can prove. It comes from the gate that asked, and is written once.
type JobSettlement struct {
	// as the person says that it ended; absent when they went on without saying so (replan, abandon).
	// +optional
	As Settlement `json:"as,omitempty"`
	// answer to what the unknown outcome held up.
	Answer HaltAnswer `json:"answer"`
	// person who decided, and the Approval they did it by: its approver is whom the API server, or the room, authenticated.
	// +kubebuilder:validation:MaxLength=63
	Person string `json:"person"`
	// approval they decided by.
	// +kubebuilder:validation:MaxLength=253
	Approval string `json:"approval"`
	// gate that asked.
	Gate GateRef `json:"gate"`
	// reason in the person's words.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Reason string `json:"reason,omitempty"`
	// at is when they decided.
	At metav1.Time `json:"at"`
}

// DeviceJobStatus is written by the broker, but for settled, which is the manager's.
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.state) || (has(self.state) && self.state == oldSelf.state && has(self.message) == has(oldSelf.message) && (!has(self.message) || self.message == oldSelf.message) && has(self.result) == has(oldSelf.result) && (!has(self.result) || self.result == oldSelf.result))",message="a job's end never changes"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.state) || (has(self.auditHash) == has(oldSelf.auditHash) && (!has(self.auditHash) || self.auditHash == oldSelf.auditHash) && has(self.startedAt) == has(oldSelf.startedAt) && (!has(self.startedAt) || self.startedAt == oldSelf.startedAt) && has(self.finishedAt) == has(oldSelf.finishedAt) && (!has(self.finishedAt) || self.finishedAt == oldSelf.finishedAt))",message="a job's end never changes"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.state) || (has(self.observedGeneration) == has(oldSelf.observedGeneration) && (!has(self.observedGeneration) || self.observedGeneration == oldSelf.observedGeneration) && has(self.conditions) == has(oldSelf.conditions) && (!has(self.conditions) || self.conditions == oldSelf.conditions))",message="a job's end never changes"
// +kubebuilder:validation:XValidation:rule="!has(self.settled) || (has(self.state) && self.state == 'Unknown')",message="only a job whose outcome is unknown is settled"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.settled) || (has(self.settled) && self.settled == oldSelf.settled)",message="a job is settled once"
type DeviceJobStatus struct {
	// observedGeneration that the written conditions speak of. Like all of this status it is written once, when the job ends.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions: Ready, and Stalled when the deed did not succeed; their reason is the state. Every job begins with Pending, without a write.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:default={{type: "Ready", status: "Unknown", reason: "Pending", message: "The device has not answered for it.", observedGeneration: 1, lastTransitionTime: "1970-01-01T00:00:00Z"}}
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// state it ended in; absent while pending.
	// +optional
	State JobState `json:"state,omitempty"`
	// message for people, when it did not succeed.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// result in JSON, 8 KB at most with its middle left out. The device keeps the whole under the deed's ID, and says so in its audit.
	// +optional
	// +kubebuilder:validation:MaxLength=8192
	Result string `json:"result,omitempty"`
	// auditHash of the outcome's row in the device's audit chain.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	AuditHash string `json:"auditHash,omitempty"`
	// startedAt and finishedAt by the device's clock.
	// +optional
	StartedAt *metav1.MicroTime `json:"startedAt,omitempty"`
	// finishedAt by the device's clock.
	// +optional
	FinishedAt *metav1.MicroTime `json:"finishedAt,omitempty"`
	// settled is how a person closed a job whose state is Unknown. The state stays: nobody can prove it.
	// +optional
	Settled *JobSettlement `json:"settled,omitempty"`
}

// DeviceJob is one deed on one device.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=nisse,shortName=dj
// +kubebuilder:selectablefield:JSONPath=.spec.workItem.name
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.state) || has(self.status)",message="a job's end never changes"
// +kubebuilder:printcolumn:name="Agent",type=string,JSONPath=`.spec.agent`
// +kubebuilder:printcolumn:name="Device",type=string,JSONPath=`.spec.device`
// +kubebuilder:printcolumn:name="Capability",type=string,JSONPath=`.spec.capability`
// +kubebuilder:printcolumn:name="Outcome",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Settled",type=string,JSONPath=`.status.settled.as`
// +kubebuilder:printcolumn:name="Gate",type=string,JSONPath=`.spec.gate.name`
// +kubebuilder:printcolumn:name="Step",type=integer,JSONPath=`.spec.step`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`,priority=1
// +kubebuilder:printcolumn:name="Args",type=string,JSONPath=`.spec.args`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type DeviceJob struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec DeviceJobSpec `json:"spec"`
	// +optional
	// +kubebuilder:default={}
	Status DeviceJobStatus `json:"status,omitempty"`
}

// DeviceJobList is a list of DeviceJob.
// +kubebuilder:object:root=true
type DeviceJobList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DeviceJob `json:"items"`
}
