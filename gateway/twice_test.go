package gateway_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/approval"
)

// What is typed twice decides once. The agent brings its next plan and its next halt at once, so that they stand in the room when the same
// words come again; they are decided by their code only. It is the same whatever the clock of the person's homeserver shows.
func TestTypedTwice(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]time.Duration{"clocks agree": 0, "the person's homeserver is ahead": 5 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.base = lying(t, r.hs.BaseURL, func(e map[string]any) {
				if at, ok := e["origin_server_ts"].(json.Number); ok && e["sender"] == r.lucas.UserID().String() {
					ms, err := at.Int64()
					r.must(err)
					e["origin_server_ts"] = ms + ahead.Milliseconds()
				}
			})
			r.start()
			asked := r.say(r.lucas, "nginx", "")
			item := r.item(1)
			r.work(item, v1alpha1.WorkItemWorking)
			next := r.say(r.lucas, "and php", "")
			other := r.item(2)

			first := r.gate(item, 1, fmt.Sprintf(plan, 1, 1))
			r.hear(r.gates, "approve rev-1", asked, asked)
			r.say(r.lucas, "approve rev-1", "")
			r.approval(first)
			r.endAt(first, justNow(), v1alpha1.GateApproved, "", by("lucas", v1alpha1.DecisionApprove))
			second := r.gate(other, 1, fmt.Sprintf(plan, 1, 1))
			r.hear(r.gates, "approve rev-1", next, next)
			e := r.say(r.lucas, "approve rev-1", "")
			code := approval.Code(second.Spec.Digest, string(second.UID))
			r.hear(r.gates, "^Nothing was approved: you decided rev-1 of \"nginx\" just now, .* Read rev-1 for \"and php\"; if it is right: `approve "+code+"`", e, "")
			if n := len(r.approvals()); n != 1 {
				t.Fatalf("%d approvals", n)
			}
			r.say(r.lucas, "approve "+code, "")
			if a := r.approval(second); a.Spec.Decision != v1alpha1.DecisionApprove || a.Spec.Channel.Evidence != v1alpha1.EvidenceTypedCode {
				t.Errorf("%+v", a.Spec)
			}
			r.end(second, v1alpha1.GateApproved, "", by("lucas", v1alpha1.DecisionApprove))

			halt := r.haltGate(item, 1)
			r.hear(r.gates, "abandon$", asked, asked)
			r.say(r.lucas, "continue", "")
			r.approval(halt)
			d := by("lucas", v1alpha1.DecisionApprove)
			d.Answer = v1alpha1.AnswerContinue
			r.endAt(halt, justNow(), v1alpha1.GateApproved, "", d)
			r.hear(r.gates, "^✓ continued by lucas", asked, asked)
			again := r.haltGate(item, 2)
			r.hear(r.gates, "abandon$", asked, asked)
			e = r.say(r.lucas, "continue", "")
			code = approval.Code(again.Spec.Digest, string(again.UID))
			r.hear(r.gates, "^Nothing was answered: you decided the stop of \"nginx\" just now, .*`continue "+code+"`", e, "")
			if n := len(r.approvals()); n != 3 {
				t.Fatalf("%d approvals", n)
			}
			r.say(r.lucas, "replan "+code+" use web2", "")
			if a := r.approval(again); a.Spec.Answer != v1alpha1.AnswerReplan || a.Spec.Text != "use web2" {
				t.Errorf("%+v", a.Spec)
			}
		})
	}
}

// The agent ends its work while its plan is being read, words in the thread open the next in the same thread, and its plan of the same number
// comes at once: what is typed there about the first does not decide the second.
func TestTypedInAThreadOfTwo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	asked := r.say(r.lucas, "nginx", "")
	first := r.item(1)
	r.work(first, v1alpha1.WorkItemWorking)
	g := r.gate(first, 1, fmt.Sprintf(plan, 1, 1))
	r.hear(r.gates, "approve rev-1", asked, asked)
	r.work(first, v1alpha1.WorkItemClosed)
	r.endAt(g, justNow(), v1alpha1.GateSuperseded, "rev-1 was dropped: the work has ended.")
	r.hear(r.gates, "rev-1 was dropped", asked, asked)

	words := r.say(r.lucas, "and look at the disk too", asked)
	second := r.item(2)
	r.work(second, v1alpha1.WorkItemWorking)
	next := r.gate(second, 1, fmt.Sprintf(plan, 1, 1))
	r.hear(r.gates, "approve rev-1", words, asked)
	e := r.say(r.lucas, "approve rev-1", asked)
	code := approval.Code(next.Spec.Digest, string(next.UID))
	r.hear(r.gates, "^Nothing was approved: you may have meant rev-1 of \"nginx\", which was dropped\\. Read rev-1 for \"and look at the disk too\".*`approve "+code+"`", e, asked)
	if n := len(r.approvals()); n != 0 {
		t.Fatalf("%d approvals", n)
	}
	r.say(r.lucas, "approve "+code, asked)
	if a := r.approval(next); a.Spec.Decision != v1alpha1.DecisionApprove || a.Spec.Channel.Evidence != v1alpha1.EvidenceTypedCode {
		t.Errorf("%+v", a.Spec)
	}
}

// justNow is when a gate ended whose decision counts as just made, however long this machine takes to say the next words.
func justNow() time.Time { return time.Now().Add(4 * patience) }
