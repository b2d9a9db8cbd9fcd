package workitem

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/condition"
	"nisse.io/nisse/controllers/gate/opening"
	"nisse.io/nisse/controllers/gate/render"
	"nisse.io/nisse/controllers/gate/subject"
	"nisse.io/nisse/controllers/pass"
	"nisse.io/nisse/internal/telemetry"
)

// maxWaitingFor is the limit of status.waitingFor.
const maxWaitingFor = 512

// settle computes the status, however the pass ended.
func (s *scope) settle(err error) {
	if s.undecided() {
		return
	}
	st, gen := &s.item.Status, s.item.Generation
	var stall *pass.Stall
	var wait *pass.Waiting
	switch {
	case errors.As(err, &stall):
		condition.Stalled(&st.Conditions, gen, stall.Reason, stall.Message)
	case errors.As(err, &wait) && wait.Reason != "":
		condition.Ready(&st.Conditions, gen, metav1.ConditionFalse, wait.Reason, wait.Message)
	case err != nil && !pass.Final(err):
		// Nothing of a broken pass is kept: half an answer would be written as a whole one.
		s.item.Status = *s.before.Status.DeepCopy()
		condition.Retrying(&s.item.Status.Conditions, gen, "The API server could not be asked; trying again.")
		return
	case s.hinderedByAgent(), s.hinderedByPlan(stalled), s.hinderedByModel(), s.hinderedByPlan(anyhow):
	default:
		condition.Ready(&st.Conditions, gen, metav1.ConditionTrue, v1alpha1.ReasonProgressing, "")
	}
	st.ObservedGeneration = gen
	st.WaitingFor = s.waitingFor()
	if s.latest != nil && (st.Plan == nil || s.latest.Spec.Revision >= st.Plan.Revision) { // it never goes back: what was replaced stays replaced
		st.Plan = &v1alpha1.PlanRef{Name: s.latest.Name, Revision: s.latest.Spec.Revision}
	}
}

// hinderedByAgent repeats on the item why its agent cannot work until a person acts, and tells whether that is so. It comes before
// what hinders the plan: whatever the plan lacks, this agent will not mend it.
func (s *scope) hinderedByAgent() bool {
	if s.agent == nil || s.item.Status.State == v1alpha1.WorkItemClosed {
		return false
	}
	why := s.agent.Stalled()
	if why == nil {
		return false
	}
	condition.Stalled(&s.item.Status.Conditions, s.item.Generation, why.Reason, why.Message)
	return true
}

// hinderedByModel tells people that the agent cannot use its model, and whether that is so. It comes before what a better plan
// would mend: without a model there is none.
func (s *scope) hinderedByModel() bool {
	st := &s.item.Status
	if !s.modelUnusable() {
		return false
	}
	// Not stalled: the agent keeps trying, and goes on by itself once the model answers.
	condition.Ready(&st.Conditions, s.item.Generation, metav1.ConditionFalse, v1alpha1.ReasonModelUnusable,
		"The agent reports that it cannot use its model; mend its address, name or key in spec.models of Agent "+s.item.Spec.Agent+", and it goes on. "+st.Runtime.Trouble.Message)
	return true
}

func (s *scope) modelUnusable() bool {
	rt := s.item.Status.Runtime
	return s.item.Status.State != v1alpha1.WorkItemClosed && rt != nil && rt.Trouble != nil && rt.Trouble.Reason == v1alpha1.TroubleModelUnusable
}

// stalled counts only what the agent cannot mend by another plan, anyhow all of it.
const stalled, anyhow = true, false

// hinderedByPlan repeats on the item why its latest plan was not shown to anybody, and tells whether that is so.
func (s *scope) hinderedByPlan(stalledOnly bool) bool {
	st, gen := &s.item.Status, s.item.Generation
	if st.State == v1alpha1.WorkItemClosed || s.latest == nil || s.latest.Status.State != v1alpha1.PlanNotReady || s.latest.Spec.Revision <= st.ClosedRevision {
		return false
	}
	why := meta.FindStatusCondition(s.latest.Status.Conditions, v1alpha1.ConditionReady)
	if why == nil || why.Status != metav1.ConditionFalse {
		return false
	}
	// The agent can submit a better plan by itself; whatever else hinders a plan wants a person.
	switch stuck := why.Reason != v1alpha1.ReasonPlanNotReady && meta.IsStatusConditionTrue(s.latest.Status.Conditions, v1alpha1.ConditionStalled); {
	case stuck:
		condition.Stalled(&st.Conditions, gen, why.Reason, why.Message)
	case stalledOnly:
		return false
	default:
		condition.Ready(&st.Conditions, gen, metav1.ConditionFalse, why.Reason, why.Message)
	}
	return true
}

// waitingFor tells a person whom the item waits for.
func (s *scope) waitingFor() string {
	var who string
	switch s.item.Status.State {
	case v1alpha1.WorkItemClosed, "":
	case v1alpha1.WorkItemOpen:
		if s.agent != nil && s.agent.Status.ActiveWorkItem != "" {
			who = s.agent.Status.ActiveWorkItem
		} else {
			who = s.item.Spec.Agent
		}
	case v1alpha1.WorkItemWorking:
		who = s.item.Spec.Agent
		if s.modelUnusable() {
			who = "the model of " + who
		}
	case v1alpha1.WorkItemAwaitingApproval:
		who = s.people(v1alpha1.RightApprove)
	case v1alpha1.WorkItemAwaitingInput:
		who = s.people(v1alpha1.RightInstruct)
		if subject.Held(s.item) != nil {
			who = s.people(v1alpha1.RightApprove)
		}
	}
	if len(who) > maxWaitingFor {
		who = who[:maxWaitingFor-3] + "..."
	}
	return who
}

func (s *scope) people(with v1alpha1.Right) string {
	if s.agent == nil {
		return ""
	}
	if with == v1alpha1.RightApprove {
		return render.Names(opening.Approvers(s.agent))
	}
	var names []string
	for _, p := range s.agent.Spec.People {
		if slices.Contains(p.May, with) {
			names = append(names, p.Name)
		}
	}
	return render.Names(names)
}

// tell the story after the write.
func (r *Reconciler) tell(ctx context.Context, s *scope) {
	from, to := s.before.Status.State, s.item.Status.State
	if from == to {
		return
	}
	cause := s.item.Spec.Agent
	if s.item.Status.Plan != nil {
		cause = s.item.Status.Plan.Name
	}
	attrs := []slog.Attr{slog.String("work_item", s.item.Name), slog.String("from", string(from)), slog.String("to", string(to))}
	name := "work_item.moved"
	switch to {
	case v1alpha1.WorkItemOpen:
		name = "work_item.queued"
		r.Events.Eventf(s.item, nil, corev1.EventTypeNormal, "Queued", "Queue", "Queued behind %s.", s.item.Status.WaitingFor)
	case v1alpha1.WorkItemClosed:
		name = "work_item.closed"
		attrs = append(attrs, slog.String("result", string(s.item.Status.Outcome.Result)))
	case v1alpha1.WorkItemWorking, v1alpha1.WorkItemAwaitingApproval, v1alpha1.WorkItemAwaitingInput:
	}
	telemetry.Changed(ctx, r.Log, name, telemetry.Event{Agent: s.item.Spec.Agent, TaskID: s.item.Correlation(), Cause: cause}, attrs...)
}
