package gates

import (
	"fmt"
	"strings"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/sanitize"
)

// clock is how times are told to people. The container's time zone is theirs to set (TZ).
const clock = "15:04 MST"

// Parts is what the IDs of all parts of a gate's message have in common.
func Parts(g *v1alpha1.Gate) string { return "gate/" + string(g.UID) + "/part/" }

func part(g *v1alpha1.Gate, n int) string { return fmt.Sprintf("%s%d", Parts(g), n) }

func end(g *v1alpha1.Gate) string { return "gate/" + string(g.UID) + "/end" }

// Ended says in one sentence how a gate ended.
func Ended(g *v1alpha1.Gate) string {
	what := fmt.Sprintf("rev-%d", g.Spec.Revision)
	if g.Spec.Kind == v1alpha1.GateHalt {
		what = "The halt"
	}
	at := g.CreationTimestamp.Time
	if g.Status.DecidedAt != nil {
		at = g.Status.DecidedAt.Time
	}
	when := at.Local().Format(clock)
	switch g.Status.Outcome {
	case v1alpha1.GateApproved:
		if d := last(g); g.Spec.Kind == v1alpha1.GateHalt && d.Answer != "" {
			return fmt.Sprintf("✓ %s: answered %s by %s, %s.", what, strings.ToLower(string(d.Answer)), by(g), when)
		}
		return fmt.Sprintf("✓ %s approved by %s, %s.", what, by(g), when)
	case v1alpha1.GateRejected:
		if d := last(g); g.Spec.Kind == v1alpha1.GateHalt && d.Answer != "" {
			return fmt.Sprintf("✗ %s: answered %s by %s, %s.", what, strings.ToLower(string(d.Answer)), by(g), when)
		}
		return fmt.Sprintf("✗ %s rejected by %s, %s; nothing was run.", what, by(g), when)
	case v1alpha1.GateExpired:
		return fmt.Sprintf("✗ %s expired at %s; nothing was run.", what, when)
	case v1alpha1.GateSuperseded:
		if g.Status.Message != "" { // the manager's sentence says by what
			return "✗ " + sanitize.Line(g.Status.Message, 500)
		}
		if g.Spec.Kind == v1alpha1.GateHalt {
			return fmt.Sprintf("✗ %s needs no answer any more since %s.", what, when)
		}
		return fmt.Sprintf("✗ %s was replaced at %s; nothing was run.", what, when)
	}
	return what + " is open."
}

// by lists who decided.
func by(g *v1alpha1.Gate) string {
	var people []string
	for _, d := range g.Status.Decisions {
		people = append(people, d.Person)
	}
	if len(people) == 0 {
		return "nobody"
	}
	return strings.Join(people, " and ")
}

func last(g *v1alpha1.Gate) v1alpha1.GateDecision {
	if n := len(g.Status.Decisions); n > 0 {
		return g.Status.Decisions[n-1]
	}
	return v1alpha1.GateDecision{}
}
