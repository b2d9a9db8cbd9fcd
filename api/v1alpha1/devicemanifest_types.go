package v1alpha1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Conditions of a DeviceManifest, beside Ready.
const (
	// ConditionSigned tells whether the device's root key signed this very text.
	ConditionSigned = "Signed"
)

// Reasons of a DeviceManifest's conditions.
const (
	// ReasonSignatureValid: the root key that the Device names signed this text.
	ReasonSignatureValid = "SignatureValid"
	// ReasonUnsigned: there is no signature yet.
	ReasonUnsigned = "Unsigned"
	// ReasonOtherText: the signature is of another text: it was changed after it was signed.
	ReasonOtherText = "OtherText"
	// ReasonOtherKey: another key than the Device's root key signed it.
	ReasonOtherKey = "OtherKey"
	// ReasonInvalidManifest: the text says something that no device would take.
	ReasonInvalidManifest = "InvalidManifest"
	// ReasonManifestExpired: its time is over.
	ReasonManifestExpired = "ManifestExpired"
	// ReasonRevoked: its epoch was revoked with the Device. Of a Device: it answers, and all that it holds is revoked, so it runs nothing.
	ReasonRevoked = "Revoked"
	// ReasonInForce: it is signed, its time is not over, and it was not revoked.
	ReasonInForce = "InForce"
)

// Privilege that an agent has, or that a manifest gives.
// +kubebuilder:validation:Enum=User;Elevated
type Privilege string

const (
	// PrivilegeUser: what the operator could do themselves.
	PrivilegeUser Privilege = "User"
	// PrivilegeElevated: what the machine's administrator could do.
	PrivilegeElevated Privilege = "Elevated"
)

// ManifestApproval tells whether a call needs a person's decision.
// +kubebuilder:validation:Enum=None;Required
type ManifestApproval string

// ManifestTier is how good a person's evidence must be.
// +kubebuilder:validation:Enum=Low;Standard;High
type ManifestTier string

// ManifestRule is what every rule says about the calls that it matches.
// +kubebuilder:validation:XValidation:rule="self.approval == 'Required' || !(has(self.tier) || has(self.signature) || (has(self.irreversible) && self.irreversible))",message="tier, irreversible and signature say nothing about calls whose approval is None"
type ManifestRule struct {
	// approval a call needs: None runs on the agent's word, Required only under a person's decision about this very call.
	Approval ManifestApproval `json:"approval"`
	// tier of the gate; Standard when absent, High when irreversible.
	// +optional
	Tier ManifestTier `json:"tier,omitempty"`
	// irreversible calls are flagged to whoever decides.
	// +optional
	Irreversible bool `json:"irreversible,omitempty"`
	// signature Person demands that a Person's own key, one of keys.persons, signed the approval too: no key of the cluster does instead.
	// +optional
	// +kubebuilder:validation:Enum=Person
	Signature string `json:"signature,omitempty"`
}

// ManifestKeys are the public keys that the device trusts, each an ed25519 key in base64.
type ManifestKeys struct {
	// request keys: whose requests are looked at.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9+/]{43}=$`
	Request []string `json:"request"`
	// approval keys: whose statements count.
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9+/]{43}=$`
	Approval []string `json:"approval"`
	// persons by name, with their own keys, for rules that demand a Person's signature.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Persons map[string][]string `json:"persons,omitempty"`
}

// ManifestPaths are the rules of the file capabilities. The first that matches decides; what none matches is refused.
type ManifestPaths struct {
	// fs.read reads files.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	Read []ManifestPathRule `json:"fs.read,omitempty"`
	// fs.write replaces files as a whole; it always needs approval.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	Write []ManifestPathRule `json:"fs.write,omitempty"`
	// fs.list lists directories.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	List []ManifestPathRule `json:"fs.list,omitempty"`
	// fs.stat tells kind, size and times.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	Stat []ManifestPathRule `json:"fs.stat,omitempty"`
}

// ManifestPathRule allows paths.
type ManifestPathRule struct {
	// glob of absolute paths (doublestar).
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^/`
	Glob         string `json:"glob"`
	ManifestRule `json:",inline"`
}

