package gates

import (
	"fmt"
	"regexp"
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
			return fmt.Sprintf("✗ abandoned by %s, %s; the work is closed.", by(g), when) + words(g)
		}
		if d.Settle != "" {
			return fmt.Sprintf("✓ %s by %s, %s; the step is settled as %s.", answered(d.Answer), by(g), when, d.Settle) + words(g)
		}
		return fmt.Sprintf("✓ %s by %s, %s.", answered(d.Answer), by(g), when) + words(g)
	}
	switch g.Status.Outcome {
	case v1alpha1.GateApproved:
		return fmt.Sprintf("✓ %s approved by %s, %s.", what, by(g), when) + words(g)
	case v1alpha1.GateRejected:
		return fmt.Sprintf("✗ %s rejected by %s, %s; nothing was run.", what, by(g), when) + words(g)
	case v1alpha1.GateExpired:
		if g.Spec.Kind == v1alpha1.GateHalt { // what it held is held all the same
			return fmt.Sprintf("✗ Nobody answered until %s. The work is still stopped: type `stop` to be asked again.", when)
		}
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
		return fmt.Sprintf("%s was approved by %s at %s already; this second message changed nothing.", what, by(g), when)
	case g.Status.Outcome == v1alpha1.GateRejected:
		return fmt.Sprintf("%s was rejected by %s at %s already; this second message changed nothing.", what, by(g), when)
	case g.Status.Outcome == v1alpha1.GateExpired:
		return fmt.Sprintf("%s expired at %s; it cannot be decided any more, and nothing was run.", what, when)
	}
	_, how, _ := strings.Cut(Ended(g), " ") // the mark is for what has just happened
	return how
}

// Became says in a part of a sentence what became of a gate: "was replaced by rev-2 at 14:01 UTC".
func Became(g *v1alpha1.Gate) string {
	when := when(g)
	if d := last(g); g.Spec.Kind == v1alpha1.GateHalt && d.Answer != "" {
		return fmt.Sprintf("%s answered with `%s` at %s", by(g), strings.ToLower(string(d.Answer)), when)
	}
	switch g.Status.Outcome {
	case v1alpha1.GateApproved:
		return fmt.Sprintf("%s approved at %s", by(g), when)
	case v1alpha1.GateRejected:
		return fmt.Sprintf("%s rejected at %s", by(g), when)
	case v1alpha1.GateExpired:
		return "expired at " + when
	case v1alpha1.GateSuperseded:
		if m := became.FindStringSubmatch(g.Status.Message); m != nil {
			return sanitize.Line(m[1], 200)
		}
	}
	return "was replaced at " + when
}

// became is what the manager's sentence says happened, without what that means.
var became = regexp.MustCompile(`^(?:rev-[0-9]+|The question) (was (?:dropped|replaced)\b.*?)[;:.](?: |$)`)

// answered to a halt, as what was done.
func answered(a v1alpha1.HaltAnswer) string {
	switch a {
	case v1alpha1.AnswerContinue:
		return "continued"
	case v1alpha1.AnswerReplan:
		return "replanned"
	case v1alpha1.AnswerAbandon:
		return "abandoned"
	}
	return strings.ToLower(string(a))
}

// words that went with the decision, which stood in a message of their own and say why.
func words(g *v1alpha1.Gate) string {
	if text := last(g).Text; strings.TrimSpace(text) != "" {
		return " In " + last(g).Person + "'s words: " + sanitize.Quote(cut(text, 300))
	}
	return ""
}

func cut(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n]) + "…"
	}
	return s
}

func name(g *v1alpha1.Gate) string {
	if g.Spec.Kind == v1alpha1.GateHalt {
		return "The question"
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
