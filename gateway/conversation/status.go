package conversation

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/gateway/matrix"
	"nisse.io/nisse/internal/sanitize"
	"nisse.io/nisse/internal/telemetry"
)

// soon is when a report that lost a race is made again.
const soon = 100 * time.Millisecond

// report a state in the Agent's status, if it says anything new.
func (k *Keeper) report(ctx context.Context, agent *v1alpha1.Agent, s matrix.State) (ctrl.Result, error) {
	if s.Reason == "" {
		return ctrl.Result{}, nil // not known yet
	}
	next := v1alpha1.ConversationStatus{
		Connected: s.Connected, Reason: s.Reason, Message: sanitize.Cap(s.Message, 1000), RoomID: s.RoomID, ObservedGeneration: agent.Generation,
	}
	now := metav1.NewTime(time.Now().UTC().Truncate(time.Second))
	next.Since = &now
	if had := agent.Status.Conversation; had != nil {
		if had.Connected == next.Connected && had.Reason == next.Reason && had.Since != nil {
			next.Since = had.Since
		}
		if same(*had, next) {
			return ctrl.Result{}, nil
		}
	}
	// Whole, nulls included: what is not said any more must go. With the version it was compared to: an Agent of the same name that
	// was made meanwhile is not told of its namesake's room, nor does a gateway that is about to leave overwrite the next one's word.
	b, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": agent.ResourceVersion}, "status": map[string]any{"conversation": map[string]any{
		"connected": next.Connected, "reason": next.Reason, "message": orNull(next.Message), "roomID": orNull(next.RoomID),
		"since": next.Since, "observedGeneration": next.ObservedGeneration,
	}}})
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("make the patch: %w", err)
	}
	o := &v1alpha1.Agent{ObjectMeta: metav1.ObjectMeta{Namespace: agent.Namespace, Name: agent.Name}}
	if err := k.Objects.Status().Patch(ctx, o, client.RawPatch(types.MergePatchType, b)); err != nil {
		switch {
		case apierrors.IsNotFound(err):
			return ctrl.Result{}, nil
		case apierrors.IsConflict(err):
			return ctrl.Result{RequeueAfter: soon}, nil // somebody else wrote first; the cache will show it in a moment
		}
		return ctrl.Result{}, fmt.Errorf("report the conversation of %s: %w", agent.Name, err)
	}
	telemetry.Changed(ctx, k.Log, "conversation.changed", telemetry.Event{Agent: agent.Name, Cause: next.Reason},
		slog.Bool("connected", next.Connected), slog.String("message", next.Message))
	return ctrl.Result{}, nil
}

func same(a, b v1alpha1.ConversationStatus) bool {
	return a.Connected == b.Connected && a.Reason == b.Reason && a.Message == b.Message && a.RoomID == b.RoomID &&
		a.ObservedGeneration == b.ObservedGeneration && a.Since.Equal(b.Since)
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}
