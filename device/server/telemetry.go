package server

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

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
}

// NewMetrics registers with r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "nisse_device_calls_total", Help: "Calls answered, by capability, state and reason of a refusal."},
			[]string{"capability", "outcome", "reason"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "nisse_device_call_seconds", Help: "How long calls ran.",
			Buckets: []float64{.001, .005, .02, .1, .5, 2, 10, 60, 300}}, []string{"capability"}),
		auditFaults: prometheus.NewCounter(prometheus.CounterOpts{Name: "nisse_device_audit_faults_total", Help: "Writes to the audit that failed."}),
	}
	r.MustRegister(m.calls, m.seconds, m.auditFaults)
	return m
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
