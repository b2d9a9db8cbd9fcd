// Package plan takes an agent's plan: it is checked step by step with what the devices allow, normalised once, numbered, and stored
// for a person to decide. What is stored is what will be shown, hashed and run.
package plan

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/broker/dispatch"
	"nisse.io/nisse/broker/judge"
	"nisse.io/nisse/broker/live"
	"nisse.io/nisse/broker/serial"
	"nisse.io/nisse/broker/tools"
	"nisse.io/nisse/internal/canonical"
	"nisse.io/nisse/internal/crashpoint"
	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/internal/manifest"
	"nisse.io/nisse/internal/names"
	"nisse.io/nisse/internal/rates"
	"nisse.io/nisse/internal/telemetry"
)

const (
	// defaultRevisions of one item when the Agent sets no limit.
	defaultRevisions = 20
	// A person reads every revision: five at once, then one every ten seconds.
	revisionsPerSecond = 0.1
	revisionsAtOnce    = 5
	lockWait           = 10 * time.Second
)

// Submitter of one namespace. All fields are required.
type Submitter struct {
	Live      live.Reader
	API       client.Client
	Locks     *serial.Keys
	Rates     *rates.Buckets
	Log       *slog.Logger
	Namespace string
}

// Submission as the agent made it.
type Submission struct {
	// ID of the call; empty when it has none.
	ID string `json:"-"`
	// Item that the caller means; empty for the active one.
	Item   string `json:"-"`
	Reason string `json:"reason"`
	Steps  []Step `json:"steps"`
	// call: it is of one call that was made, and not submitted.
	call bool
}

// Step of a submission.
type Step struct {
	Device     string          `json:"device"`
	Capability string          `json:"capability"`
	Args       json.RawMessage `json:"args"`
}

// Submit stores the plan, or tells why not.
func (s *Submitter) Submit(ctx context.Context, agent string, sub Submission) (doors.ToolResult, error) {
	w, no, err := s.look(ctx, agent, sub)
	if err != nil || no != nil {
		return result(no), err
	}
	waiting, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	unlock, ok := s.Locks.Lock(waiting, string(w.Item.UID))
	if !ok {
		return refuse("Busy", "A step of the plan before runs; submit the plan again when it has ended."), nil
	}
	defer unlock()
	if w, no, err = s.look(ctx, agent, sub); err != nil || no != nil {
		return result(no), err
	}
	steps, refused, err := s.normalise(ctx, w, sub.Steps)
	if err != nil || refused != nil {
		return deref(refused), err
	}
	if r := again(w, sub, steps); r != nil {
		return *r, nil
	}
	return s.store(ctx, w, sub, steps)
}

// Ask stores a single call that a person is to be asked about, as a plan of that one step. The judge has seen to it that it may be made and that it
// was not asked about before. Whoever calls holds the item's lock.
func (s *Submitter) Ask(ctx context.Context, w judge.World, c judge.Call, allowed judge.Allowed) (doors.ToolResult, error) {
	step := v1alpha1.PlanStep{Device: c.Device, Capability: c.Capability, Args: c.Args, ManifestDigest: allowed.Digest}
	return s.store(ctx, w, Submission{ID: c.ID, call: true}, []v1alpha1.PlanStep{step})
}

func (s *Submitter) look(ctx context.Context, agent string, sub Submission) (judge.World, *judge.Decision, error) {
	w, err := s.Live.World(ctx, agent, "", "")
	if err != nil {
		return w, nil, err
	}
	if no := judge.Tool(tools.SubmitPlan, w.Agent); no != nil {
		return w, no, nil
	}
	if no := judge.Meant(sub.Item, w); no != nil {
		return w, no, nil
	}
	return w, judge.Item(w), nil
}

