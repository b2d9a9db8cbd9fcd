package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"maunium.net/go/mautrix"
	"maunium.net/go/mautrix/event"
	"maunium.net/go/mautrix/id"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/doors"
	"nisse.io/nisse/internal/names"
	"nisse.io/nisse/internal/testrig/person"
)

const plan = "Plan rev-%d of ops for \"nginx\"\nWaits for lucas until 14:20 UTC.\n\n1. web1 · fs.write\n   path = \"/srv/<b>report</b>.txt\"\n\nReply  approve rev-%d  ·  reject <why>"

// A whole conversation: request, progress, gate, approval, result, and a second request that waits its turn.
func TestConversation(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	pod := r.pod("ops")

	asked := r.say(r.lucas, "nginx on web1 answers 502, please look\nand tell me why", "")
	item := r.item(1)
	want := v1alpha1.WorkItemSpec{
		Agent: "ops", Title: "nginx on web1 answers 502, please look",
		Source: v1alpha1.Source{Kind: v1alpha1.SourceMatrix, Matrix: &v1alpha1.MatrixEvent{Room: r.room.String(), EventID: asked.String(), Sender: r.lucas.UserID().String()}},
	}
	if diff := cmp.Diff(want, item.Spec); diff != "" {
		t.Errorf("item -want +got:\n%s", diff)
	}
	r.work(item, v1alpha1.WorkItemWorking)
	letters := r.letters(pod, 1)
	if diff := cmp.Diff([]doors.Message{{
		Seq: 1, ID: asked.String(), WorkItem: item.Name, Person: "lucas", MayInstruct: true, Text: "nginx on web1 answers 502, please look\nand tell me why",
	}}, letters, cmpopts.IgnoreFields(doors.Message{}, "At")); diff != "" {
		t.Errorf("letters -want +got:\n%s", diff)
	}

	r.post(pod, doors.Outgoing{ID: "p1", WorkItem: item.Name, Kind: doors.Progress, Text: "fs_read web1 /var/log/nginx/error.log"})
	r.hear(r.ops, `^• fs_read web1 /var/log/nginx/error\.log$`, asked, asked)
	r.post(pod, doors.Outgoing{ID: "s1", WorkItem: item.Name, Kind: doors.Say, Text: "php-fpm has **failed**. <script>alert(1)</script>"})
	r.hear(r.ops, `php-fpm has`, asked, asked)
	r.post(pod, doors.Outgoing{ID: "s1", WorkItem: item.Name, Kind: doors.Say, Text: "php-fpm has **failed**. <script>alert(1)</script>"})

	g := r.gate(item, 1, fmt.Sprintf(plan, 1, 1))
	r.work(item, v1alpha1.WorkItemAwaitingApproval)
	shown := r.hear(r.gates, `(?s)^Plan rev-1.*path = "/srv/<b>report</b>\.txt".*approve rev-1`, asked, asked)
	raw, err := r.lucas.Client().GetEvent(t.Context(), r.room, shown.ID)
	r.must(err)
	r.must(raw.Content.ParseRaw(raw.Type))
	content := raw.Content.AsMessage()
	if !strings.Contains(content.FormattedBody, "&lt;b&gt;report&lt;/b&gt;") || strings.Contains(content.FormattedBody, "<b>report") {
		t.Errorf("the HTML is %s", content.FormattedBody)
	}
	if diff := cmp.Diff([]id.UserID{r.lucas.UserID()}, content.Mentions.UserIDs); diff != "" {
		t.Errorf("mentions: %s", diff)
	}

	second := r.say(r.anna, "what is in /srv?", "")
	r.hear(r.ops, `^Queued behind "nginx on web1 answers 502, please look"`, second, second)

	yes := r.say(r.lucas, "Approve rev-1", "")
	a := r.approval(g)
	wantApproval := v1alpha1.ApprovalSpec{
		Gate: v1alpha1.GateRef{Name: g.Name, UID: string(g.UID)}, Digest: digest, Decision: v1alpha1.DecisionApprove, Approver: "matrix:" + r.lucas.UserID().String(),
		Channel: v1alpha1.Channel{Kind: v1alpha1.ChannelMatrix, Evidence: v1alpha1.EvidenceTyped,
			Matrix: &v1alpha1.MatrixEvent{Room: r.room.String(), EventID: yes.String(), Sender: r.lucas.UserID().String()}},
	}
	if diff := cmp.Diff(wantApproval, a.Spec); diff != "" {
		t.Errorf("approval -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]metav1.OwnerReference{{APIVersion: "nisse.io/v1alpha1", Kind: "Gate", Name: g.Name, UID: g.UID}}, a.OwnerReferences); diff != "" {
		t.Errorf("owner: %s", diff)
	}
	if a.Name != names.Approval(r.room.String(), yes.String()) {
		t.Errorf("approval is called %s", a.Name)
	}
	r.end(g, v1alpha1.GateApproved, "", by("lucas", v1alpha1.DecisionApprove))
	edited := r.hear(r.gates, `(?s)^✓ rev-1 approved by lucas, [0-9]{2}:[0-9]{2} [A-Z]+\.\n\nWhat was shown:\nPlan rev-1 of ops for "nginx"\n\n1\. web1 .*report</b>\.txt"$`, yes, asked)
	if edited.ID != shown.ID {
		t.Error("the end state is another message than the gate")
	}
	r.post(pod, doors.Outgoing{ID: "s2", WorkItem: item.Name, Kind: doors.Say, Text: "Done."})
	r.hear(r.ops, `^Done\.$`, yes, asked)
	r.work(item, v1alpha1.WorkItemClosed)
	for pattern, n := range map[string]int{"php-fpm has": 1, "^Done": 1, "^• ": 1, "rev-1 of ops": 1, "^Queued": 1} {
		if got := r.said(pattern); got != n {
			t.Errorf("%q was said %d times, want %d", pattern, got, n)
		}
	}
}

// A stale revision, two things that could be meant, people without the right, strangers: told why, or silence; no Approval.
func TestDecisionsThatDoNotCount(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	asked := r.say(r.lucas, "nginx", "")
	item := r.item(1)
	r.work(item, v1alpha1.WorkItemWorking)
	one := r.gate(item, 1, fmt.Sprintf(plan, 1, 1))
	r.hear(r.gates, "approve rev-1", asked, asked)
	r.end(one, v1alpha1.GateSuperseded, "rev-1 was replaced by rev-2 at 14:01; nothing of rev-1 was run.")
	r.hear(r.gates, `^✗ rev-1 was replaced`, asked, asked)
	two := r.gate(item, 2, fmt.Sprintf(plan, 2, 2))
	r.hear(r.gates, "approve rev-2", asked, asked)

	e := r.say(r.lucas, "approve rev-1", "")
	m := r.hear(r.gates, `(?s)rev-1 was replaced by rev-2.*nothing of rev-1 was run.*approve rev-2`, e, "")
	if m.ReplyTo != e {
		t.Errorf("told in reply to %s, want %s", m.ReplyTo, e)
	}
	// rev-1 was on the screen a moment ago: bare words may have meant it.
	e = r.say(r.lucas, "approve", asked)
	r.hear(r.gates, "(?s)^Nothing was approved: you may have meant rev-1 of \"nginx[^,]*, which was replaced by rev-2 at 14:01\\. .*`approve [A-Z2-7]{6}`", e, asked)
	e = r.say(r.anna, "approve rev-2", asked)
	r.hear(r.gates, `^Only lucas can approve this\.$`, e, asked)
	r.say(r.eve, "approve rev-2", "")
	r.say(r.eve, "approve rev-2", asked)
	r.say(r.eve, "stop", "")
	e = r.say(r.lucas, "> approve rev-2", asked) // words
	_, err := r.lucas.Client().SendMessageEvent(t.Context(), r.room, event.EventMessage, map[string]any{
		"msgtype": "m.text", "body": "* approve rev-2", "m.new_content": map[string]any{"msgtype": "m.text", "body": "approve rev-2"},
		"m.relates_to": map[string]any{"rel_type": "m.replace", "event_id": e},
	})
	r.must(err)
	// In another room, where all are as well.
	other, err := r.lucas.CreateRoom(t.Context(), person.RoomOptions{Invite: []id.UserID{r.ops, r.gates}})
	r.must(err)
	_, err = r.lucas.Say(t.Context(), other, "approve rev-2", person.Where{})
	r.must(err)
	e = r.say(r.lucas, "approve rev-2 but only step 1", "")
	r.hear(r.gates, `Nothing was approved`, e, "")
	e = r.say(r.lucas, "yes", "")
	r.hear(r.gates, "^That decides nothing here\\. Type exactly `approve rev-2`, or `reject <why>`\\.$", e, "")
	if got := r.approvals(); len(got) != 0 {
		t.Fatalf("approvals were made: %+v", got)
	}

	// One that the manager refuses: the person hears why, once.
	e = r.say(r.lucas, "approve rev-2", asked)
	a := r.approval(two)
	a.Status = v1alpha1.ApprovalStatus{Reason: "GateClosed", Message: "rev-2 was decided before."}
	r.must(r.admin.Status().Update(t.Context(), a))
	m = r.hear(r.gates, `^rev-2 was decided before\.$`, e, asked)
	if m.ReplyTo != e {
		t.Errorf("told in reply to %s, want %s", m.ReplyTo, e)
	}
	r.halt()
	r.start()
	e = r.say(r.lucas, "status", "")
	r.hear(r.ops, "\"nginx\": waits for you \\(lucas\\): `approve rev-2` or `reject <why>`", e, "")
	if n := r.said("decided before"); n != 1 {
		t.Errorf("told %d times", n)
	}
	if items := r.items(); len(items) != 1 {
		t.Errorf("%d work items", len(items))
	}
}

// An item is over before the manager has closed its gate: what it asked is not open any more, and the next item's gate is not one of
// two. It was on the screen a moment ago, so bare words may have meant it.
func TestGateOfAnItemThatIsOver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	asked := r.say(r.lucas, "nginx", "")
	first := r.item(1)
	r.work(first, v1alpha1.WorkItemWorking)
	r.gate(first, 2, fmt.Sprintf(plan, 2, 2))
	r.hear(r.gates, "approve rev-2", asked, asked)
	next := r.say(r.lucas, "and php", "")
	second := r.item(2)
	r.work(first, v1alpha1.WorkItemClosed)
	r.work(second, v1alpha1.WorkItemWorking)
	waiting := r.gate(second, 1, fmt.Sprintf(plan, 1, 1))
	r.hear(r.gates, "approve rev-1", next, next)

	e := r.say(r.lucas, "approve", "")
	r.hear(r.gates, `^Nothing was approved: you may have meant rev-2 of "nginx", which was dropped just now: that work has ended\. Read rev-1 for "and php"`, e, "")
	e = r.say(r.lucas, "approve rev-2", asked)
	r.hear(r.gates, `^"nginx" is over; nothing waits for a decision there\.`, e, asked)
	if got := r.approvals(); len(got) != 0 {
		t.Fatalf("approvals were made: %+v", got)
	}
	r.say(r.lucas, "approve rev-1", "")
	if a := r.approval(waiting); a.Spec.Decision != v1alpha1.DecisionApprove {
		t.Errorf("%+v", a.Spec)
	}
}

