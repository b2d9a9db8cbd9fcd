package judge

import (
	"fmt"
	"slices"
	"time"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/approval"
	"nisse.io/nisse/internal/clock"
	"nisse.io/nisse/internal/deed"
	"nisse.io/nisse/internal/names"
	"nisse.io/nisse/internal/sanitize"
)

// Force is a plan that a person approved and that nothing has replaced or ended.
type Force struct {
	Plan      *v1alpha1.Plan
	Gate      *v1alpha1.Gate
	Statement approval.Statement
}

// Latest is the plan with the highest revision of the item; nil when there is none.
func Latest(w World) *v1alpha1.Plan {
	var latest *v1alpha1.Plan
	for i := range w.Plans {
		p := &w.Plans[i]
		if p.Spec.WorkItem.UID == string(w.Item.UID) && (latest == nil || p.Spec.Revision > latest.Spec.Revision) {
			latest = p
		}
	}
	return latest
}

// GateOf a plan; nil while the manager has not opened it.
func GateOf(p *v1alpha1.Plan, gates []v1alpha1.Gate) *v1alpha1.Gate {
	i := slices.IndexFunc(gates, func(g v1alpha1.Gate) bool { return g.Name == names.PlanGate(p.Name) })
	if i < 0 {
		return nil
	}
	return &gates[i]
}

// InForce returns the plan in force, or why there is none.
func InForce(w World) (Force, *Decision) {
	p := Latest(w)
	if p == nil {
		return Force{}, refuse(NoPlan, "This needs a person's approval, and there is no plan. Submit one with submit_plan; its steps are the very calls you want to make.")
	}
	rev := fmt.Sprintf("rev-%d", p.Spec.Revision)
	with := func(d *Decision, g *v1alpha1.Gate) (Force, *Decision) {
		d.Plan, d.Gate = p, g
		return Force{}, d
	}
	if p.Spec.Revision <= w.Item.Status.ClosedRevision {
		return with(refuse(PlanClosed, "%s was ended: a person asked for another plan. Submit one with submit_plan.", rev), nil)
	}
	if latest := w.Item.Status.Plan; latest != nil && p.Spec.Revision < latest.Revision { // a plan that is deleted brings back none that it replaced
		return with(refuse(PlanSuperseded, "%s was replaced by rev-%d, which is gone. Submit another plan.", rev, latest.Revision), nil)
	}
	if p.Spec.AgentUID != string(w.Agent.UID) {
		return with(refuse(GateMismatch, "%s was submitted by an earlier agent of this name. Submit another plan.", rev), nil)
	}
	g := GateOf(p, w.Gates)
	if g == nil {
		return with(&Decision{Verdict: Wait, Reason: AwaitingApproval, Message: rev + " waits to be shown to the people who may approve it."}, nil)
	}
	if g.Spec.Kind != kind(p) || g.Spec.Subject.UID != string(p.UID) || g.Spec.WorkItem.UID != string(w.Item.UID) || g.Spec.Agent != w.Agent.Name {
		return with(refuse(GateMismatch, "The gate %s does not decide %s. Submit another plan.", g.Name, rev), g)
	}
	switch g.Status.Outcome {
	case v1alpha1.GateApproved:
	case "":
		return with(&Decision{Verdict: Wait, Reason: AwaitingApproval, Message: rev + " waits for a person's approval; the work stream tells when it is decided."}, g)
	case v1alpha1.GateRejected:
		return with(refuse(PlanRejected, "%s was rejected%s. Submit another plan.", rev, feedback(g)), g)
	case v1alpha1.GateExpired:
		return with(refuse(PlanExpired, "Nobody answered %s in time; nothing was run. Submit it again if it is still wanted.", rev), g)
	default:
		return with(refuse(PlanSuperseded, "%s was replaced or ended; nothing of it runs (any more). Submit another plan.", rev), g)
	}
	digest, err := PlanDigest(w.Agent, w.Item, p, g.Spec.WindowSeconds)
	if err != nil || digest != g.Spec.Digest {
		return with(refuse(DigestMismatch, "What was approved is not what %s says. Nothing was run. Submit another plan.", rev), g)
	}
	s, err := approval.Verify(g.Status.Statement, w.ApprovalKeys)
	if err != nil || s.GateUID != string(g.UID) || s.Digest != g.Spec.Digest || len(s.Calls) != len(p.Spec.Steps) || !resolves(s, p.Spec.Steps) {
		return with(refuse(StatementInvalid, "The approval of %s does not verify. Nothing was run; an administrator has to look at the approval key.", rev), g)
	}
	if w.Now.Unix() >= s.ExpiresAt {
		return with(refuse(ApprovalEnded, "The approval of %s was good until %s. Submit the plan again.", rev, clock.Tell(time.Unix(s.ExpiresAt, 0).UTC(), w.Now)), g)
	}
	if gone := revoked(s.Approvers, w.Agent); len(gone) > 0 {
		return with(refuse(ApproverRevoked, "%s approved %s and may not approve for %s any more. Nothing more of it runs. Submit the plan again for the people who may.",
			list(gone), rev, w.Agent.Name), g)
	}
	return Force{p, g, s}, nil
}

