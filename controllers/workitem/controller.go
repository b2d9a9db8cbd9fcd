// Package workitem moves work items. Where an item stands follows from facts alone (package workflow); this package gathers them,
// asks people how a held item goes on, takes in their answer, and writes all of it as one status patch.
package workitem

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/gate/subject"
	"nisse.io/nisse/controllers/pass"
	"nisse.io/nisse/controllers/workitem/workflow"
)

// Guard tells whether forged approvals are kept out of a namespace. Without that no gate opens.
type Guard interface {
	Enforced(ctx context.Context, namespace string) error
}

// Reconciler moves work items.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Guard against forged approvals.
	Guard Guard
	// Events tells the item's story.
	Events events.EventRecorder
	Log    *slog.Logger
	Now    func() time.Time
}

// scope is what one pass knows of an item.
type scope struct {
	// before is the item as it was read, item the one whose status this pass computes.
	before, item *v1alpha1.WorkItem
	// agent that works on it; nil when it is gone. Set by load.
	agent *v1alpha1.Agent
	// plans and gates of the item, from the cache. Set by load.
	plans []v1alpha1.Plan
	gates []v1alpha1.Gate
	// latest plan; nil without any. Set by load.
	latest *v1alpha1.Plan
	// abandoned holds the decision that ended the item. Set by takeAnswer.
	abandoned *v1alpha1.GateDecision
	// effects that the workflow asks for. Set by advance.
	effects []workflow.Effect
}

// Reconcile one work item.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (reconcile.Result, error) {
	var item v1alpha1.WorkItem
	if err := r.Client.Get(ctx, req.NamespacedName, &item); err != nil {
		return pass.Result(client.IgnoreNotFound(err))
	}
	if !item.DeletionTimestamp.IsZero() {
		return pass.Result(nil)
	}
	s := &scope{before: &item, item: item.DeepCopy()}
	err := r.phases(ctx, s)
	s.settle(err)
	changed, werr := pass.WriteStatus(ctx, r.Client, s.before, s.item)
	if werr != nil {
		if pass.Final(err) {
			err = nil // how the pass ended is of no use when it could not be written
		}
		return pass.Result(errors.Join(err, client.IgnoreNotFound(werr)))
	}
	if changed {
		r.tell(ctx, s)
	}
	return pass.Result(err)
}

func (r *Reconciler) phases(ctx context.Context, s *scope) error {
	if s.item.Status.State == v1alpha1.WorkItemClosed {
		return nil
	}
	if err := r.load(ctx, s); err != nil {
		return err
	}
	if err := r.takeAnswer(ctx, s); err != nil {
		return err
	}
	if s.undecided() {
		return nil
	}
	if err := s.advance(); err != nil {
		return err
	}
	if err := r.end(ctx, s); err != nil {
		return err
	}
	if s.agent == nil && s.item.Status.State != v1alpha1.WorkItemClosed {
		return pass.Stalled(v1alpha1.ReasonAgentNotFound, "Agent %s does not exist.", s.item.Spec.Agent)
	}
	return r.ask(ctx, s)
}

// load gathers what the pass goes by. A cache that lags makes it move late, never wrongly: the broker reads live before it acts,
// and a patch from an old item fails on its lock.
func (r *Reconciler) load(ctx context.Context, s *scope) error {
	key := client.ObjectKey{Namespace: s.item.Namespace, Name: s.item.Spec.Agent}
	s.agent = &v1alpha1.Agent{}
	if err := r.Client.Get(ctx, key, s.agent); apierrors.IsNotFound(err) {
		s.agent = nil
	} else if err != nil {
		return fmt.Errorf("read agent %s: %w", key.Name, err)
	}
	of := []client.ListOption{client.InNamespace(s.item.Namespace), client.MatchingFields{v1alpha1.FieldWorkItem: s.item.Name}}
	var plans v1alpha1.PlanList
	if err := r.Client.List(ctx, &plans, of...); err != nil {
		return fmt.Errorf("list the plans of %s: %w", s.item.Name, err)
	}
	var gates v1alpha1.GateList
	if err := r.Client.List(ctx, &gates, of...); err != nil {
		return fmt.Errorf("list the gates of %s: %w", s.item.Name, err)
	}
	s.plans, s.latest = plans.Items, subject.Latest(s.item, plans.Items)
	for _, g := range gates.Items {
		if g.Spec.WorkItem.UID == string(s.item.UID) {
			s.gates = append(s.gates, g)
		}
	}
	return nil
}

// undecided tells whether the agent has not chosen yet what to work on. The new item is left alone until then: its first state
// would be overwritten a moment later.
func (s *scope) undecided() bool {
	return s.item.Status.State == "" && s.agent != nil && s.agent.Status.ActiveWorkItem == "" && s.facts() == (workflow.Facts{})
}

// facts of the item as the pass knows them now.
func (s *scope) facts() workflow.Facts {
	return workflow.Facts{
		Active:    s.agent != nil && s.agent.Status.ActiveWorkItem == s.item.Name,
		PlanOpen:  s.planOpen(),
		Asking:    s.item.Asking(),
		Held:      subject.Held(s.item) != nil,
		Finished:  s.item.Status.Runtime != nil && s.item.Status.Runtime.Finished != nil,
		Abandoned: s.abandoned != nil,
		Closing:   s.item.Spec.Close,
	}
}

// planOpen tells whether a plan waits for a decision: a gate is open, or the latest plan is about to get one. The second keeps the
// item from moving to Working and back between two revisions.
func (s *scope) planOpen() bool {
	asked := false
	for i := range s.gates {
		g := &s.gates[i]
		if !g.LetsRun() {
			continue
		}
		if g.Open() {
			return true
		}
		asked = asked || (s.latest != nil && g.Spec.Subject.UID == string(s.latest.UID))
	}
	if s.latest == nil || asked || s.latest.Spec.Revision <= s.item.Status.ClosedRevision {
		return false
	}
	return s.latest.Status.State == "" || s.latest.Status.State == v1alpha1.PlanAwaitingApproval
}

// advance moves the state.
func (s *scope) advance() error {
	w := v1alpha1.WorkflowOperations
	if s.agent != nil {
		w = s.agent.Spec.Workflow
	}
	state, effects, err := workflow.Advance(w, s.item.Status.State, s.facts())
	if err != nil {
		return pass.Stalled(v1alpha1.ReasonWorkflowUnknown, "%v.", err)
	}
	s.item.Status.State, s.effects = state, effects
	return nil
}
