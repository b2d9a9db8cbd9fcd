package gate

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/condition"
	"nisse.io/nisse/controllers/controllertest"
	"nisse.io/nisse/controllers/gate/policy"
	"nisse.io/nisse/controllers/gate/subject"
	"nisse.io/nisse/internal/approval"
	"nisse.io/nisse/test/apitest"
)

func TestMain(m *testing.M) { apitest.Main(m) }

// bench is a World with the gate controller in the test's hands: each pass is one call.
type bench struct {
	*controllertest.World
	r   *Reconciler
	key ed25519.PublicKey
	now time.Time
}

func newBench(t *testing.T) *bench {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{World: controllertest.New(t, nil), key: public, now: time.Now()}
	b.r = &Reconciler{Client: b.Admin, Live: b.Admin, Sign: func(s approval.Statement) (string, error) { return s.Sign(private) },
		Events: b.Events, Log: b.Log, Now: func() time.Time { return b.now }}
	return b
}

// pass runs one pass over a gate, reads it anew, and checks what must always hold.
func (b *bench) pass(g *v1alpha1.Gate) (reconcile.Result, error) {
	b.T.Helper()
	result, err := b.r.Reconcile(b.T.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(g)})
	if rerr := b.Admin.Get(b.T.Context(), client.ObjectKeyFromObject(g), g); client.IgnoreNotFound(rerr) != nil {
		b.T.Fatal(rerr)
	}
	b.Holds(g, g.Status.ObservedGeneration, g.Status.Conditions)
	return result, err
}

func (b *bench) must(g *v1alpha1.Gate) reconcile.Result {
	b.T.Helper()
	result, err := b.pass(g)
	if err != nil {
		b.T.Fatal(err)
	}
	return result
}

func (b *bench) outcome(g *v1alpha1.Gate, want v1alpha1.GateOutcome) {
	b.T.Helper()
	if g.Status.Outcome != want {
		b.T.Errorf("outcome %q (%s), want %q", g.Status.Outcome, g.Status.Message, want)
	}
	if (g.Status.Statement != "") != (want == v1alpha1.GateApproved && g.Spec.Kind == v1alpha1.GatePlan) {
		b.T.Errorf("outcome %q with statement %q", want, g.Status.Statement)
	}
}

func (b *bench) refused(a *v1alpha1.Approval, want string) {
	b.T.Helper()
	b.Read(a)
	if a.Status.Reason != want {
		b.T.Errorf("approval %s: reason %q (%s), want %q", a.Name, a.Status.Reason, a.Status.Message, want)
	}
	// The conditions say the same, for tools that know nothing of approvals; one that counts has no status at all.
	var stalled string
	if c := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionStalled); c != nil {
		stalled = c.Reason
	}
	if stalled != want || (a.Status.ObservedGeneration != 0) != (want != "") {
		b.T.Errorf("approval %s: stalled for %q at generation %d, want %q", a.Name, stalled, a.Status.ObservedGeneration, want)
	}
	if v := condition.Violations(a.Generation, a.Status.ObservedGeneration, a.Status.Conditions); len(v) > 0 {
		b.T.Errorf("approval %s: %v", a.Name, v)
	}
}

