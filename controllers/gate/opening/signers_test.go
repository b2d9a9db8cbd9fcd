package opening_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/controllertest"
	"nisse.io/nisse/controllers/gate/opening"
	"nisse.io/nisse/controllers/gate/subject"
	"nisse.io/nisse/internal/manifest"
)

// A gate names who may sign for all of it: approvers, with the keys that every step takes which demands a signature.
func TestSigners(t *testing.T) {
	demands := manifest.Rule{Approval: manifest.Required, Signature: manifest.PersonSignature}
	plain := manifest.Rule{Approval: manifest.Required}
	for name, tc := range map[string]struct {
		first, second opening.Step
		want          []v1alpha1.GateSigner
		says          string // of the error
	}{
		"none is demanded":        {first: opening.Step{Rule: plain, Persons: map[string][]string{"lucas": {"k1"}}}, second: opening.Step{Rule: plain}},
		"by one step":             {first: opening.Step{Rule: demands, Persons: map[string][]string{"lucas": {"k1", "k2"}, "eve": {"k9"}}}, second: opening.Step{Rule: plain}, want: []v1alpha1.GateSigner{{Person: "lucas", Keys: []string{"k1", "k2"}}}},
		"by both":                 {first: opening.Step{Rule: demands, Persons: map[string][]string{"lucas": {"k1", "k2"}}}, second: opening.Step{Rule: demands, Persons: map[string][]string{"lucas": {"k2", "k3"}}}, want: []v1alpha1.GateSigner{{Person: "lucas", Keys: []string{"k2"}}}},
		"with no key in common":   {first: opening.Step{Rule: demands, Persons: map[string][]string{"lucas": {"k1"}}}, second: opening.Step{Rule: demands, Persons: map[string][]string{"lucas": {"k3"}}}, says: "steps 1, 2 demand"},
		"of who may not approve":  {first: opening.Step{Rule: plain}, second: opening.Step{Rule: demands, Persons: map[string][]string{"eve": {"k9"}}}, says: "step 2 demands the own signature of a person, and none of those who may approve (lucas)"},
		"with more keys than fit": {first: opening.Step{Rule: demands, Persons: map[string][]string{"lucas": strings.Split("123456789", "")}}, second: opening.Step{Rule: plain}, says: "9 keys of lucas"},
	} {
		t.Run(name, func(t *testing.T) {
			a, w := objects()
			g, err := opening.Plan(controllertest.NewPlan(a, w, 1, controllertest.Report, `{"content":"","path":"/srv/b"}`), w, a, []opening.Step{tc.first, tc.second}, now)
			if tc.says != "" {
				if !errors.Is(err, subject.ErrNotReady) || !strings.Contains(err.Error(), tc.says) {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, g.Spec.Signers); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			how := "Approving takes the own signature of lucas, which no message in a room can carry. Where the key is kept, run:\n   kubectl nisse approve " + g.Name + " -n nisse --key <file>\nReply  reject <why>"
			if asks := strings.HasSuffix(g.Spec.Message, how); asks != (tc.want != nil) || strings.Contains(g.Spec.Message, "Reply  approve") == asks {
				t.Errorf("message:\n%s", g.Spec.Message)
			}
		})
	}
}
