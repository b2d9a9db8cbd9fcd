// Package subject says what a gate decides: the digest over it, the calls in it, and whether the question still stands.
package subject

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"time"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/approval"
	"nisse.io/nisse/internal/canonical"
	"nisse.io/nisse/internal/clock"
	"nisse.io/nisse/internal/manifest"
	"nisse.io/nisse/internal/names"
)

// ErrNotReady is wrapped when a plan may not be shown to anybody.
var ErrNotReady = errors.New("the plan is not ready")

// Check tells whether a plan can be asked about: it belongs to this item and this agent, has steps, and every byte of it is in the
// one form that everybody hashes. The broker has seen to that; the manager signs, and so it looks itself.
func Check(p *v1alpha1.Plan, item *v1alpha1.WorkItem, agent *v1alpha1.Agent) error {
	s := p.Spec
	switch {
	case s.WorkItem.Name != item.Name || s.WorkItem.UID != string(item.UID):
		return fmt.Errorf("%w: it is for another work item (%s, UID %s)", ErrNotReady, s.WorkItem.Name, s.WorkItem.UID)
	case s.Agent != agent.Name || s.AgentUID != string(agent.UID) || item.Spec.Agent != agent.Name:
		return fmt.Errorf("%w: it was submitted by another agent (%s, UID %s)", ErrNotReady, s.Agent, s.AgentUID)
	case p.Name != names.Plan(item.Name, s.Revision):
		return fmt.Errorf("%w: rev-%d must be called %s", ErrNotReady, s.Revision, names.Plan(item.Name, s.Revision))
	case len(s.Steps) == 0:
		return fmt.Errorf("%w: it has no steps", ErrNotReady)
	case s.Call && len(s.Steps) != 1:
		return fmt.Errorf("%w: it is a call, and has %d steps", ErrNotReady, len(s.Steps))
	case len(s.Steps) > v1alpha1.PlanMaxSteps:
		return fmt.Errorf("%w: it has %d steps, %d at most", ErrNotReady, len(s.Steps), v1alpha1.PlanMaxSteps)
	}
	for i, step := range s.Steps {
		args, err := approval.CanonicalArgs(json.RawMessage(step.Args))
		if err != nil {
			return fmt.Errorf("%w: arguments of step %d: %w", ErrNotReady, i+1, err)
		}
		if args != step.Args {
			return fmt.Errorf("%w: arguments of step %d are not in canonical form", ErrNotReady, i+1)
		}
		if err := resolved(step); err != nil {
			return fmt.Errorf("%w: step %d %w", ErrNotReady, i+1, err)
		}
	}
	b, err := canonical.Marshal(s)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotReady, err)
	}
	if len(b) > v1alpha1.PlanMaxBytes {
		return fmt.Errorf("%w: it has %d bytes, %d at most", ErrNotReady, len(b), v1alpha1.PlanMaxBytes)
	}
	return nil
}

var sha256 = regexp.MustCompile(`^[0-9a-f]{64}$`)

// resolved tells whether a step says what it runs, if it runs a program. What cannot be shown to people is not asked of them.
func resolved(s v1alpha1.PlanStep) error {
	switch r := s.Resolved; {
	case !manifest.Resolves(s.Capability) && r == nil:
		return nil
	case !manifest.Resolves(s.Capability):
		return fmt.Errorf("says which program it runs, and %s runs none of the agent's choice", s.Capability)
	case r == nil:
		return errors.New("does not say which program it runs")
	case !path.IsAbs(r.Executable) || path.Clean(r.Executable) != r.Executable || !sha256.MatchString(r.SHA256) || r.User == "":
		return errors.New("does not say properly which program it runs")
	}
	return nil
}

// program that a step was resolved to, for its preimage; empty when it runs none.
func program(s v1alpha1.PlanStep) string {
	if s.Resolved == nil {
		return ""
	}
	return approval.Program{Executable: s.Resolved.Executable, SHA256: s.Resolved.SHA256, User: s.Resolved.User}.Canonical()
}

// Calls of a plan, in order.
func Calls(p *v1alpha1.Plan) []approval.Call {
	calls := make([]approval.Call, len(p.Spec.Steps))
	for i, s := range p.Spec.Steps {
		calls[i] = approval.Call{Device: s.Device, ManifestDigest: s.ManifestDigest, Capability: s.Capability, Args: s.Args}
	}
	return calls
}

// Attempts that a step of a plan has in this version.
const Attempts = 1

// PlanDigest is the digest of everything that approving the plan approves.
func PlanDigest(p *v1alpha1.Plan, windowSeconds int32) (string, error) {
	pre := approval.PlanPreimage{AgentUID: p.Spec.AgentUID, WorkItemUID: p.Spec.WorkItem.UID, PlanUID: string(p.UID), Revision: p.Spec.Revision,
		ToolSchemaDigest: p.Spec.ToolSchemaDigest, WindowSeconds: windowSeconds}
	for i, c := range Calls(p) {
		pre.Steps = append(pre.Steps, approval.Step{Call: c, Attempts: Attempts, Resolved: program(p.Spec.Steps[i])})
	}
	d, err := pre.Digest()
	if err != nil {
		return "", fmt.Errorf("digest of plan %s: %w", p.Name, err)
	}
	return d, nil
}