func TestApproveCommitsInOneWrite(t *testing.T) {
	b := newBench(t)
	p := b.Plan(1, controllertest.Report, `{"content":"","path":"/srv/b"}`)
	g := b.Gate(p, b.now)
	if r := b.must(g); r.RequeueAfter <= 0 || r.RequeueAfter > 1800*time.Second+policy.Grace {
		t.Errorf("an open gate is looked at again after %s", r.RequeueAfter)
	}
	b.outcome(g, "")
	a := b.Approval(g, "lucas", v1alpha1.DecisionApprove, nil)
	before := g.ResourceVersion
	writes := countWrites(b)
	b.must(g)
	b.outcome(g, v1alpha1.GateApproved)
	if *writes != 1 || g.ResourceVersion == before {
		t.Errorf("%d writes, want one", *writes)
	}
	s, err := approval.Verify(g.Status.Statement, []ed25519.PublicKey{b.key})
	if err != nil {
		t.Fatal(err)
	}
	calls := subject.Calls(p)
	want := approval.Statement{V: 1, GateUID: string(g.UID), Digest: g.Spec.Digest, Approvers: []string{"lucas"}, ExpiresAt: g.Status.DecidedAt.Unix() + 3600,
		Calls: []string{calls[0].Hash(), calls[1].Hash()}, Attempts: []int32{1, 1}}
	if diff := cmp.Diff(want, s); diff != "" {
		t.Errorf("statement (-want +got):\n%s", diff)
	}
	b.refused(a, "")
	if diff := cmp.Diff([]string{"Approved"}, b.Told()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if log := b.LogTo.String(); !strings.Contains(log, `"event":"gate.approved"`) || !strings.Contains(log, `"cause":"`+a.Name+`"`) || !strings.Contains(log, `"task_id":"wi-1"`) {
		t.Errorf("log %s", log)
	}
	// At rest.
	*writes = 0
	b.must(g)
	b.must(g)
	if *writes != 0 {
		t.Errorf("%d writes at rest", *writes)
	}
}

// writing counts what the controller writes.
type writing struct {
	client.Client
	n *int
}

func (w writing) Status() client.SubResourceWriter { return statusWriting{w.Client.Status(), w.n} }

type statusWriting struct {
	client.SubResourceWriter
	n *int
}

func (w statusWriting) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	*w.n++
	return w.SubResourceWriter.Patch(ctx, o, p, opts...)
}

func countWrites(b *bench) *int {
	n := new(int)
	b.r.Client = writing{b.Admin, n}
	return n
}