// Questions are answered by words, halts by continue, replan or abandon; stop asks for one. Words of others are data.
func TestQuestionStopAndOthersWords(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	pod := r.pod("ops")
	asked := r.say(r.lucas, "nginx", "")
	item := r.item(1)
	r.work(item, v1alpha1.WorkItemWorking)
	r.letters(pod, 1)

	r.must(r.admin.Get(t.Context(), client.ObjectKeyFromObject(item), item))
	item.Status.Runtime = &v1alpha1.WorkItemRuntime{Question: &v1alpha1.Question{ID: "q1", Text: "which?"}}
	r.must(r.admin.Status().Update(t.Context(), item))
	r.work(item, v1alpha1.WorkItemAwaitingInput)
	told := r.hear(r.gates, `^ops waits for an answer to "which\?"\. Your next words in the room, or in this thread, are taken for it\.$`, asked, asked)
	if !slices.Contains(told.Mentions, r.lucas.UserID()) || slices.Contains(told.Mentions, r.eve.UserID()) {
		t.Errorf("it calls %v", told.Mentions)
	}
	r.say(r.eve, "the first", asked)
	answer := r.say(r.anna, "the second", "")
	r.wait("the question is answered", func(ctx context.Context) error {
		if err := r.admin.Get(ctx, client.ObjectKeyFromObject(item), item); err != nil {
			return err
		}
		if item.Asking() {
			return fmt.Errorf("%+v", item.Status.Conversation)
		}
		return nil
	})
	r.hear(r.ops, `^Taken as the answer to "which\?"\.$`, answer, "")
	letters := r.letters(pod, 3)
	if diff := cmp.Diff([]doors.Message{
		{Seq: 2, WorkItem: item.Name, Text: "the first"},
		{Seq: 3, WorkItem: item.Name, Person: "anna", MayInstruct: true, Text: "the second"},
	}, letters[1:], cmpopts.IgnoreFields(doors.Message{}, "At", "ID")); diff != "" {
		t.Errorf("letters -want +got:\n%s", diff)
	}

	r.work(item, v1alpha1.WorkItemWorking)
	r.say(r.anna, "ops: stop!", "")
	r.wait("the item is stopped", func(ctx context.Context) error {
		if err := r.admin.Get(ctx, client.ObjectKeyFromObject(item), item); err != nil {
			return err
		}
		if !item.Stopped() || item.Spec.Stop.By != "anna" {
			return fmt.Errorf("%+v", item.Spec.Stop)
		}
		return nil
	})
	r.work(item, v1alpha1.WorkItemAwaitingInput)
	e := r.say(r.anna, "stop", "")
	r.hear(r.ops, "It is stopped already", e, "")
	g := r.haltGate(item, 1)
	r.hear(r.gates, `abandon`, asked, asked)
	e = r.say(r.anna, "continue", "")
	r.hear(r.gates, `^Only lucas can answer this`, e, "")
	r.say(r.lucas, "replan use the other disk", "")
	a := r.approval(g)
	if a.Spec.Answer != v1alpha1.AnswerReplan || a.Spec.Decision != v1alpha1.DecisionApprove || a.Spec.Text != "use the other disk" {
		t.Errorf("approval %+v", a.Spec)
	}
}

