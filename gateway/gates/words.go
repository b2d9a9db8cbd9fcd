package gates

import (
	"fmt"
	"strings"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/clock"
	"nisse.io/nisse/internal/sanitize"
)

// partOf stands between what the IDs of a gate's messages begin with and the number of the part.
const partOf = "/part/"

// Parts is what the IDs of all parts of a gate's message have in common.
func Parts(g *v1alpha1.Gate) string { return "gate/" + string(g.UID) + partOf }

func part(g *v1alpha1.Gate, n int) string { return fmt.Sprintf("%s%d", Parts(g), n) }

func end(g *v1alpha1.Gate) string { return "gate/" + string(g.UID) + "/end" }

// Ended says in one sentence how a gate ended.
func Ended(g *v1alpha1.Gate) string {
	what, when := name(g), when(g)
	if d := last(g); g.Spec.Kind == v1alpha1.GateHalt && d.Answer != "" {
		if d.Answer == v1alpha1.AnswerAbandon {
			return fmt.Sprintf("✗ abandoned by %s, %s; the work is closed.", by(g), when)
		}
		if d.Settle != "" {
			return fmt.Sprintf("✓ %s: %s, settled as %s, %s.", by(g), strings.ToLower(string(d.Answer)), d.Settle, when)
		}
		return fmt.Sprintf("✓ %s: %s, %s.", by(g), strings.ToLower(string(d.Answer)), when)
	}
	switch g.Status.Outcome {
	case v1alpha1.GateApproved:
		return fmt.Sprintf("✓ %s approved by %s, %s.", what, by(g), when)
	case v1alpha1.GateRejected:
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

// Before says of a gate that ended why it cannot be decided, to somebody who tried.
func Before(g *v1alpha1.Gate) string {
	what, when := name(g), when(g)
	switch {
	case g.Spec.Kind == v1alpha1.GateHalt:
	case g.Status.Outcome == v1alpha1.GateApproved:
		return fmt.Sprintf("%s was approved before, by %s at %s; nothing was done with this.", what, by(g), when)
	case g.Status.Outcome == v1alpha1.GateRejected:
		return fmt.Sprintf("%s was rejected before, by %s at %s; it cannot be decided any more.", what, by(g), when)
	case g.Status.Outcome == v1alpha1.GateExpired:
		return fmt.Sprintf("%s expired at %s; it cannot be decided any more, and nothing was run.", what, when)
	}
	_, how, _ := strings.Cut(Ended(g), " ") // the mark is for what has just happened
	return how
}

func name(g *v1alpha1.Gate) string {
	if g.Spec.Kind == v1alpha1.GateHalt {
		return "The halt"
	}
	return fmt.Sprintf("rev-%d", g.Spec.Revision)
}

// when a gate ended, in the container's time zone, which is the installation's to set (TZ).
func when(g *v1alpha1.Gate) string {
	at := g.CreationTimestamp.Time
	if g.Status.DecidedAt != nil {
		at = g.Status.DecidedAt.Time
	}
	return clock.Tell(at.Local(), g.CreationTimestamp.Time)
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
