// Package policy judges Approvals. It is a chain of small checks, each one line of policy; the first that is violated is what the
// person reads. Nothing here reads an API: what cannot be read is an error of the caller, who then decides nothing.
package policy

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/person/identity"
	"nisse.io/nisse/internal/clock"
	"nisse.io/nisse/internal/deed"
	"nisse.io/nisse/internal/sanitize"
)

// Input of a check: one Approval and everything it is judged by.
type Input struct {
	Gate     *v1alpha1.Gate
	Approval *v1alpha1.Approval
	// Plan that the gate decides; nil for a Halt gate, or when it is gone.
	Plan *v1alpha1.Plan
	// Agent the gate is about; nil when it is gone.
	Agent *v1alpha1.Agent
	// People of the namespace, all of them: uniqueness is judged here and not taken from a status.
	People []v1alpha1.Person
	// Counted are the decisions of this gate that count, from earlier Approvals.
	Counted []v1alpha1.GateDecision
}

// Check returns whether its line of policy is violated, with a reason in one word and a message for the person.
type Check func(Input) (reason, message string, violated bool)

// Chain in the order people are told.
var Chain = []Check{SameGate, GateOpen, InTime, SameDigest, ChannelFits, IsAPerson, MayApprove, SignatureSuffices, EvidenceSuffices, AnswerFits, SettleFits, FirstVote}

// ChainOver is for who says how a deed ended whose work is over. Its gate was decided long ago, and everything about who says so, and how, counts as it
// did then.
var ChainOver = []Check{SameGate, SameDigest, ChannelFits, IsAPerson, MayApprove, EvidenceSuffices}

// Judge runs the chain. Without a violation it returns the Person who decided.
func Judge(in Input) (person, reason, message string) { return judge(Chain, in) }

// JudgeOver runs ChainOver.
func JudgeOver(in Input) (person, reason, message string) { return judge(ChainOver, in) }

func judge(chain []Check, in Input) (person, reason, message string) {
	for _, c := range chain {
		if reason, message, violated := c(in); violated {
			return "", reason, message
		}
	}
	return identity.Resolve(in.People, in.Approval.Spec.Approver)[0], "", ""
}

// SameGate wants the very gate that was shown.
func SameGate(in Input) (string, string, bool) {
	g := in.Approval.Spec.Gate
	return v1alpha1.ReasonOtherGate, fmt.Sprintf("This decision is about another gate %s (UID %s); the one that exists now was made later.", in.Gate.Name, sanitize.Line(g.UID, 64)),
		g.Name != in.Gate.Name || g.UID == "" || g.UID != string(in.Gate.UID)
}

// GateOpen wants a gate that still asks.
func GateOpen(in Input) (string, string, bool) {
	return v1alpha1.ReasonGateDecided, decidedAlready(in), !in.Gate.Open()
}

// InTime wants an Approval made before the gate lapsed, by the API server's clock for both.
func InTime(in Input) (string, string, bool) {
	return v1alpha1.ReasonTooLate, fmt.Sprintf("%s lapsed at %s; nothing was run.", thing(in.Gate), at(in, in.Gate.Spec.ExpiresAt)),
		in.Approval.CreationTimestamp.IsZero() || !in.Approval.CreationTimestamp.Time.Before(in.Gate.Spec.ExpiresAt.Time)
}

// SameDigest wants a decision about these very steps.
func SameDigest(in Input) (string, string, bool) {
	return v1alpha1.ReasonDigestMismatch, fmt.Sprintf("This decision is about other steps than those of %s; read the gate again and decide anew.", thing(in.Gate)),
		in.Gate.Spec.Digest == "" || in.Approval.Spec.Digest != in.Gate.Spec.Digest
}