// Two agents with plans of the same number: what is said in one's room concerns that one only, and each has people of its own.
func TestTwoAgents(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	dev := r.user("nisse-dev")
	r.register("nisse-dev")
	r.must(os.WriteFile(filepath.Join(r.dir, "credentials", "dev.json"), fmt.Appendf(nil, `{"userID": %q, "password": %q}`, dev, password), 0o600))
	room, err := r.anna.CreateRoom(t.Context(), person.RoomOptions{Invite: []id.UserID{dev, r.lucas.UserID()}})
	r.must(err)
	_, err = r.lucas.Join(t.Context(), room.String())
	r.must(err)
	agent := r.agent("dev", dev.String(), room.String())
	agent.Spec.People = []v1alpha1.AgentPerson{{Name: "anna", May: []v1alpha1.Right{v1alpha1.RightInstruct, v1alpha1.RightApprove}}}
	r.create(agent)
	r.start()
	in := func(room id.RoomID, who *person.Person, text string) id.EventID {
		t.Helper()
		e, err := who.Say(t.Context(), room, text, person.Where{})
		r.must(err)
		return e
	}
	hear := func(room id.RoomID, pattern string, after id.EventID) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := r.lucas.WaitFor(ctx, room, person.Want{Sender: r.gates, Text: regexp.MustCompile(pattern), After: after})
		r.must(err)
	}
	r.wait("dev is connected", func(ctx context.Context) error {
		var a v1alpha1.Agent
		if err := r.admin.Get(ctx, client.ObjectKeyFromObject(agent), &a); err != nil {
			return err
		}
		if a.Status.Conversation == nil || !a.Status.Conversation.Connected {
			return fmt.Errorf("conversation %+v", a.Status.Conversation)
		}
		return nil
	})
	opsAsked := in(r.room, r.lucas, "nginx")
	devAsked := in(room, r.anna, "the tests")
	gates := map[string]*v1alpha1.Gate{}
	for n := range 2 {
		w := r.item(2)
		*w = r.items()[n]
		r.work(w, v1alpha1.WorkItemWorking)
		gates[w.Spec.Agent] = r.gate(w, 1, fmt.Sprintf(plan, 1, 1))
	}
	hear(r.room, "approve rev-1", opsAsked)
	hear(room, "approve rev-1", devAsked)
	// lucas approves for ops only.
	hear(room, "^Only anna can approve this", in(room, r.lucas, "approve rev-1"))
	in(room, r.anna, "approve")
	if a := r.approval(gates["dev"]); a.Spec.Approver != "matrix:"+r.anna.UserID().String() {
		t.Errorf("approver %s", a.Spec.Approver)
	}
	in(r.room, r.lucas, "approve")
	r.approval(gates["ops"])
	if got := r.approvals(); len(got) != 2 {
		t.Errorf("%d approvals", len(got))
	}
}

