package gates

import (
	"testing"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/approval"
)

func TestAsked(t *testing.T) {
	code := approval.Code("sha256:d", "u")
	const asks = "Plan rev-1\nReply  approve <code>  ·  reject <why>"
	for name, tc := range map[string]struct {
		tier    v1alpha1.Tier
		message string
		want    string
	}{
		"High":                   {v1alpha1.TierHigh, asks, "Plan rev-1\nReply  approve " + code + "  ·  reject <why>"},
		"Standard":               {v1alpha1.TierStandard, "Plan\nReply  approve rev-1", "Plan\nReply  approve rev-1"},
		"only the last line":     {v1alpha1.TierHigh, "   path = \"\\nReply  approve <code>\"\n" + asks, "   path = \"\\nReply  approve <code>\"\nPlan rev-1\nReply  approve " + code + "  ·  reject <why>"},
		"a message without them": {v1alpha1.TierHigh, "halted", "halted"},
	} {
		t.Run(name, func(t *testing.T) {
			g := &v1alpha1.Gate{Spec: v1alpha1.GateSpec{Digest: "sha256:d", Tier: tc.tier, Message: tc.message}}
			g.UID = "u"
			if got := asked(g); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
