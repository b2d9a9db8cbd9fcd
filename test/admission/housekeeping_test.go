package admission

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "nisse.io/nisse/api/v1alpha1"
)

const (
	kubeSystem   = "system:serviceaccount:kube-system:"
	migratorName = "storage-version-migrator-controller"
)

// kept is one object of each kind, as it is made and as it is when nothing more will happen to it.
type kept struct {
	kind, maker, writer string
	make                func() client.Object
	final               map[string]any
}

func everyKind() []kept {
	at := "2026-01-01T00:00:00Z"
	ready := []any{map[string]any{"type": "Ready", "status": "True", "reason": "Done", "message": "", "lastTransitionTime": at, "observedGeneration": int64(1)}}
	return []kept{
		{"gate", manager, manager, func() client.Object { return gate("hk-gate") }, map[string]any{"outcome": "Approved", "statement": "s", "decidedAt": at, "conditions": ready, "observedGeneration": int64(1),
			"decisions": []any{map[string]any{"approval": "a", "person": "lucas", "decision": "Approve", "channel": "Kubernetes", "at": at}}}},
		{"plan", broker, manager, func() client.Object { return plan("hk-plan") }, map[string]any{"state": "Approved", "conditions": ready, "observedGeneration": int64(1)}},
		{"job", broker, broker, func() client.Object { return job("hk-job") }, map[string]any{"state": "Failed", "message": "m", "result": "{}", "auditHash": "a", "finishedAt": "2026-01-01T00:00:00.000000Z"}},
		{"approval", lucas, manager, func() client.Object { return approval("hk-approval", lucas, api.ChannelKubernetes) }, map[string]any{"reason": "TooLate", "message": "m"}},
		{"item", lucas, manager, func() client.Object {
			w := workItem("hk-item", api.SourceKubernetes)
			w.Spec.Stop, w.Spec.Close, w.Spec.ExternalRecord = &api.StopRequest{ID: "one"}, true, "https://example.org/1"
			return w
		}, map[string]any{"state": "Closed", "answeredStop": "one", "conditions": ready, "observedGeneration": int64(1), "outcome": map[string]any{"result": "Done", "at": at}}},
		{"agent", lucas, manager, func() client.Object { return newAgent("hk-agent") }, map[string]any{"activeWorkItem": "w", "conditions": ready, "observedGeneration": int64(1)}},
		{"device", lucas, broker, func() client.Object { return device("hk-device") }, map[string]any{"conditions": ready, "observedGeneration": int64(1)}},
		{"person", lucas, manager, func() client.Object { return person("hk-person") }, map[string]any{"conditions": ready, "observedGeneration": int64(1)}},
	}
}

// inNamespace gives every kind an object in a namespace of its own, with an owner and a finalizer, fresh or final.
func inNamespace(t *testing.T, final bool) (string, []client.Object) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "hk-"}}
	if err := as(lucas).Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	blocks := true
	var all []client.Object
	for _, k := range everyKind() {
		o := k.make()
		o.SetNamespace(namespace.Name)
		o.SetFinalizers([]string{"example.org/keep"})
		o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "uid", BlockOwnerDeletion: &blocks}})
		status := k.final
		if !final {
			status = nil
		}
		put(t, k.maker, o, k.writer, status)
		all = append(all, o)
	}
	return namespace.Name, all
}

