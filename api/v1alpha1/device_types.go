package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Reasons of a Device's Online condition.
const (
	// ReasonAnswering: the device answered, and has what the cluster has for it.
	ReasonAnswering = "Answering"
	// ReasonManifestRefused: the device does not take a manifest that is in force in the cluster.
	ReasonManifestRefused = "ManifestRefused"
	// ReasonRevocationPending: the device answers and does not confirm spec.revokedEpoch.
	ReasonRevocationPending = "RevocationPending"
	// ReasonNoManifest: the device holds no manifest and listens to nobody, and none is in force that could be brought.
	ReasonNoManifest = "NoManifest"
	// ReasonRefusing: the device answers and does not listen to this broker.
	ReasonRefusing = "Refusing"
	// ReasonUnreachable: the device does not answer.
	ReasonUnreachable = "Unreachable"
	// ReasonKeyMismatch: what answers does not hold the device's key.
	ReasonKeyMismatch = "KeyMismatch"
	// ReasonInsecure: the way to the device is not safe: plain HTTP to another machine, or no TLS 1.3. Nothing is sent.
	ReasonInsecure = "Insecure"
	// ReasonNotEnrolled: spec.publicKey is empty: the machine has not been joined yet.
	ReasonNotEnrolled = "NotEnrolled"
)

// Reasons of a Device's AuditIntact condition.
const (
	// ReasonAuditExtends: the device has proven that its audit contains everything that was kept of it.
	ReasonAuditExtends = "Extends"
	// ReasonAuditAnchored: as Extends, in a line that the root key has ordered after the one before it was broken.
	ReasonAuditAnchored = "Anchored"
	// ReasonAuditEdited: the device found that a row is not what was written.
	ReasonAuditEdited = "Edited"
	// ReasonAuditGap: the device found that rows are missing in the middle.
	ReasonAuditGap = "Gap"
	// ReasonAuditDuplicate: the device found a row a second time.
	ReasonAuditDuplicate = "Duplicate"
	// ReasonAuditForked: the audit is not the one that was kept, or the device found that it was written anew.
	ReasonAuditForked = "Forked"
	// ReasonAuditTruncated: the device has fewer rows than were kept.
	ReasonAuditTruncated = "Truncated"
	// ReasonAuditUnproven: what the broker brought does not prove anything: the device's key did not sign it, it may be an old reply, or the device gives
	// none.
	ReasonAuditUnproven = "Unproven"
)

// DeviceSpec says where a device is and what it must prove.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.revokedEpoch) || (has(self.revokedEpoch) && self.revokedEpoch >= oldSelf.revokedEpoch)",message="what was revoked stays revoked; sign the manifests again"
type DeviceSpec struct {
	// url of nisse-device on its mesh address: https://address:port. What answers there must hold publicKey; no authority and no name counts.
	// http:// is for a device on the broker's own machine alone, by a loopback address.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^https?://[^\s/?#@]+$`
	// +kubebuilder:validation:XValidation:rule="self.startsWith('https://') || self.matches('^http://(localhost|127[.][0-9.]+|\\\\[::1\\\\])(:[0-9]+)?$')",message="a device is reached by https://; http:// is for loopback addresses alone"
	URL string `json:"url"`
	// publicKey is the device's ed25519 key in base64; its connections and answers are signed by it. `nisse-device id` prints it. Empty until the
	// machine was joined; nothing is sent there meanwhile.
	// +optional
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9+/]{43}=)?$`
	PublicKey string `json:"publicKey,omitempty"`
	// rootKey is the ed25519 key in base64 that signs the device's manifests; the device pinned it when it was enrolled and believes no
	// other, whatever stands here.
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9+/]{43}=$`
	RootKey string `json:"rootKey"`
	// revokedEpoch kills every manifest of the device whose epoch is not above it, within seconds and for good. A manifest comes back
	// only by being signed again. `kubectl nisse device revoke` sets it.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9007199254740991
	RevokedEpoch int64 `json:"revokedEpoch,omitempty"`
	// auditAnchor is the root key's order to begin a new line of the device's audit, which was found broken. `kubectl nisse audit reanchor` sets it.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	AuditAnchor string `json:"auditAnchor,omitempty"`
}

// DeviceAudit is what a device says of its audit, as the broker brought it. Whoever judges by it looks at the reply alone, which the device signed.
type DeviceAudit struct {
	// rows that the newest checkpoint has.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Rows int64 `json:"rows,omitempty"`
	// root of the tree over them, in base64.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Root string `json:"root,omitempty"`
	// since is the number of rows that the reply's proof begins with: those that were kept when it was asked for.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Since int64 `json:"since,omitempty"`
	// at is when the broker got it.
	At metav1.Time `json:"at"`
	// checkpoint is the note that the device signed; `nisse-device audit verify --checkpoint` reads it.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Checkpoint string `json:"checkpoint,omitempty"`
	// finding of the device about its own audit; empty when it finds nothing. Without a reply: why the broker has none.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Finding string `json:"finding,omitempty"`
	// reply of the device with the checkpoint and its proof, as the device signed it. Empty where a device that answers gives none that can be used.
	// +kubebuilder:validation:MaxLength=32768
	Reply string `json:"reply"`
}

// KeptAudit is the newest checkpoint of a device that the manager has verified and put where the broker cannot reach it.
type KeptAudit struct {
	// line of the audit: none until it was anchored anew, then the number of the order.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Line int64 `json:"line,omitempty"`
	// rows of it.
	// +kubebuilder:validation:Minimum=1
	Rows int64 `json:"rows"`
	// root of the tree over them, in base64.
	// +kubebuilder:validation:MaxLength=64
	Root string `json:"root"`
	// at is when it was kept.
	At metav1.Time `json:"at"`
}

// DeviceStatus is written by the broker, but for auditKept and the condition AuditIntact, which are the manager's; at changes only.
type DeviceStatus struct {
	// conditions: Online, AuditIntact.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration that the conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// revokedEpoch that the device has confirmed: no manifest at or below it runs anything there any more.
	// +optional
	RevokedEpoch int64 `json:"revokedEpoch,omitempty"`
	// audit of the device, as it says itself.
	// +optional
	Audit *DeviceAudit `json:"audit,omitempty"`
	// auditKept is what the manager has kept of it.
	// +optional
	AuditKept *KeptAudit `json:"auditKept,omitempty"`
}

// Device is one machine that runs nisse-device.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=nisse,shortName=dev
// +kubebuilder:printcolumn:name="URL",type=string,JSONPath=`.spec.url`
// +kubebuilder:printcolumn:name="Online",type=string,JSONPath=`.status.conditions[?(@.type=="Online")].status`
// +kubebuilder:printcolumn:name="Since",type=date,JSONPath=`.status.conditions[?(@.type=="Online")].lastTransitionTime`
// +kubebuilder:printcolumn:name="Audit",type=string,JSONPath=`.status.conditions[?(@.type=="AuditIntact")].reason`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Online")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && size(self.metadata.name) <= 63",message="a Device's name is a DNS label of at most 63 characters"
type Device struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec DeviceSpec `json:"spec"`
	// +optional
	Status DeviceStatus `json:"status,omitempty"`
}

// DeviceList is a list of Device.
// +kubebuilder:object:root=true
type DeviceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Device `json:"items"`
}
