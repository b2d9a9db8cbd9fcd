package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/broker/devices"
	"nisse.io/nisse/broker/judge"
	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/internal/crashpoint"
	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/internal/manifest"
)

// settle brings a job to its end as far as the device's word goes. The item's lock is held. fresh means that this broker made the
// job a moment ago, so that no request for it can be anywhere yet. It is safe to die at any line and to begin anew.
func (d *Dispatcher) settle(ctx context.Context, j *v1alpha1.DeviceJob, fresh bool) (doors.ToolResult, error) {
	if j.Status.State != "" {
		return FromJob(j), nil
	}
	if fresh {
		return d.send(ctx, j)
	}
	dev := &v1alpha1.Device{}
	if err := d.Live.API.Get(ctx, client.ObjectKey{Namespace: d.Namespace, Name: j.Spec.Device}, dev); err != nil {
		if apierrors.IsNotFound(err) {
			return d.unreachable(ctx, j, fmt.Sprintf("There is no device %s any more, so it cannot be asked.", j.Spec.Device))
		}
		return doors.ToolResult{}, fmt.Errorf("read device %s: %w", j.Spec.Device, err)
	}
	t, err := devices.TargetOf(dev)
	if err != nil {
		return d.unreachable(ctx, j, err.Error())
	}
	a, err := d.ask(ctx, dev, t, j)
	if err != nil {
		return d.unreachable(ctx, j, d.away(ctx, dev, err).Message)
	}
	if a.State != wire.NotSeen {
		return d.take(ctx, t, j, a)
	}
	if a.Now >= j.Spec.ExpiresAt.Unix() {
		return d.record(ctx, j, v1alpha1.DeviceJobStatus{State: v1alpha1.JobExpired, Message: "The device proves that it never ran; its time is over."}, 0)
	}
	return d.send(ctx, j)
}

// send signs and sends after one more live look: since the judge looked, a job was written and a device asked.
func (d *Dispatcher) send(ctx context.Context, j *v1alpha1.DeviceJob) (doors.ToolResult, error) {
	w, err := d.Live.World(ctx, j.Spec.Agent, j.Spec.WorkItem.Name, j.Spec.Device)
	if err != nil {
		return doors.ToolResult{}, err
	}
	if no := judge.StillGood(j, w); no != nil {
		return waiting(j, "It was not sent: "+no.Message), nil
	}
	f, no := judge.InForce(w)
	if no != nil {
		return waiting(j, "It was not sent: "+no.Message), nil
	}
	dev := w.Device
	t, err := devices.TargetOf(dev)
	if err != nil {
		return d.unreachable(ctx, j, err.Error())
	}
	allowed, no := judge.Allows(w)
	if no != nil {
		return waiting(j, "It was not sent: "+no.Message), nil
	}
	// A device that lacks the manifest would refuse this deed for good.
	if !d.Registry.Holds(dev.Name, allowed.Digest) {
		if err := d.Registry.Ready(ctx, dev, signed(allowed)); err != nil {
			return d.unreachable(ctx, j, d.unusable(dev.Name, err).Message)
		}
	}
	if err := d.Fence.Held(ctx); err != nil {
		return doors.ToolResult{}, err
	}
	r := request(j, f.Gate.Status.Statement, w.Item.Correlation(), d.Now())
	sending, cancel := context.WithTimeout(ctx, patience(allowed, j))
	defer cancel()
	crashpoint.Hit("broker.dispatch.before")
	stop := d.Meter.Dispatch()
	var a wire.Answer
	err = d.Registry.Heard(sending, dev, func() (err error) {
		a, err = d.Devices.Call(sending, t, r)
		return err
	}, signed(allowed))
	stop()
	crashpoint.Hit("broker.dispatch.after")
	switch {
	case errors.Is(err, devices.ErrNotSent):
		return d.unreachable(ctx, j, d.away(ctx, dev, err).Message)
	case err != nil:
		// The request may have arrived and the answer been lost on the way: the device's table knows.
		if a, err = d.ask(ctx, dev, t, j); err != nil {
			return d.unreachable(ctx, j, d.away(ctx, dev, err).Message)
		}
	}
	d.doubt(dev.Name, a)
	return d.take(ctx, t, j, a)
}

// patience is how long to wait for the device: the call's own time and some.
func patience(a judge.Allowed, j *v1alpha1.DeviceJob) time.Duration {
	seconds := manifest.DefaultTimeoutSeconds
	if v, err := a.Check(j.Spec.Capability, j.Spec.Args); err == nil {
		seconds = v.TimeoutSeconds
	}
	return time.Duration(seconds)*time.Second + grace
}

// ask the device what became of the deed. One that lost its manifests listens again when they are brought.
func (d *Dispatcher) ask(ctx context.Context, dev *v1alpha1.Device, t devices.Target, j *v1alpha1.DeviceJob) (a wire.Answer, err error) {
	asking, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	err = d.Registry.Heard(asking, dev, func() (err error) {
		a, err = d.Devices.Deed(asking, t, j.Spec.Deed, callOf(j).Hash())
		return err
	})
	return a, err
}

// take turns the device's answer into the job's end, or says that it has none yet.
func (d *Dispatcher) take(ctx context.Context, t devices.Target, j *v1alpha1.DeviceJob, a wire.Answer) (doors.ToolResult, error) {
	if a.State == wire.Running {
		until, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		ended, err := d.await(until, t, j.Spec.Deed, callOf(j).Hash())
		if err != nil {
			return waiting(j, fmt.Sprintf("It runs on %s and has not ended yet.", j.Spec.Device)), nil
		}
		a = ended
	}
	s := v1alpha1.DeviceJobStatus{Message: clean(a.Message, 1024), Result: shrink(a.Result), AuditHash: clean(a.AuditHash, 64), StartedAt: nano(a.StartedAt), FinishedAt: nano(a.FinishedAt)}
	switch a.State {
	case wire.Succeeded:
		s.State, s.Message = v1alpha1.JobSucceeded, ""
	case wire.Failed:
		s.State = v1alpha1.JobFailed
	case wire.Unknown:
		s.State = v1alpha1.JobUnknown
	case wire.Refused:
		if a.Reason.Transient() {
			return waiting(j, fmt.Sprintf("%s did not begin it yet (%s): %s", j.Spec.Device, reasonOf(a.Reason), s.Message)), nil
		}
		s.State, s.Message = v1alpha1.JobRefused, clean(reasonOf(a.Reason)+": "+a.Message, 1024)
		if a.Reason == wire.Expired {
			s.State = v1alpha1.JobExpired
		}
	case wire.NotSeen:
		if a.Now < j.Spec.ExpiresAt.Unix() {
			return waiting(j, fmt.Sprintf("%s has not seen it (yet).", j.Spec.Device)), nil
		}
		s.State, s.Message = v1alpha1.JobExpired, "The device proves that it never ran; its time is over."
	default:
		return waiting(j, "The device gave an answer that is not understood."), nil
	}
	return d.record(ctx, j, s, a.AuditRow)
}

// unreachable leaves a job without an end until its device can be asked; long after its time nobody will know any more.
func (d *Dispatcher) unreachable(ctx context.Context, j *v1alpha1.DeviceJob, why string) (doors.ToolResult, error) {
	if d.Now().After(j.Spec.ExpiresAt.Add(unknownAfter)) {
		return d.record(ctx, j, v1alpha1.DeviceJobStatus{State: v1alpha1.JobUnknown, Message: clean(why, 1024)}, 0)
	}
	return waiting(j, "device away: "+why), nil
}
