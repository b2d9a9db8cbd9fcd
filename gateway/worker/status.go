package worker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	asked "nisse.io/nisse/gateway/gates"
	"nisse.io/nisse/gateway/routing"
	"nisse.io/nisse/gateway/store"
	"nisse.io/nisse/internal/approval"
	"nisse.io/nisse/internal/sanitize"
)

// status answers how things stand, from the objects as they are now.
func (w *Worker) status(ctx context.Context, m store.Inbound) error {
	var agent v1alpha1.Agent
	err := w.Live.Get(ctx, client.ObjectKey{Namespace: w.Namespace, Name: m.Agent}, &agent)
	switch {
	case apierrors.IsNotFound(err): // nobody is left to answer
		return w.finish(ctx, m, "the agent is gone", func(*store.Tx) error { return nil })
	case err != nil:
		return fmt.Errorf("read agent %s: %w", m.Agent, err)
	}
	open, err := w.others(ctx, m.Agent, "")
	if err != nil {
		return err
	}
	var gates v1alpha1.GateList
	if err := w.Live.List(ctx, &gates, client.InNamespace(w.Namespace)); err != nil {
		return fmt.Errorf("list gates: %w", err)
	}
	text := summary(&agent, open, gates.Items, m.Route.Person, time.Now())
	return w.finish(ctx, m, "", func(tx *store.Tx) error { return tell(tx, m, text, false) })
}

// summary of an agent for a person: what it works on, what waits for whom, what is queued.
func summary(agent *v1alpha1.Agent, open []v1alpha1.WorkItem, gates []v1alpha1.Gate, asker string, now time.Time) string {
	var b strings.Builder
	if h := hindrance(agent); h != "" {
		b.WriteString(h + "\n")
	}
	if len(open) == 0 {
		b.WriteString("Nothing is being worked on.")
		return b.String()
	}
	titles := map[string]string{}
	for _, i := range open {
		titles[i.Name] = sanitize.Quote(i.Spec.Title)
	}
	for _, i := range open {
		mark := "•"
		if i.Name == agent.Status.ActiveWorkItem {
			mark = "⏳"
		}
		var gate *v1alpha1.Gate
		for n := range gates {
			if gates[n].Spec.WorkItem.Name == i.Name && gates[n].Open() {
				gate = &gates[n]
			}
		}
		code := gate != nil && ambiguous(gate, gates, now)
		fmt.Fprintf(&b, "%s %s: %s (%s)\n", mark, titles[i.Name], stands(&i, gate, code, titles, asker), i.Name)
	}
	return strings.TrimSpace(b.String())
}

// ambiguous tells whether words without a code may mean another gate than this one: one that is open as well, or has ended just now.
func ambiguous(g *v1alpha1.Gate, gates []v1alpha1.Gate, now time.Time) bool {
	return slices.ContainsFunc(gates, func(o v1alpha1.Gate) bool {
		ended := o.Status.DecidedAt
		return o.UID != g.UID && o.Spec.Agent == g.Spec.Agent && o.Spec.Kind == g.Spec.Kind && o.Spec.Revision == g.Spec.Revision &&
			(o.Open() || ended != nil && ended.Add(routing.Hindsight).After(now))
	})
}

// stands says how it stands with an item; gate is the one that is open for it, to be named by its code if code says so.
func stands(i *v1alpha1.WorkItem, gate *v1alpha1.Gate, code bool, titles map[string]string, asker string) string {
	waiting := sanitize.Line(i.Status.WaitingFor, 200)
	switch {
	case gate != nil && gate.Spec.Kind == v1alpha1.GateHalt && code:
		c := approval.Code(gate.Spec.Digest, string(gate.UID))
		return fmt.Sprintf("stopped, waits for %s: `continue %s`, `replan %s <advice>` or `abandon %s`", people(gate.Spec.Approvers, asker), c, c, c)
	case gate != nil && gate.Spec.Kind == v1alpha1.GateHalt:
		return "stopped, waits for " + people(gate.Spec.Approvers, asker) + ": `continue`, `replan <advice>` or `abandon`"
	case gate != nil && len(gate.Spec.Signers) > 0:
		var signers []string
		for _, s := range gate.Spec.Signers {
			signers = append(signers, s.Person)
		}
		return fmt.Sprintf("waits for %s to sign: `%s` or `reject <why>`", people(signers, asker), asked.Sign(gate))
	case gate != nil:
		name := fmt.Sprintf("rev-%d", gate.Spec.Revision)
		if gate.Spec.Tier == v1alpha1.TierHigh || code {
			name = approval.Code(gate.Spec.Digest, string(gate.UID))
		}
		return fmt.Sprintf("waits for %s: `approve %s` or `reject <why>`", people(gate.Spec.Approvers, asker), name)
	case i.Unasked():
		return "stopped, and its question has ended: type `stop` to be asked again how to go on"
	case i.Stopped(), i.Halted():
		return "stopped; how to go on is about to be asked"
	}
	switch i.Status.State {
	case v1alpha1.WorkItemWorking:
		if waiting != "" && waiting != i.Spec.Agent { // for what the agent cannot do without, such as its model
			return "is being worked on, waits for " + waiting
		}
		return "is being worked on"
	case v1alpha1.WorkItemAwaitingApproval:
		return "its plan is about to be shown to " + waiting
	case v1alpha1.WorkItemAwaitingInput:
		if i.Asking() {
			if waiting == asker {
				return "has a question, waits for your answer (" + waiting + ")"
			}
			return "has a question, waits for an answer by " + people(strings.Split(waiting, ", "), asker)
		}
		return "waits for " + people(strings.Split(waiting, ", "), asker)
	case v1alpha1.WorkItemOpen, v1alpha1.WorkItemClosed:
	}
	if title, ok := titles[waiting]; ok && waiting != i.Name {
		return "queued behind " + title
	}
	return "about to begin"
}

// people as the one who asks reads them.
func people(names []string, asker string) string {
	shown := make([]string, len(names))
	for n, name := range names {
		shown[n] = sanitize.Line(name, 80)
		if name == asker {
			shown[n] = "you (" + shown[n] + ")"
		}
	}
	return strings.Join(shown, " or ")
}
