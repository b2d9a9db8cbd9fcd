// Package work tells an agent's runtime, over one open stream, everything it has to know of the cluster: which item to work on, what
// became of its plan, and what a person decided. Each line is the whole truth.
package work

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/broker/judge"
	"nisse.io/nisse/internal/doors"
)

const (
	// maxEnded items are told; a runtime that was away for longer asks nobody about older ones.
	maxEnded = 20
	// maxReady items are told, the oldest: a room can ask for more work than one line may hold, and its reader takes no longer one.
	maxReady = 500
)

// Objects that a snapshot is made from: of the agent's, all there are.
type Objects struct {
	Agent   *v1alpha1.Agent
	Items   []v1alpha1.WorkItem
	Plans   []v1alpha1.Plan
	Gates   []v1alpha1.Gate
	Jobs    []v1alpha1.DeviceJob
	Devices []v1alpha1.Device
}

// Snapshot of what there is.
func Snapshot(o Objects) doors.Snapshot {
	s := doors.Snapshot{Agent: o.Agent.Name, AgentUID: string(o.Agent.UID), Ready: []doors.Summary{}, Ended: []doors.Summary{}, Devices: []doors.Device{}}
	items := slices.DeleteFunc(slices.Clone(o.Items), func(it v1alpha1.WorkItem) bool { return it.Spec.Agent != o.Agent.Name })
	slices.SortFunc(items, func(a, b v1alpha1.WorkItem) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	var ended []v1alpha1.WorkItem
	for i := range items {
		it := &items[i]
		switch {
		case it.Status.State == v1alpha1.WorkItemClosed:
			ended = append(ended, *it)
		case it.Name == o.Agent.Status.ActiveWorkItem:
			s.Active = active(it, o)
		case len(s.Ready) < maxReady:
			s.Ready = append(s.Ready, summary(it))
		}
	}
	slices.SortStableFunc(ended, func(a, b v1alpha1.WorkItem) int { return endedAt(b).Compare(endedAt(a)) })
	for i := range ended[:min(len(ended), maxEnded)] {
		s.Ended = append(s.Ended, summary(&ended[i]))
	}
	for _, name := range slices.Sorted(slices.Values(o.Agent.Spec.Devices)) {
		s.Devices = append(s.Devices, device(name, o.Devices))
	}
	return s
}

func endedAt(it v1alpha1.WorkItem) time.Time {
	if it.Status.Outcome == nil {
		return it.CreationTimestamp.Time
	}
	return it.Status.Outcome.At.Time
}

func summary(it *v1alpha1.WorkItem) doors.Summary {
	s := doors.Summary{Name: it.Name, Title: it.Spec.Title, State: state(it), CreatedAt: stamp(it.CreationTimestamp)}
	if it.Status.Outcome != nil {
		s.Result = string(it.Status.Outcome.Result)
	}
	return s
}

func state(it *v1alpha1.WorkItem) string {
	return string(cmp.Or(it.Status.State, v1alpha1.WorkItemOpen))
}

func stamp(t metav1.Time) string { return t.UTC().Format(time.RFC3339) }

func device(name string, all []v1alpha1.Device) doors.Device {
	d := doors.Device{Name: name}
	for i := range all {
		if all[i].Name != name {
			continue
		}
		if c := meta.FindStatusCondition(all[i].Status.Conditions, v1alpha1.ConditionOnline); c != nil {
			d.Online, d.Since = c.Status == metav1.ConditionTrue, stamp(c.LastTransitionTime)
		}
	}
	return d
}

func active(it *v1alpha1.WorkItem, o Objects) *doors.Item {
	w := judge.World{Item: it, Plans: o.Plans, Gates: slices.DeleteFunc(slices.Clone(o.Gates), func(g v1alpha1.Gate) bool { return g.Spec.WorkItem.UID != string(it.UID) })}
	a := &doors.Item{
		Name: it.Name, UID: string(it.UID), Title: it.Spec.Title, CorrelationID: it.Correlation(), State: state(it), Stopped: it.Stopped(), Answer: answer(w.Gates),
	}
	if it.Spec.Source.Kind == v1alpha1.SourceKubernetes {
		a.Request = it.Spec.Request
	}
	if it.Halted() {
		h := it.Status.Runtime.Halt
		a.Halt = &doors.Halt{ID: h.ID, Reason: string(h.Reason), Message: h.Message}
	}
	if it.Asking() {
		q := it.Status.Runtime.Question
		a.Question = &doors.Question{ID: q.ID, Text: q.Text}
	}
	if rt := it.Status.Runtime; rt != nil && rt.Trouble != nil {
		a.Trouble = string(rt.Trouble.Reason)
	}
	if p := judge.Latest(w); p != nil {
		a.Plan = planOf(it, p, judge.GateOf(p, w.Gates), o.Jobs)
	}
	return a
}

// answer of the halt gate that was decided last.
func answer(gates []v1alpha1.Gate) *doors.Answer {
	var last *v1alpha1.Gate
	for i := range gates {
		g := &gates[i]
		if g.Spec.Kind != v1alpha1.GateHalt || len(g.Status.Decisions) == 0 || (g.Status.Outcome != v1alpha1.GateApproved && g.Status.Outcome != v1alpha1.GateRejected) {
			continue
		}
		if last == nil || decidedAt(g).After(decidedAt(last)) || (decidedAt(g).Equal(decidedAt(last)) && g.CreationTimestamp.After(last.CreationTimestamp.Time)) {
			last = g
		}
	}
	if last == nil {
		return nil
	}
	d := last.Status.Decisions[len(last.Status.Decisions)-1]
	return &doors.Answer{Gate: last.Name, Answer: string(d.Answer), Person: d.Person, Text: d.Text, Settled: string(d.Settle)}
}

func decidedAt(g *v1alpha1.Gate) time.Time {
	if g.Status.DecidedAt == nil {
		return time.Time{}
	}
	return g.Status.DecidedAt.Time
}

// planOf tells where a plan stands by its gate's outcome, which is the commit point, not by the state derived from it later.
func planOf(it *v1alpha1.WorkItem, p *v1alpha1.Plan, g *v1alpha1.Gate, jobs []v1alpha1.DeviceJob) *doors.Plan {
	out := &doors.Plan{Name: p.Name, Revision: p.Spec.Revision, Call: p.Spec.Call, State: string(v1alpha1.PlanNotReady), Closed: it.Over() || p.Spec.Revision <= it.Status.ClosedRevision, Steps: []doors.Step{}}
	if g == nil {
		// Shown to nobody, and it never will be: the agent must hear it, or it would wait for a decision on what no person sees.
		if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady); c != nil && c.Reason == v1alpha1.ReasonPlanNotReady {
			out.Feedback = c.Message
		}
	}
	if g != nil {
		out.Gate, out.State = g.Name, planState(g.Status.Outcome)
		if n := len(g.Status.Decisions); n > 0 && g.Status.Outcome != "" {
			out.Person, out.Feedback = g.Status.Decisions[n-1].Person, g.Status.Decisions[n-1].Text
		}
	}
	for i, s := range p.Spec.Steps {
		step := doors.Step{Step: int32(i + 1), Device: s.Device, Capability: s.Capability, Args: json.RawMessage(s.Args), State: "Waiting"}
		if g != nil {
			if j := judge.JobOf(jobs, g, step.Step); j != nil {
				step.State = cmp.Or(string(j.Status.State), "Pending")
			}
		}
		out.Steps = append(out.Steps, step)
	}
	return out
}

func planState(o v1alpha1.GateOutcome) string {
	if o == "" {
		return string(v1alpha1.PlanAwaitingApproval)
	}
	return string(o) // the other states bear the outcomes' names
}
