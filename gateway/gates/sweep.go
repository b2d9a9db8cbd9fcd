package gates

import (
	"context"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/gateway/items"
	"nisse.io/nisse/gateway/store"
	"nisse.io/nisse/internal/telemetry"
)

// Run looks once for what is left of gates that were deleted while the gateway was away.
func (r *Reconciler) Run(ctx context.Context) error {
	for wait := time.Second; ; wait = min(2*wait, time.Minute) {
		err := r.sweep(ctx)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		r.Log.WarnContext(ctx, "gates.unswept", "error", err.Error())
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// sweep drops what was to be shown of gates that are gone: nobody can decide them. Which they are only the API server knows for sure; a
// cache that lags may not have a gate yet, and its message is never made again.
func (r *Reconciler) sweep(ctx context.Context) error {
	waiting, err := r.Store.MustRead(ctx)
	if err != nil || len(waiting) == 0 {
		return err
	}
	var there v1alpha1.GateList
	if err := r.Live.List(ctx, &there, client.InNamespace(r.Namespace)); err != nil {
		return fmt.Errorf("look which gates are gone: %w", err)
	}
	known := map[string]bool{}
	for i := range there.Items {
		known[Parts(&there.Items[i])] = true
	}
	for _, o := range waiting {
		prefix, n, ok := strings.Cut(o.ID, partOf)
		if !ok || n == "" || known[prefix+partOf] {
			continue
		}
		dropped := false
		err := r.Store.Update(ctx, func(tx *store.Tx) (err error) {
			dropped, err = tx.Drop(o.ID, "its gate is gone")
			return err
		})
		if err != nil {
			return err
		}
		if dropped {
			telemetry.Changed(ctx, r.Log, "message.dropped", telemetry.Event{Agent: o.Agent, TaskID: items.Task(ctx, r.Objects, r.Namespace, o.WorkItem), Cause: o.ID})
			r.Dropped(ctx, o.Agent)
		}
	}
	return nil
}
