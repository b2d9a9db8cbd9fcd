package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Workflow is the state machine an agent's work items follow.
// +kubebuilder:validation:Enum=Operations
type Workflow string

// WorkflowOperations carries out literal plans: every elevated call must equal the next step of an approved plan.
const WorkflowOperations Workflow = "Operations"

// Right is what a person may do with an agent.
// +kubebuilder:validation:Enum=Instruct;Approve
type Right string

const (
	// RightInstruct lets a person give the agent work, answer its questions and stop it.
	RightInstruct Right = "Instruct"
	// RightApprove lets a person decide the agent's gates.
	RightApprove Right = "Approve"
)

// Reasons of an Agent's conditions.
const (
	// ReasonRunning: the pod is ready.
	ReasonRunning = "Running"
	// ReasonStarting: the pod exists and is not ready yet.
	ReasonStarting = "Starting"
	// ReasonSuspended: spec.suspend is true; the pod is scaled away, its state kept.
	ReasonSuspended = "Suspended"
	// ReasonPersonNotFound: people names a Person that does not exist. Stalled.
	ReasonPersonNotFound = "PersonNotFound"
	// ReasonDeviceNotFound: devices names a Device that does not exist. Stalled.
	ReasonDeviceNotFound = "DeviceNotFound"
	// ReasonSecretNotUsable: the credentials Secret is missing, lacks the key, or lacks the opt-in label. Stalled.
	ReasonSecretNotUsable = "SecretNotUsable"
	// ReasonEndpointInvalid: models.endpoint cannot be turned into a network rule. Stalled.
	ReasonEndpointInvalid = "EndpointInvalid"
	// ReasonForeignObject: an object that the agent needs exists and belongs to somebody else. Stalled.
	ReasonForeignObject = "ForeignObject"
	// ReasonChildRefused: the API server refuses an object that the Agent asks for, such as a smaller volume. Stalled.
	ReasonChildRefused = "ChildRefused"
	// ReasonWorkInProgress: a newer pod waits, because the old one is not replaced in the middle of a turn. Of UpdatePending.
	ReasonWorkInProgress = "WorkInProgress"
	// ReasonConnected: the agent's account is logged in and in its room.
	ReasonConnected = "Connected"
	// ReasonRoomNotFound: the room does not exist or the account cannot join it.
	ReasonRoomNotFound = "RoomNotFound"
	// ReasonLoginFailed: the homeserver refused the account.
	ReasonLoginFailed = "LoginFailed"
	// ReasonHomeserverUnreachable: the homeserver does not answer.
	ReasonHomeserverUnreachable = "HomeserverUnreachable"
	// ReasonRoomEncrypted: the room is encrypted, which this version cannot read and so will not write into.
	ReasonRoomEncrypted = "RoomEncrypted"
	// ReasonRoomReadOnly: the room gives the account too little power to write in it.
	ReasonRoomReadOnly = "RoomReadOnly"
	// ReasonRoomShared: two Agents name one room or one account; neither is connected.
	ReasonRoomShared = "RoomShared"
	// ReasonConversationUnknown: the gateway has not reported yet.
	ReasonConversationUnknown = "NotReported"
)

// AgentPerson says what one Person may do with this agent.
type AgentPerson struct {
	// name of a Person in this namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// may lists the person's rights. Instruct does not imply Approve, nor the other way round.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	May []Right `json:"may"`
}

// Conversation says where people talk with the agent.
type Conversation struct {
	// matrix is the Matrix room and account.
	Matrix MatrixConversation `json:"matrix"`
}

// MatrixConversation names the agent's account and room.
type MatrixConversation struct {
	// userID of the agent's own account. The gateway holds its credentials.
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^@[a-z0-9._=/+-]+:[A-Za-z0-9.:\[\]-]+$`
	UserID string `json:"userID"`
	// room is an alias (#ops:example.org) or a room ID (!…).
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[#!][^\s]+$`
	Room string `json:"room"`
}

// Protocol is the wire shape of a model endpoint.
// +kubebuilder:validation:Enum=OpenAI
type Protocol string

// ProtocolOpenAI is OpenAI-compatible chat completions (LiteLLM, vLLM, llama.cpp, Ollama).
const ProtocolOpenAI Protocol = "OpenAI"

