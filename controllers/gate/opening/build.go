// Package opening makes gates: what a gate says is built by pure functions, and it is created once, however often that is tried.
package opening

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/gate/render"
	"nisse.io/nisse/controllers/gate/subject"
	"nisse.io/nisse/internal/manifest"
	"nisse.io/nisse/internal/names"
)

const (
	// DefaultApprovalSeconds that a Plan gate waits for a person, when the Agent says nothing.
	DefaultApprovalSeconds = 1800
	// WindowSeconds that an approval is good for.
	WindowSeconds = 3600
	// HaltLife of a Halt gate. A halt has no natural end: nothing runs until a person answers, and a question that lapsed could not
	// be answered any more.
	HaltLife = 365 * 24 * time.Hour
	// These keep names within what a Gate's rule may hold, which is 256 characters.
	maxRule, maxName, maxCapability = 250, 140, 40

	// RulePlan opened the gate of a plan in which nothing is known to need an approval by itself.
	RulePlan = "what is submitted as a plan runs only when a person approves it"
	// RuleStop opened the gate of a stop.
	RuleStop = "a person said stop"
	// RuleHalt opened the gate of a halt.
	RuleHalt = "the broker halted the work"
)

// ErrNoApprovers is wrapped when nobody may approve for the agent.
var ErrNoApprovers = errors.New("nobody may approve")

// Approvers of an agent, in the order its spec names them.
func Approvers(a *v1alpha1.Agent) []string {
	var all []string
	for _, p := range a.Spec.People {
		for _, r := range p.May {
			if r == v1alpha1.RightApprove {
				all = append(all, p.Name)
			}
		}
	}
	return all
}

// Plan builds the gate of a plan, or of a single call, whose steps the devices have these rules for. An error that wraps subject.ErrNotReady or render.ErrTooLong is the plan's own fault.
func Plan(p *v1alpha1.Plan, item *v1alpha1.WorkItem, agent *v1alpha1.Agent, rules []Step, now time.Time) (*v1alpha1.Gate, error) {
	if err := subject.Check(p, item, agent); err != nil {
		return nil, err
	}
	seconds := int32(DefaultApprovalSeconds)
	if l := agent.Spec.Limits; l != nil && l.ApprovalSeconds != nil {
		seconds = *l.ApprovalSeconds
	}
	g, err := base(item, agent, now.Add(time.Duration(seconds)*time.Second))
	if err != nil {
		return nil, err
	}
	g.Name = names.PlanGate(p.Name)
	g.Spec.Kind, g.Spec.Revision = v1alpha1.GatePlan, p.Spec.Revision
	g.Spec.Subject = v1alpha1.GateSubject{Kind: v1alpha1.SubjectPlan, Name: p.Name, UID: string(p.UID)}
	if g.Spec.Tier, g.Spec.Flags, err = weigh(p.Spec, rules); err != nil {
		return nil, err
	}
	g.Spec.Rule = rule(p.Spec.Steps, rules)
	if p.Spec.Call {
		g.Spec.Kind, g.Spec.Rule = v1alpha1.GateCall, ruleCall(p.Spec.Steps[0])
	}
	if g.Spec.Signers, err = signers(rules, g.Spec.Approvers); err != nil {
		return nil, err
	}
	g.Spec.Flags = append(g.Spec.Flags, render.Pitfalls(p.Spec.Steps)...)
	if g.Spec.Digest, err = subject.PlanDigest(p, WindowSeconds); err != nil {
		return nil, err
	}
	if g.Spec.Message, err = render.Plan(shown(g, item, now), p.Spec); err != nil {
		return nil, err
	}
	return g, nil
}

