package work

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/doors"
)

var t0 = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func at(minutes int) metav1.Time { return metav1.NewTime(t0.Add(time.Duration(minutes) * time.Minute)) }

func item(name string, created int, state v1alpha1.WorkItemState) v1alpha1.WorkItem {
	return v1alpha1.WorkItem{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + "-uid"), CreationTimestamp: at(created)},
		Spec: v1alpha1.WorkItemSpec{Agent: "ops", Title: "do " + name, Source: v1alpha1.Source{Kind: v1alpha1.SourceMatrix}}, Status: v1alpha1.WorkItemStatus{State: state}}
}

func plan(revision int32, name string) v1alpha1.Plan {
	return v1alpha1.Plan{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PlanSpec{WorkItem: v1alpha1.ObjectRef{UID: "wi-b-uid"}, Revision: revision,
		Steps: []v1alpha1.PlanStep{{Device: "web1", Capability: "fs.write", Args: `{"path":"/a"}`}, {Device: "web1", Capability: "exec", Args: `{"argv":["/x"]}`}}}}
}

func gate(name string, kind v1alpha1.GateKind, outcome v1alpha1.GateOutcome, decided int, d v1alpha1.GateDecision) v1alpha1.Gate {
	when := at(decided)
	g := v1alpha1.Gate{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + "-uid")}, Spec: v1alpha1.GateSpec{Kind: kind, WorkItem: v1alpha1.ObjectRef{UID: "wi-b-uid"}}}
	if outcome != "" {
		g.Status = v1alpha1.GateStatus{Outcome: outcome, DecidedAt: &when, Decisions: []v1alpha1.GateDecision{d}}
	}
	return g
}

// objects: wi-b is active, wi-a and wi-c wait, wi-z has ended.
func objects() Objects {
	o := Objects{
		Agent:   &v1alpha1.Agent{ObjectMeta: metav1.ObjectMeta{Name: "ops", UID: "ops-uid"}, Spec: v1alpha1.AgentSpec{Devices: []string{"web1", "db1"}}, Status: v1alpha1.AgentStatus{ActiveWorkItem: "wi-b"}},
		Items:   []v1alpha1.WorkItem{item("wi-c", 3, ""), item("wi-b", 2, v1alpha1.WorkItemWorking), item("wi-a", 1, v1alpha1.WorkItemOpen), item("wi-z", 0, v1alpha1.WorkItemClosed)},
		Devices: []v1alpha1.Device{{ObjectMeta: metav1.ObjectMeta{Name: "web1"}, Status: v1alpha1.DeviceStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionOnline, Status: metav1.ConditionTrue, LastTransitionTime: at(5)}}}}},
	}
	o.Items[3].Status.Outcome = &v1alpha1.Outcome{Result: v1alpha1.ResultDone, At: at(1)}
	other := item("wi-x", 1, v1alpha1.WorkItemOpen)
	other.Spec.Agent = "dev"
	o.Items = append(o.Items, other)
	return o
}

func TestSnapshot(t *testing.T) {
	want := doors.Snapshot{
		Agent: "ops", AgentUID: "ops-uid",
		Active:  &doors.Item{Name: "wi-b", UID: "wi-b-uid", Title: "do wi-b", CorrelationID: "wi-b", State: "Working"},
		Ready:   []doors.Summary{{Name: "wi-a", Title: "do wi-a", State: "Open", CreatedAt: "2026-11-30T12:01:00Z"}, {Name: "wi-c", Title: "do wi-c", State: "Open", CreatedAt: "2026-11-30T12:03:00Z"}},
		Ended:   []doors.Summary{{Name: "wi-z", Title: "do wi-z", State: "Closed", Result: "Done", CreatedAt: "2026-11-30T12:00:00Z"}},
		Devices: []doors.Device{{Name: "db1"}, {Name: "web1", Online: true, Since: "2026-11-30T12:05:00Z"}},
	}
	if diff := cmp.Diff(want, Snapshot(objects())); diff != "" {
		t.Error(diff)
	}
}

