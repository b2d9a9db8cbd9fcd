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
			r.hear(r.gates, "^Nothing was approved: you decided about rev-1 for \"nginx\" just now, .* Read rev-1 for \"and php\"; if it is right: `approve "+code+"`", e, "")
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
			r.hear(r.gates, "^✓ lucas: continue", asked, asked)
			again := r.haltGate(item, 2)
			r.hear(r.gates, "abandon$", asked, asked)
			e = r.say(r.lucas, "continue", "")
			code = approval.Code(again.Spec.Digest, string(again.UID))
			r.hear(r.gates, "^Nothing was answered: you decided about the halt just now, .*`continue "+code+"`", e, "")
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

// justNow is when a gate ended whose decision counts as just made, however long this machine takes to say the next words.
func justNow() time.Time { return time.Now().Add(4 * patience) }
