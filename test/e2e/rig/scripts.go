package rig

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/test/apitest"
)

// Script of the repository, such as hack/cluster/down.sh; its output is shown when it fails.
func (r *Rig) Script(t testing.TB, path string, args ...string) {
	t.Helper()
	if err := r.script(t.Context(), path, args...); err != nil {
		t.Fatal(err)
	}
}

func (r *Rig) script(ctx context.Context, path string, args ...string) error {
	return command(exec.CommandContext(ctx, apitest.Path(path), args...))
}

// Command of the machine, such as etcdctl.
func (r *Rig) Command(t testing.TB, name string, args ...string) {
	t.Helper()
	if err := command(exec.CommandContext(t.Context(), name, args...)); err != nil {
		t.Fatal(err)
	}
}

func command(cmd *exec.Cmd) error {
	// A daemon that a script leaves behind keeps its standard output open; waiting for its end would be waiting for ever.
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &out, 5*time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out.String())
	}
	return nil
}

// Scale a component to a number of pods; scaled to none, wait until none runs.
func (r *Rig) Scale(t testing.TB, c Component, replicas int32) {
	t.Helper()
	var o client.Object = &appsv1.Deployment{}
	if c == Gateway {
		o = &appsv1.StatefulSet{}
	}
	key := client.ObjectKey{Namespace: System, Name: "nisse-" + string(c)}
	r.Wait(t, fmt.Sprintf("%s is scaled to %d", c, replicas), Patience, func(ctx context.Context) error {
		if err := r.Admin.Get(ctx, key, o); err != nil {
			return err
		}
		patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))
		return r.Admin.Patch(ctx, o, patch)
	})
	if replicas > 0 {
		return
	}
	r.Wait(t, fmt.Sprintf("no pod of %s runs", c), Patience, func(ctx context.Context) error {
		if p, err := r.Pod(ctx, c); err == nil {
			return fmt.Errorf("%s runs", p.Name)
		}
		return nil
	})
}
