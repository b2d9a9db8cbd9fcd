package devices

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/broker/replica"
	"nisse.io/nisse/internal/checkpoint"
	"nisse.io/nisse/internal/telemetry"
)

// replicateTimeout of one pass; what is left comes with the next.
const replicateTimeout = 20 * time.Second

// replicas of devices' audits.
type replicas struct {
	store    *replica.Store // nil: none are kept
	rows     *prometheus.GaugeVec
	behind   *prometheus.GaugeVec
	failures *prometheus.CounterVec
}

func newReplicas(r prometheus.Registerer) replicas {
	s := replicas{
		rows: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "nisse_broker_device_audit_replica_rows", Help: "Rows of a device's audit that are replicated."}, []string{"device"}),
		behind: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "nisse_broker_device_audit_replica_lag_rows",
			Help: "Rows that a device has sealed and of which there is no replica."}, []string{"device"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "nisse_broker_device_audit_replica_failures_total",
			Help: "Passes that ended before a device's audit was replicated, by why."}, []string{"device", "reason"}),
	}
	r.MustRegister(s.rows, s.behind, s.failures)
	return s
}

func (s replicas) forget(device string) {
	for _, g := range []*prometheus.GaugeVec{s.rows, s.behind} {
		g.DeletePartialMatch(prometheus.Labels{"device": device})
	}
	s.failures.DeletePartialMatch(prometheus.Labels{"device": device})
}

// Replicate the audits of devices into a store from now on. Call it before Run.
func (r *Registry) Replicate(s *replica.Store) { r.replicas.store = s }

// replicate what a device has sealed, if that extends what the manager has kept.
func (r *Registry) replicate(ctx context.Context, d *v1alpha1.Device, t Target, o checkpoint.Opened) {
	kept, err := keptOf(d)
	if r.replicas.store == nil || err != nil || o.At.Rows == 0 || checkpoint.Judge(kept, o) != nil {
		return // what is wrong has been brought to the manager
	}
	taking, cancel := context.WithTimeout(ctx, replicateTimeout)
	defer cancel()
	a := replica.Audit{Device: d.Name, Key: t.Key, Kept: kept, Now: o.At}
	before := r.replicas.store.Rows(a)
	rows, err := r.replicas.store.Take(taking, a, func(ctx context.Context, after int64) ([]string, bool, error) { return r.client.Rows(ctx, t, after) })
	r.replicas.rows.WithLabelValues(d.Name).Set(float64(rows))
	r.replicas.behind.WithLabelValues(d.Name).Set(float64(max(0, o.At.Rows-rows)))
	if rows > before {
		telemetry.Changed(ctx, r.log, "device.audit_replicated", telemetry.Event{Cause: d.Name}, slog.Int64("rows", rows))
	}
	if err == nil || ctx.Err() != nil { // the rest comes with the next look
		return
	}
	reason := "Unwritable"
	switch {
	case errors.Is(err, replica.ErrDiverged):
		reason = "Diverged"
	case errors.Is(err, replica.ErrDamaged):
		reason = "Damaged"
	case errors.Is(err, replica.ErrFull):
		reason = "Full"
	case errors.Is(err, ErrNotSent), errors.Is(err, ErrNoAnswer), errors.Is(err, ErrUntrusted), Refusal(err) != nil:
		reason = "NotGiven"
	}
	r.replicas.failures.WithLabelValues(d.Name, reason).Inc()
	r.log.Error("device.audit_not_replicated", "device", d.Name, "reason", reason, "rows", rows, "err", err)
}
