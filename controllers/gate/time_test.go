package gate

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/controllertest"
	"nisse.io/nisse/controllers/gate/policy"
)

// dated lets the API server have made every Approval at one moment of its own clock.
func (b *bench) dated(at time.Time) {
	b.r.Live = b.Intercepted(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
		err := c.List(ctx, l, opts...)
		if all, ok := l.(*v1alpha1.ApprovalList); ok {
			for i := range all.Items {
				all.Items[i].CreationTimestamp = metav1.NewTime(at)
			}
		}
		return err
	}})
}

// The API server's clock says whether a word came in time, and the manager's when to stop waiting for words. However far the two are
// apart, what came in time counts and what came later never does.
func TestTheEndToTheSecond(t *testing.T) {
	const approve, reject = v1alpha1.DecisionApprove, v1alpha1.DecisionReject
	for _, tc := range []struct {
		name     string
		decision v1alpha1.Decision
		// said and judged after the gate's end; by the API server's clock, and by the manager's.
		said, judged time.Duration
		outcome      v1alpha1.GateOutcome
		refusal      string
		// again is when an open gate is looked at anew.
		again time.Duration
	}{
		{"in the last second", approve, -time.Second, -time.Millisecond, v1alpha1.GateApproved, "", 0},
		{"in the last second, judged at the end", approve, -time.Second, 0, v1alpha1.GateApproved, "", 0},
		{"in the last second, judged when the gate lapses", approve, -time.Second, policy.Grace, v1alpha1.GateApproved, "", 0},
		{"in the last second, judged a day late", approve, -time.Second, 24 * time.Hour, v1alpha1.GateApproved, "", 0},
		{"rejected in the last second, judged when the gate lapses", reject, -time.Second, policy.Grace, v1alpha1.GateRejected, "", 0},
		{"at the end, judged at the end", approve, 0, 0, "", v1alpha1.ReasonTooLate, policy.Grace},
		{"at the end, judged just before the gate lapses", approve, 0, policy.Grace - time.Nanosecond, "", v1alpha1.ReasonTooLate, again},
		{"at the end, judged when the gate lapses", approve, 0, policy.Grace, v1alpha1.GateExpired, v1alpha1.ReasonTooLate, 0},
		{"rejected at the end", reject, 0, policy.Grace, v1alpha1.GateExpired, v1alpha1.ReasonTooLate, 0},
		{"the manager's clock is an hour behind", approve, time.Second, -time.Hour, "", v1alpha1.ReasonTooLate, time.Hour + policy.Grace},
		{"the manager's clock is an hour ahead", approve, -30 * time.Minute, 30 * time.Minute, v1alpha1.GateApproved, "", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t)
			g := b.Gate(b.Plan(1, controllertest.Report), b.now)
			a := b.Approval(g, "lucas", tc.decision, nil)
			b.dated(g.Spec.ExpiresAt.Add(tc.said))
			b.now = g.Spec.ExpiresAt.Add(tc.judged)
			result := b.must(g)
			b.outcome(g, tc.outcome)
			b.refused(a, tc.refusal)
			if result.RequeueAfter != tc.again {
				t.Errorf("looked at again after %s, want %s", result.RequeueAfter, tc.again)
			}
			if g.Status.DecidedAt != nil && !g.Status.DecidedAt.Time.Equal(b.now.Truncate(time.Second)) {
				t.Errorf("decided at %s by a clock that shows %s", g.Status.DecidedAt, b.now)
			}
		})
	}
}
