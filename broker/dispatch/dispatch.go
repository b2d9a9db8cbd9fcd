// Package dispatch carries out what the judge allows: it makes the DeviceJob, which is the step cursor, builds the request from the
// job's stored bytes, signs it after one more live look, and writes down what the device says. A job that has not ended is settled
// by asking the device, never by guessing.
package dispatch

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/broker/devices"
	"nisse.io/nisse/broker/judge"
	"nisse.io/nisse/broker/live"
	"nisse.io/nisse/broker/meter"
	"nisse.io/nisse/broker/report"
	"nisse.io/nisse/broker/serial"
	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/internal/deed"
	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/internal/names"
)

const (
	// requestLife is how long after its job's creation a deed may begin. Short, so that "never ran" is soon provable; long enough for
	// a device that is away for a moment.
	requestLife = 5 * time.Minute
	// grace that a device gets on top of a call's own time before the broker stops waiting for its answer.
	grace = 10 * time.Second
	// lockWait is how long a call waits for the one before it.
	lockWait = 10 * time.Second
	// unknownAfter its time is over, a job whose device cannot be asked, or proves nothing, counts as Unknown.
	unknownAfter = time.Hour
)

// Fence tells whether this broker is still the one that may act.
type Fence interface {
	Held(ctx context.Context) error
}

// Asker has a person asked about a single call. The item's lock is held.
type Asker interface {
	Ask(ctx context.Context, w judge.World, c judge.Call, allowed judge.Allowed) (doors.ToolResult, error)
}

// Dispatcher of one namespace. All fields are required.
type Dispatcher struct {
	Live      live.Reader
	API       client.Client
	Devices   *devices.Client
	Registry  *devices.Registry
	Report    report.Writer
	Locks     *serial.Keys
	Fence     Fence
	Asker     Asker
	Events    report.Events
	Meter     *meter.Meter
	Log       *slog.Logger
	Now       func() time.Time
	Namespace string
}

// Do judges a call and carries it out as far as it may be. item, when not empty, is the work item that the caller means.
func (d *Dispatcher) Do(ctx context.Context, agent, item string, c judge.Call) (doors.ToolResult, error) {
	turns := d.Locks.Turns()
	w, dec, err := d.look(ctx, agent, item, c)
	if err != nil {
		return doors.ToolResult{}, err
	}
	switch dec.Verdict {
	case judge.Free:
		return d.free(ctx, c, w, dec)
	case judge.Run, judge.Attach, judge.Halt, judge.Ask:
	default:
		return Result(dec), nil
	}
	waiting, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	unlock, ok := d.Locks.Lock(waiting, string(w.Item.UID))
	if !ok {
		if dec.Verdict == judge.Attach {
			return pending(dec, "It has not ended yet."), nil
		}
		return refused("Busy", "Another call of this work item has not ended; make this one again when it has."), nil
	}
	defer unlock()
	// Whoever held the lock may have changed everything. What people change is looked at once more before anything is sent.
	if d.Locks.Turns() != turns+1 {
		if w, dec, err = d.look(ctx, agent, item, c); err != nil {
			return doors.ToolResult{}, err
		}
	}
	switch dec.Verdict {
	case judge.Free:
		return d.free(ctx, c, w, dec)
	case judge.Halt:
		return d.halt(ctx, w, dec)
	case judge.Ask:
		return d.Asker.Ask(ctx, w, c, dec.Allowed)
	case judge.Attach:
		return d.settle(ctx, dec.Job, false)
	case judge.Run:
		return d.run(ctx, c, w, dec)
	default:
		return Result(dec), nil
	}
}

// look reads what the call is judged by and judges it.
func (d *Dispatcher) look(ctx context.Context, agent, item string, c judge.Call) (judge.World, judge.Decision, error) {
	w, err := d.Live.World(ctx, agent, "", c.Device)
	if err != nil {
		return w, judge.Decision{}, err
	}
	if dec := judge.Meant(item, w); dec != nil {
		return w, *dec, nil
	}
	return w, judge.Judge(c, w), nil
}

