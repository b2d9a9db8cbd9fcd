package opening_test

import (
	"errors"
	"strings"
	"testing"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/controllertest"
	"nisse.io/nisse/controllers/gate/opening"
	"nisse.io/nisse/controllers/gate/subject"
	"nisse.io/nisse/internal/manifest"
)

func steps(rules ...manifest.Rule) []opening.Step {
	all := make([]opening.Step, len(rules))
	for i, r := range rules {
		all[i].Rule = r
	}
	return all
}

func TestTierAndFlagsOfAPlan(t *testing.T) {
	read, write := manifest.Rule{Approval: manifest.None}, manifest.Rule{Approval: manifest.Required}
	low, high := write, write
	low.Tier, high.Tier = manifest.Low, manifest.High
	gone := write
	gone.Irreversible = true
	for name, tc := range map[string]struct {
		rules []manifest.Rule
		tier  v1alpha1.Tier
		says  string
		not   string
	}{
		"only reading":           {[]manifest.Rule{read, read}, v1alpha1.TierStandard, "Reply  approve rev-1", "! "},
		"ordinary":               {[]manifest.Rule{read, write}, v1alpha1.TierStandard, "Reply  approve rev-1", "! "},
		"a plan is never Low":    {[]manifest.Rule{low, low}, v1alpha1.TierStandard, "Reply  approve rev-1", "! "},
		"the highest counts":     {[]manifest.Rule{low, high}, v1alpha1.TierHigh, "Reply  approve <code>", "cannot be undone"},
		"irreversible is High":   {[]manifest.Rule{gone, write}, v1alpha1.TierHigh, "step 1 cannot be undone, says the manifest of web1", "approve rev-1"},
		"irreversible, and Low?": {[]manifest.Rule{low, gone}, v1alpha1.TierHigh, "step 2 cannot be undone", "Nothing here is marked"},
	} {
		t.Run(name, func(t *testing.T) {
			a, w := objects()
			g, err := opening.Plan(controllertest.NewPlan(a, w, 1, controllertest.Report, `{"content":"","path":"/srv/b"}`), w, a, steps(tc.rules...), now)
			if err != nil {
				t.Fatal(err)
			}
			if g.Spec.Tier != tc.tier || !strings.Contains(g.Spec.Message, tc.says) || strings.Contains(g.Spec.Message, tc.not) {
				t.Errorf("tier %s, message:\n%s", g.Spec.Tier, g.Spec.Message)
			}
		})
	}
}

func TestPlansThatNobodyCanApproveAreNotShown(t *testing.T) {
	a, w := objects()
	p := controllertest.NewPlan(a, w, 1, controllertest.Report)
	if _, err := opening.Plan(p, w, a, steps(manifest.Rule{Approval: manifest.Required, Signature: manifest.PersonSignature}), now); !errors.Is(err, subject.ErrNotReady) {
		t.Errorf("the signature of a Person is demanded who has no key: %v", err)
	}
	if _, err := opening.Plan(p, w, a, nil, now); err == nil {
		t.Error("a plan without rules got a gate")
	}
}

// A single call is shown as what it is, by the tier of its own rule.
func TestTierOfACall(t *testing.T) {
	write := manifest.Rule{Approval: manifest.Required}
	low, high, gone := write, write, write
	low.Tier, high.Tier, gone.Irreversible = manifest.Low, manifest.High, true
	for name, tc := range map[string]struct {
		rule manifest.Rule
		tier v1alpha1.Tier
		says string
	}{
		"ordinary":     {write, v1alpha1.TierStandard, "Reply  approve rev-1"},
		"low":          {low, v1alpha1.TierLow, "Reply  approve rev-1"},
		"high":         {high, v1alpha1.TierHigh, "Reply  approve <code>"},
		"irreversible": {gone, v1alpha1.TierHigh, "cannot be undone"},
	} {
		t.Run(name, func(t *testing.T) {
			a, w := objects()
			p := controllertest.NewPlan(a, w, 1, controllertest.Report)
			p.Spec.Call = true
			g, err := opening.Plan(p, w, a, steps(tc.rule), now)
			if err != nil {
				t.Fatal(err)
			}
			if g.Spec.Kind != v1alpha1.GateCall || g.Spec.Tier != tc.tier || !strings.HasPrefix(g.Spec.Message, "Call rev-1 of ops for ") || !strings.Contains(g.Spec.Message, tc.says) ||
				!strings.Contains(g.Spec.Message, "Asked because: web1 requires an approval for fs.write, and no approved plan holds this call.") {
				t.Errorf("kind %s, tier %s, message:\n%s", g.Spec.Kind, g.Spec.Tier, g.Spec.Message)
			}
		})
	}
	a, w := objects()
	p := controllertest.NewPlan(a, w, 1, controllertest.Report, `{"content":"","path":"/srv/b"}`)
	p.Spec.Call = true
	if _, err := opening.Plan(p, w, a, steps(write, write), now); !errors.Is(err, subject.ErrNotReady) {
		t.Errorf("a call of two steps: %v", err)
	}
}
