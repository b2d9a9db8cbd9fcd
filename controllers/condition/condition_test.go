package condition

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nisse.io/nisse/api/v1alpha1"
)

func c(conditionType string, status metav1.ConditionStatus, reason string) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: status, Reason: reason, ObservedGeneration: 1, LastTransitionTime: metav1.Now()}
}

func TestViolations(t *testing.T) {
	ready, notReady := c("Ready", metav1.ConditionTrue, "Running"), c("Ready", metav1.ConditionFalse, "Missing")
	stalled := c("Stalled", metav1.ConditionTrue, "Missing")
	for _, tc := range []struct {
		name     string
		observed int64
		all      []metav1.Condition
		want     string
	}{
		{"never written", 0, nil, ""},
		{"ready", 1, []metav1.Condition{ready}, ""},
		{"stalled", 1, []metav1.Condition{notReady, stalled}, ""},
		{"observed without conditions", 1, nil, "without any condition"},
		{"observed beyond", 3, []metav1.Condition{ready}, "beyond generation"},
		{"no Ready", 1, []metav1.Condition{c("Connected", metav1.ConditionTrue, "Connected")}, "Ready is missing"},
		{"ready and stalled", 1, []metav1.Condition{ready, stalled}, "Stalled (Missing) beside Ready=True"},
		{"stalled for another reason", 1, []metav1.Condition{c("Ready", metav1.ConditionFalse, "Other"), stalled}, "beside Ready=False (Other)"},
		{"stalled False", 1, []metav1.Condition{ready, c("Stalled", metav1.ConditionFalse, "Fine")}, "not True"},
		{"twice", 1, []metav1.Condition{ready, ready}, "twice"},
		{"reason with a space", 1, []metav1.Condition{c("Ready", metav1.ConditionTrue, "is fine")}, "has reason"},
		{"of a later generation", 1, []metav1.Condition{{Type: "Ready", Status: "True", Reason: "R", ObservedGeneration: 9, LastTransitionTime: metav1.Now()}}, "speaks of generation 9"},
		{"of no generation", 1, []metav1.Condition{{Type: "Ready", Status: "True", Reason: "R", LastTransitionTime: metav1.Now()}}, "speaks of generation 0"},
		{"without a time", 1, []metav1.Condition{{Type: "Ready", Status: "True", Reason: "R", ObservedGeneration: 1}}, "no transition time"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := strings.Join(Violations(2, tc.observed, tc.all), "; ")
			if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestReadyAndStalledNeverMeet(t *testing.T) {
	var all []metav1.Condition
	for i, step := range []func(){
		func() { Retrying(&all, 1, "cannot reach the API server") },
		func() { Stalled(&all, 1, "PersonNotFound", "Person lucas does not exist") },
		func() { Ready(&all, 2, metav1.ConditionTrue, "Running", "") },
		func() { Stalled(&all, 3, "PersonNotFound", "Person lucas does not exist") },
		func() { Ready(&all, 3, metav1.ConditionFalse, "Starting", "") },
	} {
		step()
		if v := Violations(3, 1, all); len(v) > 0 {
			t.Errorf("after step %d: %v", i, v)
		}
	}
}

func TestRetryingOverwritesWhatTheSchemaBeginsWith(t *testing.T) {
	all := []metav1.Condition{c("Ready", metav1.ConditionUnknown, "Pending")}
	Retrying(&all, 1, "cannot reach the API server")
	if r := meta.FindStatusCondition(all, v1alpha1.ConditionReady); r.Reason != v1alpha1.ReasonRetrying || r.Message != "cannot reach the API server" {
		t.Errorf("Ready is %+v", r)
	}
}

func TestRetryingDoesNotOverwrite(t *testing.T) {
	var all []metav1.Condition
	Ready(&all, 1, metav1.ConditionTrue, "Running", "")
	before := append([]metav1.Condition(nil), all...)
	Retrying(&all, 2, "the API server does not answer")
	if diff := cmp.Diff(before, all); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

func TestTransitionTimeMovesWithTheStatusAlone(t *testing.T) {
	var all []metav1.Condition
	Ready(&all, 1, metav1.ConditionFalse, "Starting", "")
	old := metav1.Unix(1, 0)
	all[0].LastTransitionTime = old
	Ready(&all, 2, metav1.ConditionFalse, "Suspended", "by a person")
	if got := meta.FindStatusCondition(all, v1alpha1.ConditionReady); !got.LastTransitionTime.Equal(&old) || got.Reason != "Suspended" {
		t.Errorf("got %+v", got)
	}
	Ready(&all, 2, metav1.ConditionTrue, "Running", "")
	if got := meta.FindStatusCondition(all, v1alpha1.ConditionReady); got.LastTransitionTime.Equal(&old) {
		t.Error("the time did not move with the status")
	}
}