// kind of gate that decides a plan.
func kind(p *v1alpha1.Plan) v1alpha1.GateKind {
	if p.Spec.Call {
		return v1alpha1.GateCall
	}
	return v1alpha1.GatePlan
}

// revoked are those approvers who may not approve for the agent now. A statement says who might when it was signed; whoever lost the
// right since must not have deeds done in their name, and here is the last place where the cluster can say so.
func revoked(approvers []string, a *v1alpha1.Agent) []string {
	return slices.DeleteFunc(slices.Clone(approvers), func(name string) bool {
		return slices.ContainsFunc(a.Spec.People, func(p v1alpha1.AgentPerson) bool {
			return p.Name == name && slices.Contains(p.May, v1alpha1.RightApprove)
		})
	})
}

// PlanDigest recomputes what a gate's digest must be.
func PlanDigest(a *v1alpha1.Agent, it *v1alpha1.WorkItem, p *v1alpha1.Plan, window int32) (string, error) {
	steps := make([]approval.Step, len(p.Spec.Steps))
	for i, s := range p.Spec.Steps {
		steps[i] = approval.Step{Call: StepCall(s), Checks: []string{}, Attempts: 1}
		if r := s.Resolved; r != nil {
			steps[i].Resolved = approval.Program{Executable: r.Executable, SHA256: r.SHA256, User: r.User}.Canonical()
		}
	}
	return approval.PlanPreimage{
		AgentUID: string(a.UID), WorkItemUID: string(it.UID), PlanUID: string(p.UID), Revision: p.Spec.Revision,
		ToolSchemaDigest: p.Spec.ToolSchemaDigest, Steps: steps, WindowSeconds: window,
	}.Digest()
}

// resolves tells whether a statement approves the very programs that the steps were resolved to.
func resolves(s approval.Statement, steps []v1alpha1.PlanStep) bool {
	for i := range steps {
		want := ""
		if r := steps[i].Resolved; r != nil {
			want = r.SHA256
		}
		if s.Executable(int32(i+1)) != want {
			return false
		}
	}
	return true
}

// StepCall is the call that a step is.
func StepCall(s v1alpha1.PlanStep) approval.Call {
	return approval.Call{Device: s.Device, ManifestDigest: s.ManifestDigest, Capability: s.Capability, Args: s.Args}
}

// approved judges a call that needs approval.
func approved(c Call, w World, a Allowed) *Decision {
	if d := askedBefore(c, w); d != nil {
		return d
	}
	f, d := InForce(w)
	if d == nil {
		d = step(c, w, a, f)
		d.Plan, d.Gate = f.Plan, f.Gate
	}
	if askable(c, w, d) {
		return &Decision{Verdict: Ask, Plan: d.Plan, Gate: d.Gate}
	}
	return d
}

// askedBefore answers a call by its ID that a person was asked about, when something has replaced it since; nil when none did, or it is the
// latest, which is judged as such.
func askedBefore(c Call, w World) *Decision {
	latest := Latest(w)
	for i := range w.Plans {
		p := &w.Plans[i]
		if c.ID == "" || !p.Spec.Call || p.Spec.CallID != c.ID || p.Spec.WorkItem.UID != string(w.Item.UID) {
			continue
		}
		switch {
		case !same(c, p.Spec.Steps[0]):
			return refuse(CallIDReused, "The call ID %s was used for another call. Give each call an ID of its own.", sanitize.Quote(c.ID))
		case latest.Spec.Revision != p.Spec.Revision:
			d := refuse(PlanSuperseded, "This call was rev-%d, and rev-%d has replaced it. It was not run, and will not be.", p.Spec.Revision, latest.Spec.Revision)
			d.Plan = p
			return d
		}
	}
	return nil
}

// askable tells whether a person is to be asked about a call by itself: nothing has been planned, or what was is done, or the last thing that
// was asked about was a single call and has ended. A plan that was rejected, closed or broken off wants another plan, and a call that a
// person refused is not asked about again.
func askable(c Call, w World, d *Decision) bool {
	p := Latest(w)
	switch {
	case d.Verdict != Refuse:
		return false
	case d.Reason == NoPlan, d.Reason == PlanDone:
		return true
	case p == nil || !p.Spec.Call || c.ID != "" && p.Spec.CallID == c.ID:
		return false
	}
	switch d.Reason {
	case PlanRejected:
		return !same(c, p.Spec.Steps[0])
	case PlanClosed, PlanExpired, PlanSuperseded, PlanOver, ApprovalEnded, ApproverRevoked, ManifestChanged:
		return true
	}
	return false
}