// ChannelFits wants the approver's name to be one that the channel authenticates.
func ChannelFits(in Input) (string, string, bool) {
	a := in.Approval.Spec
	user, chat := strings.CutPrefix(a.Approver, identity.MatrixPrefix)
	fits := false
	switch a.Channel.Kind {
	case v1alpha1.ChannelMatrix:
		fits = chat && a.Channel.Matrix != nil && a.Channel.Matrix.Sender == user
	case v1alpha1.ChannelKubernetes:
		fits = !chat
	}
	return v1alpha1.ReasonChannelMismatch, fmt.Sprintf("%s is not a name that channel %s authenticates.", quoted(a.Approver), quoted(string(a.Channel.Kind))), !fits
}

// IsAPerson wants exactly one Person behind the approver's name.
func IsAPerson(in Input) (string, string, bool) {
	found := identity.Resolve(in.People, in.Approval.Spec.Approver)
	message := fmt.Sprintf("%s is not an identity of any Person%s.", quoted(in.Approval.Spec.Approver), instead(in))
	if len(found) > 1 {
		message = fmt.Sprintf("%s is claimed by %s, so it is nobody until only one of them does.", quoted(in.Approval.Spec.Approver), strings.Join(found, " and "))
	}
	return v1alpha1.ReasonNotAPerson, message, len(found) != 1
}

// instead tells somebody whose username is nobody's what to do; an administrator who tries kubectl for the first time is one.
// Chat needs no advice here: the gateway has answered strangers before an Approval is made.
func instead(in Input) string {
	if in.Approval.Spec.Channel.Kind != v1alpha1.ChannelKubernetes {
		return ""
	}
	var usernames []string
	for i := range in.People {
		if !slices.Contains(in.Gate.Spec.Approvers, in.People[i].Name) {
			continue
		}
		for _, name := range identity.Names(&in.People[i]) {
			if !strings.HasPrefix(name, identity.MatrixPrefix) {
				usernames = append(usernames, quoted(name))
			}
		}
	}
	advice := "; add it under spec.identities.kubernetes of a Person"
	if len(usernames) == 0 {
		return advice
	}
	slices.Sort(usernames)
	return advice + ", or decide as one of: " + strings.Join(usernames, ", ")
}

// MayApprove wants that Person among the gate's approvers, and still with the right. An empty list lets nobody.
func MayApprove(in Input) (string, string, bool) {
	message := fmt.Sprintf("Only %s can decide this.", strings.Join(in.Gate.Spec.Approvers, ", "))
	if len(in.Gate.Spec.Approvers) == 0 {
		message = "This gate names no approvers, so nobody can decide it."
	}
	found := identity.Resolve(in.People, in.Approval.Spec.Approver)
	return v1alpha1.ReasonMayNotApprove, message, len(found) != 1 || !slices.Contains(in.Gate.Spec.Approvers, found[0]) || !hasRight(in.Agent, found[0])
}

// EvidenceSuffices wants evidence as good as the tier. A rejection at High needs no more than at Standard: refusing is safe.
//
// High asks for the code, which names this gate and nothing else, or for the person's own credentials at the API server. Rooms are plain
// in this version, so the code keeps a person from approving by habit; it does not keep the homeserver from lying (ADR 9).
func EvidenceSuffices(in Input) (string, string, bool) {
	c, tier := in.Approval.Spec.Channel, in.Gate.Spec.Tier
	typed := c.Kind == v1alpha1.ChannelKubernetes || c.Evidence == v1alpha1.EvidenceTyped || c.Evidence == v1alpha1.EvidenceTypedCode
	switch tier {
	case v1alpha1.TierLow:
		return "", "", false
	case v1alpha1.TierStandard:
		return v1alpha1.ReasonEvidenceTooWeak, "A reaction is not enough here: type `approve` or `reject` with what the gate names.", !typed
	case v1alpha1.TierHigh:
		if in.Approval.Spec.Decision == v1alpha1.DecisionReject {
			return v1alpha1.ReasonEvidenceTooWeak, "A reaction is not enough here: type `reject` with what the gate names.", !typed
		}
		return v1alpha1.ReasonEvidenceTooWeak, "This gate is of tier High: type `approve` with the code that it shows.", c.Kind != v1alpha1.ChannelKubernetes && c.Evidence != v1alpha1.EvidenceTypedCode
	}
	return v1alpha1.ReasonEvidenceTooWeak, fmt.Sprintf("Tier %s is not known to this version; nothing is enough for it.", quoted(string(tier))), true
}