func TestJudging(t *testing.T) {
	for _, tc := range []struct {
		name    string
		before  func(*bench, *v1alpha1.Gate)
		outcome v1alpha1.GateOutcome
		message string
	}{
		{"nothing said", func(*bench, *v1alpha1.Gate) {}, "", ""},
		{"rejected, with feedback", func(b *bench, g *v1alpha1.Gate) {
			b.Approval(g, "lucas", v1alpha1.DecisionReject, func(s *v1alpha1.ApprovalSpec) { s.Text = "use daily.txt\nplease" })
		}, v1alpha1.GateRejected, `rev-1 was rejected by lucas at `},
		{"rejected and approved at once", func(b *bench, g *v1alpha1.Gate) {
			b.Approval(g, "lucas", v1alpha1.DecisionApprove, nil)
			b.Approval(g, "lucas", v1alpha1.DecisionReject, nil)
		}, v1alpha1.GateRejected, ""},
		{"by one who may only instruct", func(b *bench, g *v1alpha1.Gate) { b.Approval(g, "maria", v1alpha1.DecisionApprove, nil) }, "", ""},
		{"by a stranger", func(b *bench, g *v1alpha1.Gate) { b.Approval(g, "mallory", v1alpha1.DecisionApprove, nil) }, "", ""},
		{"case 9: by the localpart of another server", func(b *bench, g *v1alpha1.Gate) {
			b.Approval(g, "matrix:@lucas:evil.example", v1alpha1.DecisionApprove, func(s *v1alpha1.ApprovalSpec) {
				s.Channel = v1alpha1.Channel{Kind: v1alpha1.ChannelMatrix, Evidence: v1alpha1.EvidenceTyped, Matrix: &v1alpha1.MatrixEvent{Room: "!r", EventID: "$e", Sender: "@lucas:evil.example"}}
			})
		}, "", ""},
		{"a second Person takes the name before it is judged", func(b *bench, g *v1alpha1.Gate) {
			b.Approval(g, "lucas", v1alpha1.DecisionApprove, nil)
			b.Create(&v1alpha1.Person{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: "impostor"}, Spec: v1alpha1.PersonSpec{Identities: v1alpha1.Identities{Kubernetes: []string{"lucas"}}}})
		}, "", ""},
		{"case 4: the right is taken away before it is judged", func(b *bench, g *v1alpha1.Gate) {
			b.Approval(g, "lucas", v1alpha1.DecisionApprove, nil)
			b.Update(b.Agent, func() { b.Agent.Spec.People[0].May = []v1alpha1.Right{v1alpha1.RightInstruct} })
		}, "", ""},
		{"the agent is gone", func(b *bench, g *v1alpha1.Gate) {
			b.Approval(g, "lucas", v1alpha1.DecisionApprove, nil)
			if err := b.Admin.Delete(b.T.Context(), b.Agent); err != nil {
				b.T.Fatal(err)
			}
		}, "", ""},
		{"another agent has the name", func(b *bench, g *v1alpha1.Gate) {
			b.Approval(g, "lucas", v1alpha1.DecisionApprove, nil)
			if err := b.Admin.Delete(b.T.Context(), b.Agent); err != nil {
				b.T.Fatal(err)
			}
			b.Create(controllertest.NewAgent(b.NS, "ops"))
		}, v1alpha1.GateSuperseded, "another has its name now"},
		{"case 12: a decision about another gate", func(b *bench, g *v1alpha1.Gate) {
			b.Approval(g, "lucas", v1alpha1.DecisionApprove, func(s *v1alpha1.ApprovalSpec) { s.Gate.UID = "another" })
		}, "", ""},
		{"case 1: a later revision is there", func(b *bench, g *v1alpha1.Gate) {
			b.Approval(g, "lucas", v1alpha1.DecisionApprove, nil)
			b.Plan(2, controllertest.Report)
		}, v1alpha1.GateSuperseded, "rev-1 was replaced by rev-2"},
		{"a later revision was there and was deleted", func(b *bench, g *v1alpha1.Gate) {
			b.Approval(g, "lucas", v1alpha1.DecisionApprove, nil)
			b.Status(b.Item, func() { b.Item.Status.Plan = &v1alpha1.PlanRef{Name: "wi-1-rev-2", Revision: 2} })
		}, v1alpha1.GateSuperseded, "rev-1 was replaced by rev-2"},
		{"the item is closed", func(b *bench, g *v1alpha1.Gate) {
			b.Approval(g, "lucas", v1alpha1.DecisionApprove, nil)
			b.Status(b.Item, func() { b.Item.Status.State = v1alpha1.WorkItemClosed })
		}, v1alpha1.GateSuperseded, "the work has ended"},
		{"a person asked to close it", func(b *bench, g *v1alpha1.Gate) { b.Update(b.Item, func() { b.Item.Spec.Close = true }) }, v1alpha1.GateSuperseded, "the work has ended"},
		{"a person said stop", func(b *bench, g *v1alpha1.Gate) {
			b.Approval(g, "lucas", v1alpha1.DecisionApprove, nil)
			b.Update(b.Item, func() { b.Item.Spec.Stop = &v1alpha1.StopRequest{ID: "s1"} })
		}, v1alpha1.GateSuperseded, "the work was stopped"},
		{"a person wanted another plan", func(b *bench, g *v1alpha1.Gate) {
			b.Status(b.Item, func() { b.Item.Status.ClosedRevision = 1 })
		}, v1alpha1.GateSuperseded, "a person wants another plan"},
		{"the item is gone", func(b *bench, g *v1alpha1.Gate) {
			if err := b.Admin.Delete(b.T.Context(), b.Item); err != nil {
				b.T.Fatal(err)
			}
		}, v1alpha1.GateSuperseded, "its work item is gone"},
		{"the plan is gone", func(b *bench, g *v1alpha1.Gate) {
			if err := b.Admin.DeleteAllOf(b.T.Context(), &v1alpha1.Plan{}, client.InNamespace(b.NS)); err != nil {
				b.T.Fatal(err)
			}
		}, v1alpha1.GateSuperseded, "the plan is gone"},
		{"case 14: a namesake of the plan with other steps", func(b *bench, g *v1alpha1.Gate) {
			b.Approval(g, "lucas", v1alpha1.DecisionApprove, nil)
			if err := b.Admin.DeleteAllOf(b.T.Context(), &v1alpha1.Plan{}, client.InNamespace(b.NS)); err != nil {
				b.T.Fatal(err)
			}
			b.Plan(1, `{"content":"","path":"/etc/passwd"}`)
		}, v1alpha1.GateSuperseded, "The plan that was shown is gone"},
		{"time is over", func(b *bench, g *v1alpha1.Gate) { b.now = g.Spec.ExpiresAt.Add(policy.Grace) }, v1alpha1.GateExpired, "Nobody answered until "},
		{"time is over within the grace", func(b *bench, g *v1alpha1.Gate) { b.now = g.Spec.ExpiresAt.Add(policy.Grace - 1) }, "", ""},
		{"case 13: rejected before the end, judged a day after", func(b *bench, g *v1alpha1.Gate) {
			b.Approval(g, "lucas", v1alpha1.DecisionReject, nil)
			b.now = g.Spec.ExpiresAt.Add(24 * time.Hour)
		}, v1alpha1.GateRejected, ""},
		{"case 7: approved before the end, while the manager was away", func(b *bench, g *v1alpha1.Gate) {
			b.Approval(g, "lucas", v1alpha1.DecisionApprove, nil)
			b.now = g.Spec.ExpiresAt.Add(time.Hour)
		}, v1alpha1.GateApproved, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t)
			g := b.Gate(b.Plan(1, controllertest.Report), b.now)
			tc.before(b, g)
			b.must(g)
			b.outcome(g, tc.outcome)
			if !strings.Contains(g.Status.Message, tc.message) {
				t.Errorf("message %q, want %q", g.Status.Message, tc.message)
			}
			// Judged again, by this manager or the next leader: nothing changes.
			was := g.DeepCopy()
			b.must(g)
			if diff := cmp.Diff(was, g); diff != "" {
				t.Errorf("a second pass changed it (-was +is):\n%s", diff)
			}
		})
	}
}

