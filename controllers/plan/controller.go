// Package plan takes up plans: it opens the gate of a plan that can be asked about, and shows on the plan what became of it.
package plan

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/admission"
	"nisse.io/nisse/controllers/condition"
	"nisse.io/nisse/controllers/gate/opening"
	"nisse.io/nisse/controllers/gate/render"
	"nisse.io/nisse/controllers/gate/subject"
	"nisse.io/nisse/controllers/pass"
	"nisse.io/nisse/internal/names"
	"nisse.io/nisse/internal/telemetry"
)

// Guard tells whether forged approvals are kept out of a namespace. Without that no gate opens.
type Guard interface {
	Enforced(ctx context.Context, namespace string) error
}

// Reconciler opens the gates of plans.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Guard against forged approvals.
	Guard Guard
	Log   *slog.Logger
	Now   func() time.Time
}

// scope is what one pass knows of a plan.
type scope struct {
	plan *v1alpha1.Plan
	// state that the phases found; empty leaves the plan's as it is.
	state v1alpha1.PlanState
}

// Reconcile one plan.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (_ reconcile.Result, err error) {
	var p v1alpha1.Plan
	if err := r.Client.Get(ctx, req.NamespacedName, &p); err != nil {
		return pass.Result(client.IgnoreNotFound(err))
	}
	if !p.DeletionTimestamp.IsZero() || final(p.Status.State) {
		return pass.Result(nil)
	}
	s := &scope{plan: p.DeepCopy()}
	err = r.phases(ctx, s)
	s.settle(err)
	if _, werr := pass.WriteStatus(ctx, r.Client, &p, s.plan); werr != nil {
		return pass.Result(errors.Join(unlessFinal(err), client.IgnoreNotFound(werr)))
	}
	return pass.Result(err)
}

// unlessFinal keeps the cause of a retry; how a pass ended otherwise is of no use when its status could not be written.
func unlessFinal(err error) error {
	if pass.Final(err) {
		return nil
	}
	return err
}

// final states never change: they repeat an outcome.
func final(s v1alpha1.PlanState) bool {
	switch s {
	case v1alpha1.PlanApproved, v1alpha1.PlanRejected, v1alpha1.PlanExpired, v1alpha1.PlanSuperseded:
		return true
	case v1alpha1.PlanNotReady, v1alpha1.PlanAwaitingApproval:
	}
	return false
}

func (r *Reconciler) phases(ctx context.Context, s *scope) error {
	var g v1alpha1.Gate
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.plan.Namespace, Name: names.PlanGate(s.plan.Name)}, &g)
	switch {
	case err == nil:
		if !opening.Same(&g, gateSubject(s.plan), s.plan.Spec.WorkItem) {
			return pass.Stalled(v1alpha1.ReasonForeignGate, "Gate %s is about something else; delete it.", g.Name)
		}
		s.follow(&g)
		return nil
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("read the gate of plan %s: %w", s.plan.Name, err)
	}
	return r.open(ctx, s)
}

func gateSubject(p *v1alpha1.Plan) v1alpha1.GateSubject {
	return v1alpha1.GateSubject{Kind: v1alpha1.SubjectPlan, Name: p.Name, UID: string(p.UID)}
}

// follow derives the plan's state from its gate.
func (s *scope) follow(g *v1alpha1.Gate) {
	s.state = map[v1alpha1.GateOutcome]v1alpha1.PlanState{"": v1alpha1.PlanAwaitingApproval, v1alpha1.GateApproved: v1alpha1.PlanApproved,
		v1alpha1.GateRejected: v1alpha1.PlanRejected, v1alpha1.GateExpired: v1alpha1.PlanExpired, v1alpha1.GateSuperseded: v1alpha1.PlanSuperseded}[g.Status.Outcome]
}

