package server

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"nisse.io/nisse/device/manifests"
	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/device/wire/chain"
	"nisse.io/nisse/internal/manifest"
	"nisse.io/nisse/internal/telemetry"
)

// Metrics of a device.
type Metrics struct {
	calls       *prometheus.CounterVec
	seconds     *prometheus.HistogramVec
	auditFaults prometheus.Counter
	ends        *prometheus.GaugeVec
	revoked     prometheus.Gauge
	unsealed    prometheus.Gauge
	broken      prometheus.Gauge
}

// NewMetrics of a device, each with its name as a label, registered with r.
func NewMetrics(r prometheus.Registerer, device string) *Metrics {
	r = prometheus.WrapRegistererWith(prometheus.Labels{"device": device}, r)
	m := &Metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "nisse_device_calls_total", Help: "Calls answered, by capability, state and reason of a refusal."},
			[]string{"capability", "outcome", "reason"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "nisse_device_call_seconds", Help: "How long calls ran.",
			Buckets: []float64{.001, .005, .02, .1, .5, 2, 10, 60, 300}}, []string{"capability"}),
		auditFaults: prometheus.NewCounter(prometheus.CounterOpts{Name: "nisse_device_audit_faults_total", Help: "Writes to the audit that failed."}),
	}
	m.ends = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "nisse_device_manifest_expiry_timestamp_seconds", Help: "When the manifest that is held ends, in Unix seconds."},
		[]string{"privilege"})
	m.revoked = prometheus.NewGauge(prometheus.GaugeOpts{Name: "nisse_device_revoked_epoch", Help: "Epoch up to which manifests are revoked."})
	m.unsealed = prometheus.NewGauge(prometheus.GaugeOpts{Name: "nisse_device_audit_unsealed_rows", Help: "Rows of the audit that no checkpoint has yet."})
	m.broken = prometheus.NewGauge(prometheus.GaugeOpts{Name: "nisse_device_audit_broken", Help: "1 when the audit does not verify, so that nothing that needs approval runs."})
	r.MustRegister(m.calls, m.seconds, m.auditFaults, m.ends, m.revoked, m.unsealed, m.broken)
	return m
}

// holds what is held now.
func (m *Metrics) holds(s manifests.Set) {
	for _, h := range s.All() {
		m.ends.WithLabelValues(string(h.Privilege)).Set(float64(h.Ends))
	}
	m.revoked.Set(float64(s.Revoked))
}

// answered counts. A capability that nobody knows is counted as none, for it is a stranger's text.
func (m *Metrics) answered(capability string, a wire.Answer) {
	if _, ok := manifest.Schemas[capability]; !ok {
		capability = ""
	}
	m.calls.WithLabelValues(capability, string(a.State), string(a.Reason)).Inc()
}

func logChange(ctx context.Context, log *slog.Logger, name string, row chain.Row, attrs ...slog.Attr) {
	attrs = append(attrs, slog.String("capability", row.Capability), slog.String("call_hash", row.CallHash))
	telemetry.Changed(ctx, log, name, telemetry.Event{Agent: row.Agent, TaskID: row.CorrelationID, Cause: row.Deed}, attrs...)
}
