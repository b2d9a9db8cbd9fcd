package gate

import (
	"crypto/ed25519"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/controllertest"
	"nisse.io/nisse/controllers/gate/opening"
	"nisse.io/nisse/controllers/gate/policy"
	"nisse.io/nisse/internal/approval"
)

// quorum makes a bench whose gate wants two of lucas and maria.
func quorum(t *testing.T, kind v1alpha1.GateKind) (*bench, *v1alpha1.Gate) {
	t.Helper()
	b := newBench(t)
	b.Update(b.Agent, func() {
		b.Agent.Spec.People[1].May = []v1alpha1.Right{v1alpha1.RightInstruct, v1alpha1.RightApprove}
	})
	var g *v1alpha1.Gate
	var err error
	if kind == v1alpha1.GatePlan {
		g, err = opening.Plan(b.Plan(1, controllertest.Report), b.Item, b.Agent, controllertest.Rules(1), b.now)
	} else {
		b.Update(b.Item, func() { b.Item.Spec.Stop = &v1alpha1.StopRequest{ID: "s1", By: "lucas"} })
		g, err = opening.Halt(b.Item, b.Agent, v1alpha1.GateHaltRef{Stop: "s1"}, b.now)
	}
	if err != nil {
		t.Fatal(err)
	}
	g.Spec.Required = 2
	b.Create(g)
	return b, g
}

// inChat makes an Approval come from a person's chat.
func inChat(name string) func(*v1alpha1.ApprovalSpec) {
	return func(s *v1alpha1.ApprovalSpec) {
		s.Approver = "matrix:@" + name + ":example.org"
		s.Channel = v1alpha1.Channel{Kind: v1alpha1.ChannelMatrix, Evidence: v1alpha1.EvidenceTyped,
			Matrix: &v1alpha1.MatrixEvent{Room: "!r:example.org", EventID: "$e", Sender: "@" + name + ":example.org"}}
	}
}

func with(a v1alpha1.HaltAnswer) func(*v1alpha1.ApprovalSpec) {
	return func(s *v1alpha1.ApprovalSpec) { s.Answer = a }
}

