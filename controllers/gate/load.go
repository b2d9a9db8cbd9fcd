package gate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/gate/policy"
	"nisse.io/nisse/internal/names"
)

// scope is what one pass knows. load sets every field; item and agent are nil when they are gone, plan is nil for a Halt gate.
type scope struct {
	// began is when the pass did, before it read anything.
	began time.Time
	gate  *v1alpha1.Gate
	item  *v1alpha1.WorkItem
	agent *v1alpha1.Agent
	// plans are the gate's own and those of later revisions.
	plans []v1alpha1.Plan
	plan  *v1alpha1.Plan
	// people and approvals are empty when the cache knows of no Approval and time is not up: then there is nothing to judge.
	people    []v1alpha1.Person
	approvals []v1alpha1.Approval
	// early tells of Approvals that this pass may not judge yet; see judged.
	early bool
}

// load reads, all at once, what the gate is judged by. It returns nil when the gate is gone, decided meanwhile, or another by now.
//
// What has a name that follows from the gate is read by it: the API server takes single objects from etcd, and a list it holds back
// until its own cache is known to be current. What nobody can name stays a live list: a second Person who claims the approver's
// identity, and a rejection that was stored a moment ago (ADR 5).
func (r *Reconciler) load(ctx context.Context, cached *v1alpha1.Gate) (*scope, error) {
	known, err := r.known(ctx, cached)
	if err != nil {
		return nil, err
	}
	s := &scope{began: r.Now(), gate: &v1alpha1.Gate{}, item: &v1alpha1.WorkItem{}, agent: &v1alpha1.Agent{}}
	all, reading := errgroup.WithContext(ctx)
	here := func(name string) client.ObjectKey { return client.ObjectKey{Namespace: cached.Namespace, Name: name} }
	all.Go(func() (err error) {
		s.gate, err = get(reading, r.Live, here(cached.Name), s.gate)
		return err
	})
	all.Go(func() (err error) {
		s.item, err = get(reading, r.Live, here(cached.Spec.WorkItem.Name), s.item)
		return err
	})
	all.Go(func() (err error) {
		s.agent, err = get(reading, r.Live, here(cached.Spec.Agent), s.agent)
		return err
	})
	if cached.LetsRun() {
		all.Go(func() (err error) {
			s.plans, err = r.revisions(reading, cached)
			return err
		})
	}
	var approvals v1alpha1.ApprovalList
	if len(known) > 0 || !s.began.Before(cached.Spec.ExpiresAt.Add(policy.Grace)) {
		var people v1alpha1.PersonList
		all.Go(func() error {
			err := r.Live.List(reading, &people, client.InNamespace(cached.Namespace))
			s.people = people.Items
			return err
		})
		all.Go(func() error {
			return r.Live.List(reading, &approvals, client.InNamespace(cached.Namespace), client.MatchingFields{v1alpha1.FieldGate: cached.Name})
		})
	}
	if err := all.Wait(); err != nil {
		return nil, fmt.Errorf("read what gate %s is judged by: %w", cached.Name, err)
	}
	if s.gate == nil || s.gate.UID != cached.UID || !s.gate.Open() {
		return nil, nil // what is true now is on its way to the cache, and starts another pass
	}
	for i := range s.plans {
		if s.plans[i].Name == s.gate.Spec.Subject.Name {
			s.plan = &s.plans[i]
		}
	}
	s.approvals, s.early = judged(known, approvals.Items, s.gate.Spec.ExpiresAt.Time)
	return s, nil
}

// known are the UIDs of the gate's Approvals that the cache shows.
func (r *Reconciler) known(ctx context.Context, g *v1alpha1.Gate) ([]types.UID, error) {
	var list v1alpha1.ApprovalList
	if err := r.Client.List(ctx, &list, client.InNamespace(g.Namespace), client.MatchingFields{v1alpha1.FieldGate: g.Name}); err != nil {
		return nil, fmt.Errorf("list the approvals of gate %s: %w", g.Name, err)
	}
	var uids []types.UID
	for i := range list.Items {
		uids = append(uids, list.Items[i].UID)
	}
	return uids, nil
}

// judged are the Approvals that may be judged by what was read beside them: every rejection, and the approvals that were known before
// the reading began. One that only the live list shows may be younger than the rest of what was read: a right was taken away, then
// somebody without it approved, and the agent was read before both. It waits for the pass that the cache's own news of it starts.
// What was made when the time was up can never count, and holds nothing back.
func judged(known []types.UID, live []v1alpha1.Approval, expiresAt time.Time) (now []v1alpha1.Approval, early bool) {
	for _, a := range live {
		if a.Spec.Decision == v1alpha1.DecisionReject || slices.Contains(known, a.UID) || !a.CreationTimestamp.Time.Before(expiresAt) {
			now = append(now, a)
		} else {
			early = true
		}
	}
	return now, early
}

// revisions reads the plan of a gate and those after it. Revisions have no gaps, so counting on finds what the cache lacks. What it knows
// of later ones is looked at as well: a plan never changes, but one that was deleted replaces nothing.
func (r *Reconciler) revisions(ctx context.Context, g *v1alpha1.Gate) ([]v1alpha1.Plan, error) {
	var cached v1alpha1.PlanList
	if err := r.Client.List(ctx, &cached, client.InNamespace(g.Namespace), client.MatchingFields{v1alpha1.FieldWorkItem: g.Spec.WorkItem.Name}); err != nil {
		return nil, err
	}
	read := []string{g.Spec.Subject.Name}
	for i := range cached.Items {
		if p := &cached.Items[i]; p.Spec.Revision > g.Spec.Revision {
			read = append(read, p.Name)
		}
	}
	var plans []v1alpha1.Plan
	for _, name := range read {
		p, err := get(ctx, r.Live, client.ObjectKey{Namespace: g.Namespace, Name: name}, &v1alpha1.Plan{})
		if err != nil {
			return nil, err
		}
		if p != nil {
			plans = append(plans, *p)
		}
	}
	for revision := g.Spec.Revision + 1; ; revision++ {
		name := names.Plan(g.Spec.WorkItem.Name, revision)
		if slices.Contains(read, name) {
			continue
		}
		later, err := get(ctx, r.Live, client.ObjectKey{Namespace: g.Namespace, Name: name}, &v1alpha1.Plan{})
		if err != nil || later == nil {
			return plans, err
		}
		plans = append(plans, *later)
	}
}

// get returns nil when there is no such object.
func get[T client.Object](ctx context.Context, from client.Reader, key client.ObjectKey, into T) (T, error) {
	var none T
	err := from.Get(ctx, key, into)
	switch {
	case apierrors.IsNotFound(err):
		return none, nil
	case err != nil:
		return none, fmt.Errorf("read %s: %w", key.Name, err)
	}
	return into, nil
}
