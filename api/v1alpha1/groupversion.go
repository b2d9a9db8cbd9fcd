// Package v1alpha1 holds the kinds of nisse.io/v1alpha1: who the people are, what the agents may do, and every decision
// that was asked for and made. Objects record decisions and deeds; conversation and tool output never come here.
//
// +kubebuilder:object:generate=true
// +groupName=nisse.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every kind in this package.
var GroupVersion = schema.GroupVersion{Group: "nisse.io", Version: "v1alpha1"}

var schemeBuilder = runtime.NewSchemeBuilder(func(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&Person{}, &PersonList{},
		&Agent{}, &AgentList{},
		&WorkItem{}, &WorkItemList{},
		&Plan{}, &PlanList{},
		&Gate{}, &GateList{},
		&Approval{}, &ApprovalList{},
		&Device{}, &DeviceList{},
		&DeviceManifest{}, &DeviceManifestList{},
		&DeviceJob{}, &DeviceJobList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
})

// AddToScheme registers the kinds of this package.
var AddToScheme = schemeBuilder.AddToScheme