// nextInForce tells whether the call is the next step of a plan in force. A plan may hold calls that would need no approval, such as
// reading back what was written; they are then steps like any other, or the plan could never go on after them.
func nextInForce(c Call, w World) bool {
	f, d := InForce(w)
	if d != nil {
		return false
	}
	n, d := cursor(w, f)
	return d == nil && n <= len(f.Plan.Spec.Steps) && same(c, f.Plan.Spec.Steps[n-1])
}

// step looks for the call's place in the plan in force.
func step(c Call, w World, a Allowed, f Force) *Decision {
	rev := fmt.Sprintf("rev-%d", f.Plan.Spec.Revision)
	next, d := cursor(w, f)
	if d != nil && d.Verdict == Halt {
		return d
	}
	// The next step comes before the ones that ran: a plan may have the same call twice.
	if d == nil && next <= len(f.Plan.Spec.Steps) && same(c, f.Plan.Spec.Steps[next-1]) {
		s := f.Plan.Spec.Steps[next-1]
		if s.ManifestDigest != a.Digest {
			return refuse(ManifestChanged, "What %s allows has changed since %s was submitted. Submit another plan.", s.Device, rev)
		}
		if err := f.Statement.Covers(int32(next), 1, StepCall(s), w.Now.Unix()); err != nil {
			return refuse(StatementInvalid, "Step %d of %s: %v. Nothing was run.", next, rev, err)
		}
		if _, no := Signature(f, a, int32(next), w.Now); no != nil {
			return no
		}
		return &Decision{Verdict: Run, Step: int32(next), Attempt: 1}
	}
	for i, s := range f.Plan.Spec.Steps {
		if j := JobOf(w.Jobs, f.Gate, int32(i+1)); j != nil && same(c, s) {
			return repeat(j)
		}
	}
	switch {
	case d != nil && d.Verdict == Wait && next < len(f.Plan.Spec.Steps) && same(c, f.Plan.Spec.Steps[next]):
		return d // the step after the pending one: it only comes too early
	case d != nil && d.Verdict == Refuse:
		return d
	case next > len(f.Plan.Spec.Steps):
		return refuse(PlanDone, "Every step of %s has run. Submit another plan for what is still to do.", rev)
	}
	return &Decision{Verdict: Halt, Reason: string(v1alpha1.HaltCallMismatch), Step: int32(next), Message: mismatch(w.Agent.Name, rev, next, f.Plan.Spec.Steps[next-1], c)}
}

// cursor is the number of the next step (one more than there are when all are done). A decision beside it says that the step may not
// be asked for now: it is pending, the plan is over, or a person has to say how it ended.
func cursor(w World, f Force) (int, *Decision) {
	rev := fmt.Sprintf("rev-%d", f.Plan.Spec.Revision)
	for n := 1; n <= len(f.Plan.Spec.Steps); n++ {
		j := JobOf(w.Jobs, f.Gate, int32(n))
		if j == nil {
			return n, nil
		}
		switch j.Status.State {
		case v1alpha1.JobSucceeded:
		case "":
			return n, &Decision{Verdict: Wait, Reason: StepPending, Step: int32(n), Message: fmt.Sprintf("Step %d of %s has not ended yet.", n, rev)}
		case v1alpha1.JobUnknown:
			switch s := settled(w, deed.UnknownHalt(j.Spec.Deed)); {
			case s == nil:
				return n, &Decision{Verdict: Halt, Reason: string(v1alpha1.HaltOutcomeUnknown), Step: int32(n), HaltID: deed.UnknownHalt(j.Spec.Deed), Message: UnknownMessage(j)}
			case s.Settle == v1alpha1.SettledFailed:
				return n, refuse(PlanOver, "%s settled step %d of %s as Failed, so the plan is over. Submit another plan.", s.Person, n, rev)
			}
		default:
			return n, refuse(PlanOver, "Step %d of %s ended as %s, so the plan is over. Submit another plan.", n, rev, j.Status.State)
		}
	}
	return len(f.Plan.Spec.Steps) + 1, nil
}

// JobOf a gate's step; nil when it was not asked for.
func JobOf(jobs []v1alpha1.DeviceJob, g *v1alpha1.Gate, step int32) *v1alpha1.DeviceJob {
	i := slices.IndexFunc(jobs, func(j v1alpha1.DeviceJob) bool { return j.Spec.Gate.UID == string(g.UID) && j.Spec.Step == step })
	if i < 0 {
		return nil
	}
	return &jobs[i]
}

