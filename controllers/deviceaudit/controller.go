// Package deviceaudit keeps the checkpoints of devices' audits where neither the device nor the broker can reach them, and takes none that does not
// contain the last. What the broker brings is evidence of the device, signed by it as a whole: the manager verifies signature and proof itself, and
// believes nothing else of it.
package deviceaudit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/condition"
	"nisse.io/nisse/controllers/pass"
	"nisse.io/nisse/internal/checkpoint"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/names"
	"nisse.io/nisse/internal/sanitize"
	"nisse.io/nisse/internal/telemetry"
)

// recheck is when a device whose audit is broken is looked at again: an administrator may have ended that, which sends no event.
const recheck = time.Minute

// Reconciler of devices' audits.
type Reconciler struct {
	Client client.Client
	// Live reads past the cache, which holds nothing of the system's namespace.
	Live   client.Reader
	System string
	Events events.EventRecorder
	Log    *slog.Logger
	Now    func() time.Time
}

// Reconcile one device.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (reconcile.Result, error) {
	var d v1alpha1.Device
	if err := r.Client.Get(ctx, req.NamespacedName, &d); err != nil {
		return pass.Result(client.IgnoreNotFound(err))
	}
	a := d.Status.Audit
	if !d.DeletionTimestamp.IsZero() || a == nil || settled(&d) {
		return pass.Result(nil)
	}
	k, err := read(ctx, r.Live, r.System, d.Namespace, d.Name)
	if err != nil {
		return pass.Result(err)
	}
	k = remembered(k, &d)
	after := d.DeepCopy()
	v, err := r.judge(ctx, &d, k)
	if err != nil {
		return pass.Result(err)
	}
	if v.kept != nil {
		after.Status.AuditKept = v.kept
	}
	if v.reason != "" {
		condition.Set(&after.Status.Conditions, d.Generation, v1alpha1.ConditionAuditIntact, v.status, v.reason, sanitize.Line(v.message, 1000))
	}
	if _, err := pass.WriteStatus(ctx, r.Client, &d, after); err != nil {
		return pass.Result(client.IgnoreNotFound(err))
	}
	if v.status == metav1.ConditionFalse {
		return pass.Result(pass.Later(recheck))
	}
	return pass.Result(nil)
}

// settled tells whether nothing can be news: the checkpoint that the broker brought is the one that was kept, and all was well. It costs no read.
func settled(d *v1alpha1.Device) bool {
	a, k := d.Status.Audit, d.Status.AuditKept
	c := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionAuditIntact)
	return k != nil && c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == d.Generation && a.Finding == "" && a.Rows == k.Rows && a.Root == k.Root
}

// remembered is what was kept, though the ConfigMap be gone: the status bears the last checkpoint too. Only of an audit that is broken the loss of
// the ConfigMap means something: an administrator has looked into it, and the keeping begins anew.
func remembered(k keeping, d *v1alpha1.Device) keeping {
	s := d.Status.AuditKept
	if k.config != nil || s == nil || meta.IsStatusConditionFalse(d.Status.Conditions, v1alpha1.ConditionAuditIntact) {
		return k
	}
	if root, err := checkpoint.ParseRoot(s.Root); err == nil {
		k.last, k.at = checkpoint.Checkpoint{Rows: s.Rows, Root: root}, s.At
	}
	return k
}

// verdict on what the broker brought.
type verdict struct {
	status  metav1.ConditionStatus
	reason  string // empty: nothing is known yet
	message string
	kept    *v1alpha1.KeptAudit // nil: as it was
}

// judge what was brought by what is kept, and keep it, or the finding, before anybody reads of it.
func (r *Reconciler) judge(ctx context.Context, d *v1alpha1.Device, k keeping) (verdict, error) {
	var v verdict
	if k.last.Rows > 0 {
		v.kept = &v1alpha1.KeptAudit{Rows: k.last.Rows, Root: k.last.Root.String(), At: k.at}
	}
	if k.broken != nil {
		return v.broken(d, r.System, k.broken.Finding), nil
	}
	var o checkpoint.Opened
	key, err := dsse.ParseKey(d.Spec.PublicKey)
	if err == nil {
		o, err = checkpoint.OpenReply([]byte(d.Status.Audit.Reply), d.Name, key)
	}
	if err == nil {
		err = checkpoint.Judge(k.last, o)
	}
	var f *checkpoint.Finding
	switch {
	case errors.As(err, &f):
		if err := k.end(ctx, r.Client, r.System, d.Namespace, d.Name, *f, d.Status.Audit.Reply, r.Now()); err != nil {
			return verdict{}, err
		}
		v = v.broken(d, r.System, *f)
		findings.WithLabelValues(string(f.Trouble)).Inc()
		r.Events.Eventf(d, nil, corev1.EventTypeWarning, "AuditBroken", "Verify", "%s", v.message)
		telemetry.Changed(ctx, r.Log, "audit.broken", telemetry.Event{Cause: d.Name}, slog.String("trouble", string(f.Trouble)), slog.Int64("row", f.Row))
		return v, nil
	case errors.Is(err, checkpoint.ErrOtherSince):
		return v, nil // the broker reads in the status what is kept, and asks again
	case err != nil:
		v.status, v.reason, v.message = metav1.ConditionUnknown, v1alpha1.ReasonAuditUnproven, fmt.Sprintf("What the broker brought proves nothing: %v.", err)
		return v, nil
	}
	v.status, v.reason = metav1.ConditionTrue, v1alpha1.ReasonAuditExtends
	if o.At.Rows == 0 || k.config != nil && o.At.Rows == k.last.Rows {
		return v, nil
	}
	now := r.Now()
	if err := k.keep(ctx, r.Client, r.System, d.Namespace, d.Name, o, now); err != nil {
		return verdict{}, err
	}
	v.kept = &v1alpha1.KeptAudit{Rows: o.At.Rows, Root: o.At.Root.String(), At: metav1.NewTime(now)}
	telemetry.Changed(ctx, r.Log, "audit.kept", telemetry.Event{Cause: d.Name}, slog.Int64("rows", o.At.Rows), slog.String("root", v.kept.Root))
	return v, nil
}

var reasons = map[checkpoint.Trouble]string{
	checkpoint.Edited: v1alpha1.ReasonAuditEdited, checkpoint.Gap: v1alpha1.ReasonAuditGap, checkpoint.Duplicate: v1alpha1.ReasonAuditDuplicate,
	checkpoint.Forked: v1alpha1.ReasonAuditForked, checkpoint.Truncated: v1alpha1.ReasonAuditTruncated,
}

func (v verdict) broken(d *v1alpha1.Device, system string, f checkpoint.Finding) verdict {
	v.status, v.reason = metav1.ConditionFalse, reasons[f.Trouble]
	v.message = fmt.Sprintf("Row %d: %s. Nothing is kept any more. Look into it with kubectl nisse audit verify %s; to begin anew from what the device has now, delete ConfigMap %s in %s.",
		f.Row, f.Detail, d.Name, names.Audit(d.Namespace, d.Name), system)
	return v
}

// +kubebuilder:rbac:groups=nisse.io,resources=devices,verbs=list;watch
// +kubebuilder:rbac:groups=nisse.io,resources=devices/status,verbs=patch

// Setup adds the controller to the manager.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("deviceaudit").For(&v1alpha1.Device{}).Complete(r)
}
