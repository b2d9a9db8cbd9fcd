package admission

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	api "nisse.io/nisse/api/v1alpha1"
)

func settled(as string) map[string]any {
	return map[string]any{"as": as, "answer": "Continue", "person": "lucas", "approval": "a", "gate": map[string]any{"name": "g", "uid": "g"}, "at": "2026-01-01T00:00:00Z"}
}

// How a person closed a job whose outcome is unknown is the manager's to write, who judged that person: nobody else does, by no way. It is
// written once, and on no job whose end is proven.
func TestSettled(t *testing.T) {
	for i, who := range actors {
		for n, way := range ways {
			t.Run(who+" "+way, func(t *testing.T) {
				may := who == manager
				name := func(s string) string { return fmt.Sprintf("settle-%s-%d-%d", s, i, n) }
				lost := job(name("lost"))
				put(t, broker, lost, broker, map[string]any{"state": "Unknown"})
				for _, dryRun := range []bool{true, false} {
					err := try(as(who), lost, "status", way, set("status", map[string]any{"settled": settled("Failed")}), dryRun)
					if (err == nil) != may || err != nil && !refused(err) {
						t.Errorf("settle (dry run: %v): allowed is %v, want %v: %v", dryRun, err == nil, may, err)
					}
				}
				if !may {
					if err := try(as(manager), lost, "status", "merge patch", set("status", map[string]any{"settled": settled("Failed")}), false); err != nil {
						t.Fatal(err)
					}
				}
				was := content(t, lost)
				for what, change := range map[string]map[string]any{
					"settled anew": {"settled": settled("Succeeded")}, "settled by nobody": {"settled": nil}, "ended after all": {"state": "Succeeded"},
				} {
					// Applying less than others wrote takes nothing away, and need not be refused.
					if err := try(as(who), lost, "status", way, set("status", change), false); err != nil && !refused(err) {
						t.Errorf("%s: %v", what, err)
					}
					unchanged(t, lost, was, what)
				}
				for _, state := range []string{"Succeeded", "Failed", ""} {
					proven := job(name("proven-" + strings.ToLower(state)))
					var status map[string]any
					if state != "" {
						status = map[string]any{"state": state}
					}
					put(t, broker, proven, broker, status)
					was := content(t, proven)
					if err := try(as(who), proven, "status", way, set("status", map[string]any{"settled": settled("Failed")}), false); err == nil || !refused(err) {
						t.Errorf("one that ended as %q was settled: %v", state, err)
					}
					unchanged(t, proven, was, state)
				}
			})
		}
	}
}

// Only people settle, each in their own name and with their own credentials; a chat message does not say so much.
func TestWhoSettles(t *testing.T) {
	spec := func(name, approver string, kind api.ChannelKind) *api.Approval {
		a := approval(name, approver, kind)
		a.Spec.Answer, a.Spec.Settle = api.AnswerContinue, api.SettledFailed
		return a
	}
	for _, c := range []struct {
		name     string
		approver string
		kind     api.ChannelKind
		may      []string
	}{
		{"lucas", lucas, api.ChannelKubernetes, []string{lucas}},
		{"alice of Matrix", "matrix:" + alice, api.ChannelMatrix, nil},
		{"agent", agent, api.ChannelKubernetes, nil},
		{"broker", broker, api.ChannelKubernetes, nil},
		{"manager", manager, api.ChannelKubernetes, nil},
	} {
		for i, who := range actors {
			for how, do := range creates(who, func(n string) ctrlclient.Object { return spec(n, c.approver, c.kind) }, fmt.Sprintf("settles-%s-%d", strings.ToLower(strings.ReplaceAll(c.name, " ", "-")), i)) {
				err := do()
				if want := slices.Contains(c.may, who); (err == nil) != want || err != nil && !refused(err) {
					t.Errorf("as %s by %s, %s: allowed is %v, want %v: %v", c.name, who, how, err == nil, want, err)
				}
			}
		}
	}
	for _, answer := range []api.HaltAnswer{"", api.AnswerReplan} {
		a := spec("settles-with-"+strings.ToLower(string(answer))+"x", lucas, api.ChannelKubernetes)
		a.Spec.Answer = answer
		if err := as(lucas).Create(t.Context(), a); err == nil || !refused(err) {
			t.Errorf("settled with the answer %q: %v", answer, err)
		}
	}
}
