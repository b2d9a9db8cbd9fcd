package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Reasons of a Person's Ready condition.
const (
	// ReasonIdentitiesUnique: every identity names this Person alone.
	ReasonIdentitiesUnique = "IdentitiesUnique"
	// ReasonIdentityShared: an identity is claimed by two Persons; until that ends it is nobody's.
	ReasonIdentityShared = "IdentityShared"
)

// PersonSpec says by which names one human being is known in the places that authenticate them.
type PersonSpec struct {
	// identities by which this person is authenticated. An identity that matches other than exactly one Person is nobody.
	Identities Identities `json:"identities"`
}

// Identities of one person.
// +kubebuilder:validation:XValidation:rule="has(self.matrix) || has(self.kubernetes)",message="give at least one identity: matrix or kubernetes"
type Identities struct {
	// matrix is the full Matrix user ID, such as @lucas:example.org. It is compared exactly; display names count for nothing.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^@[a-z0-9._=/+-]+:[A-Za-z0-9.:\[\]-]+$`
	Matrix string `json:"matrix,omitempty"`
	// kubernetes lists usernames as the API server authenticates them (kubectl auth whoami). Service accounts are not people.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.all(u, !u.startsWith('system:') && !u.startsWith('matrix:') && !u.startsWith('gitea:') && !u.startsWith('vikunja:'))",message="usernames beginning with system:, matrix:, gitea: or vikunja: are not a person's Kubernetes identity"
	Kubernetes []string `json:"kubernetes,omitempty"`
}

// PersonStatus is written by the manager.
type PersonStatus struct {
	// conditions: Ready (IdentitiesUnique, IdentityShared) and Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// observedGeneration is the generation that the conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// Person is a human being who may give work to agents or decide about it. What a person may do is said by each Agent, not here.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=nisse,shortName=pers
// +kubebuilder:printcolumn:name="Matrix",type=string,JSONPath=`.spec.identities.matrix`
// +kubebuilder:printcolumn:name="Kubernetes",type=string,JSONPath=`.spec.identities.kubernetes[0]`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="a Person's name may have 63 characters"
type Person struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec PersonSpec `json:"spec"`
	// +optional
	Status PersonStatus `json:"status,omitempty"`
}

// PersonList is a list of Person.
// +kubebuilder:object:root=true
type PersonList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Person `json:"items"`
}