// A gate that wants two waits for two, whatever one of them does meanwhile.
func TestQuorum(t *testing.T) {
	const approve, reject = v1alpha1.DecisionApprove, v1alpha1.DecisionReject
	for _, tc := range []struct {
		name string
		kind v1alpha1.GateKind
		// first comes before a pass, second before the next; each returns the Approval that it made.
		first, second func(*bench, *v1alpha1.Gate) *v1alpha1.Approval
		outcome       v1alpha1.GateOutcome
		decided       []string
		// refusals of the two Approvals.
		refusals [2]string
	}{
		{"two persons", v1alpha1.GatePlan,
			func(b *bench, g *v1alpha1.Gate) *v1alpha1.Approval { return b.Approval(g, "maria", approve, nil) },
			func(b *bench, g *v1alpha1.Gate) *v1alpha1.Approval { return b.Approval(g, "lucas", approve, nil) },
			v1alpha1.GateApproved, []string{"maria", "lucas"}, [2]string{}},
		{"two persons by two channels", v1alpha1.GatePlan,
			func(b *bench, g *v1alpha1.Gate) *v1alpha1.Approval {
				return b.Approval(g, "", approve, inChat("maria"))
			},
			func(b *bench, g *v1alpha1.Gate) *v1alpha1.Approval { return b.Approval(g, "lucas", approve, nil) },
			v1alpha1.GateApproved, []string{"maria", "lucas"}, [2]string{}},
		{"one person by two channels", v1alpha1.GatePlan,
			func(b *bench, g *v1alpha1.Gate) *v1alpha1.Approval {
				return b.Approval(g, "", approve, inChat("lucas"))
			},
			func(b *bench, g *v1alpha1.Gate) *v1alpha1.Approval { return b.Approval(g, "lucas", approve, nil) },
			"", nil, [2]string{"", v1alpha1.ReasonSecondVote}},
		{"one person by two channels, the other way round", v1alpha1.GatePlan,
			func(b *bench, g *v1alpha1.Gate) *v1alpha1.Approval { return b.Approval(g, "lucas", approve, nil) },
			func(b *bench, g *v1alpha1.Gate) *v1alpha1.Approval {
				return b.Approval(g, "", approve, inChat("lucas"))
			},
			"", nil, [2]string{"", v1alpha1.ReasonSecondVote}},
		{"the second rejects", v1alpha1.GatePlan,
			func(b *bench, g *v1alpha1.Gate) *v1alpha1.Approval { return b.Approval(g, "maria", approve, nil) },
			func(b *bench, g *v1alpha1.Gate) *v1alpha1.Approval { return b.Approval(g, "lucas", reject, nil) },
			v1alpha1.GateRejected, []string{"lucas"}, [2]string{}},
		{"the second who approved loses the right before it is judged", v1alpha1.GatePlan,
			func(b *bench, g *v1alpha1.Gate) *v1alpha1.Approval { return b.Approval(g, "lucas", approve, nil) },
			func(b *bench, g *v1alpha1.Gate) *v1alpha1.Approval {
				a := b.Approval(g, "maria", approve, nil)
				b.Update(b.Agent, func() { b.Agent.Spec.People[1].May = []v1alpha1.Right{v1alpha1.RightInstruct} })
				return a
			}, "", nil, [2]string{"", v1alpha1.ReasonMayNotApprove}},
		{"the first loses the right while the second is awaited", v1alpha1.GatePlan,
			func(b *bench, g *v1alpha1.Gate) *v1alpha1.Approval { return b.Approval(g, "maria", approve, nil) },
			func(b *bench, g *v1alpha1.Gate) *v1alpha1.Approval {
				b.Update(b.Agent, func() { b.Agent.Spec.People[1].May = []v1alpha1.Right{v1alpha1.RightInstruct} })
				return b.Approval(g, "lucas", approve, nil)
			}, "", nil, [2]string{v1alpha1.ReasonMayNotApprove, ""}},
		{"time is up before the second", v1alpha1.GatePlan,
			func(b *bench, g *v1alpha1.Gate) *v1alpha1.Approval { return b.Approval(g, "maria", approve, nil) },
			func(b *bench, g *v1alpha1.Gate) *v1alpha1.Approval {
				b.now = g.Spec.ExpiresAt.Add(policy.Grace)
				return nil
			}, v1alpha1.GateExpired, nil, [2]string{}},
		{"two answers to a stop", v1alpha1.GateHalt,
			func(b *bench, g *v1alpha1.Gate) *v1alpha1.Approval {
				return b.Approval(g, "maria", approve, with(v1alpha1.AnswerReplan))
			},
			func(b *bench, g *v1alpha1.Gate) *v1alpha1.Approval {
				return b.Approval(g, "lucas", approve, with(v1alpha1.AnswerReplan))
			},
			v1alpha1.GateApproved, []string{"maria", "lucas"}, [2]string{}},
		{"two who want different things of a stop", v1alpha1.GateHalt,
			func(b *bench, g *v1alpha1.Gate) *v1alpha1.Approval {
				return b.Approval(g, "maria", approve, with(v1alpha1.AnswerReplan))
			},
			func(b *bench, g *v1alpha1.Gate) *v1alpha1.Approval {
				return b.Approval(g, "lucas", approve, with(v1alpha1.AnswerContinue))
			},
			"", nil, [2]string{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b, g := quorum(t, tc.kind)
			said := []*v1alpha1.Approval{tc.first(b, g)}
			b.must(g)
			b.outcome(g, "")
			if len(g.Status.Decisions) != 0 {
				t.Errorf("one of two has decided: %+v", g.Status.Decisions)
			}
			said = append(said, tc.second(b, g))
			b.must(g)
			b.outcome(g, tc.outcome)
			var decided []string
			for _, d := range g.Status.Decisions {
				decided = append(decided, d.Person)
			}
			// Of one second the names decide, so that two persons may come in either order here.
			if diff := cmp.Diff(sorted(tc.decided), sorted(decided)); diff != "" {
				t.Errorf("decided by (-want +got):\n%s", diff)
			}
			for i, a := range said {
				if a != nil {
					b.refused(a, tc.refusals[i])
				}
			}
			if tc.outcome == v1alpha1.GateApproved {
				if !strings.Contains(g.Status.Message, "by lucas, maria at ") {
					t.Errorf("message %q", g.Status.Message)
				}
				if tc.kind == v1alpha1.GatePlan {
					b.stated(g, "lucas", "maria")
				}
			}
		})
	}
}

func sorted(s []string) []string {
	s = slices.Clone(s)
	slices.Sort(s)
	return s
}

// stated checks who approved by the statement that a device reads.
func (b *bench) stated(g *v1alpha1.Gate, approvers ...string) {
	b.T.Helper()
	s, err := approval.Verify(g.Status.Statement, []ed25519.PublicKey{b.key})
	if err != nil {
		b.T.Fatal(err)
	}
	if diff := cmp.Diff(approvers, s.Approvers); diff != "" {
		b.T.Errorf("approvers in the statement (-want +got):\n%s", diff)
	}
}

