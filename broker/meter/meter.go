// Package meter counts what the broker does, for Prometheus. No label holds text that an agent or a device could choose.
package meter

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/doors"
)

// Meter of one broker.
type Meter struct {
	calls    *prometheus.CounterVec
	refusals *prometheus.CounterVec
	jobs     *prometheus.CounterVec
	dispatch prometheus.Histogram
	pending  prometheus.Gauge
	streams  prometheus.Gauge
}

// New registers the broker's metrics.
func New(r prometheus.Registerer) *Meter {
	m := &Meter{
		calls:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "nisse_broker_tool_calls_total", Help: "Tool calls of agents by tool and status."}, []string{"tool", "status"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "nisse_broker_refusals_total", Help: "Tool calls that did not run, by reason."}, []string{"reason"}),
		jobs:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "nisse_broker_jobs_ended_total", Help: "Approved deeds by how they ended."}, []string{"state"}),
		dispatch: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "nisse_broker_dispatch_seconds", Help: "Time from sending a request to a device to its answer.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}}),
		pending: prometheus.NewGauge(prometheus.GaugeOpts{Name: "nisse_broker_jobs_pending", Help: "Approved deeds that were asked for and are not known to have ended."}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{Name: "nisse_broker_work_streams", Help: "Open work streams of agents."}),
	}
	r.MustRegister(m.calls, m.refusals, m.jobs, m.dispatch, m.pending, m.streams)
	return m
}

// Call counts an answered tool call. tool must be one of the tools that exist.
func (m *Meter) Call(tool string, r doors.ToolResult) {
	m.calls.WithLabelValues(tool, r.Status).Inc()
	if r.Status == doors.Refused || r.Status == doors.Halted {
		m.refusals.WithLabelValues(r.Reason).Inc()
	}
}

// Ended counts the end of an approved deed.
func (m *Meter) Ended(s v1alpha1.JobState) { m.jobs.WithLabelValues(string(s)).Inc() }

// Dispatch measures until the returned function is called.
func (m *Meter) Dispatch() (stop func()) {
	begun := time.Now()
	return func() { m.dispatch.Observe(time.Since(begun).Seconds()) }
}

// Pending deeds there are now.
func (m *Meter) Pending(n int) { m.pending.Set(float64(n)) }

// Stream counts an open work stream until the returned function is called.
func (m *Meter) Stream() (closed func()) {
	m.streams.Inc()
	return m.streams.Dec
}

// Refused registers what counts connections that were closed at once, by the port they came to.
func Refused(r prometheus.Registerer) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "nisse_broker_connections_refused_total",
		Help: "Connections closed at once because their address had as many as it may."}, []string{"port"})
	r.MustRegister(c)
	return c
}
