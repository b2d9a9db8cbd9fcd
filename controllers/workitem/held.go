package workitem

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/admission"
	"nisse.io/nisse/controllers/gate/opening"
	"nisse.io/nisse/controllers/gate/render"
	"nisse.io/nisse/controllers/gate/subject"
	"nisse.io/nisse/controllers/pass"
	"nisse.io/nisse/controllers/workitem/workflow"
	"nisse.io/nisse/internal/telemetry"
)

// takeAnswer takes in a person's answer to what holds the item: which stop and which halt are answered, which plans are closed by
// it, and whether the item ends. It changes the computed status alone, so that all of it is one write.
func (r *Reconciler) takeAnswer(ctx context.Context, s *scope) error {
	held := subject.Held(s.item)
	if held == nil {
		return nil
	}
	name := subject.HaltGate(s.item.Name, *held)
	i := slices.IndexFunc(s.gates, func(g v1alpha1.Gate) bool {
		return g.Name == name && g.Spec.Kind == v1alpha1.GateHalt && *g.Spec.Halt == *held && len(g.Status.Decisions) > 0
	})
	if i < 0 {
		return nil
	}
	if s.answeredBefore(&s.gates[i]) {
		return pass.Stalled(v1alpha1.ReasonStopReused, "Stop %q was asked for and answered before; nothing runs. Stop again with another ID, or close the item.", held.Stop)
	}
	decision := s.gates[i].Status.Decisions[len(s.gates[i].Status.Decisions)-1]
	switch decision.Answer {
	case v1alpha1.AnswerAbandon:
		s.abandoned = &decision
	case v1alpha1.AnswerReplan:
		revision, err := r.latestRevision(ctx, s.item)
		if err != nil {
			return err
		}
		s.item.Status.ClosedRevision = max(s.item.Status.ClosedRevision, revision)
	case v1alpha1.AnswerContinue:
	default:
		return pass.Stalled(v1alpha1.ReasonAnswerUnknown, "Gate %s was answered with %q, which this version does not know.", name, decision.Answer)
	}
	// As the gate names them: a stop or a halt that came after the question is not answered by it.
	if held.Stop != "" {
		s.item.Status.AnsweredStop = held.Stop
	}
	if held.Halt != "" {
		s.item.Status.AnsweredHalt = held.Halt
	}
	return nil
}

// answeredBefore tells whether a gate's answer was taken in long ago: people have been asked and have answered since. Its stop came again
// under the old ID, and the old answer was not given to it.
func (s *scope) answeredBefore(g *v1alpha1.Gate) bool {
	return slices.ContainsFunc(s.gates, func(o v1alpha1.Gate) bool {
		return o.Spec.Kind == v1alpha1.GateHalt && len(o.Status.Decisions) > 0 && o.CreationTimestamp.After(g.CreationTimestamp.Time)
	})
}

// asked tells what there is to say of a gate that exists already. One that ended before anybody answered is not opened again: its name
// follows from what it asked about. Without a word people would wait for a question that never comes.
func asked(g *v1alpha1.Gate, held v1alpha1.GateHaltRef) error {
	switch {
	case g.Spec.Kind != v1alpha1.GateHalt || *g.Spec.Halt != held:
		return pass.Stalled(v1alpha1.ReasonForeignGate, "Gate %s is about something else; delete it.", g.Name)
	case !g.Open():
		return pass.Stalled(v1alpha1.ReasonQuestionEnded, "Gate %s asked how it goes on and ended before anybody answered; nothing runs. Stop again, with another ID, to be asked anew, or close the item.", g.Name)
	}
	return nil
}

// latestRevision is read live: a revision that the cache does not show yet must not outlive an answer that was meant for it.
func (r *Reconciler) latestRevision(ctx context.Context, item *v1alpha1.WorkItem) (int32, error) {
	plans, err := r.livePlans(ctx, item)
	if err != nil {
		return 0, err
	}
	if latest := subject.Latest(item, plans); latest != nil {
		return latest.Spec.Revision, nil
	}
	return 0, nil
}

func (r *Reconciler) livePlans(ctx context.Context, item *v1alpha1.WorkItem) ([]v1alpha1.Plan, error) {
	var plans v1alpha1.PlanList
	if err := r.Live.List(ctx, &plans, client.InNamespace(item.Namespace), client.MatchingFields{v1alpha1.FieldWorkItem: item.Name}); err != nil {
		return nil, fmt.Errorf("list the plans of %s: %w", item.Name, err)
	}
	return plans.Items, nil
}

// ask opens the gate of a held item.
func (r *Reconciler) ask(ctx context.Context, s *scope) error {
	held := subject.Held(s.item)
	if held == nil || !slices.Contains(s.effects, workflow.OpenHaltGate) {
		return nil
	}
	name := subject.HaltGate(s.item.Name, *held)
	if i := slices.IndexFunc(s.gates, func(g v1alpha1.Gate) bool { return g.Name == name }); i >= 0 {
		return asked(&s.gates[i], *held)
	}
	if s.agent.Spec.Suspend {
		return pass.Stalled(v1alpha1.ReasonSuspended, "Agent %s is suspended; no gate opens meanwhile.", s.agent.Name)
	}
	g, err := opening.Halt(s.item, s.agent, *held, r.Now())
	switch {
	case errors.Is(err, opening.ErrNoApprovers):
		return pass.Stalled(v1alpha1.ReasonNoApprovers, "%v.", err)
	case err != nil:
		return err
	}
	if err := r.Guard.Enforced(ctx, s.item.Namespace); errors.Is(err, admission.ErrMissing) {
		return &pass.Waiting{After: admission.Retry(), Reason: v1alpha1.ReasonAdmissionMissing, Message: err.Error()}
	} else if err != nil {
		return err
	}
	if alone, err := opening.Alone(ctx, r.Live, s.item, name); err != nil || !alone {
		return err
	}
	made, created, err := opening.Create(ctx, r.Client, r.Live, g)
	if err != nil || !created {
		return err
	}
	telemetry.Changed(ctx, r.Log, "gate.opened", telemetry.Event{Agent: g.Spec.Agent, TaskID: s.item.Correlation(), Cause: held.Stop + held.Halt},
		slog.String("gate", made.Name), slog.String("gate_uid", string(made.UID)), slog.String("digest", made.Spec.Digest))
	r.Events.Eventf(s.item, made, corev1.EventTypeWarning, "Halted", "Open", "Nothing runs until %s says continue, replan or abandon: %s.",
		render.Names(g.Spec.Approvers), g.Spec.Rule)
	return nil
}