// asked looks for the job that this very call asked for, by the call's own ID: an answer that exists is given whatever became of the
// plan or the item since, because "refused" and "halted" would say that it did not run. nil means that it was not asked for.
func asked(c Call, w World) *Decision {
	if c.ID == "" {
		return nil
	}
	i := slices.IndexFunc(w.Jobs, func(j v1alpha1.DeviceJob) bool { return j.Annotations[AnnotationCallID] == c.ID })
	if i < 0 {
		return nil
	}
	j := &w.Jobs[i]
	if j.Spec.Device != c.Device || j.Spec.Capability != c.Capability || j.Spec.Args != c.Args {
		return refuse(CallIDReused, "The call ID %s was used for another call. Give each call an ID of its own.", sanitize.Quote(c.ID))
	}
	return repeat(j)
}

// ran looks for a step in force that was this call and has ended, of a call that the device does not allow (any more): "refused" would say that it did
// not run. A call that is the next step too is that step, which is new and does not run; nil means that there is no answer.
func ran(c Call, w World) *Decision {
	f, d := InForce(w)
	if d != nil {
		return nil
	}
	steps := f.Plan.Spec.Steps
	next, d := cursor(w, f)
	if d != nil && d.Verdict == Halt || d == nil && next <= len(steps) && same(c, steps[next-1]) {
		return nil
	}
	for i, s := range steps {
		if j := JobOf(w.Jobs, f.Gate, int32(i+1)); j != nil && j.Status.State != "" && same(c, s) {
			d := repeat(j)
			d.Plan, d.Gate = f.Plan, f.Gate
			return d
		}
	}
	return nil
}

func repeat(j *v1alpha1.DeviceJob) *Decision {
	d := &Decision{Verdict: Repeat, Step: j.Spec.Step, Attempt: j.Spec.Attempt, Job: j}
	if j.Status.State == "" {
		d.Verdict = Attach
	}
	return d
}

func same(c Call, s v1alpha1.PlanStep) bool {
	return c.Device == s.Device && c.Capability == s.Capability && c.Args == s.Args
}

// settled is how a person closed a deed whose outcome nobody can prove, by answering the halt about it with continue; nil when nobody did.
func settled(w World, haltID string) *v1alpha1.GateDecision {
	for i := range w.Gates {
		g := &w.Gates[i]
		if g.Spec.Kind != v1alpha1.GateHalt || g.Spec.Halt == nil || g.Spec.Halt.Halt != haltID || g.Spec.WorkItem.UID != string(w.Item.UID) || g.Status.Outcome != v1alpha1.GateApproved {
			continue
		}
		if n := slices.IndexFunc(g.Status.Decisions, func(d v1alpha1.GateDecision) bool { return d.Answer == v1alpha1.AnswerContinue }); n >= 0 {
			return &g.Status.Decisions[n]
		}
	}
	return nil
}

// StillGood tells whether a job that has not ended may be sent (again): the same checks as for a new one, minus the cursor. nil means yes.
func StillGood(j *v1alpha1.DeviceJob, w World) *Decision {
	if d := Tool(j.Spec.Capability, w.Agent); d != nil {
		return d
	}
	if d := Device(Call{Device: j.Spec.Device}, w); d != nil {
		return d
	}
	if d := Item(w); d != nil {
		return d
	}
	f, d := InForce(w)
	if d != nil {
		return d
	}
	rev := fmt.Sprintf("rev-%d", f.Plan.Spec.Revision)
	if j.Spec.Gate.UID != string(f.Gate.UID) || j.Spec.WorkItem.UID != string(w.Item.UID) || int(j.Spec.Step) > len(f.Plan.Spec.Steps) {
		return refuse(PlanSuperseded, "The job belongs to an earlier plan; %s is in force.", rev)
	}
	call := approval.Call{Device: j.Spec.Device, ManifestDigest: j.Spec.ManifestDigest, Capability: j.Spec.Capability, Args: j.Spec.Args}
	if call != StepCall(f.Plan.Spec.Steps[j.Spec.Step-1]) {
		return refuse(DigestMismatch, "The job is not step %d of %s. Nothing was sent.", j.Spec.Step, rev)
	}
	a, d := Allows(w)
	if d != nil {
		return d
	}
	if call.ManifestDigest != a.Digest {
		return refuse(ManifestChanged, "What %s allows has changed since %s was submitted.", j.Spec.Device, rev)
	}
	if err := f.Statement.Covers(j.Spec.Step, j.Spec.Attempt, call, w.Now.Unix()); err != nil {
		return refuse(StatementInvalid, "Step %d of %s: %v.", j.Spec.Step, rev, err)
	}
	if _, no := Signature(f, a, j.Spec.Step, w.Now); no != nil {
		return no
	}
	if !w.Now.Before(j.Spec.ExpiresAt.Time) {
		return refuse(ApprovalEnded, "The time of step %d of %s is over.", j.Spec.Step, rev)
	}
	return nil
}
