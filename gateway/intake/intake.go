// Package intake is the desk at which an agent's room is heard: it looks up what is known, lets package routing decide, and writes
// the message with its route into the inbox, in the transaction that moves the sync token.
package intake

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/gateway/gates"
	"nisse.io/nisse/gateway/items"
	"nisse.io/nisse/gateway/matrix"
	"nisse.io/nisse/gateway/metrics"
	"nisse.io/nisse/gateway/routing"
	"nisse.io/nisse/gateway/store"
	"nisse.io/nisse/internal/approval"
	"nisse.io/nisse/internal/names"
	"nisse.io/nisse/internal/sanitize"
	"nisse.io/nisse/internal/telemetry"
)

// maxGates that are looked at, the newest. More than one open at a time is rare, and older ones are history.
const maxGates = 100

// Desk of one agent.
type Desk struct {
	// Objects as the cache knows them. A desk never waits for the API server: what people say is kept whether it answers or not.
	Objects   client.Reader
	Namespace string
	Agent     string
	// Account that reads, and the one that shows gates.
	Account   string
	Approvals string
	Log       *slog.Logger
}

// Take a message in.
func (d Desk) Take(ctx context.Context, tx *store.Tx, m matrix.Message) error {
	if known, err := tx.Known(m.Event.ID); err != nil || known {
		return err // what became of it was decided then
	}
	view, err := d.view(ctx, tx, m.Event)
	if err != nil {
		return err
	}
	route := routing.For(m.Event, view)
	if route.Kind == routing.Open {
		route.WorkItem = names.WorkItem(m.Event.At, m.Event.Room, m.Event.ID)
		root := m.Event.Thread
		if root == "" {
			root = m.Event.ID
		}
		if err := tx.AddThread(store.Thread{WorkItem: route.WorkItem, Agent: d.Agent, Room: m.Event.Room, Root: root, Unseen: true}); err != nil {
			return err
		}
	}
	if route.Kind == routing.Silence {
		m.Raw = []byte("{}") // what strangers say is not kept
	}
	added, err := tx.AddInbound(store.Inbound{
		EventID: m.Event.ID, Account: d.Account, Agent: d.Agent, Room: m.Event.Room, Sender: m.Event.Sender, At: m.Event.At,
		Thread: m.Event.Thread, Raw: m.Raw, Route: route,
	})
	if added {
		metrics.Routed.WithLabelValues(string(route.Kind)).Inc()
		tx.After(func() {
			telemetry.Changed(ctx, d.Log, "message.stored", telemetry.Event{Agent: d.Agent, TaskID: route.WorkItem, Cause: m.Event.ID},
				slog.String("kind", string(route.Kind)))
		})
	}
	return err
}

func (d Desk) view(ctx context.Context, tx *store.Tx, e routing.Event) (routing.View, error) {
	v := routing.View{Agent: d.Agent, UserID: d.Account, ApprovalsUser: d.Approvals, May: map[string]routing.Rights{}, Now: time.Now()}
	var agent v1alpha1.Agent
	switch err := d.Objects.Get(ctx, client.ObjectKey{Namespace: d.Namespace, Name: d.Agent}, &agent); {
	case apierrors.IsNotFound(err):
		return v, nil // nobody may do anything with an agent that is gone
	case err != nil:
		return v, fmt.Errorf("read agent %s: %w", d.Agent, err)
	}
	for _, p := range agent.Spec.People {
		v.May[p.Name] = routing.Rights{Instruct: slices.Contains(p.May, v1alpha1.RightInstruct), Approve: slices.Contains(p.May, v1alpha1.RightApprove)}
	}
	var people v1alpha1.PersonList
	if err := d.Objects.List(ctx, &people, client.InNamespace(d.Namespace)); err != nil {
		return v, fmt.Errorf("list people: %w", err)
	}
	for i := range people.Items {
		if id := people.Items[i].Spec.Identities.Matrix; id != "" {
			v.People = append(v.People, routing.Person{Name: people.Items[i].Name, Matrix: id})
		}
	}
	var err error
	if v.Active, err = d.active(ctx, tx, agent.Status.ActiveWorkItem); err != nil {
		return v, err
	}
	if v.Thread, err = d.thread(ctx, tx, e); err != nil {
		return v, err
	}
	for _, item := range []*routing.Item{v.Active, v.Thread} {
		if item == nil || item.Held {
			continue
		}
		if item.Held, err = tx.Stopping(d.Agent, item.Name); err != nil {
			return v, err
		}
	}
	v.Gates, err = d.gates(ctx, tx, e)
	return v, err
}

// active is the item the agent works on; while the manager has yet to choose another, the oldest that is not over; and if there is none
// of these, the one that the oldest message still to be worked off will open. One that is over counts when nothing else is known.
func (d Desk) active(ctx context.Context, tx *store.Tx, name string) (*routing.Item, error) {
	var last *routing.Item
	if name != "" {
		var err error
		if last, err = d.named(ctx, tx, name); err != nil || !last.Over {
			return last, err
		}
	}
	var all v1alpha1.WorkItemList
	if err := d.Objects.List(ctx, &all, client.InNamespace(d.Namespace)); err != nil {
		return nil, fmt.Errorf("list work items: %w", err)
	}
	mine := slices.DeleteFunc(all.Items, func(w v1alpha1.WorkItem) bool { return w.Spec.Agent != d.Agent || w.Unread() })
	if len(mine) > 0 {
		oldest := slices.MinFunc(mine, items.ByAge)
		return asItem(&oldest), nil
	}
	opening, ok, err := tx.OldestOpening(d.Agent)
	if err != nil || !ok {
		return last, err
	}
	return &routing.Item{Name: opening.Route.WorkItem, Title: opening.Route.Title}, nil
}