// free runs a call that needs no approval. There is no object for it; the device's table answers a repeated ID.
func (d *Dispatcher) free(ctx context.Context, c judge.Call, w judge.World, dec judge.Decision) (doors.ToolResult, error) {
	id := c.ID
	if id == "" {
		id = rand.Text() // it only reads: doing it again is better than an answer from before
	}
	t, err := devices.TargetOf(w.Device)
	if err != nil {
		return refused(judge.DeviceAway, err.Error()), nil
	}
	// A device that lacks the manifest would refuse this deed for good.
	if !d.Registry.Holds(c.Device, dec.Allowed.Digest) {
		if err := d.Registry.Ready(ctx, w.Device, signed(dec.Allowed)); err != nil {
			return d.unusable(c.Device, err), nil
		}
	}
	now := d.Now()
	r := wire.Request{
		V: wire.Version, Device: c.Device, ManifestDigest: dec.Allowed.Digest, Capability: c.Capability, Args: c.Args,
		// The item is part of the ID: call IDs that begin anew with an item must not bring back another item's answers.
		Deed: deed.Free(string(w.Agent.UID), string(w.Item.UID)+"/"+id),
		At:   now.Unix(), ExpiresAt: now.Add(time.Minute).Unix(), CorrelationID: w.Item.Correlation(), Agent: w.Agent.Name,
	}
	limit := time.Duration(dec.TimeoutSeconds)*time.Second + grace
	sending, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	stop := d.Meter.Dispatch()
	unfollow := d.follow(sending, t, r.Deed, r.Call().Hash())
	var a wire.Answer
	err = d.Registry.Heard(sending, w.Device, func() (err error) {
		a, err = d.Devices.Call(sending, t, r)
		return err
	}, signed(dec.Allowed))
	if err == nil && a.State == wire.Running {
		a, err = d.await(sending, t, r.Deed, r.Call().Hash())
	}
	unfollow()
	stop()
	if err != nil {
		return d.away(ctx, w.Device, err), nil
	}
	d.doubt(c.Device, a)
	return answered(a), nil
}

// signed manifest of what a device allows.
func signed(a judge.Allowed) devices.Signed {
	return devices.Signed{Name: names.Manifest(a.Device, string(a.Privilege)), Digest: a.Digest, Envelope: a.Envelope}
}

// doubt what the device holds when it refuses a call because of its manifest.
func (d *Dispatcher) doubt(device string, a wire.Answer) {
	switch a.Reason {
	case wire.OtherManifest, wire.ManifestExpired, wire.Revoked:
		d.Registry.Doubt(device)
	default:
	}
}

// unusable tells the agent of a device that was just asked.
func (d *Dispatcher) unusable(device string, err error) doors.ToolResult {
	reason := judge.DeviceAway
	if errors.Is(err, devices.ErrManifest) || devices.Refusal(err) != nil {
		reason = judge.ManifestRefused
	}
	return refused(reason, d.Registry.Away(device, err))
}

// away looks at a device that did not answer, so that its condition and the sentence for people say since when.
func (d *Dispatcher) away(ctx context.Context, dev *v1alpha1.Device, err error) doors.ToolResult {
	if probe := d.Registry.Ready(ctx, dev); probe != nil {
		return d.unusable(dev.Name, probe)
	}
	if devices.Refusal(err) != nil || errors.Is(err, devices.ErrManifest) {
		return d.unusable(dev.Name, err)
	}
	return refused(judge.DeviceAway, fmt.Sprintf("%s gave no answer to this call, though it answers otherwise: %v.", dev.Name, err))
}

// await asks for a deed that runs until it has ended.
func (d *Dispatcher) await(ctx context.Context, t devices.Target, id, callHash string) (wire.Answer, error) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return wire.Answer{}, fmt.Errorf("%w: it still runs", devices.ErrNoAnswer)
		case <-tick.C:
		}
		a, err := d.Devices.Deed(ctx, t, id, callHash)
		if err != nil || a.State != wire.Running {
			return a, err
		}
	}
}

func (d *Dispatcher) halt(ctx context.Context, w judge.World, dec judge.Decision) (doors.ToolResult, error) {
	h := v1alpha1.HaltReport{ID: dec.HaltID, Reason: v1alpha1.HaltReason(dec.Reason), Message: dec.Message, Step: dec.Step}
	if h.ID == "" {
		h.ID = "halt-" + rand.Text()
	}
	if dec.Plan != nil {
		h.Revision = dec.Plan.Spec.Revision
	}
	h, err := d.Report.Halt(ctx, w.Item, h)
	if err != nil {
		return doors.ToolResult{}, err
	}
	r := doors.ToolResult{Status: doors.Halted, Reason: string(h.Reason), Message: h.Message + " The work item is halted until a person answers continue, replan or abandon.",
		Revision: h.Revision, Step: h.Step}
	return r, nil
}
