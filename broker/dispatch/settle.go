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
	if why := replaced(j, dev); why != "" {
		return d.unreachable(ctx, j, why)
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

// replaced tells that another machine has the device's name now than when the job was made. What that one says of the deed is true and proves nothing.
func replaced(j *v1alpha1.DeviceJob, dev *v1alpha1.Device) string {
	if j.Spec.DeviceKey == "" || j.Spec.DeviceKey == dev.Spec.PublicKey { // jobs of a version that did not write it have none
		return ""
	}
	return fmt.Sprintf("The machine that had the name %s when this was asked for was replaced by another, so it cannot be asked.", j.Spec.Device)
}

// sendable is what a job is sent by, as it was when it was last looked at.
type sendable struct {
	world   judge.World
	force   judge.Force
	allowed judge.Allowed
	target  devices.Target
	// signature of a Person, where the step's rule demands one.
	signature string
}

// barredError says why a job may not be sent now.
type barredError struct{ because string }

func (e *barredError) Error() string { return "It was not sent: " + e.because }

// sendable looks live whether the job may be sent; a *barredError when it may not.
func (d *Dispatcher) sendable(ctx context.Context, j *v1alpha1.DeviceJob) (sendable, error) {
	w, err := d.Live.World(ctx, j.Spec.Agent, j.Spec.WorkItem.Name, j.Spec.Device)
	if err != nil {
		return sendable{}, err
	}
	if no := judge.StillGood(j, w); no != nil {
		return sendable{}, &barredError{no.Message}
	}
	if why := replaced(j, w.Device); why != "" {
		return sendable{}, &barredError{why}
	}
	f, no := judge.InForce(w)
	if no != nil {
		return sendable{}, &barredError{no.Message}
	}
	allowed, no := judge.Allows(w)
	if no != nil {
		return sendable{}, &barredError{no.Message}
	}
	t, err := devices.TargetOf(w.Device)
	if err != nil {
		return sendable{}, &barredError{err.Error()}
	}
	signature, no := judge.Signature(f, allowed, j.Spec.Step, w.Now)
	if no != nil {
		return sendable{}, &barredError{no.Message}
	}
	return sendable{w, f, allowed, t, signature}, nil
}

// send signs and sends after one more live look, since the judge looked before a job was written and a device asked. The device is told what it lacks
// before that look, or between two: it may take its time, and people may say stop meanwhile.
func (d *Dispatcher) send(ctx context.Context, j *v1alpha1.DeviceJob) (doors.ToolResult, error) {
	now, err := d.sendable(ctx, j)
	if dev := now.world.Device; err == nil && !d.Registry.Holds(dev.Name, now.allowed.Digest) { // it would refuse this deed for good
		if err := d.Registry.Ready(ctx, dev, signed(now.allowed)); err != nil {
			return d.unreachable(ctx, j, d.unusable(dev.Name, err).Message)
		}
		now, err = d.sendable(ctx, j)
	}
	var barred *barredError
	if errors.As(err, &barred) {
		return d.leave(ctx, j, barred.Error())
	}
	if err != nil {
		return doors.ToolResult{}, err
	}
	dev := now.world.Device
	if err := d.Fence.Held(ctx); err != nil {
		return doors.ToolResult{}, err
	}
	sending, cancel := context.WithTimeout(ctx, patience(now.allowed, j))
	defer cancel()
	crashpoint.Hit("broker.dispatch.before")
	stop := d.Meter.Dispatch()
	unfollow := d.follow(sending, now.target, j.Spec.Deed, callOf(j).Hash())
	var a wire.Answer
	asked := false
	err = d.Registry.Heard(sending, dev, func() (err error) {
		if asked { // it did not listen, and got its manifest since
			if now, err = d.sendable(ctx, j); err != nil {
				return err
			}
		}
		asked = true
		a, err = d.Devices.Call(sending, now.target, request(j, now.force.Gate.Status.Statement, now.signature, now.world.Item.Correlation(), d.Now()))
		return err
	}, signed(now.allowed))
	unfollow()
	stop()
	crashpoint.Hit("broker.dispatch.after")
	switch {
	case errors.As(err, &barred):
		return d.leave(ctx, j, barred.Error())
	case errors.Is(err, devices.ErrNotSent):
		return d.unreachable(ctx, j, d.away(ctx, dev, err).Message)
	case err != nil:
		// The request may have arrived and the answer been lost on the way: the device's table knows.
		if a, err = d.ask(ctx, dev, now.target, j); err != nil {
			return d.unreachable(ctx, j, d.away(ctx, dev, err).Message)
		}
	}
	d.doubt(dev.Name, a)
	return d.take(ctx, now.target, j, a)
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
	if a.State == wire.Running && !d.late(j) {
		until, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		unfollow := d.follow(until, t, j.Spec.Deed, callOf(j).Hash())
		ended, err := d.await(until, t, j.Spec.Deed, callOf(j).Hash())
		unfollow()
		if err != nil {
			return d.leave(ctx, j, fmt.Sprintf("It runs on %s and has not ended yet.", j.Spec.Device))
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
	case wire.Running:
		return d.leave(ctx, j, fmt.Sprintf("%s says that it runs and has not ended yet.", j.Spec.Device))
	case wire.Refused:
		if a.Reason.Transient() {
			return d.leave(ctx, j, fmt.Sprintf("%s did not begin it yet (%s): %s", j.Spec.Device, reasonOf(a.Reason), s.Message))
		}
		s.State, s.Message = v1alpha1.JobRefused, clean(reasonOf(a.Reason)+": "+a.Message, 1024)
		if a.Reason == wire.Expired {
			s.State = v1alpha1.JobExpired
		}
	case wire.NotSeen:
		if a.Now < j.Spec.ExpiresAt.Unix() {
			return d.leave(ctx, j, fmt.Sprintf("%s has not seen it (yet).", j.Spec.Device))
		}
		s.State, s.Message = v1alpha1.JobExpired, "The device proves that it never ran; its time is over."
	default:
		return d.leave(ctx, j, "The device gave an answer that is not understood.")
	}
	return d.record(ctx, j, s, a.AuditRow)
}

// late tells that a job's time has been over for so long that nobody will know any more how it ended.
func (d *Dispatcher) late(j *v1alpha1.DeviceJob) bool {
	return d.Now().After(j.Spec.ExpiresAt.Add(unknownAfter))
}

// leave a job without an end for now. A device that proves nothing, because its clock stands still or because it lies, does not hold up the work
// for good.
func (d *Dispatcher) leave(ctx context.Context, j *v1alpha1.DeviceJob, why string) (doors.ToolResult, error) {
	if d.late(j) {
		return d.unknown(ctx, j, fmt.Sprintf("%s does not prove whether it ran. %s", j.Spec.Device, why))
	}
	return waiting(j, why), nil
}

// unreachable leaves a job whose device cannot be asked.
func (d *Dispatcher) unreachable(ctx context.Context, j *v1alpha1.DeviceJob, why string) (doors.ToolResult, error) {
	if d.late(j) {
		return d.unknown(ctx, j, why)
	}
	return waiting(j, "device away: "+why), nil
}

func (d *Dispatcher) unknown(ctx context.Context, j *v1alpha1.DeviceJob, why string) (doors.ToolResult, error) {
	return d.record(ctx, j, v1alpha1.DeviceJobStatus{State: v1alpha1.JobUnknown, Message: clean(why, 1024)}, 0)
}
