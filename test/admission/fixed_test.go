package admission

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	api "nisse.io/nisse/api/v1alpha1"
)

// What was decided never changes, by whatever verb and whoever asks: neither through the object itself, nor through its status.
func TestSpecsNeverChange(t *testing.T) {
	for _, c := range []struct {
		name  string
		maker string
		o     client.Object
		path  string
		value any
	}{
		{"gate digest", manager, gate("fix-gate"), "digest", "sha256:" + strings.Repeat("1", 64)},
		{"gate approvers", manager, gate("fix-gate2"), "approvers", []string{"mallory"}},
		{"plan steps", broker, plan("fix-plan"), "steps", []any{}},
		{"plan program", broker, command("fix-program", resolved("/usr/bin/df", "0")), "steps", command("x", resolved("/usr/bin/df", "1")).Spec.Steps},
		{"job args", broker, job("fix-job"), "args", `{"path":"/etc/passwd"}`},
		{"approval", lucas, approval("fix-approval", lucas, api.ChannelKubernetes), "decision", "Reject"},
		{"item agent", lucas, workItem("fix-item", api.SourceKubernetes), "agent", "other"},
		{"item title", lucas, workItem("fix-item2", api.SourceKubernetes), "title", "other"},
		{"item request", lucas, workItem("fix-item3", api.SourceKubernetes), "request", "other"},
		{"item request taken away", lucas, workItem("fix-item5", api.SourceKubernetes), "request", nil},
		{"item correlation", lucas, workItem("fix-item4", api.SourceKubernetes), "correlationID", "other"},
	} {
		put(t, c.maker, c.o, "", nil)
		was := content(t, c.o)
		for _, who := range actors {
			for _, way := range ways {
				t.Run(c.name+" by "+who+" "+way, func(t *testing.T) {
					spec := set("spec", map[string]any{c.path: c.value})
					for _, dryRun := range []bool{true, false} {
						err := try(as(who), c.o, "", way, spec, dryRun)
						if err == nil {
							t.Errorf("the change was let through (dry run: %v)", dryRun)
						} else if !refused(err) {
							t.Errorf("refused for another reason: %v", err)
						}
					}
					// Whoever may write the status may send a spec along. It is left out.
					if err := try(as(who), c.o, "status", way, spec, false); err != nil && !refused(err) {
						t.Errorf("through the status: %v", err)
					}
					unchanged(t, c.o, was, way)
				})
			}
		}
	}
}

// The writer of a status writes that and nothing else: no label by which objects are found, no owner with whom they go, no finalizer
// that keeps them.
func TestStatusWritesNoMetadata(t *testing.T) {
	for _, c := range []struct {
		maker, writer string
		o             client.Object
	}{
		{manager, manager, gate("md-gate")},
		{broker, manager, plan("md-plan")},
		{broker, broker, job("md-job")},
		{lucas, manager, approval("md-approval", lucas, api.ChannelKubernetes)},
		{lucas, gateway, workItem("md-item", api.SourceKubernetes)},
		{lucas, gateway, newAgent("md-agent")},
		{lucas, broker, device("md-device")},
		{lucas, manager, person("md-person")},
	} {
		put(t, c.maker, c.o, "", nil)
		was := content(t, c.o)
		for _, way := range ways {
			t.Run(c.o.GetName()+" by "+way, func(t *testing.T) {
				for field, value := range map[string]any{
					"labels":          map[string]any{api.LabelWorkItem: "other"},
					"annotations":     map[string]any{"a": "b"},
					"finalizers":      []any{"example.org/keep"},
					"ownerReferences": []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x"}},
				} {
					if err := try(as(c.writer), c.o, "status", way, set("metadata", map[string]any{field: value}), false); err != nil && !refused(err) {
						t.Errorf("%s: %v", field, err)
					}
					unchanged(t, c.o, was, field)
				}
			})
		}
	}
}
