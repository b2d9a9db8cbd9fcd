package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/gateway/items"
	"nisse.io/nisse/gateway/render"
	"nisse.io/nisse/gateway/store"
	"nisse.io/nisse/internal/crashpoint"
	"nisse.io/nisse/internal/names"
	"nisse.io/nisse/internal/sanitize"
)

// open makes the work item that the words begin.
func (w *Worker) open(ctx context.Context, m store.Inbound) error {
	item := &v1alpha1.WorkItem{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.Namespace, Name: m.Route.WorkItem, Labels: map[string]string{v1alpha1.LabelAgent: m.Agent},
		},
		Spec: v1alpha1.WorkItemSpec{
			Agent: m.Agent, Title: m.Route.Title,
			Source: v1alpha1.Source{Kind: v1alpha1.SourceMatrix, Matrix: &v1alpha1.MatrixEvent{Room: m.Room, EventID: m.EventID, Sender: m.Sender}},
		},
	}
	if err := w.stopFirst(ctx, m, item); err != nil {
		return err
	}
	crashpoint.Hit("gateway.workitem.before")
	err := w.Objects.Create(ctx, item)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make work item %s: %w", item.Name, err)
	}
	crashpoint.Hit("gateway.workitem.after")
	w.await(ctx, item)
	notice, err := w.ahead(ctx, item)
	if err != nil {
		return err
	}
	return w.finish(ctx, m, "", func(tx *store.Tx) error {
		if err := deliver(tx, m); err != nil || notice == "" {
			return err
		}
		t, err := items.Thread(tx, item)
		if err != nil {
			return err
		}
		return tx.Send(items.In(t, store.Outbound{ID: "queued/" + m.EventID, Sender: store.ByAgent(m.Agent), Content: render.Notice(notice).JSON()}))
	})
}

// await the item in the cache, so that what is said in its thread next finds it. It is no matter if that takes too long.
func (w *Worker) await(ctx context.Context, item *v1alpha1.WorkItem) {
	var seen v1alpha1.WorkItem
	_ = wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, 5*time.Second, true, func(ctx context.Context) (bool, error) {
		return w.Objects.Get(ctx, client.ObjectKeyFromObject(item), &seen) == nil, nil
	})
}

// ahead says what a new item waits for; nothing when it is the only one.
func (w *Worker) ahead(ctx context.Context, item *v1alpha1.WorkItem) (string, error) {
	var agent v1alpha1.Agent
	if err := w.Live.Get(ctx, client.ObjectKey{Namespace: w.Namespace, Name: item.Spec.Agent}, &agent); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	others, err := w.others(ctx, item.Spec.Agent, item.Name)
	if err != nil {
		return "", err
	}
	hindered := hindrance(&agent)
	if hindered != "" {
		hindered = " " + hindered
	}
	switch active := agent.Status.ActiveWorkItem; {
	case active == item.Name && hindered == "":
		return "", nil
	case active == item.Name:
		return "Noted." + hindered, nil
	case len(others) == 0 && hindered != "":
		return "Noted." + hindered, nil
	case len(others) == 0:
		return "", nil
	default:
		first := others[0]
		for i := range others {
			if others[i].Name == active {
				first = others[i]
			}
		}
		return queued(&first, len(others)-1) + hindered, nil
	}
}

// queued says what a new item waits for: the first of the others, and so many more.
func queued(first *v1alpha1.WorkItem, more int) string {
	behind := sanitize.Quote(first.Spec.Title) + " (" + first.Name + ")"
	if more > 0 {
		behind += fmt.Sprintf(" and %d more", more)
	}
	s := "Queued behind " + behind + "; I begin when that is over."
	switch {
	case first.Unasked():
		s += " " + sanitize.Quote(first.Spec.Title) + " is stopped: type `stop` to be asked again how to go on."
	case first.Stopped(), first.Halted():
		s += " " + sanitize.Quote(first.Spec.Title) + " is stopped: answer `continue`, `replan <advice>` or `abandon`."
	}
	return s
}

// hindrance is why an agent does not work at all now; empty when nothing is known to keep it.
func hindrance(agent *v1alpha1.Agent) string {
	if agent.Spec.Suspend {
		return agent.Name + " is suspended; nothing is begun until that ends."
	}
	if c := agent.Stalled(); c != nil {
		return agent.Name + " is not in order, and may not get on with this until that is mended: " + sanitize.Line(c.Message, 300)
	}
	return ""
}

// others are the agent's items that are not over, oldest first, without one.
func (w *Worker) others(ctx context.Context, agent, without string) ([]v1alpha1.WorkItem, error) {
	var all v1alpha1.WorkItemList
	if err := w.Live.List(ctx, &all, client.InNamespace(w.Namespace)); err != nil {
		return nil, fmt.Errorf("list work items: %w", err)
	}
	return pending(all.Items, agent, without), nil
}

// pending are those of an agent's items that are not over, oldest first.
func pending(all []v1alpha1.WorkItem, agent, without string) []v1alpha1.WorkItem {
	mine := slices.DeleteFunc(all, func(i v1alpha1.WorkItem) bool { return i.Spec.Agent != agent || i.Name == without || i.Over() })
	slices.SortFunc(mine, items.ByAge)
	return mine
}

