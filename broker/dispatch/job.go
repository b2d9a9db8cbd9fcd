package dispatch

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/broker/judge"
	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/internal/approval"
	"nisse.io/nisse/internal/crashpoint"
	"nisse.io/nisse/internal/deed"
	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/internal/names"
	"nisse.io/nisse/internal/telemetry"
)

// run takes the next step: the job first, which says that it was asked for, then the request.
func (d *Dispatcher) run(ctx context.Context, c judge.Call, w judge.World, dec judge.Decision) (doors.ToolResult, error) {
	// A device that is away, or does not take the manifest, costs the plan nothing: without a job the step is still to be taken.
	if err := d.Registry.Ready(ctx, w.Device, signed(dec.Allowed)); err != nil {
		r := d.unusable(c.Device, err)
		r.Step, r.Revision = dec.Step, dec.Plan.Spec.Revision
		return r, nil
	}
	f, no := judge.InForce(w)
	if no != nil {
		return Result(*no), nil
	}
	job := d.job(c, w, f, dec)
	crashpoint.Hit("broker.job.before")
	err := d.API.Create(ctx, job)
	fresh := err == nil
	if apierrors.IsAlreadyExists(err) {
		job, err = d.existing(ctx, job)
	}
	if err != nil {
		return doors.ToolResult{}, fmt.Errorf("record that step %d was asked for: %w", dec.Step, err)
	}
	crashpoint.Hit("broker.job.after")
	if fresh {
		telemetry.Changed(ctx, d.Log, "devicejob.created", jobEvent(job, w.Item), slog.String("job", job.Name), slog.Int("step", int(job.Spec.Step)))
	}
	return d.settle(ctx, job, fresh)
}

func (d *Dispatcher) job(c judge.Call, w judge.World, f judge.Force, dec judge.Decision) *v1alpha1.DeviceJob {
	s := f.Plan.Spec.Steps[dec.Step-1]
	id := deed.Approved(string(f.Gate.UID), dec.Step, dec.Attempt)
	ends := time.Unix(f.Statement.ExpiresAt, 0)
	if soon := d.Now().Add(requestLife); soon.Before(ends) {
		ends = soon
	}
	job := &v1alpha1.DeviceJob{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: names.Job(id),
			Labels:          map[string]string{v1alpha1.LabelAgent: w.Agent.Name, v1alpha1.LabelWorkItem: w.Item.Name},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "WorkItem", Name: w.Item.Name, UID: w.Item.UID}},
		},
		Spec: v1alpha1.DeviceJobSpec{
			Agent: w.Agent.Name, AgentUID: string(w.Agent.UID), WorkItem: v1alpha1.ObjectRef{Name: w.Item.Name, UID: string(w.Item.UID)},
			// The plan's bytes, which were approved, not the caller's, which merely equal them.
			Device: s.Device, DeviceKey: w.Device.Spec.PublicKey, ManifestDigest: s.ManifestDigest, Capability: s.Capability, Args: s.Args,
			Deed: id, Gate: v1alpha1.GateRef{Name: f.Gate.Name, UID: string(f.Gate.UID)}, Step: dec.Step, Attempt: dec.Attempt,
			ExpiresAt: metav1.NewTime(ends),
		},
	}
	if c.ID != "" {
		job.Annotations = map[string]string{judge.AnnotationCallID: c.ID}
	}
	return job
}

// existing returns the job that bears the name already: asked for before, by this broker or the one before it. It must be the same
// deed to the byte but for its time and the machine, which may have been replaced.
func (d *Dispatcher) existing(ctx context.Context, want *v1alpha1.DeviceJob) (*v1alpha1.DeviceJob, error) {
	got := &v1alpha1.DeviceJob{}
	if err := d.Live.API.Get(ctx, client.ObjectKeyFromObject(want), got); err != nil {
		return nil, err
	}
	same := want.Spec
	same.ExpiresAt, same.DeviceKey = got.Spec.ExpiresAt, got.Spec.DeviceKey
	if got.Spec != same {
		return nil, fmt.Errorf("job %s exists and is another deed; nothing was sent", got.Name)
	}
	return got, nil
}

func callOf(j *v1alpha1.DeviceJob) approval.Call {
	return approval.Call{Device: j.Spec.Device, ManifestDigest: j.Spec.ManifestDigest, Capability: j.Spec.Capability, Args: j.Spec.Args}
}

// request is built from the job's stored bytes alone, so that whoever sends it again sends the same.
func request(j *v1alpha1.DeviceJob, statement, signature, correlationID string, now time.Time) wire.Request {
	return wire.Request{
		V: wire.Version, Device: j.Spec.Device, ManifestDigest: j.Spec.ManifestDigest, Capability: j.Spec.Capability, Args: j.Spec.Args,
		Deed: j.Spec.Deed, At: now.Unix(), ExpiresAt: j.Spec.ExpiresAt.Unix(), CorrelationID: correlationID, Agent: j.Spec.Agent,
		Approved: &wire.Approved{GateUID: j.Spec.Gate.UID, Step: j.Spec.Step, Attempt: j.Spec.Attempt, Statement: statement, Signature: signature},
	}
}

func jobEvent(j *v1alpha1.DeviceJob, it *v1alpha1.WorkItem) telemetry.Event {
	e := telemetry.Event{Agent: j.Spec.Agent, TaskID: j.Spec.WorkItem.Name, Cause: j.Spec.Gate.Name}
	if it != nil {
		e.TaskID = it.Correlation()
	}
	return e
}
