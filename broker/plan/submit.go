// Package plan takes an agent's plan: it is checked step by step with what the devices allow, normalised once, numbered, and stored
// for a person to decide. What is stored is what will be shown, hashed and run.
package plan

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

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
	Devices   Resolver
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
	locking, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	unlock, ok := s.Locks.Lock(locking, string(w.Item.UID))
	if !ok {
		return refuse("Busy", "A step of the plan before runs; submit the plan again when it has ended."), nil
	}
	defer unlock()
	if w, no, err = s.look(ctx, agent, sub); err != nil || no != nil {
		return result(no), err
	}
	steps, at, refused, err := s.normalise(ctx, w, sub.Steps)
	if err != nil || refused != nil {
		return deref(refused), err
	}
	if r := repeated(w, sub, steps); r != nil {
		return *r, nil
	}
	if p := waiting(w, steps); p != nil && len(questions(steps)) == 0 {
		return submitted(p), nil
	}
	return s.put(ctx, w, sub, steps, at, func() (judge.World, *judge.Decision, error) { return s.look(ctx, agent, sub) })
}

// Ask stores a single call that a person is to be asked about, as a plan of that one step. The judge has seen to it that it may be made and that it
// was not asked about before. Whoever calls holds the item's lock.
func (s *Submitter) Ask(ctx context.Context, w judge.World, c judge.Call, allowed judge.Allowed) (doors.ToolResult, error) {
	step := v1alpha1.PlanStep{Device: c.Device, Capability: c.Capability, Args: c.Args, ManifestDigest: allowed.Digest}
	at := map[string]place{c.Device: {world: w, allowed: allowed}}
	r, err := s.put(ctx, w, Submission{ID: c.ID, call: true}, []v1alpha1.PlanStep{step}, at, func() (judge.World, *judge.Decision, error) {
		now, err := s.Live.World(ctx, w.Agent.Name, "", c.Device)
		if err != nil {
			return now, nil, err
		}
		if d := judge.Judge(c, now); d.Verdict != judge.Ask {
			return now, &d, nil
		}
		return now, nil, nil
	})
	if r.Status == doors.Refused { // there are no steps to count
		r.Step, r.Message = 0, strings.TrimPrefix(r.Message, "Step 1: ")
	}
	return r, err
}