// Models says which models the agent speaks to, and where.
type Models struct {
	// endpoint all roles share.
	Endpoint ModelEndpoint `json:"endpoint"`
	// roles maps a role to its model. executor is required: it does the work.
	// +kubebuilder:validation:MaxProperties=8
	// +kubebuilder:validation:XValidation:rule="'executor' in self",message="roles must name the executor"
	// +kubebuilder:validation:XValidation:rule="self.all(r, r in ['executor'])",message="roles known in this version: executor"
	Roles map[string]ModelRole `json:"roles"`
}

// ModelEndpoint is one HTTP endpoint. Its address becomes the only egress the pod has besides its two doors and DNS.
// +kubebuilder:validation:XValidation:rule="has(self.cidr) || self.url.matches('^https?://([0-9]{1,3}[.]){3}[0-9]{1,3}(:[0-9]+)?(/.*)?$')",message="cidr is required when the URL's host is a name: NetworkPolicy knows no host names"
type ModelEndpoint struct {
	// url of the API without the operation, such as http://litellm.ai:4000/v1.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^https?://[^\s/?#@]+(/[^\s?#]*)?$`
	URL string `json:"url"`
	// protocol the endpoint speaks.
	Protocol Protocol `json:"protocol"`
	// cidr the host's addresses lie in; needed when the host is a name.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="cidr must be an address range such as 10.96.0.0/12"
	CIDR string `json:"cidr,omitempty"`
	// credentials is the key of a Secret in this namespace that bears the label nisse.io/agent-access: "true". Sent as bearer token.
	// +optional
	Credentials *SecretKey `json:"credentials,omitempty"`
}

// SecretKey is one key of a Secret in the same namespace.
type SecretKey struct {
	// name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// key in its data.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[-._a-zA-Z0-9]+$`
	Key string `json:"key"`
}

// ModelRole is the model behind one role.
type ModelRole struct {
	// model as the endpoint names it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Model string `json:"model"`
	// temperature in thousandths (0 to 2000); the server's own when absent. An integer, so that what Git says is what reads back.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2000
	TemperatureMilli *int32 `json:"temperatureMilli,omitempty"`
	// maxTokens of one answer; the server's own limit when absent.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	MaxTokens *int32 `json:"maxTokens,omitempty"`
	// timeoutSeconds of one request; 120 when absent.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`
}

// Tools says which tools exist for the agent. A tool that is not listed does not exist for it.
type Tools struct {
	// allow lists tools by name: device capabilities (fs.read, fs.write, exec, git.status …) and platform tools
	// (submit_plan, ask_human). finish is always there.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:Pattern=`^[a-z]+([._][a-z]+)*$`
	Allow []string `json:"allow"`
}

// Limits hold a runaway agent. toolCallsPerMinute and planRevisions are the broker's and approvalSeconds is the manager's, all outside
// the pod. toolCallsPerTurn is a courtesy inside it: it ends a model's circling early, and nothing relies on it.
type Limits struct {
	// toolCallsPerMinute of all tools together; 60 when absent.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=6000
	ToolCallsPerMinute *int32 `json:"toolCallsPerMinute,omitempty"`
	// planRevisions of one work item; 20 when absent.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	PlanRevisions *int32 `json:"planRevisions,omitempty"`
	// toolCallsPerTurn the runtime allows before it ends a turn and says so; 12 when absent. A courtesy in the pod; nothing relies on it.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=200
	ToolCallsPerTurn *int32 `json:"toolCallsPerTurn,omitempty"`
	// approvalSeconds a gate of this agent waits for a person; 1800 when absent.
	// +optional
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=86400
	ApprovalSeconds *int32 `json:"approvalSeconds,omitempty"`
}

// Runtime shapes the agent's pod.
type Runtime struct {
	// storage of the event log; 1Gi of the default class when absent. It is kept when the Agent is deleted.
	// +optional
	Storage *Storage `json:"storage,omitempty"`
	// memoryLimit of the pod; 256Mi when absent.
	// +optional
	MemoryLimit *resource.Quantity `json:"memoryLimit,omitempty"`
}

