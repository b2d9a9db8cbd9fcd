// Package gate decides gates. Gate.status.outcome is the commit point of every decision; all else is derived from it. Before it
// commits, the controller reads everything it judges by from the API server itself: a cache may be old, a decision may not.
package gate

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/gate/policy"
	"nisse.io/nisse/controllers/gate/subject"
	"nisse.io/nisse/controllers/pass"
	"nisse.io/nisse/internal/approval"
)

// Reconciler judges the Approvals of gates.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Sign a statement with the approval key.
	Sign func(approval.Statement) (string, error)
	// Events tells the story on the work item.
	Events events.EventRecorder
	Log    *slog.Logger
	Now    func() time.Time
	// Metrics is where Setup registers what it counts whenever it is asked.
	Metrics prometheus.Registerer
}

// scope is what one pass knows. load sets every field; item and agent are nil when they are gone, plan is nil for a Halt gate.
type scope struct {
	gate      *v1alpha1.Gate
	item      *v1alpha1.WorkItem
	agent     *v1alpha1.Agent
	plans     []v1alpha1.Plan
	plan      *v1alpha1.Plan
	people    []v1alpha1.Person
	approvals []v1alpha1.Approval
}

// Reconcile one gate.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (reconcile.Result, error) {
	var cached v1alpha1.Gate
	if err := r.Client.Get(ctx, req.NamespacedName, &cached); err != nil {
		return pass.Result(client.IgnoreNotFound(err))
	}
	if !cached.DeletionTimestamp.IsZero() {
		return pass.Result(nil)
	}
	if !cached.Open() {
		return pass.Result(r.refuseLate(ctx, &cached))
	}
	return pass.Result(r.decide(ctx, req))
}

// decide judges an open gate once, and commits if that settles it.
func (r *Reconciler) decide(ctx context.Context, req ctrl.Request) error {
	s, err := r.load(ctx, req)
	if err != nil || s == nil {
		return err
	}
	now := r.Now()
	if why := subject.Superseded(s.gate, s.item, s.plans, now); why != "" {
		return r.commit(ctx, s, policy.Verdict{Outcome: v1alpha1.GateSuperseded}, why, now)
	}
	if why, err := s.altered(); err != nil {
		return err
	} else if why != "" {
		return r.commit(ctx, s, policy.Verdict{Outcome: v1alpha1.GateSuperseded}, why, now)
	}
	v := policy.Decide(s.gate, s.agent, s.people, s.approvals, now)
	if v.Outcome != "" {
		if err := r.commit(ctx, s, v, "", now); err != nil {
			return err
		}
	}
	// After the commit: a person must not read "refused" because of a pass that was then lost to another.
	for _, refusal := range v.Refused {
		if err := r.refuse(ctx, s.gate, refusal); err != nil {
			return err
		}
	}
	if v.Outcome != "" {
		return nil
	}
	return pass.Later(s.gate.Spec.ExpiresAt.Add(policy.Grace).Sub(now))
}

// load reads everything live. It returns nil when the gate is gone or decided meanwhile.
func (r *Reconciler) load(ctx context.Context, req ctrl.Request) (*scope, error) {
	s := &scope{gate: &v1alpha1.Gate{}, item: &v1alpha1.WorkItem{}, agent: &v1alpha1.Agent{}}
	if err := r.Live.Get(ctx, req.NamespacedName, s.gate); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	if !s.gate.Open() {
		return nil, nil
	}
	ns := client.InNamespace(req.Namespace)
	if err := r.Live.Get(ctx, client.ObjectKey{Namespace: req.Namespace, Name: s.gate.Spec.WorkItem.Name}, s.item); apierrors.IsNotFound(err) {
		s.item = nil
	} else if err != nil {
		return nil, fmt.Errorf("read the work item of gate %s: %w", s.gate.Name, err)
	}
	if err := r.Live.Get(ctx, client.ObjectKey{Namespace: req.Namespace, Name: s.gate.Spec.Agent}, s.agent); apierrors.IsNotFound(err) {
		s.agent = nil
	} else if err != nil {
		return nil, fmt.Errorf("read the agent of gate %s: %w", s.gate.Name, err)
	}
	var plans v1alpha1.PlanList
	if err := r.Live.List(ctx, &plans, ns, client.MatchingFields{v1alpha1.FieldWorkItem: s.gate.Spec.WorkItem.Name}); err != nil {
		return nil, fmt.Errorf("list the plans of gate %s: %w", s.gate.Name, err)
	}
	s.plans = plans.Items
	for i := range s.plans {
		if s.plans[i].Name == s.gate.Spec.Subject.Name && s.gate.Spec.Kind == v1alpha1.GatePlan {
			s.plan = &s.plans[i]
		}
	}
	var people v1alpha1.PersonList
	if err := r.Live.List(ctx, &people, ns); err != nil {
		return nil, fmt.Errorf("list people: %w", err)
	}
	s.people = people.Items
	// Last, so that it is the newest: an expiry or an approval is judged with every rejection that was stored before this read.
	var approvals v1alpha1.ApprovalList
	if err := r.Live.List(ctx, &approvals, ns, client.MatchingFields{v1alpha1.FieldGate: s.gate.Name}); err != nil {
		return nil, fmt.Errorf("list the approvals of gate %s: %w", s.gate.Name, err)
	}
	s.approvals = approvals.Items
	return s, nil
}

// altered tells whether the subject is no longer what was shown. Specs are immutable; if one changed all the same (an older API
// server, a restored etcd, a namesake), nobody has seen what is there now.
func (s *scope) altered() (string, error) {
	var digest string
	var err error
	switch {
	case s.gate.Spec.Kind == v1alpha1.GateHalt:
		if s.agent == nil {
			return "", nil // nobody can decide while the agent is gone
		}
		digest, err = subject.HaltDigest(string(s.agent.UID), s.item, *s.gate.Spec.Halt)
	case s.plan == nil || string(s.plan.UID) != s.gate.Spec.Subject.UID:
		return "The plan that was shown is gone. Nothing was run.", nil
	case s.agent != nil && s.plan.Spec.AgentUID != string(s.agent.UID):
		return "The agent that submitted the plan is gone; another has its name now. Nothing was run.", nil
	default:
		digest, err = subject.PlanDigest(s.plan, s.gate.Spec.WindowSeconds)
	}
	if err != nil {
		return "", err
	}
	if digest != s.gate.Spec.Digest {
		return "What this gate is about is not what was shown. Nothing was run.", nil
	}
	return "", nil
}
