// Package report writes what the broker has seen of an agent into WorkItem.status.runtime, of which it is the only writer.
package report

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/sanitize"
	"nisse.io/nisse/internal/telemetry"
)

// Events tells people what happened to an object (kubectl describe).
type Events interface {
	Eventf(regarding runtime.Object, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

// Writer of reports.
type Writer struct {
	// Live reads past every cache.
	Live   client.Reader
	API    client.Client
	Events Events
	Log    *slog.Logger
	Now    func() time.Time
}

// Limits of the fields.
const (
	maxHaltMessage = 8192
	maxText        = 4096
	maxTrouble     = 1000 // runes are fewer
)

// ErrHeld is returned when a stop or a halt holds the item.
var ErrHeld = errors.New("a stop or a halt holds the item")

// ErrOver is returned when the item is over.
var ErrOver = errors.New("the item is over")

// Halt files a halt and returns the one that holds now: an unanswered one is never replaced, since a person may be reading it.
func (w Writer) Halt(ctx context.Context, item *v1alpha1.WorkItem, h v1alpha1.HaltReport) (v1alpha1.HaltReport, error) {
	h.Message = sanitize.Cap(h.Message, maxHaltMessage)
	h.At = metav1.NewTime(w.Now())
	it, wrote, err := w.update(ctx, item, func(it *v1alpha1.WorkItem, rt *v1alpha1.WorkItemRuntime) (bool, error) {
		if it.Halted() || (rt.Halt != nil && rt.Halt.ID == h.ID) {
			return false, nil
		}
		rt.Halt = &h
		return true, nil
	})
	if err != nil {
		return h, fmt.Errorf("halt %s: %w", item.Name, err)
	}
	if wrote {
		telemetry.Changed(ctx, w.Log, "workitem.halted", event(it, h.ID), slog.String("reason", string(h.Reason)), slog.Int("revision", int(h.Revision)), slog.Int("step", int(h.Step)))
		w.Events.Eventf(it, nil, corev1.EventTypeWarning, "Halted", "Halt", "%s", note(string(h.Reason)+": "+h.Message))
	}
	return *it.Status.Runtime.Halt, nil
}

// Ask files a question and returns the one that is open now. The same ID is the same question.
func (w Writer) Ask(ctx context.Context, item *v1alpha1.WorkItem, q v1alpha1.Question) (asked v1alpha1.Question, answered bool, err error) {
	q.Text = sanitize.Cap(q.Text, maxText)
	it, wrote, err := w.update(ctx, item, func(it *v1alpha1.WorkItem, rt *v1alpha1.WorkItemRuntime) (bool, error) {
		if it.Asking() || (rt.Question != nil && rt.Question.ID == q.ID) {
			return false, nil
		}
		if it.Over() {
			return false, ErrOver
		}
		if it.Stopped() || it.Halted() {
			return false, ErrHeld
		}
		rt.Question = &q
		return true, nil
	})
	if err != nil {
		return q, false, fmt.Errorf("ask about %s: %w", item.Name, err)
	}
	if wrote {
		telemetry.Changed(ctx, w.Log, "workitem.asked", event(it, q.ID))
	}
	return *it.Status.Runtime.Question, !it.Asking(), nil
}

// Finish files that the agent is done. Doing it again changes nothing.
func (w Writer) Finish(ctx context.Context, item *v1alpha1.WorkItem, summary string) error {
	f := v1alpha1.FinishReport{Summary: sanitize.Cap(summary, maxText), At: metav1.NewTime(w.Now())}
	it, wrote, err := w.update(ctx, item, func(it *v1alpha1.WorkItem, rt *v1alpha1.WorkItemRuntime) (bool, error) {
		switch {
		case rt.Finished != nil:
			return false, nil
		case it.Over():
			return false, ErrOver
		case it.Stopped() || it.Halted():
			return false, ErrHeld
		}
		rt.Finished = &f
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("finish %s: %w", item.Name, err)
	}
	if wrote {
		telemetry.Changed(ctx, w.Log, "workitem.finished", event(it, "finish"))
	}
	return nil
}

// Trouble files what keeps the agent from going on, or with nil that nothing does any more. The same again changes nothing.
func (w Writer) Trouble(ctx context.Context, item *v1alpha1.WorkItem, t *v1alpha1.TroubleReport) error {
	if t != nil {
		t.Message, t.At = sanitize.Cap(sanitize.Line(t.Message, maxTrouble), maxTrouble), metav1.NewTime(w.Now())
	}
	it, wrote, err := w.update(ctx, item, func(it *v1alpha1.WorkItem, rt *v1alpha1.WorkItemRuntime) (bool, error) {
		has := rt.Trouble
		if it.Over() || (has == nil) == (t == nil) && (t == nil || has.Reason == t.Reason && has.Message == t.Message) {
			return false, nil
		}
		if has != nil && t != nil && has.Reason == t.Reason {
			t.At = has.At
		}
		rt.Trouble = t
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("report the trouble of %s: %w", item.Name, err)
	}
	switch {
	case wrote && t == nil:
		telemetry.Changed(ctx, w.Log, "workitem.trouble_ended", event(it, "trouble"))
	case wrote:
		telemetry.Changed(ctx, w.Log, "workitem.troubled", event(it, "trouble"), slog.String("reason", string(t.Reason)))
	}
	return nil
}

// update reads the item live, lets change edit its runtime report, and writes that alone; when somebody else wrote the item in
// between, it begins anew.
func (w Writer) update(ctx context.Context, item *v1alpha1.WorkItem, change func(*v1alpha1.WorkItem, *v1alpha1.WorkItemRuntime) (bool, error)) (*v1alpha1.WorkItem, bool, error) {
	it, wrote := &v1alpha1.WorkItem{}, false
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := w.Live.Get(ctx, client.ObjectKeyFromObject(item), it); err != nil {
			return err
		}
		if it.UID != item.UID {
			return fmt.Errorf("%s was deleted and made anew", item.Name)
		}
		base := it.DeepCopy()
		if it.Status.Runtime == nil {
			it.Status.Runtime = &v1alpha1.WorkItemRuntime{}
		}
		changed, err := change(base, it.Status.Runtime)
		if err != nil || !changed {
			wrote = false
			return err
		}
		wrote = true
		return w.API.Status().Patch(ctx, it, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
	})
	return it, wrote && err == nil, err
}

func event(it *v1alpha1.WorkItem, cause string) telemetry.Event {
	return telemetry.Event{Agent: it.Spec.Agent, TaskID: it.Correlation(), Cause: cause}
}

// note fits an Event: 1 KB at most.
func note(s string) string { return sanitize.Cap(sanitize.Line(s, 900), 1024) }