// A known Person without rights is told so, once an hour; a picture from one who has them as well. Neither makes anything.
func TestToldOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.create(&v1alpha1.Person{ObjectMeta: r.meta("eve"), Spec: v1alpha1.PersonSpec{Identities: v1alpha1.Identities{Matrix: r.eve.UserID().String()}}})
	r.start()
	first := r.say(r.eve, "hello", "")
	r.hear(r.ops, `^Only anna or lucas can give ops work\.$`, first, "")
	r.say(r.eve, "hello?", "")
	_, err := r.anna.Client().SendMessageEvent(t.Context(), r.room, event.EventMessage, map[string]any{"msgtype": "m.image", "body": "x.png", "url": "mxc://x/y"})
	r.must(err)
	e := r.say(r.eve, "approve", "")
	r.hear(r.gates, `^Only lucas can approve this\.$`, e, "")
	r.hear(r.ops, `^I can read text only`, first, "")
	if n := r.said("can give ops work"); n != 1 {
		t.Errorf("told %d times", n)
	}
	if items := r.items(); len(items) != 0 {
		t.Errorf("%d items", len(items))
	}
}

// An item made by hand gets a thread of its own, begun by the agent, in which its gate is shown.
func TestItemMadeByHand(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	w := &v1alpha1.WorkItem{ObjectMeta: r.meta("by-hand"), Spec: v1alpha1.WorkItemSpec{
		Agent: "ops", Title: "clean <up>", Request: "remove old kernels", Source: v1alpha1.Source{Kind: v1alpha1.SourceKubernetes},
	}}
	r.create(w)
	root := r.hear(r.ops, `^New item by-hand, made in Kubernetes: clean <up>\nremove old kernels$`, "", "")
	r.work(w, v1alpha1.WorkItemWorking)
	g := r.gate(w, 1, fmt.Sprintf(plan, 1, 1))
	r.hear(r.gates, "approve rev-1", root.ID, root.ID)
	r.say(r.lucas, "reject not the current one", root.ID)
	if a := r.approval(g); a.Spec.Decision != v1alpha1.DecisionReject || a.Spec.Text != "not the current one" {
		t.Errorf("approval %+v", a.Spec)
	}
	r.end(g, v1alpha1.GateRejected, "", by("lucas", v1alpha1.DecisionReject))
	r.hear(r.gates, `^✗ rev-1 rejected by lucas`, root.ID, root.ID)
}