// normalise checks every step and brings it into its stored form. The first step that could never run refuses the plan.
func (s *Submitter) normalise(ctx context.Context, w judge.World, raw []Step) ([]v1alpha1.PlanStep, *doors.ToolResult, error) {
	if len(raw) == 0 {
		return nil, refusal("NoSteps", "A plan without steps does nothing and is shown to nobody. Give it the calls you want to make."), nil
	}
	if len(raw) > v1alpha1.PlanMaxSteps {
		return nil, refusal("PlanTooLong", "%d steps; a plan has %d at most. Split the work.", len(raw), v1alpha1.PlanMaxSteps), nil
	}
	known := map[string]judge.World{}
	steps := make([]v1alpha1.PlanStep, len(raw))
	for i, r := range raw {
		bad := func(reason, message string) ([]v1alpha1.PlanStep, *doors.ToolResult, error) {
			res := refusal(reason, "Step %d: %s", i+1, message)
			res.Step = int32(i + 1)
			return nil, res, nil
		}
		if no := judge.Tool(r.Capability, w.Agent); no != nil {
			return bad(no.Reason, no.Message)
		}
		args, err := tools.Capability(r.Capability, r.Args)
		if errors.Is(err, tools.ErrArguments) {
			return bad(judge.BadArguments, err.Error()+".")
		} else if err != nil {
			return nil, nil, err
		}
		at, seen := known[r.Device]
		if !seen {
			if at, err = s.at(ctx, w, r.Device); err != nil {
				return nil, nil, err
			}
			known[r.Device] = at
		}
		c := judge.Call{Device: r.Device, Capability: r.Capability, Args: string(args)}
		if no := judge.Device(c, at); no != nil {
			return bad(no.Reason, no.Message)
		}
		allowed, no := judge.Allows(at)
		if no != nil {
			return bad(no.Reason, no.Message)
		}
		if _, no := judge.Listed(c, allowed); no != nil {
			return bad(no.Reason, no.Message)
		}
		steps[i] = v1alpha1.PlanStep{Device: r.Device, Capability: r.Capability, Args: string(args), ManifestDigest: allowed.Digest}
	}
	return steps, nil, nil
}

// at a device: the world with it and its manifest. Nobody makes the broker read devices that are not theirs.
func (s *Submitter) at(ctx context.Context, w judge.World, device string) (judge.World, error) {
	if !slices.Contains(w.Agent.Spec.Devices, device) {
		return w, nil
	}
	d := &v1alpha1.Device{}
	switch err := s.Live.API.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: device}, d); {
	case err == nil:
		w.Device = d
	case !apierrors.IsNotFound(err):
		return w, fmt.Errorf("read device %s: %w", device, err)
	}
	var err error
	w.Manifest, err = s.Live.Manifest(ctx, w.Agent.Spec.Privilege, device)
	return w, err
}

// again finds the plan that this submission made before: by the call's ID, or because the same steps wait for an answer already.
func again(w judge.World, sub Submission, steps []v1alpha1.PlanStep) *doors.ToolResult {
	for i := range w.Plans {
		p := &w.Plans[i]
		if sub.ID == "" || p.Spec.Call || p.Spec.CallID != sub.ID || p.Spec.WorkItem.UID != string(w.Item.UID) {
			continue
		}
		if !sameCalls(p.Spec.Steps, steps) {
			return refusal(judge.CallIDReused, "The call ID was used for another plan. Give each call an ID of its own.")
		}
		r := submitted(p)
		return &r
	}
	latest, seen := judge.Latest(w), w.Item.Status.Plan
	if latest == nil || seen != nil && latest.Spec.Revision < seen.Revision || latest.Spec.Revision <= w.Item.Status.ClosedRevision || latest.Spec.Call || !slices.Equal(latest.Spec.Steps, steps) {
		return nil
	}
	if g := judge.GateOf(latest, w.Gates); g != nil && !g.Open() {
		return nil
	}
	r := submitted(latest)
	return &r
}

// sameCalls leaves the manifest out: a repeated call is the same call though the device changed since.
func sameCalls(a, b []v1alpha1.PlanStep) bool {
	return slices.EqualFunc(a, b, func(x, y v1alpha1.PlanStep) bool {
		return x.Device == y.Device && x.Capability == y.Capability && x.Args == y.Args
	})
}