// Everybody whose word does not count is told why, once.
func TestRefusalsAreTold(t *testing.T) {
	b := newBench(t)
	g := b.Gate(b.Plan(1, controllertest.Report), b.now)
	stranger := b.Approval(g, "mallory", v1alpha1.DecisionApprove, nil)
	helper := b.Approval(g, "maria", v1alpha1.DecisionApprove, nil)
	b.must(g)
	b.outcome(g, "")
	b.refused(stranger, v1alpha1.ReasonNotAPerson)
	b.refused(helper, v1alpha1.ReasonMayNotApprove)
	if !strings.Contains(helper.Status.Message, "Only lucas can decide this.") {
		t.Errorf("message %q", helper.Status.Message)
	}
	version := helper.ResourceVersion
	b.must(g)
	b.Read(helper)
	if helper.ResourceVersion != version {
		t.Error("a refusal was written twice")
	}
	// Given the right later, the word of before still does not count; a new one does.
	b.Update(b.Agent, func() { b.Agent.Spec.People[1].May = []v1alpha1.Right{v1alpha1.RightApprove} })
	b.must(g)
	b.outcome(g, "")
	winner := b.Approval(g, "lucas", v1alpha1.DecisionApprove, nil)
	b.must(g)
	b.outcome(g, v1alpha1.GateApproved)
	late := b.Approval(g, "lucas", v1alpha1.DecisionReject, nil)
	namesake := b.Approval(g, "lucas", v1alpha1.DecisionApprove, func(s *v1alpha1.ApprovalSpec) { s.Gate.UID = "of another time" })
	b.must(g)
	b.refused(winner, "")
	b.refused(late, v1alpha1.ReasonGateDecided)
	b.refused(namesake, v1alpha1.ReasonOtherGate)
	if !strings.Contains(late.Status.Message, "rev-1 was approved by lucas at ") {
		t.Errorf("message %q", late.Status.Message)
	}
}

