package workitem

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/gate/subject"
	"nisse.io/nisse/controllers/workitem/workflow"
)

// end records the outcome of an item that has just closed, and closes all its plans.
func (r *Reconciler) end(ctx context.Context, s *scope) error {
	st := &s.item.Status
	var o v1alpha1.Outcome
	switch {
	case slices.Contains(s.effects, workflow.RecordDone):
		o = v1alpha1.Outcome{Result: v1alpha1.ResultDone, Summary: st.Runtime.Finished.Summary}
	case slices.Contains(s.effects, workflow.RecordAbandoned):
		o = v1alpha1.Outcome{Result: v1alpha1.ResultAbandoned, Summary: s.abandoned.Text}
	case slices.Contains(s.effects, workflow.RecordClosed):
		o = v1alpha1.Outcome{Result: v1alpha1.ResultClosed}
	default:
		return nil
	}
	plans, err := r.livePlans(ctx, s.item)
	if err != nil {
		return err
	}
	if latest := subject.Latest(s.item, plans); latest != nil {
		st.ClosedRevision = max(st.ClosedRevision, latest.Spec.Revision)
	}
	if o.Steps, o.Undone, err = r.deeds(ctx, s.item, plans); err != nil {
		return err
	}
	o.At = metav1.NewTime(r.Now().UTC().Truncate(time.Second))
	st.Outcome = &o
	return nil
}

// deeds tells, of the revision that was approved last, how many of its steps succeeded, and in a sentence which did not. It goes by what the
// API server has of gates and jobs, for what an agent says about its work proves nothing.
func (r *Reconciler) deeds(ctx context.Context, item *v1alpha1.WorkItem, plans []v1alpha1.Plan) (steps, undone string, err error) {
	of := []client.ListOption{client.InNamespace(item.Namespace), client.MatchingFields{v1alpha1.FieldWorkItem: item.Name}}
	var gates v1alpha1.GateList
	if err := r.Live.List(ctx, &gates, of...); err != nil {
		return "", "", fmt.Errorf("list the gates of %s: %w", item.Name, err)
	}
	gate, plan := approvedLast(item, gates.Items, plans)
	if plan == nil {
		return "", "", nil
	}
	var jobs v1alpha1.DeviceJobList
	if err := r.Live.List(ctx, &jobs, of...); err != nil {
		return "", "", fmt.Errorf("list the jobs of %s: %w", item.Name, err)
	}
	steps, undone = account(plan, gate, jobs.Items)
	return steps, undone, nil
}

// approvedLast finds the gate and the plan of the highest revision that a person approved.
func approvedLast(item *v1alpha1.WorkItem, gates []v1alpha1.Gate, plans []v1alpha1.Plan) (gate *v1alpha1.Gate, plan *v1alpha1.Plan) {
	for i := range gates {
		g := &gates[i]
		if !g.LetsRun() || g.Status.Outcome != v1alpha1.GateApproved || g.Spec.WorkItem.UID != string(item.UID) || gate != nil && g.Spec.Revision <= gate.Spec.Revision {
			continue
		}
		if p := slices.IndexFunc(plans, func(p v1alpha1.Plan) bool { return string(p.UID) == g.Spec.Subject.UID }); p >= 0 {
			gate, plan = g, &plans[p]
		}
	}
	return gate, plan
}

// account of an approved plan's steps.
func account(plan *v1alpha1.Plan, gate *v1alpha1.Gate, jobs []v1alpha1.DeviceJob) (steps, undone string) {
	last := map[int32]*v1alpha1.DeviceJob{} // by step, of its latest attempt
	for i := range jobs {
		j := &jobs[i]
		if old := last[j.Spec.Step]; j.Spec.Gate.UID == string(gate.UID) && (old == nil || old.Spec.Attempt < j.Spec.Attempt) {
			last[j.Spec.Step] = j
		}
	}
	// In this order they are told: how they ended, and the steps.
	ends := []string{"was not run", "failed", "was refused by the device", "had not begun when its approval ended", "ended in a way that nobody can prove", "had not ended"}
	which := make([][]string, len(ends))
	done := 0
	for i := range plan.Spec.Steps {
		end := 0
		if j := last[int32(i+1)]; j != nil {
			switch state(j) {
			case v1alpha1.JobSucceeded:
				done++
				continue
			case v1alpha1.JobFailed:
				end = 1
			case v1alpha1.JobRefused:
				end = 2
			case v1alpha1.JobExpired:
				end = 3
			case v1alpha1.JobUnknown:
				end = 4
			default:
				end = 5
			}
		}
		which[end] = append(which[end], fmt.Sprint(i+1))
	}
	steps = fmt.Sprintf("%d/%d", done, len(plan.Spec.Steps))
	var told []string
	for end, of := range which {
		switch len(of) {
		case 0:
		case 1:
			told = append(told, "step "+of[0]+" "+ends[end])
		default:
			told = append(told, "each of steps "+strings.Join(of, ", ")+" "+ends[end])
		}
	}
	if len(told) == 0 {
		return steps, ""
	}
	return steps, fmt.Sprintf("Of rev-%d, which was approved, %s.", plan.Spec.Revision, strings.Join(told, "; "))
}

// state that a job ended in, or the one that a person settled it as.
func state(j *v1alpha1.DeviceJob) v1alpha1.JobState {
	if s := j.Status.Settled; s != nil && s.As != "" {
		return v1alpha1.JobState(s.As)
	}
	return j.Status.State
}