// A word counts for who it is when it is judged, not for who it was when it was said.
func TestThePersonIsJudgedLast(t *testing.T) {
	person := func(b *bench, name string) *v1alpha1.Person {
		return &v1alpha1.Person{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: name}}
	}
	remove := func(b *bench, name string) {
		if err := b.Admin.Delete(b.T.Context(), person(b, name)); err != nil {
			b.T.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name   string
		change func(*bench)
		want   string
	}{
		{"nothing changes", func(*bench) {}, ""},
		{"removed", func(b *bench) { remove(b, "lucas") }, v1alpha1.ReasonNotAPerson},
		{"removed and made anew", func(b *bench) {
			remove(b, "lucas")
			p := person(b, "lucas")
			p.Spec.Identities.Kubernetes = []string{"lucas"}
			b.Create(p)
		}, ""},
		{"goes by another name now", func(b *bench) {
			p := person(b, "lucas")
			b.Update(p, func() { p.Spec.Identities.Kubernetes = []string{"lucas.n"} })
		}, v1alpha1.ReasonNotAPerson},
		{"the name is another's now, who may not", func(b *bench) {
			remove(b, "lucas")
			p := person(b, "maria")
			b.Update(p, func() { p.Spec.Identities.Kubernetes = []string{"lucas"} })
		}, v1alpha1.ReasonMayNotApprove},
		{"another namesake is in another namespace", func(b *bench) {
			w := controllertest.New(b.T, nil)
			b.T.Logf("lucas is in %s too", w.NS)
		}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t)
			g := b.Gate(b.Plan(1, controllertest.Report), b.now)
			a := b.Approval(g, "lucas", v1alpha1.DecisionApprove, nil)
			tc.change(b)
			b.must(g)
			b.refused(a, tc.want)
			outcome := v1alpha1.GateApproved
			if tc.want != "" {
				outcome = ""
			}
			b.outcome(g, outcome)
		})
	}
}

// Whoever gets the right after the question was asked was not asked.
func TestLaterApproverWasNotAsked(t *testing.T) {
	b := newBench(t)
	g := b.Gate(b.Plan(1, controllertest.Report), b.now)
	b.Update(b.Agent, func() { b.Agent.Spec.People[1].May = []v1alpha1.Right{v1alpha1.RightApprove} })
	a := b.Approval(g, "maria", v1alpha1.DecisionApprove, nil)
	b.must(g)
	b.outcome(g, "")
	b.refused(a, v1alpha1.ReasonMayNotApprove)
}

// Every reason for which a word does not count is told in the status of the Approval that it is about.
func TestEveryRefusalIsToldOnItsApproval(t *testing.T) {
	spoil := map[string]func(*v1alpha1.ApprovalSpec){
		v1alpha1.ReasonOtherGate:        func(s *v1alpha1.ApprovalSpec) { s.Gate.UID = "another" },
		v1alpha1.ReasonDigestMismatch:   func(s *v1alpha1.ApprovalSpec) { s.Digest = "sha256:" + strings.Repeat("1", 64) },
		v1alpha1.ReasonNotAPerson:       func(s *v1alpha1.ApprovalSpec) { s.Approver = "mallory" },
		v1alpha1.ReasonMayNotApprove:    func(s *v1alpha1.ApprovalSpec) { s.Approver = "maria" },
		v1alpha1.ReasonAnswerUnexpected: with(v1alpha1.AnswerContinue),
		v1alpha1.ReasonChannelMismatch: func(s *v1alpha1.ApprovalSpec) {
			inChat("lucas")(s)
			s.Approver = "lucas"
		},
		v1alpha1.ReasonEvidenceTooWeak: func(s *v1alpha1.ApprovalSpec) {
			inChat("lucas")(s)
			s.Channel.Evidence = v1alpha1.EvidenceReaction
		},
	}
	b := newBench(t)
	g := b.Gate(b.Plan(1, controllertest.Report), b.now)
	said := map[string]*v1alpha1.Approval{}
	for reason, change := range spoil {
		said[reason] = b.Approval(g, "lucas", v1alpha1.DecisionApprove, change)
	}
	b.must(g)
	b.outcome(g, "")
	for reason, a := range said {
		b.refused(a, reason)
		if strings.Count(b.LogTo.String(), `"cause":"`+a.Name+`"`) != 1 || !strings.Contains(b.LogTo.String(), `"reason":"`+reason+`"`) {
			t.Errorf("%s is not once in the log:\n%s", reason, b.LogTo)
		}
	}
	h, halt := quorum(t, v1alpha1.GateHalt)
	a := h.Approval(halt, "lucas", v1alpha1.DecisionApprove, nil)
	h.must(halt)
	h.outcome(halt, "")
	h.refused(a, v1alpha1.ReasonAnswerMissing)
}
