package worker

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/approval"
)

func TestSummary(t *testing.T) {
	item := func(name, title string, state v1alpha1.WorkItemState, waitingFor string) v1alpha1.WorkItem {
		var w v1alpha1.WorkItem
		w.Name, w.Spec.Title, w.Spec.Agent = name, title, "ops"
		w.Status.State, w.Status.WaitingFor = state, waitingFor
		return w
	}
	gate := func(kind v1alpha1.GateKind, revision int32, approvers ...string) v1alpha1.Gate {
		return v1alpha1.Gate{Spec: v1alpha1.GateSpec{Kind: kind, Revision: revision, WorkItem: v1alpha1.ObjectRef{Name: "wi-1"}, Approvers: approvers}}
	}
	over := gate(v1alpha1.GatePlan, 1, "lucas")
	over.Status.Outcome = v1alpha1.GateRejected
	asking := item("wi-1", "nginx", v1alpha1.WorkItemAwaitingInput, "anna, lucas")
	asking.Status.Runtime = &v1alpha1.WorkItemRuntime{Question: &v1alpha1.Question{ID: "q1", Text: "which?"}}
	asksLucas := *asking.DeepCopy()
	asksLucas.Status.WaitingFor = "lucas"
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	justEnded := func(kind v1alpha1.GateKind, revision int32, ago time.Duration) v1alpha1.Gate {
		g := gate(kind, revision, "lucas")
		g.UID, g.Spec.WorkItem.Name, g.Status.Outcome, g.Status.DecidedAt = "before", "wi-0", v1alpha1.GateSuperseded, &metav1.Time{Time: now.Add(-ago)}
		return g
	}
	signed := gate(v1alpha1.GatePlan, 1, "anna", "lucas")
	signed.Namespace, signed.Name, signed.Spec.Signers = "nisse", "wi-1-rev-1", []v1alpha1.GateSigner{{Person: "lucas"}}
	code := approval.Code("", "")
	stopped := item("wi-1", "nginx", v1alpha1.WorkItemWorking, "ops")
	stopped.Spec.Stop = &v1alpha1.StopRequest{ID: "s1", By: "anna"}
	for name, tc := range map[string]struct {
		open  []v1alpha1.WorkItem
		gates []v1alpha1.Gate
		want  string
	}{
		"nothing": {nil, []v1alpha1.Gate{over}, "Nothing is being worked on."},
		"working": {[]v1alpha1.WorkItem{item("wi-1", "nginx", v1alpha1.WorkItemWorking, "ops")}, nil, `⏳ "nginx": is being worked on (wi-1)`},
		"working, without a model": {[]v1alpha1.WorkItem{item("wi-1", "nginx", v1alpha1.WorkItemWorking, "the model of ops")}, nil,
			`⏳ "nginx": is being worked on, waits for the model of ops (wi-1)`},
		"a plan for who asks, and one queued": {
			[]v1alpha1.WorkItem{item("wi-1", "nginx", v1alpha1.WorkItemAwaitingApproval, "lucas"), item("wi-2", "disk", v1alpha1.WorkItemOpen, "wi-1")},
			[]v1alpha1.Gate{over, gate(v1alpha1.GatePlan, 2, "lucas")},
			"⏳ \"nginx\": waits for you (lucas): `approve rev-2` or `reject <why>` (wi-1)\n• \"disk\": queued behind \"nginx\" (wi-2)",
		},
		"a plan for others": {
			[]v1alpha1.WorkItem{item("wi-1", "nginx", v1alpha1.WorkItemAwaitingApproval, "anna, vera")}, []v1alpha1.Gate{gate(v1alpha1.GatePlan, 1, "anna", "vera")},
			"⏳ \"nginx\": waits for anna or vera: `approve rev-1` or `reject <why>` (wi-1)",
		},
		"a plan to be signed": {
			[]v1alpha1.WorkItem{item("wi-1", "nginx", v1alpha1.WorkItemAwaitingApproval, "anna, lucas")}, []v1alpha1.Gate{signed},
			"⏳ \"nginx\": waits for you (lucas) to sign: `kubectl nisse approve wi-1-rev-1 -n nisse --key <file>` or `reject <why>` (wi-1)",
		},
		"a plan without its gate": {[]v1alpha1.WorkItem{item("wi-1", "nginx", v1alpha1.WorkItemAwaitingApproval, "lucas")}, nil, `⏳ "nginx": its plan is about to be shown to lucas (wi-1)`},
		"a halt": {
			[]v1alpha1.WorkItem{item("wi-1", "nginx", v1alpha1.WorkItemAwaitingInput, "lucas")}, []v1alpha1.Gate{gate(v1alpha1.GateHalt, 0, "lucas")},
			"⏳ \"nginx\": stopped, waits for you (lucas): `continue`, `replan <advice>` or `abandon` (wi-1)",
		},
		"a plan whose number another had just now": {
			[]v1alpha1.WorkItem{item("wi-1", "nginx", v1alpha1.WorkItemAwaitingApproval, "lucas")},
			[]v1alpha1.Gate{justEnded(v1alpha1.GatePlan, 1, time.Second), gate(v1alpha1.GatePlan, 1, "lucas")},
			"⏳ \"nginx\": waits for you (lucas): `approve " + code + "` or `reject <why>` (wi-1)",
		},
		"a plan whose number another had long ago": {
			[]v1alpha1.WorkItem{item("wi-1", "nginx", v1alpha1.WorkItemAwaitingApproval, "lucas")},
			[]v1alpha1.Gate{justEnded(v1alpha1.GatePlan, 1, 2*time.Minute), justEnded(v1alpha1.GatePlan, 2, time.Second), gate(v1alpha1.GatePlan, 1, "lucas")},
			"⏳ \"nginx\": waits for you (lucas): `approve rev-1` or `reject <why>` (wi-1)",
		},
		"a stop right after another": {
			[]v1alpha1.WorkItem{item("wi-1", "nginx", v1alpha1.WorkItemAwaitingInput, "lucas")},
			[]v1alpha1.Gate{justEnded(v1alpha1.GateHalt, 0, time.Second), gate(v1alpha1.GateHalt, 0, "lucas")},
			"⏳ \"nginx\": stopped, waits for you (lucas): `continue " + code + "`, `replan " + code + " <advice>` or `abandon " + code + "` (wi-1)",
		},
		"a question for who asks": {[]v1alpha1.WorkItem{asksLucas}, nil, `⏳ "nginx": has a question, waits for your answer (lucas) (wi-1)`},
		"just stopped":            {[]v1alpha1.WorkItem{stopped}, nil, `⏳ "nginx": stopped; how to go on is about to be asked (wi-1)`},
		"a question":              {[]v1alpha1.WorkItem{asking}, nil, `⏳ "nginx": has a question, waits for an answer by anna or you (lucas) (wi-1)`},
		"about to begin":          {[]v1alpha1.WorkItem{item("wi-3", "new", "", "")}, nil, `• "new": about to begin (wi-3)`},
		"the first there":         {[]v1alpha1.WorkItem{item("wi-3", "new", v1alpha1.WorkItemOpen, "ops")}, nil, `• "new": about to begin (wi-3)`},
	} {
		t.Run(name, func(t *testing.T) {
			var agent v1alpha1.Agent
			agent.Name, agent.Status.ActiveWorkItem = "ops", "wi-1"
			if diff := cmp.Diff(tc.want, summary(&agent, tc.open, tc.gates, "lucas", now)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