// Halt builds the gate that asks how a held item goes on.
func Halt(item *v1alpha1.WorkItem, agent *v1alpha1.Agent, held v1alpha1.GateHaltRef, now time.Time) (*v1alpha1.Gate, error) {
	g, err := base(item, agent, now.Add(HaltLife))
	if err != nil {
		return nil, err
	}
	g.Name = subject.HaltGate(item.Name, held)
	g.Spec.Kind, g.Spec.Halt = v1alpha1.GateHalt, &held
	g.Spec.Subject = v1alpha1.GateSubject{Kind: v1alpha1.SubjectWorkItem, Name: item.Name, UID: string(item.UID)}
	h := render.Halt{}
	g.Spec.Rule = RuleStop
	if held.Stop != "" {
		h.Stopped, h.StoppedBy = true, item.Spec.Stop.By
	}
	if held.Halt != "" {
		h.Report, g.Spec.Rule = item.Status.Runtime.Halt, RuleHalt
	}
	if g.Spec.Digest, err = subject.HaltDigest(string(agent.UID), item, held); err != nil {
		return nil, err
	}
	if g.Spec.Message, err = render.Stop(shown(g, item, now), h); err != nil {
		return nil, err
	}
	return g, nil
}

func base(item *v1alpha1.WorkItem, agent *v1alpha1.Agent, expiresAt time.Time) (*v1alpha1.Gate, error) {
	approvers := Approvers(agent)
	if len(approvers) == 0 {
		return nil, fmt.Errorf("%w for agent %s: give one of its people the right Approve", ErrNoApprovers, agent.Name)
	}
	return &v1alpha1.Gate{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: item.Namespace,
			Labels:    map[string]string{v1alpha1.LabelAgent: agent.Name, v1alpha1.LabelWorkItem: item.Name},
			// No blockOwnerDeletion: that needs a right on finalizers, and nothing here has any.
			OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "WorkItem", Name: item.Name, UID: item.UID}},
		},
		Spec: v1alpha1.GateSpec{
			Agent: agent.Name, WorkItem: v1alpha1.ObjectRef{Name: item.Name, UID: string(item.UID)}, Tier: v1alpha1.TierStandard,
			Title: render.Title(item.Spec.Title), Approvers: approvers, Required: 1,
			// Whole seconds, as the API stores them: the message must not name another time than the spec.
			ExpiresAt: metav1.NewTime(expiresAt.UTC().Truncate(time.Second)), WindowSeconds: WindowSeconds,
		},
	}, nil
}

// rule is why a plan needs a person: what its devices' manifests require an approval for, in the order of the steps.
func rule(steps []v1alpha1.PlanStep, rules []Step) string {
	type asked struct{ device, capability string }
	var all []asked
	for i, s := range steps {
		if a := (asked{s.Device, s.Capability}); rules[i].Approval != manifest.None && !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	const most = 3
	switch len(all) {
	case 0:
		return RulePlan
	case 1:
		return requires(all[0].device, all[0].capability)
	}
	each := make([]string, 0, most)
	for _, a := range all[:min(len(all), most)] {
		each = append(each, render.Names([]string{a.capability})+" on "+render.Names([]string{a.device}))
	}
	what := strings.Join(each, ", ")
	if n := len(all) - most; n > 0 {
		what += fmt.Sprintf(" and %d more", n)
	}
	return render.Cut("an approval is required for "+what, maxRule)
}

// ruleCall is why a single call needs a person.
func ruleCall(s v1alpha1.PlanStep) string {
	return requires(s.Device, s.Capability) + ", and no approved plan holds this call"
}

func requires(device, capability string) string {
	return render.Cut(render.Names([]string{device}), maxName) + " requires an approval for " + render.Cut(render.Names([]string{capability}), maxCapability)
}

func shown(g *v1alpha1.Gate, item *v1alpha1.WorkItem, now time.Time) render.Gate {
	s := g.Spec
	r := render.Gate{Agent: s.Agent, Title: item.Spec.Title, Approvers: s.Approvers, Required: s.Required, Flags: s.Flags, Rule: s.Rule, AskedAt: now, ExpiresAt: s.ExpiresAt.Time, ByCode: s.Tier == v1alpha1.TierHigh}
	for _, signer := range s.Signers {
		r.Signers = append(r.Signers, signer.Person)
	}
	if len(r.Signers) > 0 {
		r.ByCode, r.Sign = false, fmt.Sprintf("approve %s -n %s --key <file>", g.Name, g.Namespace)
	}
	return r
}
