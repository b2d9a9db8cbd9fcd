package dispatch

import (
	"context"
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/broker/judge"
	"nisse.io/nisse/internal/crashpoint"
	"nisse.io/nisse/internal/deed"
	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/internal/telemetry"
)

// record writes a job's end, once. If it has one already, that one stands.
func (d *Dispatcher) record(ctx context.Context, j *v1alpha1.DeviceJob, s v1alpha1.DeviceJobStatus, auditRow int64) (doors.ToolResult, error) {
	got, wrote := &v1alpha1.DeviceJob{}, false
	crashpoint.Hit("broker.result.before")
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := d.Live.API.Get(ctx, client.ObjectKeyFromObject(j), got); err != nil {
			return err
		}
		if wrote = got.UID == j.UID && got.Status.State == ""; !wrote {
			return nil
		}
		base := got.DeepCopy()
		got.Status = s
		conditions(got)
		return d.API.Status().Patch(ctx, got, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
	})
	if err != nil {
		return doors.ToolResult{}, fmt.Errorf("record the end of job %s: %w", j.Name, err)
	}
	crashpoint.Hit("broker.result.after")
	it := &v1alpha1.WorkItem{}
	if err := d.Live.API.Get(ctx, client.ObjectKey{Namespace: d.Namespace, Name: got.Spec.WorkItem.Name}, it); err != nil || string(it.UID) != got.Spec.WorkItem.UID {
		it = nil // the item is gone, and nobody is left to tell
	}
	if wrote {
		d.tell(ctx, got, it)
	}
	if got.Status.State == v1alpha1.JobUnknown && it != nil {
		if err := d.haltUnknown(ctx, got, it); err != nil {
			return doors.ToolResult{}, err
		}
	}
	r := FromJob(got)
	r.AuditRow = auditRow
	return r, nil
}

// conditions of a job that has ended, for kubectl wait and for tools that know nothing of jobs. They go in the same write as its end.
func conditions(j *v1alpha1.DeviceJob) {
	j.Status.ObservedGeneration = j.Generation
	c := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: string(j.Status.State), Message: j.Status.Message, ObservedGeneration: j.Generation}
	if j.Status.State != v1alpha1.JobSucceeded {
		c.Status = metav1.ConditionFalse
		stalled := c
		stalled.Type, stalled.Status = v1alpha1.ConditionStalled, metav1.ConditionTrue
		meta.SetStatusCondition(&j.Status.Conditions, stalled)
	}
	meta.SetStatusCondition(&j.Status.Conditions, c)
}

func (d *Dispatcher) tell(ctx context.Context, j *v1alpha1.DeviceJob, it *v1alpha1.WorkItem) {
	telemetry.Changed(ctx, d.Log, "devicejob.ended", jobEvent(j, it), slog.String("job", j.Name), slog.String("state", string(j.Status.State)),
		slog.Int("step", int(j.Spec.Step)), slog.String("audit_hash", j.Status.AuditHash))
	d.Meter.Ended(j.Status.State)
	if it == nil || j.Status.State == v1alpha1.JobSucceeded {
		return // the job tells of a success
	}
	d.Events.Eventf(it, nil, corev1.EventTypeWarning, "StepFailed", "Dispatch", "step %d of %s: %s on %s: %s", j.Spec.Step, j.Spec.Gate.Name, j.Spec.Capability, j.Spec.Device, j.Status.State)
}

// haltUnknown asks a person: the halt's ID comes from the deed, so that it is one halt however often it is filed.
func (d *Dispatcher) haltUnknown(ctx context.Context, j *v1alpha1.DeviceJob, it *v1alpha1.WorkItem) error {
	if it.Over() {
		return nil
	}
	_, err := d.Report.Halt(ctx, it, v1alpha1.HaltReport{ID: deed.UnknownHalt(j.Spec.Deed), Reason: v1alpha1.HaltOutcomeUnknown,
		Message: judge.UnknownMessage(j), Step: j.Spec.Step})
	return err
}