func (s *Submitter) store(ctx context.Context, w judge.World, sub Submission, steps []v1alpha1.PlanStep) (doors.ToolResult, error) {
	revision := newest(w) + 1
	most := int32(defaultRevisions)
	if l := w.Agent.Spec.Limits; l != nil && l.PlanRevisions != nil {
		most = *l.PlanRevisions
	}
	if revision > most {
		return refuse("TooManyRevisions", fmt.Sprintf("This work item has had %d plans, the most it may have. Ask a person how to go on.", most)), nil
	}
	id := sub.ID
	if id == "" {
		id = "broker-" + rand.Text()
	}
	p := &v1alpha1.Plan{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, Name: names.Plan(w.Item.Name, revision),
			Labels:          map[string]string{v1alpha1.LabelAgent: w.Agent.Name, v1alpha1.LabelWorkItem: w.Item.Name},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "WorkItem", Name: w.Item.Name, UID: w.Item.UID}},
		},
		Spec: v1alpha1.PlanSpec{
			Agent: w.Agent.Name, AgentUID: string(w.Agent.UID), WorkItem: v1alpha1.ObjectRef{Name: w.Item.Name, UID: string(w.Item.UID)},
			Revision: revision, CallID: id, ToolSchemaDigest: manifest.SchemaDigest(), Body: sub.Reason, Call: sub.call, Steps: steps,
		},
	}
	b, err := canonical.Marshal(p.Spec)
	if err != nil {
		return refuse(judge.BadArguments, "The plan cannot be stored: "+err.Error()), nil
	}
	if len(b) > v1alpha1.PlanMaxBytes {
		return refuse("PlanTooLong", fmt.Sprintf("The plan has %d bytes; at most %d can be read and approved. Split the work.", len(b), v1alpha1.PlanMaxBytes)), nil
	}
	if wait, ok := s.Rates.Take(string(w.Item.UID), revisionsPerSecond, revisionsAtOnce); !ok {
		return refuse("RateLimited", fmt.Sprintf("Too many plans in a short time; a person reads each. Submit again in %d s.", int(wait.Seconds())+1)), nil
	}
	crashpoint.Hit("broker.plan.before")
	if err := s.API.Create(ctx, p); err != nil {
		return doors.ToolResult{}, fmt.Errorf("store plan rev-%d of %s: %w", revision, w.Item.Name, err)
	}
	crashpoint.Hit("broker.plan.after")
	telemetry.Changed(ctx, s.Log, "plan.submitted", telemetry.Event{Agent: w.Agent.Name, TaskID: w.Item.Correlation(), Cause: id},
		slog.String("plan", p.Name), slog.Int("steps", len(steps)))
	return submitted(p), nil
}

// newest revision that the item ever had, as far as is known: one that was deleted keeps its number, for its gate bears its name.
func newest(w judge.World) (revision int32) {
	if p := judge.Latest(w); p != nil {
		revision = p.Spec.Revision
	}
	if p := w.Item.Status.Plan; p != nil {
		revision = max(revision, p.Revision)
	}
	for i := range w.Gates {
		if g := &w.Gates[i]; g.LetsRun() && g.Spec.WorkItem.UID == string(w.Item.UID) {
			revision = max(revision, g.Spec.Revision)
		}
	}
	return revision
}

func submitted(p *v1alpha1.Plan) doors.ToolResult {
	r := doors.ToolResult{Status: doors.Pending, Reason: judge.AwaitingApproval, Gate: names.PlanGate(p.Name), Revision: p.Spec.Revision,
		Message: fmt.Sprintf("rev-%d is stored. A person decides; the work stream tells how. End your turn.", p.Spec.Revision)}
	if p.Spec.Call {
		r.Message = fmt.Sprintf("It was not run: a person is asked about this one call (rev-%d), and the work stream tells how they decide. Then make exactly this call again. End your turn.", p.Spec.Revision)
	}
	return r
}

func refuse(reason, message string) doors.ToolResult {
	return doors.ToolResult{Status: doors.Refused, Reason: reason, Message: message}
}

func refusal(reason, format string, args ...any) *doors.ToolResult {
	r := refuse(reason, fmt.Sprintf(format, args...))
	return &r
}

func result(d *judge.Decision) doors.ToolResult {
	if d == nil {
		return doors.ToolResult{}
	}
	return dispatch.Result(*d)
}

func deref(r *doors.ToolResult) doors.ToolResult {
	if r == nil {
		return doors.ToolResult{}
	}
	return *r
}