// A long plan is shown whole, in parts, and can be decided once all of it stands there.
func TestLongGate(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	asked := r.say(r.lucas, "much", "")
	item := r.item(1)
	r.work(item, v1alpha1.WorkItemWorking)
	var lines []string
	for i := range 600 {
		lines = append(lines, fmt.Sprintf("%d. web1 · fs.write path = \"/srv/<%s>\"", i, strings.Repeat("&", 40)))
	}
	message := strings.Join(lines, "\n") + "\n" + strings.Repeat("ä", 8000)
	g := r.gate(item, 1, message)
	r.hear(r.gates, `ä$`, asked, asked)
	c, err := r.lucas.Conversation(t.Context(), r.room)
	r.must(err)
	var parts []string
	for _, m := range c.Messages {
		if m.Sender == r.gates {
			_, part, _ := strings.Cut(m.Body, "\n")
			parts = append(parts, part)
		}
	}
	// A line too long for one message goes on in the next: where parts meet, there is a line break or none.
	plain := strings.NewReplacer("\n", "")
	if whole := plain.Replace(strings.Join(parts, "")); whole != plain.Replace(message) || len(parts) < 2 {
		t.Errorf("%d parts hold %d of %d bytes", len(parts), len(whole), len(message))
	}
	r.say(r.lucas, "approve", asked)
	r.approval(g)
	r.end(g, v1alpha1.GateApproved, "", by("lucas", v1alpha1.DecisionApprove))
	r.hear(r.gates, `^✓ rev-1 approved by lucas`, asked, asked)
}