// AnswerFits wants an answer on Halt gates, in agreement with the decision, and none on others.
func AnswerFits(in Input) (string, string, bool) {
	a := in.Approval.Spec
	if in.Gate.Spec.Kind != v1alpha1.GateHalt {
		return v1alpha1.ReasonAnswerUnexpected, "Continue, replan and abandon answer a stop or a halt; this gate wants approve or reject.", a.Answer != ""
	}
	fits := false
	switch a.Answer {
	case v1alpha1.AnswerContinue, v1alpha1.AnswerReplan:
		fits = a.Decision == v1alpha1.DecisionApprove
	case v1alpha1.AnswerAbandon:
		fits = a.Decision == v1alpha1.DecisionReject
	}
	return v1alpha1.ReasonAnswerMissing, "The work has stopped: answer continue, replan or abandon.", !fits
}

// SettleFits wants a deed whose outcome is unknown where one is settled.
func SettleFits(in Input) (string, string, bool) {
	h := in.Gate.Spec.Halt
	return v1alpha1.ReasonSettleUnexpected, "This gate asks about no deed whose outcome is unknown, so there is nothing to settle: answer without it.",
		in.Approval.Spec.Settle != "" && (in.Gate.Spec.Kind != v1alpha1.GateHalt || h == nil || !deed.IsUnknownHalt(h.Halt))
}

// FirstVote wants one decision a Person.
func FirstVote(in Input) (string, string, bool) {
	found := identity.Resolve(in.People, in.Approval.Spec.Approver)
	second := len(found) != 1 || slices.ContainsFunc(in.Counted, func(d v1alpha1.GateDecision) bool { return d.Person == found[0] })
	return v1alpha1.ReasonSecondVote, "You have decided this gate before; the first decision counts.", second
}

func hasRight(a *v1alpha1.Agent, person string) bool {
	return a != nil && slices.ContainsFunc(a.Spec.People, func(p v1alpha1.AgentPerson) bool {
		return p.Name == person && slices.Contains(p.May, v1alpha1.RightApprove)
	})
}

func thing(g *v1alpha1.Gate) string {
	if g.LetsRun() {
		return fmt.Sprintf("rev-%d", g.Spec.Revision)
	}
	return "the question"
}

// decidedAlready says what became of the gate, and that nothing more comes of this decision.
func decidedAlready(in Input) string {
	g := in.Gate
	s := g.Status.Message
	if len(g.Status.Decisions) > 0 || s == "" {
		s = thing(g) + " " + map[v1alpha1.GateOutcome]string{v1alpha1.GateApproved: "was approved", v1alpha1.GateRejected: "was rejected",
			v1alpha1.GateExpired: "had lapsed", v1alpha1.GateSuperseded: "was replaced"}[g.Status.Outcome]
		var by []string
		for _, d := range g.Status.Decisions {
			by = append(by, d.Person)
		}
		if len(by) > 0 {
			s += " by " + strings.Join(by, ", ")
		}
		if g.Status.DecidedAt != nil {
			s += " at " + at(in, *g.Status.DecidedAt)
		}
		s += "."
	}
	return s + " This decision changes nothing."
}

// at tells a time to who made the Approval.
func at(in Input, t metav1.Time) string {
	return clock.Tell(t.UTC(), in.Approval.CreationTimestamp.Time)
}

func quoted(s string) string { return sanitize.Quote(sanitize.Line(s, 128)) }
