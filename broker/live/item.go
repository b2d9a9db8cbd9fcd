package live

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/broker/judge"
	"nisse.io/nisse/internal/deed"
	"nisse.io/nisse/internal/names"
)

// item reads an item and what belongs to it. Nothing is listed live: the API server holds a list back until its own cache is known
// to be current, up to 100 ms after any write, and the looks at one call would take a fifth of a second. Single objects it reads
// from etcd at once, and every name follows from what is known:
//
//   - a plan never changes and revisions have no gaps, so the cache's plans are good, but for the latest, which may have been deleted
//     and is read live, and those it lacks are found by counting on;
//   - a plan's gate bears the plan's name, and is read live;
//   - an ended job never changes, and a job's name follows from gate and step, so only the first that has not ended is read live.
//
// What a cache that lags can still hide is a halt gate that was answered a moment ago: then a call stays halted until it is made again.
func (r Reader) item(ctx context.Context, name string, w *judge.World) error {
	plans, gates, jobs, err := r.known(ctx, name)
	if err != nil {
		return err
	}
	var item v1alpha1.WorkItem
	var exists bool
	var later []v1alpha1.Plan
	var current []v1alpha1.Gate
	first := early{name: next(plans, gates, jobs)}
	top, there := highest(plans), false
	g, now := errgroup.WithContext(ctx)
	if top > 0 {
		g.Go(func() (err error) {
			there, err = r.get(now, names.Plan(name, top), &v1alpha1.Plan{})
			return err
		})
	}
	g.Go(func() (err error) {
		exists, err = r.get(now, name, &item)
		return err
	})
	g.Go(func() (err error) {
		later, err = r.after(now, name, highest(plans))
		return err
	})
	g.Go(func() (err error) {
		current, err = r.gates(now, plans, gates)
		return err
	})
	if first.name != "" {
		g.Go(func() (err error) {
			first.found, err = r.get(now, first.name, &first.job)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if !exists {
		return nil
	}
	w.Item = &item
	if !there {
		plans = slices.DeleteFunc(plans, func(p v1alpha1.Plan) bool { return p.Spec.Revision == top })
	}
	// A namesake's plans say nothing about which revisions this item has.
	mine := slices.DeleteFunc(slices.Concat(plans, later), func(p v1alpha1.Plan) bool { return p.Spec.WorkItem.UID != string(item.UID) })
	from := highest(mine)
	if p := item.Status.Plan; p != nil {
		from = max(from, p.Revision-1)
	}
	if from != highest(slices.Concat(plans, later)) {
		more, err := r.after(ctx, name, from)
		if err != nil {
			return err
		}
		later = append(later, more...)
	}
	if len(later) > 0 {
		more, err := r.gates(ctx, later, nil)
		if err != nil {
			return err
		}
		current = append(current, more...)
	}
	w.Plans, w.Gates = append(plans, later...), current
	w.Jobs, err = r.jobs(ctx, w.Plans, w.Gates, ofItem(jobs, string(item.UID)), first)
	w.Jobs = ofItem(w.Jobs, string(item.UID))
	return err
}

// known are the plans, gates and jobs that the cache has of an item: by spec, which never changes, and not by label, without which a
// later revision would be out of sight and the earlier one in force again.
func (r Reader) known(ctx context.Context, item string) (plans []v1alpha1.Plan, gates []v1alpha1.Gate, jobs []v1alpha1.DeviceJob, err error) {
	var p v1alpha1.PlanList
	var g v1alpha1.GateList
	var j v1alpha1.DeviceJobList
	for _, l := range []client.ObjectList{&p, &g, &j} {
		if err := r.Known.List(ctx, l, client.InNamespace(r.Namespace), client.MatchingFields{v1alpha1.FieldWorkItem: item}); err != nil {
			return nil, nil, nil, fmt.Errorf("list %T: %w", l, err)
		}
	}
	return p.Items, g.Items, j.Items, nil
}

func highest(plans []v1alpha1.Plan) (revision int32) {
	for i := range plans {
		revision = max(revision, plans[i].Spec.Revision)
	}
	return revision
}

// after reads the plans of an item above a revision.
func (r Reader) after(ctx context.Context, item string, revision int32) ([]v1alpha1.Plan, error) {
	var out []v1alpha1.Plan
	for {
		revision++
		var p v1alpha1.Plan
		found, err := r.get(ctx, names.Plan(item, revision), &p)
		if err != nil || !found {
			return out, err
		}
		out = append(out, p)
	}
}

// gates of plans as they are now, and those known beside them, which are read too unless they have ended.
func (r Reader) gates(ctx context.Context, plans []v1alpha1.Plan, known []v1alpha1.Gate) ([]v1alpha1.Gate, error) {
	var out []v1alpha1.Gate
	var read []string
	for i := range plans {
		read = append(read, names.PlanGate(plans[i].Name))
	}
	for i := range known {
		switch g := &known[i]; {
		case slices.Contains(read, g.Name):
		case g.Open():
			read = append(read, g.Name)
		default:
			out = append(out, *g)
		}
	}
	var mu sync.Mutex
	all, ctx := errgroup.WithContext(ctx)
	for _, name := range read {
		all.Go(func() error {
			var g v1alpha1.Gate
			found, err := r.get(ctx, name, &g)
			if found {
				mu.Lock()
				defer mu.Unlock()
				out = append(out, g)
			}
			return err
		})
	}
	return out, all.Wait()
}

// early is a job that was read, or found missing, beside the rest of the item.
type early struct {
	name  string
	job   v1alpha1.DeviceJob
	found bool
}

// next is the name of the job that the latest known plan comes to next; empty if its gate is not known. A gate's UID, from which a
// job's name follows, is the same in every version of it; if another gate has its place by now, the job that was read is not used.
func next(plans []v1alpha1.Plan, gates []v1alpha1.Gate, jobs []v1alpha1.DeviceJob) string {
	for i := range plans {
		g := judge.GateOf(&plans[i], gates)
		if g == nil || plans[i].Spec.Revision != highest(plans) {
			continue
		}
		for n := range plans[i].Spec.Steps {
			if j := judge.JobOf(jobs, g, int32(n+1)); j == nil || j.Status.State == "" {
				return names.Job(deed.Approved(string(g.UID), int32(n+1), 1))
			}
		}
	}
	return ""
}

// jobs of the plans that were approved: those known to have ended, and from there on what the API server says.
func (r Reader) jobs(ctx context.Context, plans []v1alpha1.Plan, gates []v1alpha1.Gate, known []v1alpha1.DeviceJob, first early) ([]v1alpha1.DeviceJob, error) {
	for i := range plans {
		g := judge.GateOf(&plans[i], gates)
		if g == nil || g.Status.Outcome != v1alpha1.GateApproved {
			continue
		}
		for n := range plans[i].Spec.Steps {
			step := int32(n + 1)
			if j := judge.JobOf(known, g, step); j != nil && j.Status.State != "" {
				continue
			}
			known = slices.DeleteFunc(known, func(j v1alpha1.DeviceJob) bool { return j.Spec.Gate.UID == string(g.UID) && j.Spec.Step == step })
			j, found, name := first.job, first.found, names.Job(deed.Approved(string(g.UID), step, 1))
			if name != first.name {
				var err error
				j = v1alpha1.DeviceJob{}
				if found, err = r.get(ctx, name, &j); err != nil {
					return nil, err
				}
			}
			if !found {
				break
			}
			known = append(known, j)
			if j.Status.State == "" {
				break
			}
		}
	}
	return known, nil
}