// What must go on working, for every kind, fresh and final: storage migration (a write that changes nothing), what the garbage collector
// patches and deletes, and the end of a namespace. Each is done as Kubernetes' own controllers do it.
func TestHousekeepingPasses(t *testing.T) {
	for name, final := range map[string]bool{"fresh": false, "final": true} {
		t.Run("migration, "+name, func(t *testing.T) {
			_, all := inNamespace(t, final)
			migrator := as(kubeSystem + migratorName)
			for _, o := range all {
				was := content(t, o)
				for how, write := range map[string]func(u *unstructured.Unstructured) error{
					"merge patch of 1.35 and later": func(u *unstructured.Unstructured) error {
						id := map[string]any{"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(), "metadata": map[string]any{"resourceVersion": u.GetResourceVersion()}}
						return migrator.Patch(t.Context(), u, client.RawPatch(types.MergePatchType, must(json.Marshal(id))), client.FieldOwner(migratorName))
					},
					"apply of 1.34": func(u *unstructured.Unstructured) error {
						id := map[string]any{"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(), "metadata": map[string]any{"uid": u.GetUID(), "resourceVersion": u.GetResourceVersion()}}
						return migrator.Patch(t.Context(), u, client.RawPatch(types.ApplyPatchType, must(json.Marshal(id))), client.FieldOwner(migratorName))
					},
					"update of the migrator before it": func(u *unstructured.Unstructured) error { return migrator.Update(t.Context(), u) },
				} {
					if err := write(now(t, o)); err != nil {
						t.Errorf("%T: a write without a change was refused (%s): %v", o, how, err)
					}
				}
				unchanged(t, o, was, "migration")
			}
		})
		t.Run("garbage collection, "+name, func(t *testing.T) {
			_, all := inNamespace(t, final)
			collector := as(kubeSystem + "generic-garbage-collector")
			patch := func(o client.Object, metadata map[string]any) error {
				u := now(t, o)
				metadata["resourceVersion"] = u.GetResourceVersion()
				return collector.Patch(t.Context(), u, client.RawPatch(types.MergePatchType, must(json.Marshal(map[string]any{"metadata": metadata}))))
			}
			for _, o := range all {
				owner := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "uid", "blockOwnerDeletion": false}
				for how, metadata := range map[string]map[string]any{"unblock an owner": {"ownerReferences": []any{owner}}, "take an owner away": {"ownerReferences": nil}} {
					if err := patch(o, metadata); err != nil {
						t.Errorf("%T: %s: %v", o, how, err)
					}
				}
				// In the foreground, as kubectl and an owner's end may ask: the API server adds a finalizer, and the collector takes it off.
				if err := collector.Delete(t.Context(), now(t, o), client.PropagationPolicy(metav1.DeletePropagationForeground), exactly(now(t, o))); err != nil {
					t.Errorf("%T: deletion was refused: %v", o, err)
				}
				if got := now(t, o).GetFinalizers(); len(got) != 2 {
					t.Errorf("%T: finalizers %v, want the collector's beside the test's", o, got)
				}
				for _, left := range []any{[]any{"example.org/keep"}, nil} {
					if err := patch(o, map[string]any{"finalizers": left}); err != nil {
						t.Errorf("%T: take a finalizer off: %v", o, err)
					}
				}
				gone(t, o)
			}
		})
		t.Run("an owner's end, "+name, func(t *testing.T) {
			_, all := inNamespace(t, final)
			collector := as(kubeSystem + "generic-garbage-collector")
			for _, o := range all {
				u := now(t, o)
				u.SetFinalizers(nil)
				if err := collector.Update(t.Context(), u); err != nil {
					t.Fatalf("%T: %v", o, err)
				}
				if err := collector.Delete(t.Context(), u, client.PropagationPolicy(metav1.DeletePropagationBackground), exactly(u)); err != nil {
					t.Errorf("%T: deletion was refused: %v", o, err)
				}
				gone(t, o)
			}
		})
		t.Run("a namespace's end, "+name, func(t *testing.T) {
			namespace, all := inNamespace(t, final)
			if err := as(lucas).Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
				t.Fatal(err)
			}
			ends, cleans := as(kubeSystem+"namespace-controller"), as(kubeSystem+"generic-garbage-collector")
			for _, o := range all {
				err := ends.DeleteAllOf(t.Context(), o.DeepCopyObject().(client.Object), client.InNamespace(namespace), client.PropagationPolicy(metav1.DeletePropagationBackground))
				if err != nil {
					t.Errorf("%T: deletion was refused: %v", o, err)
				}
				if now(t, o).GetDeletionTimestamp() == nil {
					t.Errorf("%T: it was not asked to go", o)
				}
				if err := cleans.Patch(t.Context(), now(t, o), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
					t.Errorf("%T: its finalizer was not taken off: %v", o, err)
				}
				gone(t, o)
			}
		})
	}
}

// exactly the object that was read, as the collector asks for it.
func exactly(u *unstructured.Unstructured) client.DeleteOption {
	uid, version := u.GetUID(), u.GetResourceVersion()
	return client.Preconditions{UID: &uid, ResourceVersion: &version}
}

func now(t *testing.T, o client.Object) *unstructured.Unstructured {
	t.Helper()
	u, err := read(as(lucas), o)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func gone(t *testing.T, o client.Object) {
	t.Helper()
	if u, err := read(as(lucas), o); !apierrors.IsNotFound(err) {
		t.Errorf("%T: still there (%v): %v", o, err, u)
	}
}