// Storage of an agent.
type Storage struct {
	// size of the volume.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`
	// className of the volume; the cluster's default when absent.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ClassName string `json:"className,omitempty"`
}

// EgressRule opens one way out of the agent's pod.
type EgressRule struct {
	// to is an address range.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="to must be an address range such as 192.0.2.0/24"
	To string `json:"to"`
	// ports over TCP.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Minimum=1
	// +kubebuilder:validation:items:Maximum=65535
	Ports []int32 `json:"ports"`
	// reason why, for the reviewer.
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=200
	Reason string `json:"reason"`
}

// AgentSpec says who may talk to the agent, what it may reach and what it thinks with.
type AgentSpec struct {
	// workflow its work items follow.
	Workflow Workflow `json:"workflow"`
	// privilege picks the manifests of its devices: User, which is meant when absent, or Elevated.
	// +optional
	Privilege Privilege `json:"privilege,omitempty"`
	// people who may instruct the agent or decide its gates. Nobody else's words act.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	People []AgentPerson `json:"people"`
	// conversation is where people talk with it.
	Conversation Conversation `json:"conversation"`
	// models it thinks with.
	Models Models `json:"models"`
	// tools that exist for it.
	Tools Tools `json:"tools"`
	// devices it may name in calls.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=63
	Devices []string `json:"devices,omitempty"`
	// limits that hold it.
	// +optional
	Limits *Limits `json:"limits,omitempty"`
	// prompt is added to the agent's instructions. No rule depends on it.
	// +optional
	// +kubebuilder:validation:MaxLength=8192
	Prompt string `json:"prompt,omitempty"`
	// runtime shapes its pod.
	// +optional
	Runtime *Runtime `json:"runtime,omitempty"`
	// egress beyond the two doors, DNS and the model endpoint.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Egress []EgressRule `json:"egress,omitempty"`
	// suspend scales the pod away and opens no gate; nothing is lost.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// ConversationStatus is written by the gateway alone.
type ConversationStatus struct {
	// connected tells whether the account is logged in and in its room.
	Connected bool `json:"connected"`
	// reason in one word (Connected, RoomNotFound, LoginFailed, HomeserverUnreachable,
	// RoomEncrypted, RoomReadOnly, RoomShared).
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`
	// message for a person.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// roomID the room resolved to.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	RoomID string `json:"roomID,omitempty"`
	// since when.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// observedGeneration of the Agent that this speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// AgentStatus is written by the manager, but for conversation.
type AgentStatus struct {
	// conditions: Ready, Connected, UpdatePending, Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration of the last pass that ended well or in a known stall.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// activeWorkItem is the one item the agent works on; the only truth about it. Empty when idle.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ActiveWorkItem string `json:"activeWorkItem,omitempty"`
	// conversation is written by the gateway.
	// +optional
	Conversation *ConversationStatus `json:"conversation,omitempty"`
}

// Agent is one assistant: its people, its room, its tools and its pod.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=nisse,shortName=ag
// +kubebuilder:printcolumn:name="Workflow",type=string,JSONPath=`.spec.workflow`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Connected",type=string,JSONPath=`.status.conditions[?(@.type=="Connected")].status`
// +kubebuilder:printcolumn:name="Active",type=string,JSONPath=`.status.activeWorkItem`
// +kubebuilder:printcolumn:name="Model",type=string,JSONPath=`.spec.models.roles.executor.model`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$') && size(self.metadata.name) <= 40",message="an Agent's name names its pod and accounts: a DNS label beginning with a letter, at most 40 characters"
type Agent struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec AgentSpec `json:"spec"`
	// +optional
	Status AgentStatus `json:"status,omitempty"`
}

// Stalled returns the condition that says why the agent cannot work until a person acts; nil when nothing of that kind is known.
func (a *Agent) Stalled() *metav1.Condition {
	for i := range a.Status.Conditions {
		if c := &a.Status.Conditions[i]; c.Type == ConditionStalled && c.Status == metav1.ConditionTrue {
			return c
		}
	}
	return nil
}

// AgentList is a list of Agent.
// +kubebuilder:object:root=true
type AgentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Agent `json:"items"`
}
