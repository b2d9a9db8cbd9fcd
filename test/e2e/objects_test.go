package e2e

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/test/apitest"
	"nisse.io/nisse/test/e2e/rig"
)

// Whatever was made for a work item goes with it.
func TestDeletedItemTakesItsChildrenAlong(t *testing.T) {
	r := rig.Open(t)
	s := r.Ask(t, "e2e-gc.txt", "")
	s.Gate(api.GatePlan, 1)
	s.Hear(rig.Gates, `rev-1`)
	s.Say("approve rev-1")
	item := s.Closed(api.ResultDone)

	of := client.MatchingLabels{api.LabelWorkItem: item.Name}
	lists := map[string]client.ObjectList{"plans": &api.PlanList{}, "gates": &api.GateList{}, "devicejobs": &api.DeviceJobList{}, "approvals": &api.ApprovalList{}}
	for kind, l := range lists {
		if n := count(t, r, l, of); n != 1 {
			t.Errorf("%d %s before the item is deleted, want 1", n, kind)
		}
	}
	if err := r.Admin.Delete(t.Context(), item); err != nil {
		t.Fatal(err)
	}
	r.Wait(t, "the children are collected", rig.Patience, func(ctx context.Context) error {
		if err := r.Admin.Get(ctx, client.ObjectKeyFromObject(item), item); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the item is still there: %w", err)
		}
		for kind, l := range lists {
			if err := r.Admin.List(ctx, l, client.InNamespace(rig.Namespace), of); err != nil {
				return err
			}
			if n := meta.LenList(l); n != 0 {
				return fmt.Errorf("%d %s are left", n, kind)
			}
		}
		return nil
	})
}

func count(t *testing.T, r *rig.Rig, l client.ObjectList, of client.MatchingLabels) int {
	t.Helper()
	if err := r.Admin.List(t.Context(), l, client.InNamespace(rig.Namespace), of); err != nil {
		t.Fatal(err)
	}
	return meta.LenList(l)
}

// What a sample says is what reads back, so that a tool that compares Git with the cluster finds nothing to do.
func TestSamplesReadBackAsWritten(t *testing.T) {
	r := rig.Open(t)
	for _, name := range []string{"person", "device", "agent", "workitem"} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(apitest.Path("config", "samples", name+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			var sample unstructured.Unstructured
			if err := yaml.Unmarshal(text, &sample.Object); err != nil {
				t.Fatal(err)
			}
			// In a namespace that nobody works in, so that the sample's room and device are nobody's business.
			ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"generateName": "e2e-samples-"}}}
			if err := r.Admin.Create(t.Context(), ns); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := r.Admin.Delete(context.WithoutCancel(t.Context()), ns); err != nil {
					t.Error(err)
				}
			})
			sample.SetNamespace(ns.GetName())
			want := sample.DeepCopy().Object["spec"]
			if err := r.Admin.Create(t.Context(), &sample); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, sample.Object["spec"]); diff != "" {
				t.Errorf("spec (-written +read):\n%s", diff)
			}
		})
	}
}

// Nothing is written while nothing happens: an idle installation must not wear out etcd.
func TestIdleWritesNothing(t *testing.T) {
	r := rig.Open(t)
	for _, c := range []rig.Component{rig.AgentPod, rig.Manager, rig.Broker, rig.Gateway} {
		r.Ready(t, c)
	}
	r.Quiet(t)
	if writes := r.WritesDuring(t, rig.IdleTime(t)); len(writes) != 0 {
		t.Errorf("%d writes while nothing happened: %v", len(writes), writes)
	}
}

// Nothing of what runs on this machine for the demo listens where others could reach it.
func TestNothingListensForOthers(t *testing.T) {
	r := rig.Open(t)
	open, err := rig.Listeners(os.Getenv("NISSE_RUN"), os.Getenv("NISSE_CACHE"))
	if err != nil {
		t.Fatal(err)
	}
	if len(open) == 0 {
		t.Fatal("not one listening socket was found; the test looks in the wrong place")
	}
	for _, l := range open {
		if !l.Address.IsLoopback() && l.Address.String() != r.NodeIP {
			t.Errorf("%s listens on %s port %d", l.Program, l.Address, l.Port)
		}
	}
}