// Statement over a gate and its plan.
func Statement(g *v1alpha1.Gate, p *v1alpha1.Plan, approvers []string, expiresAt time.Time) approval.Statement {
	s := approval.Statement{GateUID: string(g.UID), Digest: g.Spec.Digest, Approvers: approvers, ExpiresAt: expiresAt.Unix()}
	for _, c := range Calls(p) {
		s.Calls, s.Attempts = append(s.Calls, c.Hash()), append(s.Attempts, Attempts)
	}
	for i, step := range p.Spec.Steps {
		if r := step.Resolved; r != nil {
			if s.Resolved == nil {
				s.Resolved = make([]string, len(p.Spec.Steps))
			}
			s.Resolved[i] = r.SHA256
		}
	}
	return s
}

// Held returns the stop and the halt that hold an item; nil when nothing does.
func Held(item *v1alpha1.WorkItem) *v1alpha1.GateHaltRef {
	var ref v1alpha1.GateHaltRef
	if item.Stopped() {
		ref.Stop = item.Spec.Stop.ID
	}
	if item.Halted() {
		ref.Halt = item.Status.Runtime.Halt.ID
	}
	if ref == (v1alpha1.GateHaltRef{}) {
		return nil
	}
	return &ref
}

// HaltGate is the name of the gate that asks about what holds an item.
func HaltGate(item string, held v1alpha1.GateHaltRef) string {
	return names.HaltGate(item, held.Stop, held.Halt)
}

// HaltDigest is the digest of everything that answering the halt answers: whose work it is, which stop, which halt, and what was
// reported of it.
func HaltDigest(agentUID string, item *v1alpha1.WorkItem, held v1alpha1.GateHaltRef) (string, error) {
	pre := approval.HaltPreimage{AgentUID: agentUID, WorkItemUID: string(item.UID), Stop: held.Stop, Halt: held.Halt}
	if held.Halt != "" {
		pre.Message = item.Status.Runtime.Halt.Message
	}
	d, err := pre.Digest()
	if err != nil {
		return "", fmt.Errorf("digest of the halt of %s: %w", item.Name, err)
	}
	return d, nil
}

// Latest is the highest revision among an item's plans; nil without any. Plans of a namesake of the item do not count.
func Latest(item *v1alpha1.WorkItem, plans []v1alpha1.Plan) *v1alpha1.Plan {
	var latest *v1alpha1.Plan
	for i := range plans {
		p := &plans[i]
		if p.Spec.WorkItem.UID == string(item.UID) && (latest == nil || p.Spec.Revision > latest.Spec.Revision) {
			latest = p
		}
	}
	return latest
}

// Newest is the highest revision that an item's plans ever had, as far as is known; 0 without any. One that was deleted replaced those
// before it all the same: the broker runs none of them any more.
func Newest(item *v1alpha1.WorkItem, plans []v1alpha1.Plan) int32 {
	var newest int32
	if latest := Latest(item, plans); latest != nil {
		newest = latest.Spec.Revision
	}
	if seen := item.Status.Plan; seen != nil {
		newest = max(newest, seen.Revision)
	}
	return newest
}

// Superseded tells why an open gate's question no longer stands; empty while it does. item is nil when it is gone.
func Superseded(g *v1alpha1.Gate, item *v1alpha1.WorkItem, plans []v1alpha1.Plan, now time.Time) string {
	what := "The question"
	if g.LetsRun() {
		what = fmt.Sprintf("rev-%d", g.Spec.Revision)
	}
	at := clock.Tell(now.UTC(), g.CreationTimestamp.Time)
	switch {
	case item == nil || string(item.UID) != g.Spec.WorkItem.UID:
		return fmt.Sprintf("%s was dropped at %s: its work item is gone. Nothing was run.", what, at)
	case item.Over():
		return fmt.Sprintf("%s was dropped at %s: the work has ended. Nothing more runs for it.", what, at)
	}
	if g.Spec.Kind == v1alpha1.GateHalt {
		held := Held(item)
		switch {
		case held == nil:
			return fmt.Sprintf("%s was dropped at %s: it has been answered.", what, at)
		case *held != *g.Spec.Halt:
			return fmt.Sprintf("%s was replaced at %s: the work was stopped or halted anew, and that is asked about now.", what, at)
		}
		return ""
	}
	latest, newest := Latest(item, plans), Newest(item, plans)
	switch {
	case newest > g.Spec.Revision:
		return fmt.Sprintf("%s was replaced by rev-%d at %s; nothing of rev-%d was run.", what, newest, at, g.Spec.Revision)
	case latest == nil || latest.Spec.Revision < g.Spec.Revision:
		return fmt.Sprintf("%s was dropped at %s: the plan is gone. Nothing was run.", what, at)
	case item.Status.ClosedRevision >= g.Spec.Revision:
		return fmt.Sprintf("%s was dropped at %s: a person wants another plan. Nothing was run.", what, at)
	case Held(item) != nil:
		return fmt.Sprintf("%s was dropped at %s: the work was stopped. Nothing was run; the plan can be submitted again afterwards.", what, at)
	}
	return ""
}
