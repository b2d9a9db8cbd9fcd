// Package last takes the installation apart, and puts it together again; what people made in it is gone afterwards. hack/e2e.sh runs
// it after everything else, on an installation that it brought up itself. Its tests run in the order in which they stand here.
package last

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/test/e2e/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }

// A cluster that forgets an execution does not repeat it: what happened since the snapshot is known to the device.
func TestRestoredSnapshotRunsNothingAgain(t *testing.T) {
	r := rig.Open(t)
	s := r.Ask(t, "e2e-restore.txt", "")
	gate := s.Gate(api.GatePlan, 1)
	s.Hear(rig.Gates, `rev-1`)
	// Approved and not executed: the broker is away while the snapshot is taken.
	r.Scale(t, rig.Broker, 0)
	s.Say("approve rev-1")
	r.Wait(t, "the gate is approved", rig.Patience, func(ctx context.Context) error {
		if err := r.Admin.Get(ctx, client.ObjectKeyFromObject(gate), gate); err != nil {
			return err
		}
		if gate.Status.Outcome != api.GateApproved {
			return fmt.Errorf("outcome %q", gate.Status.Outcome)
		}
		return nil
	})
	snapshot := filepath.Join(t.TempDir(), "snapshot")
	r.Command(t, "etcdctl", "--endpoints", os.Getenv("NISSE_E2E_ETCD"), "snapshot", "save", snapshot)
	s.NothingRan()
	r.Scale(t, rig.Broker, 1)
	s.Closed(api.ResultDone)
	s.RanOnce()

	data := filepath.Join(os.Getenv("NISSE_RUN"), "cluster", "etcd")
	r.Script(t, "hack/cluster/down.sh")
	if err := os.Rename(data, data+".before"); err != nil {
		t.Fatal(err)
	}
	r.Command(t, "etcdutl", "snapshot", "restore", snapshot, "--data-dir", data, "--name", "nisse-dev",
		"--initial-cluster", "nisse-dev=http://127.0.0.1:2380", "--initial-advertise-peer-urls", "http://127.0.0.1:2380")
	r.Script(t, "hack/cluster/up.sh")
	if err := os.RemoveAll(data + ".before"); err != nil {
		t.Fatal(err)
	}

	if jobs := s.Jobs(); len(jobs) != 0 {
		t.Fatalf("the snapshot holds the execution: %+v", jobs)
	}
	r.Scale(t, rig.Broker, 1)
	for _, c := range []rig.Component{rig.AgentPod, rig.Manager, rig.Gateway, rig.Broker} {
		r.Ready(t, c)
	}
	// Whoever means to repeat it has the time to: until nothing more is written.
	r.Quiet(t)
	item, err := s.Item(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := r.Writes(t, item.Name); n != 1 {
		t.Errorf("by the device's audit the file was written %d times", n)
	}
	r.AuditIsWhole(t)

	// Whether the agent thinks the work done or not, it must not stand in the way of what comes next.
	if item.Status.State != api.WorkItemClosed {
		if err := r.Admin.Patch(t.Context(), item, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"close":true}}`))); err != nil {
			t.Fatal(err)
		}
		s.Closed(api.ResultClosed)
	}
}

// An uninstall takes the programs away and leaves what people made; the next installation goes on with it, keys included.
func TestUninstallKeepsWhatPeopleMade(t *testing.T) {
	r := rig.Open(t)
	keys, before := publicKeys(t, r), inventory(t, r)
	if before["agents"] == 0 || before["gates"] == 0 {
		t.Fatalf("there is nothing to keep: %v", before)
	}
	r.Command(t, "helm", "--namespace", rig.System, "uninstall", "nisse", "--wait")
	if diff := cmp.Diff(before, inventory(t, r)); diff != "" {
		t.Errorf("objects before and after the uninstall (-before +after):\n%s", diff)
	}
	r.Script(t, "hack/demo/up.sh", "--no-story")
	if diff := cmp.Diff(keys, publicKeys(t, r)); diff != "" {
		t.Errorf("the keys that devices trust have changed (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(before, inventory(t, r)); diff != "" {
		t.Errorf("objects before and after the new installation (-before +after):\n%s", diff)
	}
	r.Wait(t, "the agent is ready again", 2*rig.Patience, func(ctx context.Context) error { return r.AgentReady(ctx, rig.Agent) })
	s := r.Ask(t, "e2e-again.txt", "")
	s.Gate(api.GatePlan, 1)
	s.Hear(rig.Gates, `rev-1`)
	s.Say("approve rev-1")
	s.Closed(api.ResultDone)
	s.RanOnce()
}

// Case 29: nothing that is away holds up the deletion of the namespace, since nothing has to be told before an object may go.
func TestNamespaceGoesWhileChatIsAway(t *testing.T) {
	r := rig.Open(t)
	s := r.Ask(t, "e2e-gone.txt", "")
	s.Gate(api.GatePlan, 1)
	r.Scale(t, rig.Gateway, 0)
	r.Script(t, "hack/homeserver/down.sh")

	ns := &corev1.Namespace{}
	ns.Name = rig.Namespace
	begin := time.Now()
	if err := r.Admin.Delete(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	r.Wait(t, "the namespace is gone", time.Minute, func(ctx context.Context) error {
		if err := r.Admin.Get(ctx, client.ObjectKeyFromObject(ns), ns); !apierrors.IsNotFound(err) {
			return fmt.Errorf("%+v: %w", ns.Status.Conditions, err)
		}
		return nil
	})
	t.Logf("the namespace went in %s", time.Since(begin).Round(time.Second))
	if _, err := os.Stat(s.Path); !os.IsNotExist(err) {
		t.Errorf("what nobody approved ran: %v", err)
	}
	r.Scale(t, rig.Gateway, 1)

	// And all of it comes again.
	r.Script(t, "hack/demo/up.sh", "--no-story")
	r.Wait(t, "the demo's agent is ready again", 2*rig.Patience, func(ctx context.Context) error { return r.AgentReady(ctx, "ops") })
}

// inventory counts the objects that people and Nisse made, by kind.
func inventory(t *testing.T, r *rig.Rig) map[string]int {
	t.Helper()
	lists := map[string]client.ObjectList{
		"people": &api.PersonList{}, "agents": &api.AgentList{}, "devices": &api.DeviceList{}, "workitems": &api.WorkItemList{},
		"plans": &api.PlanList{}, "gates": &api.GateList{}, "approvals": &api.ApprovalList{}, "devicejobs": &api.DeviceJobList{},
	}
	counts := map[string]int{}
	for kind, l := range lists {
		if err := r.Admin.List(t.Context(), l, client.InNamespace(rig.Namespace)); err != nil {
			t.Fatal(err)
		}
		counts[kind] = meta.LenList(l)
	}
	return counts
}

func publicKeys(t *testing.T, r *rig.Rig) map[string]string {
	t.Helper()
	var m corev1.ConfigMap
	if err := r.Admin.Get(t.Context(), client.ObjectKey{Namespace: rig.System, Name: "nisse-public-keys"}, &m); err != nil {
		t.Fatal(err)
	}
	return m.Data
}
