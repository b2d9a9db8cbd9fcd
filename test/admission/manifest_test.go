package admission

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	api "nisse.io/nisse/api/v1alpha1"
)

// What was revoked stays revoked, whoever asks and by whatever verb.
func TestRevokedEpochNeverFalls(t *testing.T) {
	d := device("rev-device")
	d.Spec.RevokedEpoch = 7
	put(t, lucas, d, "", nil)
	was := content(t, d)
	for _, who := range actors {
		for _, way := range ways {
			for name, value := range map[string]any{"lower": int64(6), "zero": int64(0), "negative": int64(-1), "taken away": nil} {
				t.Run(name+" by "+who+" "+way, func(t *testing.T) {
					spec := set("spec", map[string]any{"revokedEpoch": value})
					for _, dryRun := range []bool{true, false} {
						if err := try(as(who), d, "", way, spec, dryRun); err == nil {
							t.Errorf("the change was let through (dry run: %v)", dryRun)
						} else if !refused(err) {
							t.Errorf("refused for another reason: %v", err)
						}
					}
					if err := try(as(who), d, "status", way, spec, false); err != nil && !refused(err) {
						t.Errorf("through the status: %v", err)
					}
					unchanged(t, d, was, way)
				})
			}
		}
	}
	if err := try(as(lucas), d, "", ways[0], set("spec", map[string]any{"revokedEpoch": int64(8)}), false); err != nil {
		t.Errorf("it does not rise: %v", err)
	}
}

// A manifest is named by its device and privilege, so that nobody can have two, or have a device judged by another's.
func TestNamesOfManifests(t *testing.T) {
	for name, spoil := range map[string]func(*api.DeviceManifest){
		"another device's name":    func(m *api.DeviceManifest) { m.Name = "web2-user" },
		"another privilege's name": func(m *api.DeviceManifest) { m.Name = "nm-web1-elevated" },
		"no privilege in the name": func(m *api.DeviceManifest) { m.Name = "nm-web1" },
		"another privilege":        func(m *api.DeviceManifest) { m.Spec.Privilege = api.PrivilegeElevated },
		"an unknown privilege":     func(m *api.DeviceManifest) { m.Spec.Privilege = "Root" },
		"a signature that is huge": func(m *api.DeviceManifest) { m.Spec.Signature = strings.Repeat("x", 1<<18+1) },
	} {
		t.Run(name, func(t *testing.T) {
			m := deviceManifest("nm-web1")
			spoil(m)
			if err := as(lucas).Create(t.Context(), m, client.DryRunAll); !refused(err) {
				t.Errorf("got %v, want it refused", err)
			}
		})
	}
	m := deviceManifest("nm-web1")
	put(t, lucas, m, "", nil)
	was := content(t, m)
	for _, way := range ways {
		for field, value := range map[string]any{"device": "nm-web2", "privilege": "Elevated"} {
			if err := try(as(lucas), m, "", way, set("spec", map[string]any{field: value}), false); !refused(err) {
				t.Errorf("%s %s: got %v, want it refused", field, way, err)
			}
			unchanged(t, m, was, way)
		}
	}
}