// put steps to people, once it is known what they run. That may take a while, in which people may say stop, so it is looked again.
func (s *Submitter) put(ctx context.Context, w judge.World, sub Submission, steps []v1alpha1.PlanStep, at map[string]place, look func() (judge.World, *judge.Decision, error)) (doors.ToolResult, error) {
	p, refused := s.build(w, sub, steps)
	if refused != nil {
		return *refused, nil
	}
	if refused = s.room(w); refused != nil {
		return *refused, nil
	}
	asked := questions(steps)
	if len(asked) == 0 {
		return s.store(ctx, w, p)
	}
	if refused, err := s.resolve(ctx, steps, at, asked); err != nil || refused != nil {
		return deref(refused), err
	}
	now, no, err := look()
	if err != nil || no != nil {
		return result(no), err
	}
	if now.Item.UID != w.Item.UID {
		return refuse(judge.OtherWorkItem, "Another work item became the active one meanwhile. Nothing was stored."), nil
	}
	if p := waiting(now, steps); p != nil && slices.EqualFunc(p.Spec.Steps, steps, sameProgram) {
		return submitted(p), nil
	}
	if p, refused = s.build(now, sub, steps); refused != nil {
		return *refused, nil
	}
	return s.store(ctx, now, p)
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

// repeated finds the plan that this very call made before, by the call's ID.
func repeated(w judge.World, sub Submission, steps []v1alpha1.PlanStep) *doors.ToolResult {
	for i := range w.Plans {
		p := &w.Plans[i]
		if sub.ID == "" || p.Spec.Call || p.Spec.CallID != sub.ID || p.Spec.WorkItem.UID != string(w.Item.UID) {
			continue
		}
		if !slices.EqualFunc(p.Spec.Steps, steps, sameCall) {
			return refusal(judge.CallIDReused, "The call ID was used for another plan. Give each call an ID of its own.")
		}
		r := submitted(p)
		return &r
	}
	return nil
}

// waiting finds the plan with the same steps that waits for an answer already; nil when there is none. What its steps were resolved to
// is not compared.
func waiting(w judge.World, steps []v1alpha1.PlanStep) *v1alpha1.Plan {
	latest, seen := judge.Latest(w), w.Item.Status.Plan
	if latest == nil || seen != nil && latest.Spec.Revision < seen.Revision || latest.Spec.Revision <= w.Item.Status.ClosedRevision || latest.Spec.Call {
		return nil
	}
	if !slices.EqualFunc(latest.Spec.Steps, steps, func(x, y v1alpha1.PlanStep) bool { return sameCall(x, y) && x.ManifestDigest == y.ManifestDigest }) {
		return nil
	}
	if g := judge.GateOf(latest, w.Gates); g != nil && !g.Open() {
		return nil
	}
	return latest
}

// sameCall leaves the manifest out: a repeated call is the same call though the device changed since.
func sameCall(x, y v1alpha1.PlanStep) bool {
	return x.Device == y.Device && x.Capability == y.Capability && x.Args == y.Args
}

// sameProgram tells whether two steps run the same, as far as they were resolved.
func sameProgram(x, y v1alpha1.PlanStep) bool {
	if x.Resolved == nil || y.Resolved == nil {
		return x.Resolved == y.Resolved
	}
	return *x.Resolved == *y.Resolved
}

// room for another revision. It is asked for before devices are: each revision costs them work and people their reading.
func (s *Submitter) room(w judge.World) *doors.ToolResult {
	most := int32(defaultRevisions)
	if l := w.Agent.Spec.Limits; l != nil && l.PlanRevisions != nil {
		most = *l.PlanRevisions
	}
	if newest(w) >= most {
		return refusal("TooManyRevisions", "This work item has had %d plans, the most it may have. Ask a person how to go on.", most)
	}
	if wait, ok := s.Rates.Take(string(w.Item.UID), revisionsPerSecond, revisionsAtOnce); !ok {
		return refusal("RateLimited", "Too many plans in a short time; a person reads each. Submit again in %d s.", int(wait.Seconds())+1)
	}
	return nil
}

// build the next revision, if it is one that can be read.
func (s *Submitter) build(w judge.World, sub Submission, steps []v1alpha1.PlanStep) (*v1alpha1.Plan, *doors.ToolResult) {
	revision := newest(w) + 1
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
		return nil, refusal(judge.BadArguments, "The plan cannot be stored: %v", err)
	}
	if len(b) > v1alpha1.PlanMaxBytes {
		return nil, refusal("PlanTooLong", "The plan has %d bytes; at most %d can be read and approved. Split the work.", len(b), v1alpha1.PlanMaxBytes)
	}
	return p, nil
}

func (s *Submitter) store(ctx context.Context, w judge.World, p *v1alpha1.Plan) (doors.ToolResult, error) {
	crashpoint.Hit("broker.plan.before")
	if err := s.API.Create(ctx, p); err != nil {
		return doors.ToolResult{}, fmt.Errorf("store plan rev-%d of %s: %w", p.Spec.Revision, w.Item.Name, err)
	}
	crashpoint.Hit("broker.plan.after")
	telemetry.Changed(ctx, s.Log, "plan.submitted", telemetry.Event{Agent: w.Agent.Name, TaskID: w.Item.Correlation(), Cause: p.Spec.CallID},
		slog.String("plan", p.Name), slog.Int("steps", len(p.Spec.Steps)))
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

// stepRefusal refuses a plan because of its step at index i.
func stepRefusal(i int, reason, message string) *doors.ToolResult {
	r := refusal(reason, "Step %d: %s", i+1, message)
	r.Step = int32(i + 1)
	return r
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
