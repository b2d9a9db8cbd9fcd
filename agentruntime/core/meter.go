package core

import (
	"github.com/prometheus/client_golang/prometheus"

	"nisse.io/nisse/agentruntime/event"
	"nisse.io/nisse/agentruntime/model"
)

// Meter counts what the loop does. No label can grow by what people or models write: tools are the broker's list.
type Meter struct {
	events *prometheus.CounterVec
	asks   *prometheus.CounterVec
	calls  *prometheus.CounterVec
}

// NewMeter registers the counters.
func NewMeter(r prometheus.Registerer) *Meter {
	m := &Meter{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "nisse_runtime_events_total", Help: "Events appended to the log, by type."}, []string{"type"}),
		asks:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: "nisse_runtime_model_requests_total", Help: "Requests to the model that ended, by outcome."}, []string{"outcome"}),
		calls:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "nisse_runtime_tool_calls_total", Help: "Calls of tools that ended, by tool and status."}, []string{"tool", "status"}),
	}
	r.MustRegister(m.events, m.asks, m.calls)
	return m
}

func (m *Meter) event(t event.Type) { m.events.WithLabelValues(string(t)).Inc() }

func (m *Meter) call(tool, status string) { m.calls.WithLabelValues(tool, status).Inc() }

func (m *Meter) ask(err error) {
	outcome := "answered"
	if err != nil {
		outcome = "failed"
		if model.AsError(err).Kind == model.TooLong {
			outcome = "too_long"
		}
	}
	m.asks.WithLabelValues(outcome).Inc()
}
