package gate

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/condition"
	"nisse.io/nisse/controllers/gate/policy"
	"nisse.io/nisse/controllers/gate/render"
	"nisse.io/nisse/controllers/gate/subject"
	"nisse.io/nisse/controllers/pass"
	"nisse.io/nisse/internal/clock"
	"nisse.io/nisse/internal/crashpoint"
	"nisse.io/nisse/internal/sanitize"
	"nisse.io/nisse/internal/telemetry"
)

// commit writes outcome, decisions and statement in one patch under an optimistic lock. It happens or it does not: a crash before
// it leaves an open gate that the next pass judges again, a crash after it leaves nothing to do.
func (r *Reconciler) commit(ctx context.Context, s *scope, v policy.Verdict, why string, now time.Time) error {
	before := s.gate.DeepCopy()
	st := &s.gate.Status
	at := metav1.NewTime(now.UTC().Truncate(time.Second))
	st.Outcome, st.Decisions, st.DecidedAt, st.Message = v.Outcome, v.Decisions, &at, why
	if why == "" {
		st.Message = message(s.gate)
	}
	if v.Outcome == v1alpha1.GateApproved && s.gate.LetsRun() {
		end, err := s.end(v.Decisions, at.Time)
		if err != nil {
			return err
		}
		statement := subject.Statement(s.gate, s.plan, approvers(v.Decisions), end)
		if st.Statement, err = r.Sign(statement); err != nil {
			return fmt.Errorf("state the approval of gate %s: %w", s.gate.Name, err)
		}
	}
	st.ObservedGeneration = s.gate.Generation
	condition.Ready(&st.Conditions, s.gate.Generation, metav1.ConditionTrue, string(v.Outcome), st.Message)

	crashpoint.Hit("manager.outcome.before")
	if _, err := pass.WriteStatus(ctx, r.Client, before, s.gate); err != nil {
		return err
	}
	crashpoint.Hit("manager.outcome.after")
	r.tell(ctx, s, now)
	return nil
}

// end of what was approved at a time: the gate's window, and no later than what a Person signed for.
func (s *scope) end(decisions []v1alpha1.GateDecision, at time.Time) (time.Time, error) {
	end := at.Add(time.Duration(s.gate.Spec.WindowSeconds) * time.Second)
	for _, d := range decisions {
		if d.Signature == "" {
			continue
		}
		c, err := subject.Consent(s.gate, s.plan, d.Person, d.Signature)
		if err != nil {
			return end, fmt.Errorf("read the signature of %s: %w", d.Person, err)
		}
		if signed := time.Unix(c.ExpiresAt, 0); signed.Before(end) {
			end = signed
		}
	}
	return end, nil
}

// tell the story after the commit: log, metrics, event.
func (r *Reconciler) tell(ctx context.Context, s *scope, now time.Time) {
	g := s.gate
	countOutcome(g, now)
	task, cause := g.Spec.WorkItem.Name, "time"
	if s.item != nil {
		task = s.item.Correlation()
	}
	var by []string
	for _, d := range g.Status.Decisions {
		by = append(by, d.Person)
		cause = d.Approval
	}
	if g.Status.Outcome == v1alpha1.GateSuperseded {
		cause = g.Spec.Subject.Name
	}
	telemetry.Changed(ctx, r.Log, "gate."+strings.ToLower(string(g.Status.Outcome)), telemetry.Event{Agent: g.Spec.Agent, TaskID: task, Cause: cause},
		slog.String("gate", g.Name), slog.String("gate_uid", string(g.UID)), slog.String("digest", g.Spec.Digest), slog.Any("by", by))
	if s.item != nil {
		kind := corev1.EventTypeNormal
		if g.Status.Outcome == v1alpha1.GateExpired {
			kind = corev1.EventTypeWarning
		}
		reason := string(g.Status.Outcome)
		if g.Spec.Kind == v1alpha1.GateHalt && len(g.Status.Decisions) > 0 {
			reason = "Answered"
		}
		r.Events.Eventf(s.item, g, kind, reason, "Decide", "%s", g.Status.Message)
	}
}

func approvers(decisions []v1alpha1.GateDecision) []string {
	var all []string
	for _, d := range decisions {
		all = append(all, d.Person)
	}
	slices.Sort(all)
	return all
}

// message says in one line what became of the gate.
func message(g *v1alpha1.Gate) string {
	what := "The question"
	if g.LetsRun() {
		what = fmt.Sprintf("rev-%d", g.Spec.Revision)
	}
	at := clock.Tell(g.Status.DecidedAt.UTC(), g.CreationTimestamp.Time)
	if len(g.Status.Decisions) == 0 {
		return fmt.Sprintf("Nobody answered until %s; nothing of %s was run.", clock.Tell(g.Spec.ExpiresAt.UTC(), g.CreationTimestamp.Time), strings.ToLower(what[:1])+what[1:])
	}
	last := g.Status.Decisions[len(g.Status.Decisions)-1]
	verb := map[v1alpha1.GateOutcome]string{v1alpha1.GateApproved: "approved", v1alpha1.GateRejected: "rejected"}[g.Status.Outcome]
	if last.Answer != "" {
		verb = "answered with " + strings.ToLower(string(last.Answer))
		if last.Settle != "" {
			verb += ", settled as " + string(last.Settle) + ","
		}
	}
	m := fmt.Sprintf("%s was %s by %s at %s", what, verb, strings.Join(approvers(g.Status.Decisions), ", "), at)
	if last.Text != "" {
		m += ": " + sanitize.Quote(sanitize.Line(last.Text, 200))
	}
	return render.Cut(m+".", maxMessage)
}
