package gate

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/controllertest"
)

// inNamespace reads one namespace, as the manager's cache does.
type inNamespace struct {
	client.Reader
	*bench
}

func (r inNamespace) collector() *openGates {
	return newOpenGates(client.NewNamespacedClient(r.Admin, r.NS), func() time.Time { return r.now })
}

func TestMetrics(t *testing.T) {
	b := newBench(t)
	g := b.Gate(b.Plan(1, controllertest.Report), b.now)
	b.now = g.CreationTimestamp.Add(90 * time.Second)
	reg := prometheus.NewRegistry()
	reg.MustRegister(inNamespace{bench: b}.collector())
	open := func(want string) {
		t.Helper()
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "nisse_manager_gates_open", "nisse_manager_gates_oldest_seconds"); err != nil {
			t.Error(err)
		}
	}
	open(`
# HELP nisse_manager_gates_oldest_seconds Age of the oldest gate that waits for a person.
# TYPE nisse_manager_gates_oldest_seconds gauge
nisse_manager_gates_oldest_seconds{kind="Call"} 0
nisse_manager_gates_oldest_seconds{kind="Halt"} 0
nisse_manager_gates_oldest_seconds{kind="Plan"} 90
# HELP nisse_manager_gates_open Gates that wait for a person.
# TYPE nisse_manager_gates_open gauge
nisse_manager_gates_open{kind="Call"} 0
nisse_manager_gates_open{kind="Halt"} 0
nisse_manager_gates_open{kind="Plan"} 1
`)
	approved, refused := decisions.WithLabelValues("Plan", "Approved", "Kubernetes"), refusals.WithLabelValues(v1alpha1.ReasonNotAPerson)
	wasApproved, wasRefused := testutil.ToFloat64(approved), testutil.ToFloat64(refused)
	b.Approval(g, "mallory", v1alpha1.DecisionApprove, nil)
	b.Approval(g, "lucas", v1alpha1.DecisionApprove, nil)
	b.must(g)
	if n := testutil.ToFloat64(approved) - wasApproved; n != 1 {
		t.Errorf("%v approvals counted, want 1", n)
	}
	if n := testutil.ToFloat64(refused) - wasRefused; n != 1 {
		t.Errorf("%v refusals counted, want 1", n)
	}
	open(`
# HELP nisse_manager_gates_oldest_seconds Age of the oldest gate that waits for a person.
# TYPE nisse_manager_gates_oldest_seconds gauge
nisse_manager_gates_oldest_seconds{kind="Call"} 0
nisse_manager_gates_oldest_seconds{kind="Halt"} 0
nisse_manager_gates_oldest_seconds{kind="Plan"} 0
# HELP nisse_manager_gates_open Gates that wait for a person.
# TYPE nisse_manager_gates_open gauge
nisse_manager_gates_open{kind="Call"} 0
nisse_manager_gates_open{kind="Halt"} 0
nisse_manager_gates_open{kind="Plan"} 0
`)
	if p, err := testutil.GatherAndLint(reg); err != nil || len(p) > 0 {
		t.Errorf("%v %v", p, err)
	}
}

func TestWaitIsMeasuredFromTheOpening(t *testing.T) {
	g := &v1alpha1.Gate{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(time.Unix(1000, 0))},
		Spec: v1alpha1.GateSpec{Kind: v1alpha1.GateHalt}, Status: v1alpha1.GateStatus{Outcome: v1alpha1.GateExpired}}
	before := testutil.ToFloat64(decisions.WithLabelValues("Halt", "Expired", ""))
	countOutcome(g, time.Unix(1120, 0))
	if n := testutil.ToFloat64(decisions.WithLabelValues("Halt", "Expired", "")) - before; n != 1 {
		t.Errorf("%v expiries counted, want 1", n)
	}
	if n := testutil.CollectAndCount(waited, "nisse_manager_gate_wait_seconds"); n == 0 {
		t.Error("no wait measured")
	}
}

// A manager whose clock is behind the API server's has not waited for less than nothing.
func TestWaitIsNeverNegative(t *testing.T) {
	g := &v1alpha1.Gate{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(time.Unix(1000, 0))}}
	for at, want := range map[int64]time.Duration{1120: 2 * time.Minute, 1000: 0, 940: 0} {
		if got := wait(g, time.Unix(at, 0)); got != want {
			t.Errorf("at %d: %s, want %s", at, got, want)
		}
	}
}
