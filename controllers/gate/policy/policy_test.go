package policy

import (
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/deed"
)

var (
	expiry  = time.Date(2026, 11, 30, 14, 20, 0, 0, time.UTC)
	decided = metav1.NewTime(expiry.Add(-10 * time.Minute))
	digest  = "sha256:" + strings.Repeat("d", 64)
)

func person(name, matrix string, kubernetes ...string) v1alpha1.Person {
	return v1alpha1.Person{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.PersonSpec{Identities: v1alpha1.Identities{Matrix: matrix, Kubernetes: kubernetes}}}
}

// valid is an Input that violates nothing; each test spoils one thing.
func valid() Input {
	return Input{
		Gate: &v1alpha1.Gate{ObjectMeta: metav1.ObjectMeta{Name: "wi-1-rev-1", UID: types.UID("gate-1")},
			Spec: v1alpha1.GateSpec{Agent: "ops", Kind: v1alpha1.GatePlan, Revision: 1, Digest: digest, Tier: v1alpha1.TierStandard,
				Approvers: []string{"lucas", "maria"}, Required: 1, ExpiresAt: metav1.NewTime(expiry)}},
		Approval: approval("apr-1", "lucas"),
		Agent: &v1alpha1.Agent{ObjectMeta: metav1.ObjectMeta{Name: "ops"}, Spec: v1alpha1.AgentSpec{People: []v1alpha1.AgentPerson{
			{Name: "lucas", May: []v1alpha1.Right{v1alpha1.RightInstruct, v1alpha1.RightApprove}},
			{Name: "maria", May: []v1alpha1.Right{v1alpha1.RightApprove}},
			{Name: "nora", May: []v1alpha1.Right{v1alpha1.RightApprove}},
			{Name: "otto", May: []v1alpha1.Right{v1alpha1.RightInstruct}}}}},
		People: []v1alpha1.Person{person("lucas", "@lucas:example.org", "lucas"), person("maria", "@maria:example.org", "maria"),
			person("nora", "@nora:example.org", "nora"), person("otto", "@otto:example.org", "otto")},
	}
}

func approval(name, username string) *v1alpha1.Approval {
	return &v1alpha1.Approval{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(expiry.Add(-5 * time.Minute))},
		Spec: v1alpha1.ApprovalSpec{Gate: v1alpha1.GateRef{Name: "wi-1-rev-1", UID: "gate-1"}, Digest: digest, Decision: v1alpha1.DecisionApprove,
			Approver: username, Channel: v1alpha1.Channel{Kind: v1alpha1.ChannelKubernetes}}}
}

// chat turns an Approval into one from a room.
func chat(a *v1alpha1.Approval, user string, e v1alpha1.Evidence) {
	a.Spec.Approver = "matrix:" + user
	a.Spec.Channel = v1alpha1.Channel{Kind: v1alpha1.ChannelMatrix, Evidence: e, Matrix: &v1alpha1.MatrixEvent{Room: "!r:example.org", EventID: "$e", Sender: user}}
}

func halt(in *Input) {
	in.Gate.Spec.Kind, in.Gate.Spec.Revision = v1alpha1.GateHalt, 0
	in.Gate.Spec.Halt = &v1alpha1.GateHaltRef{Halt: "h1"}
}

