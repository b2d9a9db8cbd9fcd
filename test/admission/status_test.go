package admission

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	api "nisse.io/nisse/api/v1alpha1"
)

// Each part of a status has one writer. Every attempt is made twice: as a dry run, and in earnest, on an object of its own.
func TestStatusWriters(t *testing.T) {
	now := time.Now().UTC().Format(time.RFC3339)
	item := func(n string) client.Object { return workItem(n, api.SourceKubernetes) }
	finished := map[string]any{"finished": map[string]any{"summary": "s", "at": now}}
	for _, c := range []struct {
		name   string
		maker  string
		make   func(name string) client.Object
		status map[string]any
		may    []string
	}{
		{"gate outcome", manager, func(n string) client.Object { return gate(n) }, map[string]any{"outcome": "Approved"}, []string{manager}},
		{"gate statement", manager, func(n string) client.Object { return gate(n) }, map[string]any{"outcome": "Approved", "statement": "x"}, []string{manager}},
		{"plan state", broker, func(n string) client.Object { return plan(n) }, map[string]any{"state": "Approved"}, []string{manager}},
		{"approval reason", lucas, func(n string) client.Object { return approval(n, lucas, api.ChannelKubernetes) }, map[string]any{"reason": "x"}, []string{manager}},
		{"person", lucas, func(n string) client.Object { return person(n) }, map[string]any{"observedGeneration": int64(1)}, []string{manager}},
		{"job state", broker, func(n string) client.Object { return job(n) }, map[string]any{"state": "Succeeded"}, []string{broker}},
		{"device", lucas, func(n string) client.Object { return device(n) }, map[string]any{"observedGeneration": int64(1)}, []string{broker}},
		{"device revoked epoch", lucas, func(n string) client.Object { return device(n) }, map[string]any{"revokedEpoch": int64(7)}, []string{broker}},
		{"device audit", lucas, func(n string) client.Object { return device(n) }, map[string]any{"audit": map[string]any{"at": now, "reply": "x"}}, []string{broker}},
		{"device audit kept", lucas, func(n string) client.Object { return device(n) }, map[string]any{"auditKept": map[string]any{"rows": int64(7), "root": "x", "at": now}}, []string{manager}},
		{"device online", lucas, func(n string) client.Object { return device(n) }, map[string]any{"conditions": []any{condition("Online", now)}}, []string{broker}},
		{"device audit intact", lucas, func(n string) client.Object { return device(n) }, map[string]any{"conditions": []any{condition("AuditIntact", now)}}, []string{manager}},
		{"device both conditions", lucas, func(n string) client.Object { return device(n) }, map[string]any{"conditions": []any{condition("Online", now), condition("AuditIntact", now)}}, nil},
		{"manifest", lucas, func(n string) client.Object { return deviceManifest(n) }, map[string]any{"digest": digest}, []string{manager}},
		{"agent active item", lucas, func(n string) client.Object { return newAgent(n) }, map[string]any{"activeWorkItem": "w"}, []string{manager}},
		{"agent conversation", lucas, func(n string) client.Object { return newAgent(n) },
			map[string]any{"conversation": map[string]any{"connected": true, "reason": "Connected"}}, []string{gateway}},
		{"item state", lucas, item, map[string]any{"state": "Working"}, []string{manager}},
		{"item answered stop", lucas, item, map[string]any{"answeredStop": "x"}, []string{manager}},
		{"item answered halt", lucas, item, map[string]any{"answeredHalt": "x"}, []string{manager}},
		{"item closed revision", lucas, item, map[string]any{"closedRevision": int64(1)}, []string{manager}},
		{"item finished", lucas, item, map[string]any{"runtime": finished}, []string{broker}},
		{"item answered question", lucas, item, map[string]any{"conversation": map[string]any{"answeredQuestion": "q"}}, []string{gateway}},
		{"item all at once", lucas, item, map[string]any{"state": "Working", "runtime": finished}, nil},
	} {
		for i, who := range actors {
			t.Run(c.name+" by "+who, func(t *testing.T) {
				want, status := slices.Contains(c.may, who), set("status", c.status)
				base := fmt.Sprintf("st-%s-%d", strings.ReplaceAll(c.name, " ", "-"), i)
				for j, way := range ways {
					o := c.make(fmt.Sprintf("%s-%d", base, j))
					put(t, c.maker, o, "", nil)
					was := content(t, o)
					written := maps.Clone(c.status)
					for k, v := range begins(was) {
						if _, set := written[k]; !set {
							written[k] = v
						}
					}
					for _, dryRun := range []bool{true, false} {
						unchanged(t, o, was, way+" as a dry run")
						err := try(as(who), o, "status", way, status, dryRun)
						if (err == nil) != want {
							t.Errorf("%s (dry run: %v): allowed is %v, want %v: %v", way, dryRun, err == nil, want, err)
						} else if err != nil && !refused(err) {
							t.Errorf("%s (dry run: %v): refused for another reason: %v", way, dryRun, err)
						}
					}
					if is := must(json.Marshal(content(t, o)["status"])); (string(is) == string(must(json.Marshal(written)))) != want {
						t.Errorf("%s: the status is %s, written should be %v", way, is, want)
					}
				}
				// The way round by the object itself writes no status at all.
				o := c.make(base + "-main")
				put(t, c.maker, o, "", nil)
				was := content(t, o)
				for _, way := range ways {
					if err := try(as(who), o, "", way, status, false); err != nil && !refused(err) {
						t.Errorf("%s by the object itself: %v", way, err)
					}
					unchanged(t, o, was, way+" by the object itself")
				}
			})
		}
	}
}

func condition(kind, now string) map[string]any {
	return map[string]any{"type": kind, "status": "True", "reason": "X", "message": "", "lastTransitionTime": now}
}

// begins is the status that an object has by its schema.
func begins(o map[string]any) map[string]any {
	s, _ := o["status"].(map[string]any)
	return s
}