// open the plan's gate, if the question may be asked now. All of it is read live: a gate that is opened by an old cache would ask
// about work that is over.
func (r *Reconciler) open(ctx context.Context, s *scope) error {
	p := s.plan
	var item v1alpha1.WorkItem
	if err := r.Live.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: p.Spec.WorkItem.Name}, &item); apierrors.IsNotFound(err) {
		s.state = v1alpha1.PlanSuperseded
		return nil
	} else if err != nil {
		return fmt.Errorf("read the work item of plan %s: %w", p.Name, err)
	}
	var plans v1alpha1.PlanList
	if err := r.Live.List(ctx, &plans, client.InNamespace(p.Namespace), client.MatchingFields{v1alpha1.FieldWorkItem: item.Name}); err != nil {
		return fmt.Errorf("list the plans of %s: %w", item.Name, err)
	}
	latest := subject.Latest(&item, plans.Items)
	current := latest != nil && latest.UID == p.UID && subject.Newest(&item, plans.Items) == p.Spec.Revision
	if string(item.UID) != p.Spec.WorkItem.UID || item.Over() || p.Spec.Revision <= item.Status.ClosedRevision || !current {
		s.state = v1alpha1.PlanSuperseded
		return nil
	}
	if subject.Held(&item) != nil {
		return nil // the answer to what holds it comes first; the item's event starts the next pass
	}
	var agent v1alpha1.Agent
	if err := r.Live.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: item.Spec.Agent}, &agent); apierrors.IsNotFound(err) {
		return pass.Stalled(v1alpha1.ReasonAgentNotFound, "Agent %s does not exist.", item.Spec.Agent)
	} else if err != nil {
		return fmt.Errorf("read the agent of plan %s: %w", p.Name, err)
	}
	if agent.Spec.Suspend {
		return pass.Stalled(v1alpha1.ReasonSuspended, "Agent %s is suspended; no gate opens meanwhile.", agent.Name)
	}
	rules, err := r.rules(ctx, p, &item, &agent)
	var g *v1alpha1.Gate
	if err == nil {
		g, err = opening.Plan(p, &item, &agent, rules, r.Now())
	}
	switch {
	case errors.Is(err, subject.ErrNotReady), errors.Is(err, render.ErrTooLong):
		return pass.Stalled(v1alpha1.ReasonPlanNotReady, "rev-%d was not shown to anybody: %v.", p.Spec.Revision, err)
	case errors.Is(err, opening.ErrNoApprovers):
		return pass.Stalled(v1alpha1.ReasonNoApprovers, "%v.", err)
	case err != nil:
		return err
	}
	if err := r.Guard.Enforced(ctx, p.Namespace); errors.Is(err, admission.ErrMissing) {
		return &pass.Waiting{After: admission.Retry(), Reason: v1alpha1.ReasonAdmissionMissing, Message: err.Error()}
	} else if err != nil {
		return err
	}
	if alone, err := opening.Alone(ctx, r.Live, &item, g.Name); err != nil || !alone {
		return err
	}
	return r.create(ctx, s, &item, g)
}

// create the gate and tell of it, if it was not there already.
func (r *Reconciler) create(ctx context.Context, s *scope, item *v1alpha1.WorkItem, g *v1alpha1.Gate) error {
	made, created, err := opening.Create(ctx, r.Client, r.Live, g)
	if err != nil {
		return err
	}
	if created {
		telemetry.Changed(ctx, r.Log, "gate.opened", telemetry.Event{Agent: g.Spec.Agent, TaskID: item.Correlation(), Cause: s.plan.Name},
			slog.String("gate", made.Name), slog.String("gate_uid", string(made.UID)), slog.String("digest", made.Spec.Digest))
	}
	s.follow(made)
	return nil
}

// settle computes the status, however the pass ended.
func (s *scope) settle(err error) {
	st, gen := &s.plan.Status, s.plan.Generation
	var stall *pass.Stall
	var wait *pass.Waiting
	switch {
	case errors.As(err, &stall):
		st.State = v1alpha1.PlanNotReady
		condition.Stalled(&st.Conditions, gen, stall.Reason, stall.Message)
	case errors.As(err, &wait) && wait.Reason != "":
		st.State = v1alpha1.PlanNotReady
		condition.Ready(&st.Conditions, gen, metav1.ConditionFalse, wait.Reason, wait.Message)
	case err != nil:
		condition.Retrying(&st.Conditions, gen, "The API server could not be asked; trying again.")
		return
	case s.state == "":
		return // nothing is known yet, and nothing is written
	case s.state == v1alpha1.PlanAwaitingApproval && fresh(st.Conditions):
		return // as every plan begins: its gate and its work item tell that a person is asked
	default:
		st.State = s.state
		condition.Ready(&st.Conditions, gen, metav1.ConditionTrue, string(s.state), "")
	}
	st.ObservedGeneration = gen
}

// fresh tells whether conditions are those that every plan begins with.
func fresh(all []metav1.Condition) bool {
	c := meta.FindStatusCondition(all, v1alpha1.ConditionReady)
	return c == nil || c.Status == metav1.ConditionUnknown && c.Reason == string(v1alpha1.PlanAwaitingApproval)
}
