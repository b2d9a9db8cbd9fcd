package policy

import (
	"cmp"
	"slices"
	"time"

	"nisse.io/nisse/api/v1alpha1"
)

// Grace is how long after expiresAt an expiry is committed. Creation times have seconds: a decision made in the last of them may
// show up after the clock has passed it.
const Grace = time.Second

// Verdict on a gate and all its Approvals.
type Verdict struct {
	// Outcome to commit; empty while the gate goes on waiting.
	Outcome v1alpha1.GateOutcome
	// Decisions that count.
	Decisions []v1alpha1.GateDecision
	// Refused tells which Approvals do not count, and why. Those that were told before are not repeated.
	Refused []Refusal
}

// Refusal of one Approval.
type Refusal struct {
	Approval *v1alpha1.Approval
	Reason   string
	Message  string
}

// Decide judges every Approval of an open gate. A valid rejection wins whatever else was said; then enough approvals approve;
// then time decides, and time never approves. approvals must be what the API server has of them: an expiry is only as good as what it has seen.
func Decide(gate *v1alpha1.Gate, plan *v1alpha1.Plan, agent *v1alpha1.Agent, people []v1alpha1.Person, approvals []v1alpha1.Approval, now time.Time) Verdict {
	var v Verdict
	var answers []v1alpha1.GateDecision
	for _, a := range ordered(approvals) {
		if a.Status.Reason != "" {
			continue // refused before, and told so: it does not count later either
		}
		person, reason, message := Judge(Input{Gate: gate, Approval: a, Plan: plan, Agent: agent, People: people, Counted: answers})
		if reason != "" {
			v.Refused = append(v.Refused, Refusal{a, reason, message})
			continue
		}
		d := v1alpha1.GateDecision{Approval: a.Name, Person: person, Decision: a.Spec.Decision, Answer: a.Spec.Answer, Settle: a.Spec.Settle,
			Text: a.Spec.Text, Channel: a.Spec.Channel.Kind, At: a.CreationTimestamp}
		if len(gate.Spec.Signers) > 0 {
			d.Signature = a.Spec.Signature
		}
		answers = append(answers, d)
	}
	if i := slices.IndexFunc(answers, func(d v1alpha1.GateDecision) bool { return d.Decision == v1alpha1.DecisionReject }); i >= 0 {
		v.Outcome, v.Decisions = v1alpha1.GateRejected, answers[i:i+1]
		return v
	}
	quorum := int(max(gate.Spec.Required, 1))
	switch {
	case agrees(gate, answers, quorum):
		v.Outcome, v.Decisions = v1alpha1.GateApproved, answers[:quorum]
	case !now.Before(gate.Spec.ExpiresAt.Add(Grace)):
		v.Outcome = v1alpha1.GateExpired
	}
	return v
}

// agrees tells whether the first quorum of answers decide the gate. On a Halt gate they must want the same.
func agrees(gate *v1alpha1.Gate, answers []v1alpha1.GateDecision, quorum int) bool {
	if len(answers) < quorum {
		return false
	}
	return gate.Spec.Kind != v1alpha1.GateHalt || !slices.ContainsFunc(answers[:quorum], func(d v1alpha1.GateDecision) bool {
		return d.Answer != answers[0].Answer || d.Settle != answers[0].Settle
	})
}

// ordered: rejections first, so that a person who takes an approval back before it is committed is heard; then by creation and
// name, so that every manager judges alike.
func ordered(approvals []v1alpha1.Approval) []*v1alpha1.Approval {
	all := make([]*v1alpha1.Approval, len(approvals))
	for i := range approvals {
		all[i] = &approvals[i]
	}
	slices.SortFunc(all, func(a, b *v1alpha1.Approval) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return all
}

func rank(a *v1alpha1.Approval) int {
	if a.Spec.Decision == v1alpha1.DecisionReject {
		return 0
	}
	return 1
}
