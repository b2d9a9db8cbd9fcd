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
			g, err := opening.Plan(controllertest.NewPlan(a, w, 1, controllertest.Report, `{"content":"","path":"/srv/b"}`), w, a, tc.rules, now)
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
	if _, err := opening.Plan(p, w, a, []manifest.Rule{{Approval: manifest.Required, Signature: manifest.PersonSignature}}, now); !errors.Is(err, subject.ErrNotReady) {
		t.Errorf("a Person's signature is demanded: %v", err)
	}
	if _, err := opening.Plan(p, w, a, nil, now); err == nil {
		t.Error("a plan without rules got a gate")
	}
}
