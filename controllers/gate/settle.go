package gate

import (
	"context"
	"fmt"
	"log/slog"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/gate/policy"
	"nisse.io/nisse/controllers/pass"
	"nisse.io/nisse/internal/crashpoint"
	"nisse.io/nisse/internal/deed"
	"nisse.io/nisse/internal/telemetry"
)

// settleJob writes on a job whose outcome is unknown how a person closed it, once the gate that asked is decided. The gate's outcome is what
// counts, and this repeats it where people look for it; a manager that died in between does it when it looks at the gate again.
func (r *Reconciler) settleJob(ctx context.Context, g *v1alpha1.Gate) error {
	s := settlement(g)
	if s == nil {
		return nil
	}
	var jobs v1alpha1.DeviceJobList
	if err := r.Live.List(ctx, &jobs, client.InNamespace(g.Namespace), client.MatchingFields{v1alpha1.FieldWorkItem: g.Spec.WorkItem.Name}); err != nil {
		return fmt.Errorf("list the jobs of %s: %w", g.Spec.WorkItem.Name, err)
	}
	for i := range jobs.Items {
		j := &jobs.Items[i]
		if j.Spec.WorkItem.UID != g.Spec.WorkItem.UID || deed.UnknownHalt(j.Spec.Deed) != g.Spec.Halt.Halt || j.Status.State != v1alpha1.JobUnknown || j.Status.Settled != nil {
			continue
		}
		if err := r.writeSettled(ctx, g, j, s); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reconciler) writeSettled(ctx context.Context, g *v1alpha1.Gate, j *v1alpha1.DeviceJob, s *v1alpha1.JobSettlement) error {
	before := j.DeepCopy()
	j.Status.Settled = s
	crashpoint.Hit("manager.settle.before")
	if _, err := pass.WriteStatus(ctx, r.Client, before, j); err != nil {
		return client.IgnoreNotFound(err)
	}
	crashpoint.Hit("manager.settle.after")
	telemetry.Changed(ctx, r.Log, "devicejob.settled", telemetry.Event{Agent: g.Spec.Agent, TaskID: g.Spec.WorkItem.Name, Cause: s.Approval},
		slog.String("job", j.Name), slog.String("as", string(s.As)), slog.String("by", s.Person), slog.String("gate", g.Name))
	return nil
}

// settleOver takes an Approval that says how a job of a gate ended whose work is over. No halt asks about it any more, so it is given to the gate that
// let the deed run. What is written on the job is the commit point. It returns false for what is no such Approval; one that does not count is refused.
func (r *Reconciler) settleOver(ctx context.Context, g *v1alpha1.Gate, a *v1alpha1.Approval) (bool, error) {
	if a.Spec.Settle == "" || !g.LetsRun() {
		return false, nil
	}
	var jobs v1alpha1.DeviceJobList
	if err := r.Live.List(ctx, &jobs, client.InNamespace(g.Namespace), client.MatchingFields{v1alpha1.FieldWorkItem: g.Spec.WorkItem.Name}); err != nil {
		return false, fmt.Errorf("list the jobs of %s: %w", g.Spec.WorkItem.Name, err)
	}
	var j *v1alpha1.DeviceJob // one at most: the steps after it waited for what became of it
	for i := range jobs.Items {
		switch o := &jobs.Items[i]; {
		case o.Spec.Gate.UID != string(g.UID) || o.Status.State != v1alpha1.JobUnknown:
		case o.Status.Settled == nil:
			j = o
		case o.Status.Settled.Approval == a.Name:
			return true, nil
		}
	}
	if j == nil {
		return false, nil
	}
	item, err := get(ctx, r.Live, client.ObjectKey{Namespace: g.Namespace, Name: g.Spec.WorkItem.Name}, &v1alpha1.WorkItem{})
	if err != nil || item != nil && string(item.UID) == g.Spec.WorkItem.UID && !item.Over() {
		return false, err
	}
	agent, err := get(ctx, r.Live, client.ObjectKey{Namespace: g.Namespace, Name: g.Spec.Agent}, &v1alpha1.Agent{})
	if err != nil {
		return false, err
	}
	var people v1alpha1.PersonList
	if err := r.Live.List(ctx, &people, client.InNamespace(g.Namespace)); err != nil {
		return false, fmt.Errorf("list people: %w", err)
	}
	person, reason, message := policy.JudgeOver(policy.Input{Gate: g, Approval: a, Agent: agent, People: people.Items})
	if reason != "" {
		return true, r.refuse(ctx, g, policy.Refusal{Approval: a, Reason: reason, Message: message})
	}
	return true, r.writeSettled(ctx, g, j, &v1alpha1.JobSettlement{As: a.Spec.Settle, Answer: a.Spec.Answer, Person: person, Approval: a.Name,
		Gate: v1alpha1.GateRef{Name: g.Name, UID: string(g.UID)}, Reason: a.Spec.Text, At: a.CreationTimestamp})
}

// settlement that the decision about a gate is; nil when it asks about no deed, or nobody decided it. Who says continue lets the plan go on
// after the step, so it counts as done unless they say otherwise.
func settlement(g *v1alpha1.Gate) *v1alpha1.JobSettlement {
	n := len(g.Status.Decisions)
	if g.Spec.Kind != v1alpha1.GateHalt || g.Spec.Halt == nil || !deed.IsUnknownHalt(g.Spec.Halt.Halt) || n == 0 {
		return nil
	}
	d := g.Status.Decisions[n-1]
	s := &v1alpha1.JobSettlement{As: d.Settle, Answer: d.Answer, Person: d.Person, Approval: d.Approval, Gate: v1alpha1.GateRef{Name: g.Name, UID: string(g.UID)}, Reason: d.Text, At: d.At}
	if s.As == "" && d.Answer == v1alpha1.AnswerContinue {
		s.As = v1alpha1.SettledSucceeded
	}
	return s
}