func TestJudge(t *testing.T) {
	for _, tc := range []struct {
		name    string
		spoil   func(*Input)
		reason  string
		person  string
		message string
	}{
		{"a username", func(*Input) {}, "", "lucas", ""},
		{"typed in the room", func(in *Input) { chat(in.Approval, "@lucas:example.org", v1alpha1.EvidenceTyped) }, "", "lucas", ""},
		{"typed with the code", func(in *Input) { chat(in.Approval, "@maria:example.org", v1alpha1.EvidenceTypedCode) }, "", "maria", ""},
		{"a rejection", func(in *Input) { in.Approval.Spec.Decision = v1alpha1.DecisionReject }, "", "lucas", ""},

		{"a namesake of the gate", func(in *Input) { in.Approval.Spec.Gate.UID = "gate-0" }, v1alpha1.ReasonOtherGate, "", "another gate"},
		{"another gate's name", func(in *Input) { in.Approval.Spec.Gate.Name = "wi-1-rev-2" }, v1alpha1.ReasonOtherGate, "", ""},
		{"no UID", func(in *Input) { in.Approval.Spec.Gate.UID = "" }, v1alpha1.ReasonOtherGate, "", ""},

		{"after the approval", func(in *Input) {
			in.Gate.Status = v1alpha1.GateStatus{Outcome: v1alpha1.GateApproved, DecidedAt: &decided, Decisions: []v1alpha1.GateDecision{{Person: "maria"}}}
		}, v1alpha1.ReasonGateDecided, "", "rev-1 was approved by maria at 14:10 UTC. This decision changes nothing."},
		{"after the rejection", func(in *Input) {
			in.Gate.Status = v1alpha1.GateStatus{Outcome: v1alpha1.GateRejected, DecidedAt: &decided, Decisions: []v1alpha1.GateDecision{{Person: "maria"}}}
		}, v1alpha1.ReasonGateDecided, "", "rev-1 was rejected by maria"},
		{"after a later revision", func(in *Input) {
			in.Gate.Status = v1alpha1.GateStatus{Outcome: v1alpha1.GateSuperseded, DecidedAt: &decided, Message: "rev-1 was replaced by rev-2; nothing was run."}
		}, v1alpha1.ReasonGateDecided, "", "rev-1 was replaced by rev-2; nothing was run. This decision changes nothing."},
		{"after the expiry", func(in *Input) {
			in.Gate.Status = v1alpha1.GateStatus{Outcome: v1alpha1.GateExpired}
		}, v1alpha1.ReasonGateDecided, "", "rev-1 had lapsed"},

		{"at the very end", func(in *Input) { in.Approval.CreationTimestamp = metav1.NewTime(expiry) }, v1alpha1.ReasonTooLate, "", "lapsed at 14:20 UTC; nothing was run"},
		{"a second before the end", func(in *Input) { in.Approval.CreationTimestamp = metav1.NewTime(expiry.Add(-time.Second)) }, "", "lucas", ""},
		{"without a time", func(in *Input) { in.Approval.CreationTimestamp = metav1.Time{} }, v1alpha1.ReasonTooLate, "", ""},

		{"other steps", func(in *Input) { in.Approval.Spec.Digest = "sha256:" + strings.Repeat("e", 64) }, v1alpha1.ReasonDigestMismatch, "", "other steps"},
		{"no digest at all on both sides", func(in *Input) { in.Approval.Spec.Digest, in.Gate.Spec.Digest = "", "" }, v1alpha1.ReasonDigestMismatch, "", ""},

		{"a chat name by kubectl", func(in *Input) { in.Approval.Spec.Approver = "matrix:@lucas:example.org" }, v1alpha1.ReasonChannelMismatch, "", ""},
		{"a username by chat", func(in *Input) {
			chat(in.Approval, "@lucas:example.org", v1alpha1.EvidenceTyped)
			in.Approval.Spec.Approver = "lucas"
		}, v1alpha1.ReasonChannelMismatch, "", ""},
		{"an event of somebody else", func(in *Input) {
			chat(in.Approval, "@lucas:example.org", v1alpha1.EvidenceTyped)
			in.Approval.Spec.Channel.Matrix.Sender = "@otto:example.org"
		}, v1alpha1.ReasonChannelMismatch, "", ""},
		{"chat without an event", func(in *Input) {
			chat(in.Approval, "@lucas:example.org", v1alpha1.EvidenceTyped)
			in.Approval.Spec.Channel.Matrix = nil
		}, v1alpha1.ReasonChannelMismatch, "", ""},
		{"an unknown channel", func(in *Input) { in.Approval.Spec.Channel.Kind = "Pigeon" }, v1alpha1.ReasonChannelMismatch, "", ""},

		{"a stranger", func(in *Input) { in.Approval.Spec.Approver = "mallory" }, v1alpha1.ReasonNotAPerson, "",
			`"mallory" is not an identity of any Person; add it under spec.identities.kubernetes of a Person, or decide as one of: "lucas", "maria".`},
		{"a stranger where no approver has a username", func(in *Input) {
			in.Approval.Spec.Approver = "mallory"
			in.People = []v1alpha1.Person{person("lucas", "@lucas:example.org"), person("otto", "", "otto")}
		}, v1alpha1.ReasonNotAPerson, "", `"mallory" is not an identity of any Person; add it under spec.identities.kubernetes of a Person.`},
		{"a service account", func(in *Input) { in.Approval.Spec.Approver = "system:serviceaccount:nisse:agent-ops" }, v1alpha1.ReasonNotAPerson, "", ""},
		{"the same localpart on another server", func(in *Input) { chat(in.Approval, "@lucas:evil.example", v1alpha1.EvidenceTyped) }, v1alpha1.ReasonNotAPerson, "",
			`"matrix:@lucas:evil.example" is not an identity of any Person.`},
		{"two Persons of one name", func(in *Input) { in.People = append(in.People, person("lucas2", "@l:example.org", "lucas")) }, v1alpha1.ReasonNotAPerson, "", "claimed by lucas and lucas2"},
		{"no people at all", func(in *Input) { in.People = nil }, v1alpha1.ReasonNotAPerson, "", ""},

		{"not among the gate's approvers", func(in *Input) { in.Approval.Spec.Approver = "nora" }, v1alpha1.ReasonMayNotApprove, "", "Only lucas, maria can decide this."},
		{"may instruct alone", func(in *Input) { in.Approval.Spec.Approver = "otto" }, v1alpha1.ReasonMayNotApprove, "", ""},
		{"named by the gate without the right", func(in *Input) {
			in.Gate.Spec.Approvers = []string{"otto"}
			in.Approval.Spec.Approver = "otto"
		}, v1alpha1.ReasonMayNotApprove, "", ""},
		{"the right was taken away since", func(in *Input) { in.Agent.Spec.People = in.Agent.Spec.People[1:] }, v1alpha1.ReasonMayNotApprove, "", ""},
		{"no approvers", func(in *Input) { in.Gate.Spec.Approvers = nil }, v1alpha1.ReasonMayNotApprove, "", "nobody can decide"},
		{"no agent", func(in *Input) { in.Agent = nil }, v1alpha1.ReasonMayNotApprove, "", ""},

		{"a reaction at Standard", func(in *Input) { chat(in.Approval, "@lucas:example.org", v1alpha1.EvidenceReaction) }, v1alpha1.ReasonEvidenceTooWeak, "", "reaction is not enough"},
		{"a rejecting reaction at Standard", func(in *Input) {
			chat(in.Approval, "@lucas:example.org", v1alpha1.EvidenceReaction)
			in.Approval.Spec.Decision = v1alpha1.DecisionReject
		}, v1alpha1.ReasonEvidenceTooWeak, "", ""},
		{"a reaction at Low", func(in *Input) {
			in.Gate.Spec.Tier = v1alpha1.TierLow
			chat(in.Approval, "@lucas:example.org", v1alpha1.EvidenceReaction)
		}, "", "lucas", ""},
		{"a username at Low", func(in *Input) { in.Gate.Spec.Tier = v1alpha1.TierLow }, "", "lucas", ""},
		{"chat without evidence", func(in *Input) { chat(in.Approval, "@lucas:example.org", "") }, v1alpha1.ReasonEvidenceTooWeak, "", ""},
		{"a code from a plain room at High", func(in *Input) {
			in.Gate.Spec.Tier = v1alpha1.TierHigh
			chat(in.Approval, "@lucas:example.org", v1alpha1.EvidenceTypedCode)
		}, "", "lucas", ""},
		{"a typed revision at High", func(in *Input) {
			in.Gate.Spec.Tier = v1alpha1.TierHigh
			chat(in.Approval, "@lucas:example.org", v1alpha1.EvidenceTyped)
		}, v1alpha1.ReasonEvidenceTooWeak, "", "with the code"},
		{"a reaction at High", func(in *Input) {
			in.Gate.Spec.Tier = v1alpha1.TierHigh
			chat(in.Approval, "@lucas:example.org", v1alpha1.EvidenceReaction)
		}, v1alpha1.ReasonEvidenceTooWeak, "", ""},
		{"chat without evidence at High", func(in *Input) {
			in.Gate.Spec.Tier = v1alpha1.TierHigh
			chat(in.Approval, "@lucas:example.org", "")
		}, v1alpha1.ReasonEvidenceTooWeak, "", ""},
		{"a username at High", func(in *Input) { in.Gate.Spec.Tier = v1alpha1.TierHigh }, "", "lucas", ""},
		{"a rejection at High", func(in *Input) {
			in.Gate.Spec.Tier, in.Approval.Spec.Decision = v1alpha1.TierHigh, v1alpha1.DecisionReject
		}, "", "lucas", ""},
		{"a rejecting reaction at High", func(in *Input) {
			in.Gate.Spec.Tier = v1alpha1.TierHigh
			chat(in.Approval, "@lucas:example.org", v1alpha1.EvidenceReaction)
			in.Approval.Spec.Decision = v1alpha1.DecisionReject
		}, v1alpha1.ReasonEvidenceTooWeak, "", ""},
		{"an unknown tier", func(in *Input) { in.Gate.Spec.Tier = "Divine" }, v1alpha1.ReasonEvidenceTooWeak, "", ""},
		{"no tier", func(in *Input) { in.Gate.Spec.Tier = "" }, v1alpha1.ReasonEvidenceTooWeak, "", ""},

		{"an answer to a plan", func(in *Input) { in.Approval.Spec.Answer = v1alpha1.AnswerContinue }, v1alpha1.ReasonAnswerUnexpected, "", "wants approve or reject"},
		{"continue", func(in *Input) { halt(in); in.Approval.Spec.Answer = v1alpha1.AnswerContinue }, "", "lucas", ""},
		{"replan", func(in *Input) { halt(in); in.Approval.Spec.Answer = v1alpha1.AnswerReplan }, "", "lucas", ""},
		{"abandon", func(in *Input) {
			halt(in)
			in.Approval.Spec.Answer, in.Approval.Spec.Decision = v1alpha1.AnswerAbandon, v1alpha1.DecisionReject
		}, "", "lucas", ""},
		{"no answer to a halt", halt, v1alpha1.ReasonAnswerMissing, "", "continue, replan or abandon"},
		{"abandon that approves", func(in *Input) { halt(in); in.Approval.Spec.Answer = v1alpha1.AnswerAbandon }, v1alpha1.ReasonAnswerMissing, "", ""},
		{"continue that rejects", func(in *Input) {
			halt(in)
			in.Approval.Spec.Answer, in.Approval.Spec.Decision = v1alpha1.AnswerContinue, v1alpha1.DecisionReject
		}, v1alpha1.ReasonAnswerMissing, "", ""},

		{"settling what no stop asks", func(in *Input) {
			halt(in)
			in.Approval.Spec.Answer, in.Approval.Spec.Settle = v1alpha1.AnswerContinue, v1alpha1.SettledFailed
		}, v1alpha1.ReasonSettleUnexpected, "", "nothing to settle"},
		{"settling what a plan does not ask", func(in *Input) { in.Approval.Spec.Settle = v1alpha1.SettledFailed }, v1alpha1.ReasonSettleUnexpected, "", ""},
		{"settling another halt", func(in *Input) {
			halt(in)
			in.Gate.Spec.Halt = &v1alpha1.GateHaltRef{Halt: "h1"}
			in.Approval.Spec.Answer, in.Approval.Spec.Settle = v1alpha1.AnswerContinue, v1alpha1.SettledFailed
		}, v1alpha1.ReasonSettleUnexpected, "", ""},
		{"settling an unknown outcome", func(in *Input) {
			halt(in)
			in.Gate.Spec.Halt = &v1alpha1.GateHaltRef{Halt: deed.UnknownHalt(deed.Approved("g", 1, 1))}
			in.Approval.Spec.Answer, in.Approval.Spec.Settle = v1alpha1.AnswerContinue, v1alpha1.SettledFailed
		}, "", "lucas", ""},
		{"settling by somebody who may not", func(in *Input) {
			halt(in)
			in.Gate.Spec.Halt = &v1alpha1.GateHaltRef{Halt: deed.UnknownHalt(deed.Approved("g", 1, 1))}
			in.Approval.Spec.Answer, in.Approval.Spec.Settle = v1alpha1.AnswerContinue, v1alpha1.SettledFailed
			in.Gate.Spec.Approvers = []string{"maria"}
		}, v1alpha1.ReasonMayNotApprove, "", ""},

		{"a second vote", func(in *Input) { in.Counted = []v1alpha1.GateDecision{{Approval: "apr-0", Person: "lucas"}} }, v1alpha1.ReasonSecondVote, "", ""},
		{"a second vote by another way", func(in *Input) {
			in.Counted = []v1alpha1.GateDecision{{Approval: "apr-0", Person: "lucas", Channel: v1alpha1.ChannelKubernetes}}
			chat(in.Approval, "@lucas:example.org", v1alpha1.EvidenceTyped)
		}, v1alpha1.ReasonSecondVote, "", ""},
		{"another's vote before", func(in *Input) { in.Counted = []v1alpha1.GateDecision{{Approval: "apr-0", Person: "maria"}} }, "", "lucas", ""},

		{"the first violation is told", func(in *Input) {
			in.Approval.Spec.Gate.UID, in.Approval.Spec.Digest, in.People = "x", "y", nil
		}, v1alpha1.ReasonOtherGate, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := valid()
			tc.spoil(&in)
			person, reason, message := Judge(in)
			if reason != tc.reason || person != tc.person {
				t.Errorf("person %q, reason %q (%s); want %q, %q", person, reason, message, tc.person, tc.reason)
			}
			if !strings.Contains(message, tc.message) {
				t.Errorf("message %q does not say %q", message, tc.message)
			}
			if reason != "" && (message == "" || len(message) > 1024) {
				t.Errorf("message of %d bytes", len(message))
			}
		})
	}
}

