//go:build bench

package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/broker/devices"
	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/internal/deed"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/test/stack"
)

// idle counts what is written while nothing happens.
func (r *rig) idle(d time.Duration) {
	r.t.Helper()
	r.quiet()
	r.auditKept()
	r.quiet()
	r.read()
	before, end := len(r.audit), time.Now().Add(d)
	ctx, cancel := context.WithDeadline(r.t.Context(), end)
	defer cancel()
	<-ctx.Done()
	if r.t.Context().Err() != nil {
		r.t.Fatal("stopped")
	}
	r.read()
	var writes, leases []Request
	reviews := 0
	for _, q := range r.audit[before:] {
		switch {
		case !q.Kept():
			reviews++
		case q.Lease():
			leases = append(leases, q)
		default:
			writes = append(writes, q)
		}
	}
	heading("Writes in %s of rest, after the items above", d)
	r.figure(fmt.Sprintf("writes in %s of rest, beyond leases", d), "0", "**%d** (%d renewals of leases)", len(writes), len(leases))
	rows := [][]string{{"what", "how often"}, {"writes", fmt.Sprint(len(writes))}}
	for _, c := range append(Counts(writes), Counts(leases)...) {
		rows = append(rows, []string{c.Who + " " + c.Verb + " " + c.Kind, fmt.Sprint(c.N)})
	}
	rows = append(rows, []string{"questions that store nothing (TokenReview, dry run)", fmt.Sprint(reviews)})
	if err := Table(os.Stdout, rows); err != nil {
		r.t.Fatal(err)
	}
}

// auditKept waits until the manager keeps a checkpoint of every row of the device: that of the last rows comes within two minutes of
// them, and belongs to the work that they are of.
func (r *rig) auditKept() {
	r.t.Helper()
	rows := int64(strings.Count(r.Run("nisse-device", "audit", "show", "--json", "--config", r.DeviceConfig()), "\n"))
	r.Wait(3*time.Minute, "the device's audit is kept", func(ctx context.Context) error {
		var d api.Device
		if err := r.Admin.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: stack.Device}, &d); err != nil {
			return err
		}
		if d.Status.AuditKept == nil || d.Status.AuditKept.Rows < rows {
			return fmt.Errorf("of %d rows: %+v", rows, d.Status.AuditKept)
		}
		return nil
	})
}

// memory of the processes, at rest.
func (r *rig) memory() {
	r.t.Helper()
	heading("Memory at rest")
	rows := [][]string{{"process", "RSS MiB", "of it anonymous MiB"}}
	for _, c := range stack.Components {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.PID(c)))
		if err != nil {
			r.t.Fatal(err)
		}
		rows = append(rows, []string{c, mib(string(b), "VmRSS:"), mib(string(b), "RssAnon:")})
	}
	if err := Table(os.Stdout, rows); err != nil {
		r.t.Fatal(err)
	}
}

func mib(status, field string) string {
	for line := range strings.Lines(status) {
		if rest, ok := strings.CutPrefix(line, field); ok {
			var kb float64
			if _, err := fmt.Sscanf(rest, "%f", &kb); err == nil {
				return fmt.Sprintf("%.1f", kb/1024)
			}
		}
	}
	return "?"
}

// device compares a read-only command over the device's door, verified, audited and answered signed, with a bare fork.
func (r *rig) device(n int) {
	r.t.Helper()
	var d api.Device
	if err := r.Admin.Get(r.t.Context(), client.ObjectKey{Namespace: r.Namespace, Name: stack.Device}, &d); err != nil {
		r.t.Fatal(err)
	}
	m := r.Manifest(api.PrivilegeUser)
	target, err := devices.TargetOf(&d)
	if err != nil {
		r.t.Fatal(err)
	}
	pem, err := os.ReadFile(filepath.Join(r.Dir, "keys", "request.pem"))
	if err != nil {
		r.t.Fatal(err)
	}
	key, err := dsse.ParsePrivateKey(pem)
	if err != nil {
		r.t.Fatal(err)
	}
	c := devices.NewClient(key, time.Now)
	args, err := json.Marshal(map[string]any{"argv": []string{"/usr/bin/df", "-h"}})
	if err != nil {
		r.t.Fatal(err)
	}
	var over, bare Ways
	for i := range n {
		begun := time.Now()
		if out, err := exec.CommandContext(r.t.Context(), "/usr/bin/df", "-h").Output(); len(out) == 0 {
			r.t.Fatal(err)
		}
		if err := bare.Add(begun, []Mark{{"df", time.Now()}}); err != nil {
			r.t.Fatal(err)
		}
		begun = time.Now()
		a, err := c.Call(r.t.Context(), target, wire.Request{V: wire.Version, Device: stack.Device, ManifestDigest: m.Status.Digest, Capability: "exec", Args: string(args),
			Deed: deed.Free("bench", fmt.Sprint(i)), At: begun.Unix(), ExpiresAt: begun.Add(time.Minute).Unix(), CorrelationID: "bench", Agent: stack.Agent})
		if err != nil || a.State != wire.Succeeded {
			r.t.Fatalf("%+v, %v", a, err)
		}
		if err := over.Add(begun, []Mark{{"df", time.Now()}}); err != nil {
			r.t.Fatal(err)
		}
	}
	heading("`df -h` on loopback, %d times (load %s)", n, load(r.t))
	r.figure("device call on loopback, p50", "–", "%s ms; the bare command %s ms (load %s)", ms(over.Whole(50)), ms(bare.Whole(50)), load(r.t))
	rows := [][]string{{"way", "p50 ms", "p99 ms"}}
	for _, w := range []struct {
		name string
		ways Ways
	}{{"bare fork", bare}, {"nisse-device: signature, manifest, run, audit row on disk, signed answer", over}} {
		rows = append(rows, []string{w.name, ms(Percentile(w.ways.spans[0].Took, 50)), ms(Percentile(w.ways.spans[0].Took, 99))})
	}
	if err := Table(os.Stdout, rows); err != nil {
		r.t.Fatal(err)
	}
}