// Titles of every awkward kind make items that the API server takes and a person can read.
func TestAwkwardTitles(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	for i, tc := range []struct{ said, title string }{
		{"<b>bold</b> & \"quoted\" 'x' `y`", "<b>bold</b> & \"quoted\" 'x' `y`"},
		{"\u202eevil\u200b zero", `\u202eevil\u200b zero`},
		{strings.Repeat("long ", 100), strings.Repeat("long ", 23) + "long…"},
		{"{{ .Values }} $(rm -rf /) ; drop table", "{{ .Values }} $(rm -rf /) ; drop table"},
		{"日本語のタイトル 👩‍🚀", `日本語のタイトル 👩\u200d🚀`},
		{"- [x] *list* | table\n---\nsecond", "- [x] *list* | table"},
		{"null", "null"},
	} {
		e := r.say(r.lucas, tc.said, "")
		var got string
		r.wait("the item of "+tc.said, func(context.Context) error {
			for _, w := range r.items() {
				if w.Spec.Source.Matrix.EventID == e.String() {
					got = w.Spec.Title
					return nil
				}
			}
			return fmt.Errorf("%d items", len(r.items()))
		})
		if got != tc.title {
			t.Errorf("title %d is %q, want %q", i, got, tc.title)
		}
	}
}

// Case 7: the API server is away when the decision arrives. It waits, also across a restart, and counts once.
func TestAPIServerAway(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	asked := r.say(r.lucas, "nginx", "")
	item := r.item(1)
	r.work(item, v1alpha1.WorkItemWorking)
	g := r.gate(item, 1, fmt.Sprintf(plan, 1, 1))
	r.hear(r.gates, "approve rev-1", asked, asked)
	r.away.Store(true)
	r.say(r.lucas, "approve rev-1", "")
	another := r.say(r.lucas, "and the disk", "")
	r.wait("the decision is in the inbox", func(context.Context) error {
		if got := r.approvals(); len(got) != 0 {
			return fmt.Errorf("an approval got through: %v", got)
		}
		if _, err := r.lucas.Client().Whoami(t.Context()); err != nil {
			return err
		}
		return nil
	})
	r.away.Store(false)
	r.approval(g)
	r.hear(r.ops, "^Queued behind", another, another)
	r.halt()
	r.start()
	r.say(r.lucas, "ok, thanks", asked)
	if got := r.approvals(); len(got) != 1 {
		t.Errorf("%d approvals", len(got))
	}
	if got := r.items(); len(got) != 2 {
		t.Errorf("%d items", len(got))
	}
}

// Two agents in one room or with one account are both told so, and neither is connected.
func TestRoomShared(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	twin := r.agent("twin", r.user("twin").String(), r.alias())
	r.create(twin)
	reason := func(name, want string) {
		t.Helper()
		r.wait(name+" is "+want, func(ctx context.Context) error {
			var a v1alpha1.Agent
			if err := r.admin.Get(ctx, client.ObjectKey{Namespace: r.ns, Name: name}, &a); err != nil {
				return err
			}
			if c := a.Status.Conversation; c == nil || c.Reason != want || c.Connected != (want == v1alpha1.ReasonConnected) || c.ObservedGeneration != a.Generation {
				return fmt.Errorf("conversation %+v", c)
			}
			return nil
		})
	}
	reason("ops", v1alpha1.ReasonRoomShared)
	reason("twin", v1alpha1.ReasonRoomShared)
	r.must(r.admin.Delete(t.Context(), twin))
	reason("ops", v1alpha1.ReasonConnected)
	e := r.say(r.lucas, "status", "")
	r.hear(r.ops, "Nothing is being worked on", e, "")
}

