// Package gate decides gates. Gate.status.outcome is the commit point of every decision; all else is derived from it. Before it
// commits, the controller reads everything it judges by from the API server itself: a cache may be old, a decision may not.
package gate

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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

// again is when a gate whose time is up is looked at once more, if it could not be decided yet.
const again = 50 * time.Millisecond

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
		return pass.Result(errors.Join(r.settleJob(ctx, &cached), r.refuseLate(ctx, &cached)))
	}
	return pass.Result(r.decide(ctx, &cached))
}

// decide judges an open gate once, and commits if that settles it.
func (r *Reconciler) decide(ctx context.Context, cached *v1alpha1.Gate) error {
	s, err := r.load(ctx, cached)
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
	if why := s.unanswerable(now); why != "" {
		return r.commit(ctx, s, policy.Verdict{Outcome: v1alpha1.GateSuperseded}, why, now)
	}
	// By the time before anything was read: what a list may have missed was stored after it, and so too late.
	v := policy.Decide(s.gate, s.plan, s.agent, s.people, s.approvals, s.began)
	if v.Outcome == v1alpha1.GateExpired && s.early {
		v.Outcome = ""
	}
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
	return pass.Later(max(s.gate.Spec.ExpiresAt.Add(policy.Grace).Sub(now), again))
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
