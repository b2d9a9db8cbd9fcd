// Package condition sets conditions in one way for every kind and knows what must hold between them.
package condition

import (
	"fmt"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nisse.io/nisse/api/v1alpha1"
)

// Set a condition. Its transition time moves only when its status changes.
func Set(all *[]metav1.Condition, generation int64, conditionType string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(all, metav1.Condition{Type: conditionType, Status: status, Reason: reason, Message: message, ObservedGeneration: generation})
}

// Ready sets Ready and takes Stalled away.
func Ready(all *[]metav1.Condition, generation int64, status metav1.ConditionStatus, reason, message string) {
	Set(all, generation, v1alpha1.ConditionReady, status, reason, message)
	meta.RemoveStatusCondition(all, v1alpha1.ConditionStalled)
}

// Stalled sets Ready to False and Stalled to True, for one reason: nothing changes until a person acts.
func Stalled(all *[]metav1.Condition, generation int64, reason, message string) {
	Set(all, generation, v1alpha1.ConditionReady, metav1.ConditionFalse, reason, message)
	Set(all, generation, v1alpha1.ConditionStalled, metav1.ConditionTrue, reason, message)
}

// Retrying says that the first pass has not ended well. Later failures of that kind leave the conditions as they are: they speak of
// the last pass that ended, and a flicker of the API server is no news. Ready=Unknown is what a schema begins with: no pass wrote it.
func Retrying(all *[]metav1.Condition, generation int64, message string) {
	if c := meta.FindStatusCondition(*all, v1alpha1.ConditionReady); c == nil || c.Status == metav1.ConditionUnknown {
		Set(all, generation, v1alpha1.ConditionReady, metav1.ConditionUnknown, v1alpha1.ReasonRetrying, message)
	}
}

var camel = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)

// Violations lists what does not hold between an object's generation, its observedGeneration and its conditions. Tests call it
// after every pass. An object whose status was never written may have none, if its schema does not begin with Ready.
func Violations(generation, observed int64, all []metav1.Condition) []string {
	var v []string
	if observed > generation {
		v = append(v, fmt.Sprintf("observedGeneration %d is beyond generation %d", observed, generation))
	}
	if len(all) == 0 {
		if observed != 0 {
			v = append(v, "observedGeneration is set without any condition")
		}
		return v
	}
	ready := meta.FindStatusCondition(all, v1alpha1.ConditionReady)
	stalled := meta.FindStatusCondition(all, v1alpha1.ConditionStalled)
	if ready == nil {
		v = append(v, "Ready is missing")
	}
	if stalled != nil && stalled.Status != metav1.ConditionTrue {
		v = append(v, "Stalled is present and not True")
	}
	if stalled != nil && ready != nil && (ready.Status != metav1.ConditionFalse || ready.Reason != stalled.Reason) {
		v = append(v, fmt.Sprintf("Stalled (%s) beside Ready=%s (%s)", stalled.Reason, ready.Status, ready.Reason))
	}
	var seen []string
	for _, c := range all {
		if slices.Contains(seen, c.Type) {
			v = append(v, c.Type+" is there twice")
		}
		seen = append(seen, c.Type)
		if !camel.MatchString(c.Reason) {
			v = append(v, fmt.Sprintf("%s has reason %q", c.Type, c.Reason))
		}
		if c.ObservedGeneration > generation || c.ObservedGeneration < 1 {
			v = append(v, fmt.Sprintf("%s speaks of generation %d of %d", c.Type, c.ObservedGeneration, generation))
		}
		if c.LastTransitionTime.IsZero() {
			v = append(v, c.Type+" has no transition time")
		}
	}
	return v
}
