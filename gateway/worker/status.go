package worker

import (
	"context"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/gateway/store"
	"nisse.io/nisse/internal/sanitize"
)

// status answers how things stand, from the objects as they are now.
func (w *Worker) status(ctx context.Context, m store.Inbound) error {
	var agent v1alpha1.Agent
	if err := w.Live.Get(ctx, client.ObjectKey{Namespace: w.Namespace, Name: m.Agent}, &agent); err != nil {
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
	text := summary(&agent, open, gates.Items)
	return w.finish(ctx, m, "", func(tx *store.Tx) error { return tell(tx, m, text, false) })
}

// summary of an agent: what it works on, what waits for whom, what is queued.
func summary(agent *v1alpha1.Agent, open []v1alpha1.WorkItem, gates []v1alpha1.Gate) string {
	var b strings.Builder
	if h := hindrance(agent); h != "" {
		b.WriteString(h + "\n")
	}
	if len(open) == 0 {
		b.WriteString("Nothing to do.")
		return b.String()
	}
	for _, i := range open {
		state := string(i.Status.State)
		if state == "" {
			state = string(v1alpha1.WorkItemOpen)
		}
		mark := "•"
		if i.Name == agent.Status.ActiveWorkItem {
			mark = "⏳"
		}
		fmt.Fprintf(&b, "%s %s: %s", mark, sanitize.Quote(i.Spec.Title), state)
		if i.Status.WaitingFor != "" {
			fmt.Fprintf(&b, ", waits for %s", sanitize.Line(i.Status.WaitingFor, 200))
		}
		for _, g := range gates {
			if g.Spec.WorkItem.Name != i.Name || !g.Open() {
				continue
			}
			if g.Spec.Kind == v1alpha1.GateHalt {
				b.WriteString(", answer `continue`, `replan` or `abandon`")
			} else {
				fmt.Fprintf(&b, ", answer `approve rev-%d` or `reject`", g.Spec.Revision)
			}
		}
		fmt.Fprintf(&b, " (%s)\n", i.Name)
	}
	return strings.TrimSpace(b.String())
}