// A refusal's message fits the API, however much a stranger writes.
func TestLongNamesAreCut(t *testing.T) {
	b := newBench(t)
	var many []v1alpha1.AgentPerson
	for i := range 32 {
		many = append(many, v1alpha1.AgentPerson{Name: fmt.Sprintf("%02d%s", i, strings.Repeat("x", 61)), May: []v1alpha1.Right{v1alpha1.RightApprove}})
	}
	b.Update(b.Agent, func() { b.Agent.Spec.People = many })
	g := b.Gate(b.Plan(1, controllertest.Report), b.now)
	a := b.Approval(g, "maria", v1alpha1.DecisionReject, func(s *v1alpha1.ApprovalSpec) { s.Text = strings.Repeat("\u202e", 1300) })
	b.must(g)
	b.refused(a, v1alpha1.ReasonMayNotApprove)
}

func TestLongFeedbackIsCutInTheMessageAlone(t *testing.T) {
	b := newBench(t)
	g := b.Gate(b.Plan(1, controllertest.Report), b.now)
	text := strings.Repeat("\u202e", 1300)
	b.Approval(g, "lucas", v1alpha1.DecisionReject, func(s *v1alpha1.ApprovalSpec) { s.Text = text })
	b.must(g)
	b.outcome(g, v1alpha1.GateRejected)
	if g.Status.Decisions[0].Text != text || strings.Contains(g.Status.Message, "\u202e") {
		t.Errorf("text %q, message %q", g.Status.Decisions[0].Text, g.Status.Message)
	}
}

// failing makes one kind of live read fail.
type failing struct {
	client.Reader
	list client.ObjectList
	obj  client.Object
}

var errAway = errors.New("the API server is away")

func (f failing) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	if f.list != nil && fmt.Sprintf("%T", l) == fmt.Sprintf("%T", f.list) {
		return errAway
	}
	return f.Reader.List(ctx, l, opts...)
}

func (f failing) Get(ctx context.Context, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if f.obj != nil && fmt.Sprintf("%T", o) == fmt.Sprintf("%T", f.obj) {
		return errAway
	}
	return f.Reader.Get(ctx, k, o, opts...)
}

// An error denies: with any read away, nothing is decided, not even an expiry, and nobody is refused.
func TestNothingIsDecidedBlindly(t *testing.T) {
	for name, away := range map[string]failing{
		"gate":      {obj: &v1alpha1.Gate{}},
		"work item": {obj: &v1alpha1.WorkItem{}},
		"agent":     {obj: &v1alpha1.Agent{}},
		"plan":      {obj: &v1alpha1.Plan{}},
		"people":    {list: &v1alpha1.PersonList{}},
		"approvals": {list: &v1alpha1.ApprovalList{}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			g := b.Gate(b.Plan(1, controllertest.Report), b.now)
			good := b.Approval(g, "lucas", v1alpha1.DecisionApprove, nil)
			bad := b.Approval(g, "mallory", v1alpha1.DecisionApprove, nil)
			b.now = g.Spec.ExpiresAt.Add(time.Hour)
			away.Reader = b.Admin
			b.r.Live = away
			if _, err := b.pass(g); !errors.Is(err, errAway) {
				t.Fatalf("got %v, want a retry", err)
			}
			b.outcome(g, "")
			b.refused(good, "")
			b.refused(bad, "")
			b.r.Live = b.Admin
			b.must(g)
			b.outcome(g, v1alpha1.GateApproved)
			b.refused(bad, v1alpha1.ReasonNotAPerson)
		})
	}
}

