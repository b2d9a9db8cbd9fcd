package gate

import (
	"context"
	"fmt"
	"log/slog"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
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
		before := j.DeepCopy()
		j.Status.Settled = s
		crashpoint.Hit("manager.settle.before")
		if _, err := pass.WriteStatus(ctx, r.Client, before, j); err != nil {
			return client.IgnoreNotFound(err)
		}
		crashpoint.Hit("manager.settle.after")
		telemetry.Changed(ctx, r.Log, "devicejob.settled", telemetry.Event{Agent: g.Spec.Agent, TaskID: g.Spec.WorkItem.Name, Cause: s.Approval},
			slog.String("job", j.Name), slog.String("as", string(s.As)), slog.String("by", s.Person), slog.String("gate", g.Name))
	}
	return nil
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