func TestIdleSnapshotHasListsNotNulls(t *testing.T) {
	b, err := json.Marshal(Snapshot(Objects{Agent: &v1alpha1.Agent{ObjectMeta: metav1.ObjectMeta{Name: "ops"}}}))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(`{"agent":"ops","agentUID":"","ready":[],"ended":[],"devices":[]}`, string(b)); diff != "" {
		t.Error(diff)
	}
}

func TestActiveItem(t *testing.T) {
	approved := v1alpha1.GateDecision{Person: "lucas", Decision: v1alpha1.DecisionApprove, Text: "go"}
	job := func(step int32, state v1alpha1.JobState) v1alpha1.DeviceJob {
		return v1alpha1.DeviceJob{Spec: v1alpha1.DeviceJobSpec{Gate: v1alpha1.GateRef{UID: "rev-2-uid"}, Step: step}, Status: v1alpha1.DeviceJobStatus{State: state}}
	}
	steps := func(first, second string) []doors.Step {
		return []doors.Step{{Step: 1, Device: "web1", Capability: "fs.write", Args: json.RawMessage(`{"path":"/a"}`), State: first}, {Step: 2, Device: "web1", Capability: "exec", Args: json.RawMessage(`{"argv":["/x"]}`), State: second}}
	}
	tests := map[string]struct {
		change func(*Objects, *v1alpha1.WorkItem)
		want   func(*doors.Item)
	}{
		"made by hand": {
			func(_ *Objects, it *v1alpha1.WorkItem) {
				it.Spec.Source.Kind, it.Spec.Request = v1alpha1.SourceKubernetes, "please"
			},
			func(i *doors.Item) { i.Request = "please" },
		},
		"correlation": {
			func(_ *Objects, it *v1alpha1.WorkItem) { it.Spec.CorrelationID = "c-1" },
			func(i *doors.Item) { i.CorrelationID = "c-1" },
		},
		"stopped": {
			func(_ *Objects, it *v1alpha1.WorkItem) { it.Spec.Stop = &v1alpha1.StopRequest{ID: "s1"} },
			func(i *doors.Item) { i.Stopped = true },
		},
		"halted and asking": {
			func(_ *Objects, it *v1alpha1.WorkItem) {
				it.Status.Runtime = &v1alpha1.WorkItemRuntime{Halt: &v1alpha1.HaltReport{ID: "h1", Reason: v1alpha1.HaltCallMismatch, Message: "m"}, Question: &v1alpha1.Question{ID: "q1", Text: "which?"}}
			},
			func(i *doors.Item) {
				i.Halt, i.Question = &doors.Halt{ID: "h1", Reason: "CallMismatch", Message: "m"}, &doors.Question{ID: "q1", Text: "which?"}
			},
		},
		"both answered": {
			func(o *Objects, it *v1alpha1.WorkItem) {
				it.Status.Runtime = &v1alpha1.WorkItemRuntime{Halt: &v1alpha1.HaltReport{ID: "h1"}, Question: &v1alpha1.Question{ID: "q1"}}
				it.Status.AnsweredHalt, it.Status.Conversation = "h1", &v1alpha1.WorkItemConversation{AnsweredQuestion: "q1"}
				o.Gates = []v1alpha1.Gate{
					gate("halt-new", v1alpha1.GateHalt, v1alpha1.GateApproved, 9, v1alpha1.GateDecision{Person: "lucas", Answer: v1alpha1.AnswerReplan, Text: "other way"}),
					gate("halt-old", v1alpha1.GateHalt, v1alpha1.GateApproved, 8, v1alpha1.GateDecision{Person: "eva", Answer: v1alpha1.AnswerContinue}),
					gate("halt-open", v1alpha1.GateHalt, "", 10, v1alpha1.GateDecision{}),
				}
			},
			func(i *doors.Item) {
				i.Answer = &doors.Answer{Gate: "halt-new", Answer: "Replan", Person: "lucas", Text: "other way"}
			},
		},
		"plan without a gate": {
			func(o *Objects, _ *v1alpha1.WorkItem) { o.Plans = []v1alpha1.Plan{plan(2, "rev-2"), plan(1, "rev-1")} },
			func(i *doors.Item) {
				i.Plan = &doors.Plan{Name: "rev-2", Revision: 2, State: "NotReady", Steps: steps("Waiting", "Waiting")}
			},
		},
		"plan that cannot be shown": {
			func(o *Objects, _ *v1alpha1.WorkItem) {
				p := plan(2, "rev-2")
				p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonPlanNotReady, Message: "too long"}}
				o.Plans = []v1alpha1.Plan{p}
			},
			func(i *doors.Item) {
				i.Plan = &doors.Plan{Name: "rev-2", Revision: 2, State: "NotReady", Feedback: "too long", Steps: steps("Waiting", "Waiting")}
			},
		},
		"plan that waits": {
			func(o *Objects, _ *v1alpha1.WorkItem) {
				o.Plans, o.Gates = []v1alpha1.Plan{plan(2, "rev-2")}, []v1alpha1.Gate{gate("rev-2", v1alpha1.GatePlan, "", 0, v1alpha1.GateDecision{})}
			},
			func(i *doors.Item) {
				i.Plan = &doors.Plan{Name: "rev-2", Revision: 2, State: "AwaitingApproval", Gate: "rev-2", Steps: steps("Waiting", "Waiting")}
			},
		},
		"plan that runs": {
			func(o *Objects, _ *v1alpha1.WorkItem) {
				o.Plans, o.Gates = []v1alpha1.Plan{plan(2, "rev-2")}, []v1alpha1.Gate{gate("rev-2", v1alpha1.GatePlan, v1alpha1.GateApproved, 7, approved)}
				o.Jobs = []v1alpha1.DeviceJob{job(1, v1alpha1.JobSucceeded), job(2, "")}
			},
			func(i *doors.Item) {
				i.Plan = &doors.Plan{Name: "rev-2", Revision: 2, State: "Approved", Gate: "rev-2", Person: "lucas", Feedback: "go", Steps: steps("Succeeded", "Pending")}
			},
		},
		"plan that was rejected and closed": {
			func(o *Objects, it *v1alpha1.WorkItem) {
				o.Plans, o.Gates = []v1alpha1.Plan{plan(2, "rev-2")}, []v1alpha1.Gate{gate("rev-2", v1alpha1.GatePlan, v1alpha1.GateRejected, 7, v1alpha1.GateDecision{Person: "lucas", Decision: v1alpha1.DecisionReject, Text: "no"})}
				it.Status.ClosedRevision = 2
			},
			func(i *doors.Item) {
				i.Plan = &doors.Plan{Name: "rev-2", Revision: 2, State: "Rejected", Gate: "rev-2", Person: "lucas", Feedback: "no", Closed: true, Steps: steps("Waiting", "Waiting")}
			},
		},
		"plan of a namesake": {
			func(o *Objects, _ *v1alpha1.WorkItem) {
				p := plan(1, "rev-1")
				p.Spec.WorkItem.UID = "older"
				o.Plans = []v1alpha1.Plan{p}
			},
			func(*doors.Item) {},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := objects()
			tt.change(&o, &o.Items[1])
			want := &doors.Item{Name: "wi-b", UID: "wi-b-uid", Title: "do wi-b", CorrelationID: "wi-b", State: "Working"}
			tt.want(want)
			if diff := cmp.Diff(want, Snapshot(o).Active); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// However much work is asked for, the line that tells of it stays short enough to be read.
func TestSnapshotOfACrowd(t *testing.T) {
	o := objects()
	for i := range 5000 {
		it := item(fmt.Sprintf("wi-%04d", i), 10+i, v1alpha1.WorkItemOpen)
		it.Spec.Title = strings.Repeat("<", 200)
		o.Items = append(o.Items, it)
	}
	s := Snapshot(o)
	b, err := json.Marshal(s)
	if err != nil || len(b) > 1<<20 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if len(s.Ready) != maxReady || s.Ready[0].Name != "wi-a" || s.Ready[2].Name != "wi-0000" || s.Active == nil {
		t.Errorf("%d ready, active %v", len(s.Ready), s.Active)
	}
}
