package gate

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"nisse.io/nisse/api/v1alpha1"
)

// What matters to people: how long gates wait, how they are decided and through what, and what is refused. Labels are enumerations
// of ours; no text of a person can grow them.
var (
	decisions = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "nisse_manager_gate_decisions_total",
		Help: "Gates by kind, outcome and the channel of the deciding approval (empty when nobody decided)."}, []string{"kind", "outcome", "channel"})
	waited = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "nisse_manager_gate_wait_seconds",
		Help: "Time from the opening of a gate to its outcome.", Buckets: []float64{1, 5, 15, 60, 300, 900, 1800, 3600, 14400, 86400}}, []string{"kind", "outcome"})
	refusals = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "nisse_manager_approvals_refused_total",
		Help: "Approvals that did not count, by reason."}, []string{"reason"})
)

func init() { metrics.Registry.MustRegister(decisions, waited, refusals) }

func countOutcome(g *v1alpha1.Gate, at time.Time) {
	kind, outcome, channel := string(g.Spec.Kind), string(g.Status.Outcome), ""
	if n := len(g.Status.Decisions); n > 0 {
		channel = string(g.Status.Decisions[n-1].Channel)
	}
	decisions.WithLabelValues(kind, outcome, channel).Inc()
	waited.WithLabelValues(kind, outcome).Observe(wait(g, at).Seconds())
}

// wait since a gate was opened. The API server dated it and the manager asks: their clocks may differ.
func wait(g *v1alpha1.Gate, at time.Time) time.Duration {
	return max(0, at.Sub(g.CreationTimestamp.Time))
}

// openGates tells, whenever it is scraped, what waits for people and since when.
type openGates struct {
	reader client.Reader
	now    func() time.Time
	count  *prometheus.Desc
	oldest *prometheus.Desc
}

func newOpenGates(r client.Reader, now func() time.Time) *openGates {
	return &openGates{reader: r, now: now,
		count:  prometheus.NewDesc("nisse_manager_gates_open", "Gates that wait for a person.", []string{"kind"}, nil),
		oldest: prometheus.NewDesc("nisse_manager_gates_oldest_seconds", "Age of the oldest gate that waits for a person.", []string{"kind"}, nil)}
}

// Describe implements prometheus.Collector.
func (o *openGates) Describe(ch chan<- *prometheus.Desc) { ch <- o.count; ch <- o.oldest }

// Collect implements prometheus.Collector from the cache alone.
func (o *openGates) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var list v1alpha1.GateList
	if err := o.reader.List(ctx, &list); err != nil {
		ch <- prometheus.NewInvalidMetric(o.count, err)
		return
	}
	for _, kind := range []v1alpha1.GateKind{v1alpha1.GatePlan, v1alpha1.GateCall, v1alpha1.GateHalt} {
		n, age := 0, time.Duration(0)
		for i := range list.Items {
			if g := &list.Items[i]; g.Spec.Kind == kind && g.Open() {
				n++
				age = max(age, wait(g, o.now()))
			}
		}
		ch <- prometheus.MustNewConstMetric(o.count, prometheus.GaugeValue, float64(n), string(kind))
		ch <- prometheus.MustNewConstMetric(o.oldest, prometheus.GaugeValue, age.Seconds(), string(kind))
	}
}