// ManifestSlot is what may stand in a place of a command line.
type ManifestSlot struct {
	// type of its values: word ([A-Za-z0-9._@%+=:,-], 1 to 128), integer, path (absolute and clean, within glob) or enum.
	// +kubebuilder:validation:Enum=word;integer;path;enum
	Type string `json:"type"`
	// glob that a path must match.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Glob string `json:"glob,omitempty"`
	// values of an enum.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=256
	Values []string `json:"values,omitempty"`
	// dash lets a value begin with -, which most programs take for an option.
	// +optional
	Dash bool `json:"dash,omitempty"`
}

// ManifestCommand is an exact argument vector with typed slots. No shell reads it.
type ManifestCommand struct {
	// argv: literals, and slots written {name}. The first is the absolute path of a program.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=1024
	Argv []string `json:"argv"`
	// slots by name.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	Slots        map[string]ManifestSlot `json:"slots,omitempty"`
	ManifestRule `json:",inline"`
	// timeoutSeconds it may take; 30 when absent.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=300
	TimeoutSeconds int `json:"timeoutSeconds,omitempty"`
}

// ManifestRepositoryRule allows operations of git on working trees.
type ManifestRepositoryRule struct {
	// operations that it allows.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:Enum=git.status;git.commit;git.clone;git.push
	Operations []string `json:"operations"`
	// glob of the working tree (doublestar, absolute).
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^/`
	Glob string `json:"glob"`
	// remotes that git.clone and git.push may speak with: URLs, each exact or ending in /*.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=512
	Remotes      []string `json:"remotes,omitempty"`
	ManifestRule `json:",inline"`
}

// ManifestPackageRule allows operations of the machine's package manager.
type ManifestPackageRule struct {
	// operations that it allows.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:Enum=pkg.search;pkg.install
	Operations []string `json:"operations"`
	// names of packages, by glob (*, ? and []).
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=128
	Names        []string `json:"names"`
	ManifestRule `json:",inline"`
}

// ManifestProcessRule allows operations on processes.
type ManifestProcessRule struct {
	// operations that it allows.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:Enum=proc.list;proc.kill
	Operations []string `json:"operations"`
	// owner whose processes may be killed: Own of the manifest's user, or Any, in Elevated manifests alone. Own when absent.
	// +optional
	// +kubebuilder:validation:Enum=Own;Any
	Owner string `json:"owner,omitempty"`
	// signals that may be sent; TERM alone when absent.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=9
	// +kubebuilder:validation:items:Enum=TERM;INT;HUP;QUIT;USR1;USR2;KILL;STOP;CONT
	Signals      []string `json:"signals,omitempty"`
	ManifestRule `json:",inline"`
}

// ManifestContainerRule allows operations on containers of the Docker Engine.
type ManifestContainerRule struct {
	// operations that it allows.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:items:Enum=docker.container.list;docker.container.logs;docker.container.exec
	Operations []string `json:"operations"`
	// names of containers, by glob.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=128
	Names []string `json:"names"`
	// commands that docker.container.exec may run; paths are the container's.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Commands     []ManifestCommand `json:"commands,omitempty"`
	ManifestRule `json:",inline"`
}

// ManifestDesktopRule allows operations on the operator's session.
type ManifestDesktopRule struct {
	// operations that it allows.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:items:Enum=display.capture;clipboard.read;clipboard.write
	Operations   []string `json:"operations"`
	ManifestRule `json:",inline"`
}

// ManifestLimits of one call.
type ManifestLimits struct {
	// writeBytes of one fs.write.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1048576
	WriteBytes int `json:"writeBytes"`
	// outputBytes of one result kept by the device: of fs.read, and of each of stdout and stderr.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4194304
	OutputBytes int `json:"outputBytes"`
	// timeoutSeconds at most.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=300
	TimeoutSeconds int `json:"timeoutSeconds"`
}

// DeviceManifestSpec says what one device lets agents of one privilege do. Everything but signature is signed by the device's root key:
// `kubectl nisse manifest sign` does it where the key lies, and the cluster never needs to see it. A text that was changed since is
// unsigned until it is signed again.
type DeviceManifestSpec struct {
	// device it is for.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a manifest stays with its device; make another"
	Device string `json:"device"`
	// privilege of the agents that may use it.
	Privilege Privilege `json:"privilege"`
	// epoch is set by signing and rises each time. A device takes no older text for the same privilege, and none at or below
	// Device.spec.revokedEpoch.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=9007199254740991
	Epoch int64 `json:"epoch,omitempty"`
	// expiresAt ends it: at most 90 days after signing when Elevated, 400 when User. RFC 3339 in UTC.
	// +kubebuilder:validation:Pattern=`^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$`
	ExpiresAt string `json:"expiresAt"`
	// user on the machine that commands run as and files are touched as; when absent the one that the device's configuration names, else the device's own.
	// +optional
	// +kubebuilder:validation:Pattern=`^[a-z_][a-z0-9_-]{0,31}$`
	User string `json:"user,omitempty"`
	// confine what runs with Landlock: Available where the kernel has it, Required nowhere else. Available when absent.
	// +optional
	// +kubebuilder:validation:Enum=Available;Required
	Confine string `json:"confine,omitempty"`
	// environment that commands get beside a clean one, such as the operator's HOME, DISPLAY or SSH_AUTH_SOCK.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Environment map[string]string `json:"environment,omitempty"`
	// keys the device trusts.
	Keys ManifestKeys `json:"keys"`
	// paths that the file capabilities may touch.
	// +optional
	Paths *ManifestPaths `json:"paths,omitempty"`
	// commands that exec may run.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Commands []ManifestCommand `json:"commands,omitempty"`
	// repositories that git works on.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Repositories []ManifestRepositoryRule `json:"repositories,omitempty"`
	// packages of the machine's package manager.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Packages []ManifestPackageRule `json:"packages,omitempty"`
	// processes of the machine.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Processes []ManifestProcessRule `json:"processes,omitempty"`
	// containers of the Docker Engine.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Containers []ManifestContainerRule `json:"containers,omitempty"`
	// desktop of the operator.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Desktop []ManifestDesktopRule `json:"desktop,omitempty"`
	// limits of one call.
	Limits ManifestLimits `json:"limits"`
	// signature is the DSSE envelope by the root key around this manifest in canonical JSON.
	// +optional
	// +kubebuilder:validation:MaxLength=262144
	Signature string `json:"signature,omitempty"`
}

// ManifestVersion is the version of the text that is signed.
const ManifestVersion = 1

// Text of the manifest that is signed, in JSON: the spec without its signature, with the version of the format. Whoever judges with it
// brings it into canonical form first.
func (s *DeviceManifestSpec) Text() ([]byte, error) {
	unsigned := *s
	unsigned.Signature = ""
	return json.Marshal(struct {
		V                  int `json:"v"`
		DeviceManifestSpec `json:",inline"`
	}{ManifestVersion, unsigned})
}

// DeviceManifestStatus is written by the manager.
type DeviceManifestStatus struct {
	// observedGeneration of the last pass.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions: Signed; Ready, which is true while the manifest is in force.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// digest of the canonical text, which calls, plans and statements name.
	// +optional
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	Digest string `json:"digest,omitempty"`
}

// DeviceManifest is what one device lets agents of one privilege do: allow-lists, limits, and the keys it trusts.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=nisse,shortName=dm
// +kubebuilder:selectablefield:JSONPath=.spec.device
// +kubebuilder:printcolumn:name="Device",type=string,JSONPath=`.spec.device`
// +kubebuilder:printcolumn:name="Privilege",type=string,JSONPath=`.spec.privilege`
// +kubebuilder:printcolumn:name="Signed",type=string,JSONPath=`.status.conditions[?(@.type=="Signed")].status`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Expires",type=string,JSONPath=`.spec.expiresAt`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == self.spec.device + '-' + (self.spec.privilege == 'Elevated' ? 'elevated' : 'user')",message="a DeviceManifest is named <device>-user or <device>-elevated, by its device and privilege: a device holds one of each"
type DeviceManifest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec DeviceManifestSpec `json:"spec"`
	// +optional
	Status DeviceManifestStatus `json:"status,omitempty"`
}

// DeviceManifestList is a list of DeviceManifest.
// +kubebuilder:object:root=true
type DeviceManifestList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DeviceManifest `json:"items"`
}