// Without the power to invite, the gateway says what is missing, and goes on once somebody has done it.
func TestApprovalsAccountMissing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var levels map[string]any
	r.must(r.lucas.Client().StateEvent(t.Context(), r.room, event.StatePowerLevels, "", &levels))
	levels["invite"] = 50
	_, err := r.lucas.Client().SendStateEvent(t.Context(), r.room, event.StatePowerLevels, "", levels)
	r.must(err)
	file := filepath.Join(r.dir, "credentials", r.gates.Localpart()+".json")
	good, err := os.ReadFile(file)
	r.must(err)
	r.must(os.WriteFile(file, []byte("{}"), 0o600))
	r.start()
	conversation := func(check func(*v1alpha1.ConversationStatus) bool) {
		t.Helper()
		r.wait("the conversation's message", func(ctx context.Context) error {
			var a v1alpha1.Agent
			if err := r.admin.Get(ctx, client.ObjectKey{Namespace: r.ns, Name: "ops"}, &a); err != nil {
				return err
			}
			if c := a.Status.Conversation; c == nil || !c.Connected || !check(c) {
				return fmt.Errorf("conversation %+v", c)
			}
			return nil
		})
	}
	conversation(func(c *v1alpha1.ConversationStatus) bool {
		return strings.Contains(c.Message, "Invite "+r.gates.String())
	})
	asked := r.say(r.lucas, "nginx", "")
	item := r.item(1)
	r.gate(item, 1, fmt.Sprintf(plan, 1, 1))
	_, err = r.lucas.Client().InviteUser(t.Context(), r.room, &mautrix.ReqInviteUser{UserID: r.gates})
	r.must(err)
	conversation(func(c *v1alpha1.ConversationStatus) bool {
		return strings.Contains(c.Message, r.gates.String()+" is not connected (LoginFailed: no credentials")
	})
	r.must(os.WriteFile(file, good, 0o600))
	conversation(func(c *v1alpha1.ConversationStatus) bool { return c.Message == "" })
	r.hear(r.gates, "approve rev-1", asked, asked)
}

// An agent that names what is not there takes words up and says in their thread why nothing comes of them.
func TestAgentCannotWork(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	r.stalled("Device web9 does not exist.")
	asked := r.say(r.lucas, "nginx", "")
	r.hear(r.ops, `^Noted\. ops is not in order, and may not get on with this until that is mended: Device web9 does not exist\.$`, asked, asked)
	item := r.item(1)
	r.work(item, v1alpha1.WorkItemWorking)
	second := r.say(r.lucas, "and postfix", "")
	r.hear(r.ops, `^Queued behind "nginx" \(\S+\); I begin when that is over\. ops is not in order, and may not get on with this until that is mended: Device web9 does not exist\.$`, second, second)
	status := r.say(r.anna, "status", "")
	r.hear(r.ops, `(?s)^ops is not in order, and may not get on with this until that is mended: Device web9 does not exist\.\n⏳ "nginx": is being worked on`, status, "")

	r.stalled("")
	status = r.say(r.anna, "status", "")
	r.hear(r.ops, `^⏳ "nginx": is being worked on`, status, "")
}

// stalled plays the manager that finds what an agent lacks; with an empty message, that it lacks nothing.
func (r *rig) stalled(message string) {
	r.t.Helper()
	a := &v1alpha1.Agent{}
	r.must(r.admin.Get(r.t.Context(), client.ObjectKey{Namespace: r.ns, Name: "ops"}, a))
	conditions := []metav1.Condition{}
	if message != "" {
		conditions = append(conditions, metav1.Condition{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonDeviceNotFound,
			Message: message, ObservedGeneration: a.Generation, LastTransitionTime: metav1.Now()})
	}
	b, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": conditions}})
	r.must(err)
	r.must(r.admin.Status().Patch(r.t.Context(), a, client.RawPatch(types.MergePatchType, b)))
}