// thread is the item that the message belongs to by where it was said.
func (d Desk) thread(ctx context.Context, tx *store.Tx, e routing.Event) (*routing.Item, error) {
	for _, event := range []string{e.Thread, e.ReplyTo} {
		name, err := tx.ItemOf(d.Agent, event)
		if err != nil {
			return nil, err
		}
		if name != "" {
			return d.named(ctx, tx, name)
		}
	}
	return nil, nil
}

// named is an item that somebody named. One that is about to be made, or to show, counts as there; one that was there and is gone is over.
func (d Desk) named(ctx context.Context, tx *store.Tx, name string) (*routing.Item, error) {
	item, found, err := d.item(ctx, name)
	if err != nil || found {
		return item, err
	}
	expected, err := tx.Expected(name)
	return &routing.Item{Name: name, Title: name, Over: !expected}, err
}

func (d Desk) item(ctx context.Context, name string) (*routing.Item, bool, error) {
	var w v1alpha1.WorkItem
	switch err := d.Objects.Get(ctx, client.ObjectKey{Namespace: d.Namespace, Name: name}, &w); {
	case apierrors.IsNotFound(err):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("read work item %s: %w", name, err)
	}
	return asItem(&w), true, nil
}

func asItem(w *v1alpha1.WorkItem) *routing.Item {
	item := &routing.Item{Name: w.Name, Title: w.Spec.Title, Over: w.Unread(), Waits: w.Status.State == v1alpha1.WorkItemAwaitingInput, Held: w.Stopped() || w.Halted(), Unasked: w.Unasked()}
	if !item.Over && w.Asking() {
		item.Question = w.Status.Runtime.Question.ID
	}
	return item
}

func (d Desk) gates(ctx context.Context, tx *store.Tx, e routing.Event) ([]routing.Gate, error) {
	var all v1alpha1.GateList
	if err := d.Objects.List(ctx, &all, client.InNamespace(d.Namespace)); err != nil {
		return nil, fmt.Errorf("list gates: %w", err)
	}
	mine := slices.DeleteFunc(all.Items, func(g v1alpha1.Gate) bool { return g.Spec.Agent != d.Agent })
	slices.SortFunc(mine, func(x, y v1alpha1.Gate) int {
		if c := y.CreationTimestamp.Compare(x.CreationTimestamp.Time); c != 0 {
			return c
		}
		return int(y.Spec.Revision) - int(x.Spec.Revision)
	})
	if len(mine) > maxGates {
		mine = mine[:maxGates]
	}
	out := make([]routing.Gate, len(mine))
	roots := map[string]string{}
	for i := range mine {
		g := &mine[i]
		shown, err := tx.Shown(gates.Parts(g))
		if err != nil {
			return nil, err
		}
		item := g.Spec.WorkItem.Name
		if _, known := roots[item]; !known {
			thread, _, err := tx.Thread(item)
			if err != nil {
				return nil, fmt.Errorf("look for the thread of %s: %w", item, err)
			}
			roots[item] = thread.Root
		}
		out[i] = routing.Gate{
			Name: g.Name, UID: string(g.UID), Digest: g.Spec.Digest, Kind: kindOf(g), Revision: g.Spec.Revision,
			WorkItem: item, Thread: roots[item], Title: g.Spec.Title, Approvers: g.Spec.Approvers, Open: g.Open(), Shown: shown.Whole, Glimpsed: shown.Some, ShownAt: shown.At,
			Code: approval.Code(g.Spec.Digest, string(g.UID)), ByCode: g.Spec.Tier == v1alpha1.TierHigh, Sign: gates.Sign(g),
		}
		if g.Open() {
			if err := d.settle(ctx, &out[i], e); err != nil {
				return nil, err
			}
		} else {
			out[i].Ended, out[i].Became = gates.Before(g), gates.Became(g)
			if at := g.Status.DecidedAt; at != nil {
				out[i].EndedAt = at.Time
			}
			// Who decided with others knows of the end only by the last of the decisions.
			if by := g.Status.Decisions; len(by) > 0 && (g.Status.Outcome == v1alpha1.GateApproved || g.Status.Outcome == v1alpha1.GateRejected) {
				last := by[len(by)-1]
				out[i].EndedBy, out[i].Answer = last.Person, cmp.Or(string(last.Answer), string(last.Decision))
			}
		}
	}
	return out, nil
}

// kindOf a gate for who decides: a single call is decided by its revision or its code, as a plan is.
func kindOf(g *v1alpha1.Gate) routing.GateKind {
	if g.LetsRun() {
		return routing.Plan
	}
	return routing.GateKind(g.Spec.Kind)
}

// settle a gate that is open although its item is over: the manager has yet to close it, and nobody can decide it any more. It ended
// just now, so it may be what the sender read.
func (d Desk) settle(ctx context.Context, g *routing.Gate, e routing.Event) error {
	item, found, err := d.item(ctx, g.WorkItem)
	if err != nil || !found || !item.Over { // not found: the cache may have the gate before its item
		return err
	}
	g.Open, g.EndedAt = false, e.At
	g.Ended = sanitize.Quote(g.Title) + " is over; nothing waits for a decision there."
	g.Became = "was dropped just now: that work has ended"
	return nil
}
