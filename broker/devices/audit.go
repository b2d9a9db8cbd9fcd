package devices

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/checkpoint"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/sanitize"
	"nisse.io/nisse/internal/telemetry"
)

// auditEvery is how often a device is asked for a checkpoint, and so the most often that its status is written for it.
const auditEvery = time.Minute

// audit asks a device that answers for its newest checkpoint, when the last was long enough ago, and brings it to the manager. Nothing is decided here:
// a bad one is brought as well, for it is the evidence.
func (r *Registry) audit(ctx context.Context, d *v1alpha1.Device) {
	now := r.now()
	var kept v1alpha1.KeptAudit
	if d.Status.AuditKept != nil {
		kept = *d.Status.AuditKept
	}
	r.mu.Lock()
	rows, due := r.rows[d.Name], now.Sub(r.asked[d.Name]) >= auditEvery-interval/2 // looks come a little early or late
	if due {
		r.asked[d.Name] = now
	}
	r.mu.Unlock()
	r.lag.see(d.Name, rows, kept.Rows, now)
	if !due {
		return
	}
	t, err := TargetOf(d)
	if err != nil {
		return // its Online condition tells
	}
	defer func() {
		if ctx.Err() != nil { // broken off; the look that comes next does it
			r.mu.Lock()
			delete(r.asked, d.Name)
			r.mu.Unlock()
		}
	}()
	asking, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	o, reply, err := r.client.Checkpoint(asking, t, kept.Rows, kept.Root)
	if ctx.Err() != nil {
		return
	}
	if r.silence(ctx, d, err); err != nil {
		return
	}
	r.warn(d, o)
	defer r.replicate(ctx, d, t, o)
	finding := ""
	if o.Finding != nil {
		finding = sanitize.Line(o.Finding.Error(), 1000)
	}
	if was := d.Status.Audit; was != nil && was.Checkpoint == o.Checkpoint && was.Finding == finding && (was.Since == o.Since || finding == "" && kept.Rows == o.At.Rows) {
		return // the manager has it, or will
	}
	if o.Checkpoint == "" && finding == "" && kept.Rows == 0 && d.Status.Audit == nil {
		return // there is nothing yet
	}
	a := v1alpha1.DeviceAudit{Rows: o.At.Rows, Since: o.Since, At: metav1.NewTime(now), Checkpoint: o.Checkpoint, Finding: finding, Reply: reply}
	if o.At.Rows > 0 {
		a.Root = o.At.Root.String()
	}
	r.bring(ctx, d, a)
}

// bring to the manager what a device has given of its audit.
func (r *Registry) bring(ctx context.Context, d *v1alpha1.Device, a v1alpha1.DeviceAudit) {
	writing, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	changed := d.DeepCopy()
	changed.Status.Audit = &a
	// Without a lock on the object: this part has one writer, and it is replaced as a whole.
	if err := r.api.Status().Patch(writing, changed, client.MergeFrom(d)); err != nil {
		r.log.Warn("device.checkpoint_not_written", "device", d.Name, "err", err)
		return
	}
	telemetry.Changed(ctx, r.log, "device.checkpoint_brought", telemetry.Event{Cause: d.Name}, slog.Int64("rows", a.Rows), slog.Int64("since", a.Since), slog.String("finding", a.Finding))
}

// silence of a device that answers and gives no checkpoint that can be used: the manager is told, or it would take the last one for the newest for
// as long as the device likes. Once may be by the way; err is nil when it gave one.
func (r *Registry) silence(ctx context.Context, d *v1alpha1.Device, err error) {
	r.mu.Lock()
	if err == nil {
		delete(r.missed, d.Name)
	} else {
		r.missed[d.Name]++
	}
	missed := r.missed[d.Name]
	r.mu.Unlock()
	if err == nil {
		return
	}
	r.log.Warn("device.checkpoint_not_got", "device", d.Name, "err", err)
	why := sanitize.Line("it gives no checkpoint: "+err.Error(), 1000)
	was := d.Status.Audit
	if missed < 2 || was != nil && was.Reply == "" && words(was.Finding) == words(why) {
		return
	}
	r.bring(ctx, d, v1alpha1.DeviceAudit{At: metav1.NewTime(r.now()), Finding: why})
}

// warn of what the manager will find.
func (r *Registry) warn(d *v1alpha1.Device, o checkpoint.Opened) {
	k, err := keptOf(d)
	if err != nil {
		return
	}
	var f *checkpoint.Finding
	if err := checkpoint.Judge(k, o); errors.As(err, &f) {
		r.log.Error("device.audit_broken", "device", d.Name, "trouble", string(f.Trouble), "row", f.Row, "detail", f.Detail)
	}
}

// anchor a device's audit anew, if the root key has ordered that and the device has not done it yet.
func (r *Registry) anchor(ctx context.Context, t Target, d *v1alpha1.Device, s *seen) {
	if s.err != nil || d.Spec.AuditAnchor == "" {
		return
	}
	root, err := dsse.ParseKey(d.Spec.RootKey)
	if err != nil {
		return // no manifest is in force either, and that tells
	}
	a, err := checkpoint.OpenAnchor(d.Spec.AuditAnchor, d.Name, root)
	if err != nil {
		s.anchoring = err
		return
	}
	if a.Line <= s.AuditLine {
		return
	}
	now, err := r.client.Anchor(ctx, t, d.Spec.AuditAnchor)
	if s.anchoring = err; err != nil {
		return
	}
	s.Status = now
	r.mu.Lock()
	delete(r.asked, d.Name) // the manager is to hear of it soon
	r.mu.Unlock()
	telemetry.Changed(ctx, r.log, "device.audit_anchored", telemetry.Event{Cause: d.Name}, slog.Int64("line", a.Line), slog.String("reason", a.Reason))
}

// keptOf a device is the checkpoint that the manager has; zero when it has none.
func keptOf(d *v1alpha1.Device) (checkpoint.Checkpoint, error) {
	s := d.Status.AuditKept
	if s == nil {
		return checkpoint.Checkpoint{}, nil
	}
	root, err := checkpoint.ParseRoot(s.Root)
	return checkpoint.Checkpoint{Line: s.Line, Rows: s.Rows, Root: root}, err
}

// lag of the cluster behind the audits of devices.
type lag struct {
	gauge *prometheus.GaugeVec
	mu    *sync.Mutex
	since map[string]behind
}

// behind since a time, when the audit had so many rows that were not kept.
type behind struct {
	rows int64
	at   time.Time
}

func newLag(r prometheus.Registerer) lag {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "nisse_broker_device_audit_lag_seconds",
		Help: "How long a device's audit has had rows of which the manager has kept no checkpoint; 0 when it has all."}, []string{"device"})
	r.MustRegister(g)
	return lag{gauge: g, mu: &sync.Mutex{}, since: map[string]behind{}}
}

func (l lag) see(device string, rows, kept int64, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, ok := l.since[device]
	if !ok && rows > kept || ok && kept >= b.rows {
		b, ok = behind{rows, now}, true
	}
	if rows <= kept {
		ok = false
	}
	if !ok {
		delete(l.since, device)
		l.gauge.WithLabelValues(device).Set(0)
		return
	}
	l.since[device] = b
	l.gauge.WithLabelValues(device).Set(now.Sub(b.at).Seconds())
}

func (l lag) forget(device string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.since, device)
	l.gauge.DeleteLabelValues(device)
}
