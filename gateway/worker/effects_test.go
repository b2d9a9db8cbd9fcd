package worker

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nisse.io/nisse/api/v1alpha1"
)

// A request behind work that is stopped waits for a person, who must hear what for.
func TestQueued(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v1alpha1.WorkItem)
		more   int
		want   string
	}{
		"behind work":         {func(*v1alpha1.WorkItem) {}, 0, `Queued behind "nginx" (wi-1); I begin when that is over.`},
		"behind more of them": {func(*v1alpha1.WorkItem) {}, 2, `Queued behind "nginx" (wi-1) and 2 more; I begin when that is over.`},
		"behind a stop": {func(w *v1alpha1.WorkItem) { w.Spec.Stop = &v1alpha1.StopRequest{ID: "s1"} }, 0,
			"Queued behind \"nginx\" (wi-1); I begin when that is over. \"nginx\" is stopped: answer `continue`, `replan <advice>` or `abandon`."},
		"behind a halt": {func(w *v1alpha1.WorkItem) {
			w.Status.Runtime = &v1alpha1.WorkItemRuntime{Halt: &v1alpha1.HaltReport{ID: "h1"}}
		}, 1, "Queued behind \"nginx\" (wi-1) and 1 more; I begin when that is over. \"nginx\" is stopped: answer `continue`, `replan <advice>` or `abandon`."},
		"behind a stop whose question has ended": {func(w *v1alpha1.WorkItem) {
			w.Spec.Stop = &v1alpha1.StopRequest{ID: "s1"}
			w.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonQuestionEnded}}
		}, 0, "Queued behind \"nginx\" (wi-1); I begin when that is over. \"nginx\" is stopped: type `stop` to be asked again how to go on."},
	} {
		t.Run(name, func(t *testing.T) {
			w := &v1alpha1.WorkItem{ObjectMeta: metav1.ObjectMeta{Name: "wi-1"}, Spec: v1alpha1.WorkItemSpec{Title: "nginx"}}
			tc.change(w)
			if diff := cmp.Diff(tc.want, queued(w, tc.more)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
