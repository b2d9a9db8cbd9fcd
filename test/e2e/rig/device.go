package rig

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	api "nisse.io/nisse/api/v1alpha1"
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

// rows of the device's audit.
func (r *Rig) rows(t testing.TB) (all []chain.Row) {
	t.Helper()
	for _, line := range strings.Split(strings.TrimSpace(r.nisseDevice(t, "audit", "show", "--json")), "\n") {
		if line == "" {
			continue
		}
		row, err := chain.Decode(line)
		if err != nil {
			t.Fatalf("audit row %q: %v", line, err)
		}
		all = append(all, row)
	}
	return all
}

// AuditIsKept waits until the manager keeps a checkpoint of every row of the demo's device: what was done a moment ago is still to be
// sealed, brought and kept.
func (r *Rig) AuditIsKept(t testing.TB) {
	t.Helper()
	rows := int64(len(r.rows(t)))
	r.Wait(t, "the device's audit is kept", 3*time.Minute, func(ctx context.Context) error {
		var d api.Device
		if err := r.Admin.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: Device}, &d); err != nil {
			return err
		}
		if d.Status.AuditKept == nil || d.Status.AuditKept.Rows < rows {
			return fmt.Errorf("of %d rows: %+v", rows, d.Status.AuditKept)
		}
		return nil
	})
}

// Writes counts how often the device really wrote a file for a work item, by its audit: calls that began, however they ended.
func (r *Rig) Writes(t testing.TB, item string) int {
	t.Helper()
	n := 0
	for _, row := range r.rows(t) {
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
