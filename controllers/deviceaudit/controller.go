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
	after := d.DeepCopy()
	v, err := r.judge(ctx, &d, remembered(k, &d))
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

// remembered is what was kept, though the ConfigMap be gone, or an older one: the status bears the last checkpoint too, and whether the audit was found broken. Who
// takes the ConfigMap away ends no break by it; the root key alone does.
func remembered(k keeping, d *v1alpha1.Device) keeping {
	s := d.Status.AuditKept
	same := k.config == nil || s != nil && s.Line == k.last.Line // of this line; the status follows when another has begun
	if s != nil && (k.last.Rows == 0 || same && s.Rows > k.last.Rows) {
		if root, err := checkpoint.ParseRoot(s.Root); err == nil {
			k.last, k.at = checkpoint.Checkpoint{Line: s.Line, Rows: s.Rows, Root: root}, s.At
		}
	}
	if c := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionAuditIntact); same && k.broken == nil && c != nil && c.Status == metav1.ConditionFalse {
		k.lost = &checkpoint.Finding{Trouble: checkpoint.Trouble(c.Reason), Detail: "it was found so before, and what was kept, with that finding, was taken away since"}
		_, _ = fmt.Sscanf(c.Message, "Row %d:", &k.lost.Row) // as broken wrote it
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
		v.kept = &v1alpha1.KeptAudit{Line: k.last.Line, Rows: k.last.Rows, Root: k.last.Root.String(), At: k.at}
	}
	var o checkpoint.Opened
	key, err := dsse.ParseKey(d.Spec.PublicKey)
	switch {
	case err != nil:
	case d.Status.Audit.Reply == "":
		err = fmt.Errorf("of the device it says that %s", d.Status.Audit.Finding)
	default:
		o, err = checkpoint.OpenReply([]byte(d.Status.Audit.Reply), d.Name, key)
	}
	if err == nil {
		err = checkpoint.Judge(k.last, o)
	}
	// Where nothing was kept, any line would be in order; not so where something was found.
	if anchored := errors.Is(err, checkpoint.ErrAnchored); anchored || err == nil && k.found() && o.At.Line > k.last.Line {
		if _, no := ordered(d, k.last, o.At.Line); no == nil {
			return r.begin(ctx, d, k, o)
		} else if anchored && !k.found() {
			err = (&checkpoint.Finding{Trouble: checkpoint.Forked, Row: k.last.Rows,
				Detail: fmt.Sprintf("the device has begun line %d of its audit, and the root key has not ordered that: %v", o.At.Line, no)}).Bounded()
		}
	}
	if k.broken != nil {
		return v.broken(d, r.System, k.broken.Finding), nil
	}
	if k.lost != nil {
		err = k.lost
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
	v = v.intact(d, r.System, k.anchor)
	if o.At.Rows == 0 || k.config != nil && o.At.Rows == k.last.Rows {
		return v, nil
	}
	now := r.Now()
	if err := k.keep(ctx, r.Client, r.System, d.Namespace, d.Name, o, now); err != nil {
		return verdict{}, err
	}
	v.kept = &v1alpha1.KeptAudit{Line: o.At.Line, Rows: o.At.Rows, Root: o.At.Root.String(), At: metav1.NewTime(now)}
	telemetry.Changed(ctx, r.Log, "audit.kept", telemetry.Event{Cause: d.Name}, slog.Int64("rows", o.At.Rows), slog.String("root", v.kept.Root))
	return v, nil
}

// ordered is the root key's order for a line, if it is for the line that follows what is kept.
func ordered(d *v1alpha1.Device, kept checkpoint.Checkpoint, line int64) (checkpoint.Anchor, error) {
	root, err := dsse.ParseKey(d.Spec.RootKey)
	if err != nil {
		return checkpoint.Anchor{}, fmt.Errorf("spec.rootKey: %w", err)
	}
	if d.Spec.AuditAnchor == "" {
		return checkpoint.Anchor{}, errors.New("there is no order")
	}
	a, err := checkpoint.OpenAnchor(d.Spec.AuditAnchor, d.Name, root)
	if err != nil {
		return checkpoint.Anchor{}, err
	}
	if a.Line != line || a.Kept() != kept {
		return checkpoint.Anchor{}, fmt.Errorf("the order is for line %d, after %d rows of line %d", a.Line, a.Rows, a.Before)
	}
	return a, nil
}

// begin a line that was ordered.
func (r *Reconciler) begin(ctx context.Context, d *v1alpha1.Device, k keeping, o checkpoint.Opened) (verdict, error) {
	now := r.Now()
	if err := k.begin(ctx, r.Client, r.Live, r.System, d.Namespace, d.Name, d.Spec.AuditAnchor, o, now); err != nil {
		return verdict{}, err
	}
	v := verdict{kept: &v1alpha1.KeptAudit{Line: o.At.Line, Rows: o.At.Rows, Root: o.At.Root.String(), At: metav1.NewTime(now)}}.intact(d, r.System, d.Spec.AuditAnchor)
	r.Events.Eventf(d, nil, corev1.EventTypeNormal, "AuditAnchored", "Verify", "%s", v.message)
	telemetry.Changed(ctx, r.Log, "audit.anchored", telemetry.Event{Cause: d.Name}, slog.Int64("line", o.At.Line), slog.Int64("before", k.last.Line))
	return v, nil
}

// intact audit, of a line that began by an order or of the first.
func (v verdict) intact(d *v1alpha1.Device, system, order string) verdict {
	v.status, v.reason = metav1.ConditionTrue, v1alpha1.ReasonAuditExtends
	if order == "" {
		return v
	}
	v.reason, v.message = v1alpha1.ReasonAuditAnchored, "The root key has ordered this line."
	if root, err := dsse.ParseKey(d.Spec.RootKey); err == nil {
		if a, err := checkpoint.OpenAnchor(order, d.Name, root); err == nil {
			v.message = fmt.Sprintf("The root key has ordered line %d at %s (%q), for the line before it was %s at row %d; what was kept of that is in ConfigMap %s of %s.", a.Line,
				time.Unix(a.At, 0).UTC().Format(time.RFC3339), a.Reason, a.Trouble, a.Row, names.AuditLine(d.Namespace, d.Name, a.Before), system)
		}
	}
	return v
}

var reasons = map[checkpoint.Trouble]string{
	checkpoint.Edited: v1alpha1.ReasonAuditEdited, checkpoint.Gap: v1alpha1.ReasonAuditGap, checkpoint.Duplicate: v1alpha1.ReasonAuditDuplicate,
	checkpoint.Forked: v1alpha1.ReasonAuditForked, checkpoint.Truncated: v1alpha1.ReasonAuditTruncated,
}

func (v verdict) broken(d *v1alpha1.Device, system string, f checkpoint.Finding) verdict {
	v.status, v.reason = metav1.ConditionFalse, reasons[f.Trouble]
	v.message = fmt.Sprintf("Row %d: %s. Nothing is kept any more. Look into it with kubectl nisse audit verify %s -n %s (what was kept is in ConfigMap %s of %s); to begin a new line, kubectl nisse audit reanchor %s -n %s with the root key.",
		f.Row, f.Detail, d.Name, d.Namespace, names.Audit(d.Namespace, d.Name), system, d.Name, d.Namespace)
	return v
}

// +kubebuilder:rbac:groups=nisse.io,resources=devices,verbs=list;watch
// +kubebuilder:rbac:groups=nisse.io,resources=devices/status,verbs=patch

// Setup adds the controller to the manager.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("deviceaudit").For(&v1alpha1.Device{}).Complete(r)
}