// Each check alone: an Input of nothing is refused by every one that could let somebody through.
func TestNothingIsRefused(t *testing.T) {
	empty := Input{Gate: &v1alpha1.Gate{Spec: v1alpha1.GateSpec{Tier: v1alpha1.TierStandard, Kind: v1alpha1.GateHalt}}, Approval: &v1alpha1.Approval{}}
	for _, c := range Chain {
		name := runtime.FuncForPC(reflect.ValueOf(c).Pointer()).Name()
		name = name[strings.LastIndex(name, ".")+1:]
		t.Run(name, func(t *testing.T) {
			_, _, violated := c(empty)
			if want := name != "GateOpen" && name != "SettleFits" && name != "SignatureSuffices"; violated != want { // those look at what is there
				t.Errorf("violated: %t, want %t", violated, want)
			}
		})
	}
}

// What strangers write into an Approval is shown to people; it must not hide or run on.
func TestMessagesShowHostileNamesHarmlessly(t *testing.T) {
	in := valid()
	in.Approval.Spec.Approver = "lucas\u202e\nroot" + strings.Repeat("x", 500)
	_, reason, message := Judge(in)
	if reason != v1alpha1.ReasonNotAPerson {
		t.Fatalf("reason %q", reason)
	}
	if strings.ContainsAny(message, "\u202e\n") || len(message) > 400 {
		t.Errorf("message %q", message)
	}
}
