package rig

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"nisse.io/nisse/device/wire/chain"
	"nisse.io/nisse/internal/manifest"
)

// nisseDevice runs the device's own program as the device's user, which alone may read its state.
func (r *Rig) nisseDevice(t testing.TB, args ...string) string {
	t.Helper()
	args = append([]string{"--reuid=nisse", "--regid=nisse", "--init-groups", filepath.Join(r.Dir, "bin", "nisse-device")}, args...)
	args = append(args, "--config", filepath.Join(r.Dir, "device", "config.yaml"))
	out, err := exec.CommandContext(t.Context(), "setpriv", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("nisse-device %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// Writes counts how often the device really wrote a file for a work item, by its audit: calls that began, however they ended.
func (r *Rig) Writes(t testing.TB, item string) int {
	t.Helper()
	n := 0
	for _, line := range strings.Split(strings.TrimSpace(r.nisseDevice(t, "audit", "show", "--json")), "\n") {
		if line == "" {
			continue
		}
		row, err := chain.Decode(line)
		if err != nil {
			t.Fatalf("audit row %q: %v", line, err)
		}
		if row.Kind == chain.Intent && row.Capability == manifest.FSWrite && row.CorrelationID == item {
			n++
		}
	}
	return n
}

// AuditIsWhole fails unless the device's audit chain verifies.
func (r *Rig) AuditIsWhole(t testing.TB) {
	t.Helper()
	if out := r.nisseDevice(t, "audit", "verify"); !strings.Contains(out, "whole") {
		t.Errorf("audit verify: %s", out)
	}
}
