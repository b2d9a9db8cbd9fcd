package deviceaudit

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// findings by what was wrong; the words are ours.
var findings = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "nisse_manager_audit_findings_total",
	Help: "Devices' audits that were found broken, by what is wrong."}, []string{"trouble"})

func init() { metrics.Registry.MustRegister(findings) }
