package devices

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/internal/sanitize"
	"nisse.io/nisse/internal/telemetry"
)

const notAnchored = "The device answers. Its audit is not anchored anew: "

// online is what a look says about the device.
func online(s seen, ordered int64) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionOnline, Status: metav1.ConditionFalse}
	no := Refusal(s.err)
	switch {
	case s.err == nil:
		c.Status = metav1.ConditionTrue
	case no != nil && no.Reason == wire.NoManifest:
		c.Reason, c.Message = v1alpha1.ReasonNoManifest, "The device holds no manifest, so it listens to nobody, and none is in force that could be brought."
	case no != nil:
		c.Reason, c.Message = v1alpha1.ReasonRefusing, s.err.Error()
	case errors.Is(s.err, ErrNotEnrolled):
		c.Reason, c.Message = v1alpha1.ReasonNotEnrolled, "The machine's key is not known yet: run nisse-device join there, and then what it prints."
	case errors.Is(s.err, ErrInsecure):
		c.Reason, c.Message = v1alpha1.ReasonInsecure, s.err.Error()
	case errors.Is(s.err, ErrUntrusted):
		c.Reason, c.Message = v1alpha1.ReasonKeyMismatch, s.err.Error()
	default:
		c.Reason, c.Message = v1alpha1.ReasonUnreachable, s.err.Error()
	}
	if len(s.refused) > 0 {
		var why []string
		for _, name := range slices.Sorted(maps.Keys(s.refused)) {
			why = append(why, fmt.Sprintf("%s: %v", name, s.refused[name]))
		}
		c.Reason, c.Message = v1alpha1.ReasonManifestRefused, strings.Join(why, "; ")
	}
	switch {
	case c.Reason != "":
	case s.revoking != nil:
		c.Reason, c.Message = v1alpha1.ReasonRevocationPending, fmt.Sprintf("The device does not confirm the revocation of epoch %d: %v", ordered, s.revoking)
	case s.RevokedEpoch < ordered:
		c.Reason, c.Message = v1alpha1.ReasonRevocationPending, fmt.Sprintf("Ordered is the revocation of epoch %d, and the device confirms %d: it goes no further than its clock and what it holds.", ordered, s.RevokedEpoch)
	case ordered > 0 && !slices.ContainsFunc(s.Manifests, func(m wire.HeldManifest) bool { return m.Epoch > s.RevokedEpoch }):
		c.Reason, c.Message = v1alpha1.ReasonRevoked, fmt.Sprintf("The device answers and confirms that all it was signed up to epoch %d is revoked: it runs nothing. A manifest that is signed anew brings it back.", s.RevokedEpoch)
	default:
		c.Reason, c.Message = v1alpha1.ReasonAnswering, "The device answers."
		if s.anchoring != nil {
			c.Message = fmt.Sprintf(notAnchored+"%v", s.anchoring)
		}
	}
	c.Message = sanitize.Line(c.Message, 1000)
	return c
}

// means tells whether a message means what stood there before. What is said of a device that is away, or that does not confirm, changes with every try.
// What it refuses people mend by that message, so its words count; its numbers do not, for the device's clock may be among them.
func means(s seen, before, now string) bool {
	switch {
	case before == now, s.err != nil:
		return true
	case len(s.refused) > 0:
		return words(before) == words(now)
	case s.revoking != nil:
		return true
	case s.anchoring != nil:
		return strings.HasPrefix(before, notAnchored) && words(before) == words(now)
	}
	return false
}

func words(message string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsDigit(c) {
			return -1
		}
		return c
	}, message)
}

// note what a look found out in the Device's status, when that changes it. The manager writes there as well; whoever waits for a
// revocation to be confirmed must not wait until the next look because of that.
func (r *Registry) note(ctx context.Context, d *v1alpha1.Device, s seen) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statusTimeout)
	defer cancel()
	newest := d
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if newest == nil {
			newest = &v1alpha1.Device{}
			if err := r.api.Get(ctx, client.ObjectKeyFromObject(d), newest); err != nil {
				return client.IgnoreNotFound(err)
			}
			if newest.UID != d.UID || newest.Generation != d.Generation {
				return nil // this look was at another; a change of it wakes the next look
			}
		}
		err := r.write(ctx, newest, s)
		newest = nil
		return err
	})
	switch {
	case apierrors.IsConflict(err): // the cache lags behind
		time.AfterFunc(pressing, func() { r.rounds.wake(d.Name) })
	case err != nil:
		r.log.Debug("device.condition_not_written", "device", d.Name, "err", err)
	}
}

func (r *Registry) write(ctx context.Context, d *v1alpha1.Device, s seen) error {
	c := online(s, d.Spec.RevokedEpoch)
	c.ObservedGeneration = d.Generation
	confirmed := d.Status.RevokedEpoch
	if s.err == nil {
		confirmed = s.RevokedEpoch
	}
	old := meta.FindStatusCondition(d.Status.Conditions, c.Type)
	same := old != nil && old.Status == c.Status && old.Reason == c.Reason && old.ObservedGeneration == c.ObservedGeneration && means(s, old.Message, c.Message)
	if same && confirmed == d.Status.RevokedEpoch {
		return nil
	}
	changed := d.DeepCopy()
	meta.SetStatusCondition(&changed.Status.Conditions, c)
	changed.Status.ObservedGeneration, changed.Status.RevokedEpoch = d.Generation, confirmed
	if err := r.api.Status().Patch(ctx, changed, client.MergeFromWithOptions(d, client.MergeFromWithOptimisticLock{})); err != nil {
		return err
	}
	telemetry.Changed(ctx, r.log, "device.online_changed", telemetry.Event{Cause: d.Name}, slog.String("reason", c.Reason), slog.Int64("revoked_epoch", confirmed))
	return nil
}