func TestAKeyThatCannotSignApprovesNothing(t *testing.T) {
	b := newBench(t)
	g := b.Gate(b.Plan(1, controllertest.Report), b.now)
	b.Approval(g, "lucas", v1alpha1.DecisionApprove, nil)
	b.r.Sign = func(approval.Statement) (string, error) { return "", errors.New("no key") }
	if _, err := b.pass(g); err == nil {
		t.Error("no error")
	}
	b.outcome(g, "")
}

// racing lets another writer in between the controller's read and its write.
type racing struct {
	client.Client
	first func()
}

func (r *racing) Status() client.SubResourceWriter {
	return racingStatus{r.Client.Status(), r}
}

type racingStatus struct {
	client.SubResourceWriter
	r *racing
}

func (s racingStatus) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	if first := s.r.first; first != nil {
		s.r.first = nil
		first()
	}
	return s.SubResourceWriter.Patch(ctx, o, p, opts...)
}

// Case 33: the old leader writes while the new one is about to. One commits; the other's write fails on its lock and is quiet.
func TestTwoManagersCommitOnce(t *testing.T) {
	b := newBench(t)
	g := b.Gate(b.Plan(1, controllertest.Report), b.now)
	b.Approval(g, "lucas", v1alpha1.DecisionApprove, nil)
	other := *b.r
	b.r.Client = &racing{Client: b.Admin, first: func() {
		if _, err := other.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(g)}); err != nil {
			t.Error(err)
		}
	}}
	result, err := b.pass(g)
	if err != nil || result.RequeueAfter == 0 {
		t.Errorf("the loser: %+v, %v; want a quiet second look", result, err)
	}
	b.outcome(g, v1alpha1.GateApproved)
	first := g.Status.Statement
	b.must(g)
	if g.Status.Statement != first {
		t.Error("the statement changed")
	}
	if diff := cmp.Diff([]string{"Approved"}, b.Told()); diff != "" {
		t.Errorf("told twice (-want +got):\n%s", diff)
	}
}

