// Package pass holds what every reconcile pass has in common: how it may end, and how its status is written.
//
// A pass ends in one of four ways. It returns nil: done, or nothing to do (Ignore). It returns a *Waiting: nothing is wrong and a
// known moment will come. It returns a *Stall: nothing changes until a person changes an object, whose event starts the next pass.
// Any other error is retried with back-off. Result is the one place that turns these into requeues.
package pass

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Waiting ends a pass that has to run again at a known moment.
type Waiting struct {
	After time.Duration
	// Reason and Message for the Ready condition; without a reason Ready stays as the pass has set it.
	Reason  string
	Message string
}

func (w *Waiting) Error() string {
	return fmt.Sprintf("waiting for %s: %s %s", w.After, w.Reason, w.Message)
}

// Stall ends a pass that only a person can bring further.
type Stall struct {
	Reason  string
	Message string
	// Recheck is set when the cure is a change that sends the manager no event, as with Secrets, which it may not watch.
	Recheck time.Duration
}

func (s *Stall) Error() string { return s.Reason + ": " + s.Message }

// Stalled returns a *Stall. The message must be stable: it lands in a condition, and a message that changes is a write.
func Stalled(reason, format string, args ...any) error {
	return &Stall{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Later returns a *Waiting without a word for the condition.
func Later(after time.Duration) error { return &Waiting{After: after} }

// soon is when a pass that lost a race runs again. The winner's event usually comes first.
const soon = 50 * time.Millisecond

// Result turns the end of a pass into what the queue wants. Lost races are quiet: somebody else wrote first, which is no error.
func Result(err error) (reconcile.Result, error) {
	var w *Waiting
	var s *Stall
	switch {
	case err == nil:
		return reconcile.Result{}, nil
	case errors.As(err, &s):
		return reconcile.Result{RequeueAfter: s.Recheck}, nil
	case errors.As(err, &w):
		return reconcile.Result{RequeueAfter: max(w.After, time.Millisecond)}, nil
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return reconcile.Result{RequeueAfter: soon}, nil
	}
	return reconcile.Result{}, err
}

// Final tells whether a pass ended well or in a known stall, so that observedGeneration may move.
func Final(err error) bool {
	var w *Waiting
	var s *Stall
	return err == nil || errors.As(err, &w) || errors.As(err, &s)
}

// WriteStatus patches the status of after if it differs from before's, and writes nothing else. The optimistic lock makes the patch
// fail when anybody has written since before was read: a decision taken on an old object is not committed.
func WriteStatus(ctx context.Context, c client.StatusClient, before, after client.Object) (changed bool, err error) {
	data, err := client.MergeFrom(before).Data(after)
	if err != nil {
		return false, fmt.Errorf("status of %s: %w", after.GetName(), err)
	}
	if string(data) == "{}" {
		return false, nil
	}
	p := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.Status().Patch(ctx, after, p); err != nil {
		return false, fmt.Errorf("write the status of %s: %w", after.GetName(), err)
	}
	return true, nil
}