// reads tells whether an item's agent still reads words. One that was made a moment ago may be missing from the cache; one that is gone for
// good takes none, even if it went while the gateway was down and nothing told it so, nor does one that has ended since they were said.
func (w *Worker) reads(ctx context.Context, name string) error {
	key, item := client.ObjectKey{Namespace: w.Namespace, Name: name}, &v1alpha1.WorkItem{}
	err := w.Objects.Get(ctx, key, item)
	if apierrors.IsNotFound(err) {
		err = w.Live.Get(ctx, key, item)
	}
	switch {
	case apierrors.IsNotFound(err):
		if err := w.Store.Seen(ctx, name); err != nil {
			return err
		}
		return &refusal{reason: "the work item is gone", text: "Nobody reads this: the work of this thread is gone. Say it outside the thread, and I begin anew."}
	case err != nil:
		return fmt.Errorf("read work item %s: %w", name, err)
	case item.Unread():
		return &refusal{reason: reasonOver, text: sanitize.Quote(item.Spec.Title) + " had ended before I read this, so nothing comes of it. Say it once more, and I begin anew."}
	}
	return nil
}

// maxAnswered is how much of a question is repeated to who answered it, in runes.
const maxAnswered = 80

// words reach the item's agent; if a question was open, they answer it.
func (w *Worker) words(ctx context.Context, m store.Inbound) error {
	if err := w.reads(ctx, m.Route.WorkItem); err != nil {
		return err
	}
	if m.Route.Question != "" {
		var answered string
		err := w.change(ctx, m.Route.WorkItem, w.Objects.Status().Patch, func(item *v1alpha1.WorkItem) (map[string]any, error) {
			answered = ""
			if !item.Asking() || item.Status.Runtime.Question.ID != m.Route.Question {
				return nil, nil // answered already, or another question came: these words are no answer to that
			}
			answered = "Taken as the answer to " + sanitize.Quote(sanitize.Line(item.Status.Runtime.Question.Text, maxAnswered)) + "."
			return map[string]any{"status": map[string]any{"conversation": map[string]any{"answeredQuestion": m.Route.Question}}}, nil
		})
		if err != nil && !apierrors.IsNotFound(err) { // an item that is gone asks nothing
			return fmt.Errorf("answer the question of %s: %w", m.Route.WorkItem, err)
		}
		m.Route.Tell = strings.TrimSpace(m.Route.Tell + "\n" + answered)
	}
	return w.finish(ctx, m, "", func(tx *store.Tx) error { return deliver(tx, m) })
}

// decide makes the Approval. The manager judges it: whether the gate is still open, who may, and what the evidence is worth.
func (w *Worker) decide(ctx context.Context, m store.Inbound) error {
	r := m.Route
	decision := v1alpha1.DecisionReject
	if r.Approve {
		decision = v1alpha1.DecisionApprove
	}
	a := &v1alpha1.Approval{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.Namespace, Name: names.Approval(m.Room, m.EventID),
			Labels: map[string]string{v1alpha1.LabelAgent: m.Agent, v1alpha1.LabelWorkItem: r.WorkItem},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: "Gate", Name: r.Gate, UID: types.UID(r.GateUID),
			}},
		},
		Spec: v1alpha1.ApprovalSpec{
			Gate: v1alpha1.GateRef{Name: r.Gate, UID: r.GateUID}, Digest: r.Digest, Decision: decision, Answer: v1alpha1.HaltAnswer(r.Answer), Text: r.Text,
			Approver: "matrix:" + m.Sender,
			Channel: v1alpha1.Channel{
				Kind: v1alpha1.ChannelMatrix, Evidence: v1alpha1.Evidence(r.Evidence),
				Matrix: &v1alpha1.MatrixEvent{Room: m.Room, EventID: m.EventID, Sender: m.Sender},
			},
		},
	}
	crashpoint.Hit("gateway.approval.before")
	err := w.Objects.Create(ctx, a)
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make approval %s: %w", a.Name, err)
	}
	crashpoint.Hit("gateway.approval.after")
	return w.finish(ctx, m, "", func(*store.Tx) error { return nil })
}

func (w *Worker) patch(ctx context.Context, o client.Object, p client.Patch, _ ...client.SubResourcePatchOption) error {
	return w.Objects.Patch(ctx, o, p)
}

// change an item by what it is now. The patch holds the version that the decision was made from: if somebody wrote meanwhile, it is
// made anew. A nil patch changes nothing.
func (w *Worker) change(ctx context.Context, name string,
	patch func(context.Context, client.Object, client.Patch, ...client.SubResourcePatchOption) error,
	decide func(*v1alpha1.WorkItem) (map[string]any, error),
) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		item := &v1alpha1.WorkItem{}
		if err := w.Live.Get(ctx, client.ObjectKey{Namespace: w.Namespace, Name: name}, item); err != nil {
			return fmt.Errorf("read work item %s: %w", name, err)
		}
		change, err := decide(item)
		if err != nil || change == nil {
			return err
		}
		change["metadata"] = map[string]any{"resourceVersion": item.ResourceVersion}
		b, err := json.Marshal(change)
		if err != nil {
			return fmt.Errorf("make the patch: %w", err)
		}
		return patch(ctx, item, client.RawPatch(types.MergePatchType, b))
	})
}
