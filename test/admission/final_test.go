package admission

import (
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	api "nisse.io/nisse/api/v1alpha1"
)

// A gate's outcome and a job's end are final, for everybody and by every way. Their own writers are refused by the kinds, for the
// reason that says names; everybody else by the policies.
func TestOutcomeIsFinal(t *testing.T) {
	decision := []any{map[string]any{"approval": "a", "person": "lucas", "decision": "Approve", "channel": "Kubernetes", "at": "2026-01-01T00:00:00Z"}}
	approved := map[string]any{"outcome": "Approved", "statement": "s", "decidedAt": "2026-01-01T00:00:00Z", "decisions": decision}
	failed := map[string]any{"state": "Failed", "message": "no space left", "result": `{"code":1}`, "auditHash": "a", "startedAt": "2026-01-01T00:00:00.000000Z", "finishedAt": "2026-01-01T00:00:01.000000Z"}
	expired := gate("final-expired")
	put(t, manager, expired, manager, map[string]any{"outcome": "Expired", "message": "nobody answered"})
	decided := gate("final-approved")
	put(t, manager, decided, manager, approved)
	unsigned := gate("final-unsigned") // as a Halt gate that was answered with continue
	put(t, manager, unsigned, manager, map[string]any{"outcome": "Approved", "decidedAt": "2026-01-01T00:00:00Z", "decisions": decision})
	ended := job("final-job")
	put(t, broker, ended, broker, failed)
	other := []any{map[string]any{"approval": "b", "person": "mallory", "decision": "Approve", "channel": "Kubernetes", "at": "2026-01-01T00:00:00Z"}}
	for _, c := range []struct {
		name   string
		o      client.Object
		writer string
		change change
		says   string
	}{
		{"approved later", expired, manager, set("status", map[string]any{"outcome": "Approved"}), "an outcome never changes"},
		{"approved later with a statement", expired, manager, set("status", map[string]any{"outcome": "Approved", "statement": "x"}), "an outcome never changes"},
		{"reopened", expired, manager, set("status", map[string]any{"outcome": nil}), "an outcome never changes"},
		{"reopened by taking the status away", expired, manager, drop("status"), "an outcome never changes"},
		{"statement for what expired", expired, manager, set("status", map[string]any{"statement": "x"}), "only an approved gate"},
		{"decided by somebody after it expired", expired, manager, set("status", map[string]any{"decisions": other}), "a decision never changes"},
		{"another statement", decided, manager, set("status", map[string]any{"statement": "x"}), "a statement"},
		{"statement taken away", decided, manager, set("status", map[string]any{"statement": nil}), "a statement"},
		{"statement later", unsigned, manager, set("status", map[string]any{"statement": "x"}), "a statement"},
		{"decided by somebody else", decided, manager, set("status", map[string]any{"decisions": other}), "a decision never changes"},
		{"decided by nobody", decided, manager, set("status", map[string]any{"decisions": nil}), "a decision never changes"},
		{"decided later", decided, manager, set("status", map[string]any{"decidedAt": "2026-01-02T00:00:00Z"}), "a decision never changes"},
		{"approval taken away", decided, manager, drop("status"), "an outcome never changes"},
		{"job succeeded after all", ended, broker, set("status", map[string]any{"state": "Succeeded"}), "a job's end never changes"},
		{"job pending again", ended, broker, set("status", map[string]any{"state": nil}), "a job's end never changes"},
		{"job pending again by taking the status away", ended, broker, drop("status"), "a job's end never changes"},
		{"job with another result", ended, broker, set("status", map[string]any{"result": "{}"}), "a job's end never changes"},
		{"job without a result", ended, broker, set("status", map[string]any{"result": nil}), "a job's end never changes"},
		{"job with another audit row", ended, broker, set("status", map[string]any{"auditHash": "b"}), "a job's end never changes"},
		{"job with another message", ended, broker, set("status", map[string]any{"message": "all is well"}), "a job's end never changes"},
		{"job at another time", ended, broker, set("status", map[string]any{"finishedAt": "2026-01-01T00:00:09.000000Z"}), "a job's end never changes"},
	} {
		was := content(t, c.o)
		for _, who := range actors {
			for _, way := range ways {
				t.Run(c.name+" by "+who+" "+way, func(t *testing.T) {
					err := try(as(who), c.o, "status", way, c.change, false)
					switch {
					case err == nil:
						t.Error("it was let through")
					case !refused(err):
						t.Errorf("refused for another reason: %v", err)
					case who == c.writer && !strings.Contains(err.Error(), c.says):
						t.Errorf("refused for another reason than %q: %v", c.says, err)
					}
					unchanged(t, c.o, was, way)
				})
			}
		}
	}
}

// A stop holds until a person answers it: it cannot be taken back, nor replaced by one that was answered; nor can close be taken back.
// Another stop may follow, but not from manager or broker, which change nothing of what was asked for.
func TestStopIsNotTakenBack(t *testing.T) {
	w := workItem("stop", api.SourceKubernetes)
	put(t, lucas, w, manager, map[string]any{"answeredStop": "one"})
	for _, fields := range []map[string]any{{"stop": map[string]any{"id": "two"}}, {"stop": map[string]any{"id": "two"}, "close": true}} {
		if err := try(as(gateway), w, "", "server-side apply", set("spec", fields), false); err != nil {
			t.Fatal(err)
		}
	}
	was := content(t, w)
	for name, fields := range map[string]map[string]any{
		"stop removed":                    {"stop": nil},
		"stop replaced by the answered":   {"stop": map[string]any{"id": "one"}},
		"stop replaced by one with no ID": {"stop": map[string]any{"id": ""}},
		"close removed":                   {"close": nil},
		"close taken back":                {"close": false},
	} {
		for _, who := range actors {
			for _, way := range ways {
				t.Run(name+" by "+who+" "+way, func(t *testing.T) {
					if err := try(as(who), w, "", way, set("spec", fields), false); err == nil {
						t.Error("it was let through")
					} else if !refused(err) {
						t.Errorf("refused for another reason: %v", err)
					}
					unchanged(t, w, was, way)
				})
			}
		}
	}
	for i, who := range actors {
		for j, way := range ways {
			t.Run("another stop by "+who+" "+way, func(t *testing.T) {
				want := who != manager && who != broker
				err := try(as(who), w, "", way, set("spec", map[string]any{"stop": map[string]any{"id": fmt.Sprintf("more-%d-%d", i, j)}}), false)
				if (err == nil) != want || (err != nil && !refused(err)) {
					t.Errorf("allowed is %v, want %v: %v", err == nil, want, err)
				}
			})
		}
	}
}
