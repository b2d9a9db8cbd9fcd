package agent

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"nisse.io/nisse/api/v1alpha1"
)

func item(name string, age time.Duration, state v1alpha1.WorkItemState) v1alpha1.WorkItem {
	return v1alpha1.WorkItem{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1_000_000, 0).Add(-age))}, Status: v1alpha1.WorkItemStatus{State: state}}
}

func TestChoose(t *testing.T) {
	deleting := item("wi-d", 9*time.Hour, v1alpha1.WorkItemOpen)
	deleting.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	for _, tc := range []struct {
		name   string
		active string
		items  []v1alpha1.WorkItem
		want   string
	}{
		{"idle", "", nil, ""},
		{"the only one", "", []v1alpha1.WorkItem{item("wi-a", 0, "")}, "wi-a"},
		{"the oldest", "", []v1alpha1.WorkItem{item("wi-a", time.Hour, v1alpha1.WorkItemOpen), item("wi-b", 2*time.Hour, v1alpha1.WorkItemOpen)}, "wi-b"},
		{"of one second, the first by name, which is a time", "", []v1alpha1.WorkItem{item("wi-b", 0, ""), item("wi-a", 0, "")}, "wi-a"},
		{"closed ones do not count", "", []v1alpha1.WorkItem{item("wi-a", time.Hour, v1alpha1.WorkItemClosed), item("wi-b", 0, "")}, "wi-b"},
		{"the active one stays, though an older one turns up", "wi-b", []v1alpha1.WorkItem{item("wi-a", time.Hour, v1alpha1.WorkItemOpen), item("wi-b", 0, v1alpha1.WorkItemWorking)}, "wi-b"},
		{"the active one stays while it waits", "wi-b", []v1alpha1.WorkItem{item("wi-a", time.Hour, v1alpha1.WorkItemOpen), item("wi-b", 0, v1alpha1.WorkItemAwaitingApproval)}, "wi-b"},
		{"the active one is closed", "wi-b", []v1alpha1.WorkItem{item("wi-a", time.Hour, v1alpha1.WorkItemOpen), item("wi-b", 0, v1alpha1.WorkItemClosed)}, "wi-a"},
		{"the active one is gone", "wi-x", []v1alpha1.WorkItem{item("wi-a", time.Hour, v1alpha1.WorkItemOpen)}, "wi-a"},
		{"all is done", "wi-a", []v1alpha1.WorkItem{item("wi-a", time.Hour, v1alpha1.WorkItemClosed)}, ""},
		{"what is being deleted is not begun", "", []v1alpha1.WorkItem{deleting, item("wi-a", 0, "")}, "wi-a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Choose(tc.active, tc.items); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// Whatever order the list comes in, the choice is one, and choosing again keeps it.
func TestChoiceIsStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var items []v1alpha1.WorkItem
		for i := range rapid.IntRange(0, 6).Draw(t, "n") {
			items = append(items, item(string(rune('a'+i)), time.Duration(rapid.IntRange(0, 2).Draw(t, "age"))*time.Hour,
				rapid.SampledFrom([]v1alpha1.WorkItemState{"", v1alpha1.WorkItemOpen, v1alpha1.WorkItemWorking, v1alpha1.WorkItemClosed}).Draw(t, "state")))
		}
		active := rapid.SampledFrom([]string{"", "a", "b", "z"}).Draw(t, "active")
		got := Choose(active, items)
		if again := Choose(active, rapid.Permutation(items).Draw(t, "order")); again != got {
			t.Fatalf("%q, then %q", got, again)
		}
		if again := Choose(got, items); again != got {
			t.Fatalf("%q does not stay: %q", got, again)
		}
	})
}

func set(generation, observed int64, revision string) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Generation: generation, UID: "set-1"}, Status: appsv1.StatefulSetStatus{ObservedGeneration: observed, UpdateRevision: revision}}
}

func podOf(revision string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "agent-ops-0", Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: revision},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "agent-ops", UID: "set-1", Controller: new(true)}}}}
}

func TestOutdated(t *testing.T) {
	leaving := podOf("r1")
	leaving.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	unmarked, foreign, earlier := podOf(""), podOf("r1"), podOf("r1")
	unmarked.Labels, foreign.OwnerReferences, earlier.OwnerReferences[0].UID = nil, nil, "set-0"
	for _, tc := range []struct {
		name string
		set  *appsv1.StatefulSet
		pod  *corev1.Pod
		want bool
	}{
		{"the same", set(2, 2, "r1"), podOf("r1"), false},
		{"an older one", set(2, 2, "r2"), podOf("r1"), true},
		{"not seen by the StatefulSet's controller yet", set(3, 2, "r2"), podOf("r1"), false},
		{"no revision known", set(2, 2, ""), podOf("r1"), false},
		{"on its way out", set(2, 2, "r2"), leaving, false},
		{"no pod", set(2, 2, "r2"), nil, false},
		{"no StatefulSet", nil, podOf("r1"), false},
		{"a pod without a revision", set(2, 2, "r2"), unmarked, true},
		{"a pod of that name that is nobody's", set(2, 2, "r2"), foreign, false},
		{"a pod of an earlier StatefulSet of that name", set(2, 2, "r2"), earlier, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Outdated(tc.set, tc.pod); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func waiting(reason string) *corev1.Pod {
	p := podOf("r1")
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}
	return p
}

func TestSafe(t *testing.T) {
	unschedulable := podOf("r1")
	unschedulable.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable"}}
	in := func(s v1alpha1.WorkItemState) *v1alpha1.WorkItem {
		w := item("wi-a", 0, s)
		return &w
	}
	for _, tc := range []struct {
		name   string
		pod    *corev1.Pod
		active *v1alpha1.WorkItem
		want   bool
	}{
		{"idle", podOf("r1"), nil, true},
		{"case 19: in the middle of work", podOf("r1"), in(v1alpha1.WorkItemWorking), false},
		{"a plan waits", podOf("r1"), in(v1alpha1.WorkItemAwaitingApproval), true},
		{"a question waits", podOf("r1"), in(v1alpha1.WorkItemAwaitingInput), true},
		{"chosen, not begun", podOf("r1"), in(v1alpha1.WorkItemOpen), true},
		{"over", podOf("r1"), in(v1alpha1.WorkItemClosed), true},
		{"it cannot pull its image", waiting("ImagePullBackOff"), in(v1alpha1.WorkItemWorking), true},
		{"it crashes over and over", waiting("CrashLoopBackOff"), in(v1alpha1.WorkItemWorking), true},
		{"it is just being made", waiting("ContainerCreating"), in(v1alpha1.WorkItemWorking), false},
		{"no node takes it", unschedulable, in(v1alpha1.WorkItemWorking), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Safe(tc.pod, tc.active); got != tc.want {
				t.Errorf("got %t, want %t", got, tc.want)
			}
		})
	}
}