// Case 3: whoever tries to get past the judgement by another door meets the API server's own rules.
func TestOutcomeCannotBeRewritten(t *testing.T) {
	b := newBench(t)
	g := b.Gate(b.Plan(1, controllertest.Report), b.now)
	b.Approval(g, "lucas", v1alpha1.DecisionReject, nil)
	b.must(g)
	for name, write := range map[string]func(*v1alpha1.Gate) error{
		"update the outcome": func(g *v1alpha1.Gate) error {
			g.Status.Outcome = v1alpha1.GateApproved
			return b.Admin.Status().Update(t.Context(), g)
		},
		"take the outcome away": func(g *v1alpha1.Gate) error {
			g.Status.Outcome = ""
			return b.Admin.Status().Update(t.Context(), g)
		},
		"add a statement": func(g *v1alpha1.Gate) error {
			g.Status.Statement = "{}"
			return b.Admin.Status().Update(t.Context(), g)
		},
		"change the steps' digest": func(g *v1alpha1.Gate) error {
			g.Spec.Digest = "sha256:" + strings.Repeat("1", 64)
			return b.Admin.Update(t.Context(), g)
		},
		"merge patch the status": func(g *v1alpha1.Gate) error {
			return b.Admin.Status().Patch(t.Context(), g, client.RawPatch("application/merge-patch+json", []byte(`{"status":{"outcome":"Approved"}}`)))
		},
		"patch the status by the main door": func(g *v1alpha1.Gate) error {
			p := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"outcome":"Approved"}}`))
			if err := b.Admin.Patch(t.Context(), g, p); err != nil {
				return err
			}
			if g.Status.Outcome != v1alpha1.GateRejected {
				return nil
			}
			return apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("Gate").GroupKind(), g.Name, nil) // ignored, as a subresource is
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := write(g.DeepCopy()); !apierrors.IsInvalid(err) {
				t.Errorf("got %v, want a refusal", err)
			}
		})
	}
}

func TestHaltGate(t *testing.T) {
	for _, tc := range []struct {
		name     string
		decision v1alpha1.Decision
		answer   v1alpha1.HaltAnswer
		outcome  v1alpha1.GateOutcome
		message  string
	}{
		{"continue", v1alpha1.DecisionApprove, v1alpha1.AnswerContinue, v1alpha1.GateApproved, "The question was answered with continue by lucas"},
		{"replan", v1alpha1.DecisionApprove, v1alpha1.AnswerReplan, v1alpha1.GateApproved, "answered with replan"},
		{"abandon", v1alpha1.DecisionReject, v1alpha1.AnswerAbandon, v1alpha1.GateRejected, "answered with abandon"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t)
			b.Update(b.Item, func() { b.Item.Spec.Stop = &v1alpha1.StopRequest{ID: "s1", By: "lucas"} })
			g := b.HaltGate(v1alpha1.GateHaltRef{Stop: "s1"}, b.now)
			b.must(g)
			b.outcome(g, "")
			b.Approval(g, "lucas", tc.decision, func(s *v1alpha1.ApprovalSpec) { s.Answer = tc.answer })
			b.must(g)
			b.outcome(g, tc.outcome)
			if !strings.Contains(g.Status.Message, tc.message) || g.Status.Decisions[0].Answer != tc.answer {
				t.Errorf("status %+v", g.Status)
			}
			if diff := cmp.Diff([]string{"Answered"}, b.Told()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHaltGateIsDroppedWhenTheQuestionChanges(t *testing.T) {
	for _, tc := range []struct {
		name    string
		change  func(*bench)
		message string
	}{
		{"another stop", func(b *bench) { b.Update(b.Item, func() { b.Item.Spec.Stop = &v1alpha1.StopRequest{ID: "s2"} }) }, "stopped or halted anew"},
		{"a halt on top", func(b *bench) {
			b.Status(b.Item, func() {
				b.Item.Status.Runtime = &v1alpha1.WorkItemRuntime{Halt: &v1alpha1.HaltReport{ID: "h1", Reason: v1alpha1.HaltOutcomeUnknown, Message: "m", At: metav1.Now()}}
			})
		}, "stopped or halted anew"},
		{"answered otherwise", func(b *bench) { b.Status(b.Item, func() { b.Item.Status.AnsweredStop = "s1" }) }, "it has been answered"},
		{"the end", func(b *bench) { b.Update(b.Item, func() { b.Item.Spec.Close = true }) }, "the work has ended"},
		{"another agent of that name", func(b *bench) {
			if err := b.Admin.Delete(b.T.Context(), b.Agent); err != nil {
				b.T.Fatal(err)
			}
			b.Create(controllertest.NewAgent(b.NS, "ops"))
		}, "not what was shown"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t)
			b.Update(b.Item, func() { b.Item.Spec.Stop = &v1alpha1.StopRequest{ID: "s1"} })
			g := b.HaltGate(v1alpha1.GateHaltRef{Stop: "s1"}, b.now)
			tc.change(b)
			b.Approval(g, "lucas", v1alpha1.DecisionApprove, func(s *v1alpha1.ApprovalSpec) { s.Answer = v1alpha1.AnswerContinue })
			b.must(g)
			b.outcome(g, v1alpha1.GateSuperseded)
			if !strings.Contains(g.Status.Message, tc.message) {
				t.Errorf("message %q, want %q", g.Status.Message, tc.message)
			}
		})
	}
}

func TestGoneGateIsLeftAlone(t *testing.T) {
	b := newBench(t)
	g := &v1alpha1.Gate{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: "not-there"}}
	if r, err := b.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(g)}); err != nil || r.RequeueAfter != 0 {
		t.Errorf("got %+v, %v", r, err)
	}
}
