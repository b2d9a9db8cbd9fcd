package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// owner of every field that is applied: an attacker who knows the name can take away what others applied under it.
const owner = "nisse"

// ways to change an object that exists.
var ways = []string{"merge patch", "JSON patch", "update", "server-side apply"}

// change of one part of an object: spec, status or metadata. A field that is nil is taken away; without fields the whole part is.
type change struct {
	part   string
	fields map[string]any
}

func set(part string, fields map[string]any) change { return change{part, fields} }

func drop(part string) change { return change{part, nil} }

// try makes the change, through the object itself or through its subresource, and returns what the API server said of it.
func try(c client.Client, o client.Object, subresource, way string, what change, dryRun bool) error {
	ctx := context.Background()
	u, err := read(c, o)
	if err != nil {
		return err
	}
	had, _ := u.Object[what.part].(map[string]any)
	want := map[string]any{}
	for k, v := range had {
		want[k] = v
	}
	for k, v := range what.fields {
		if want[k] = must(roundTrip(v)); v == nil {
			delete(want, k)
		}
	}
	send := client.PatchOptions{}
	if dryRun {
		send.DryRun = []string{metav1.DryRunAll}
	}
	patch := func(kind types.PatchType, body any) error {
		p := client.RawPatch(kind, must(json.Marshal(body)))
		if subresource != "" {
			return c.SubResource(subresource).Patch(ctx, u, p, &client.SubResourcePatchOptions{PatchOptions: send})
		}
		return c.Patch(ctx, u, p, &send)
	}
	switch way {
	case "merge patch":
		return patch(types.MergePatchType, map[string]any{what.part: what.fields})
	case "JSON patch":
		return patch(types.JSONPatchType, operations(what, had))
	case "update":
		if u.Object[what.part] = want; what.fields == nil {
			delete(u.Object, what.part)
		}
		if subresource != "" {
			return c.SubResource(subresource).Update(ctx, u, &client.SubResourceUpdateOptions{UpdateOptions: client.UpdateOptions{DryRun: send.DryRun}})
		}
		return c.Update(ctx, u, &client.UpdateOptions{DryRun: send.DryRun})
	default:
		force := true
		send.FieldManager, send.Force = owner, &force
		body := map[string]any{"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(), "spec": u.Object["spec"]}
		if what.fields != nil {
			body[what.part] = want
		}
		// Of metadata an applier may send what it means to own, but none of what the API server keeps.
		m := map[string]any{"name": u.GetName(), "namespace": u.GetNamespace()}
		if what.part == "metadata" {
			for k, v := range what.fields {
				m[k] = v
			}
		}
		body["metadata"] = m
		return patch(types.ApplyPatchType, body)
	}
}

func operations(what change, had map[string]any) []any {
	path := "/" + what.part
	switch {
	case what.fields == nil:
		return []any{map[string]any{"op": "remove", "path": path}}
	case had == nil:
		return []any{map[string]any{"op": "add", "path": path, "value": what.fields}}
	}
	var all []any
	for k, v := range what.fields {
		if v == nil {
			all = append(all, map[string]any{"op": "remove", "path": path + "/" + k})
		} else {
			all = append(all, map[string]any{"op": "add", "path": path + "/" + k, "value": v})
		}
	}
	return all
}

func read(c client.Client, o client.Object) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(must(c.GroupVersionKindFor(o)))
	if err := c.Get(context.Background(), client.ObjectKeyFromObject(o), u); err != nil {
		return nil, fmt.Errorf("read %s: %w", o.GetName(), err)
	}
	return u, nil
}

func roundTrip(v any) (out any, err error) {
	err = json.Unmarshal(must(json.Marshal(v)), &out)
	return out, err
}

// content of an object without what the API server keeps about it.
func content(t *testing.T, o client.Object) map[string]any {
	t.Helper()
	u, err := read(as(lucas), o)
	if err != nil {
		t.Fatal(err)
	}
	u.SetManagedFields(nil)
	u.SetResourceVersion("")
	u.SetGeneration(0)
	return u.Object
}

// unchanged fails the test when the object is not what it was.
func unchanged(t *testing.T, o client.Object, was map[string]any, how string) {
	t.Helper()
	if diff := cmp.Diff(was, content(t, o)); diff != "" {
		t.Errorf("%s: the object changed (-was +is):\n%s", how, diff)
	}
}

// refused tells whether an error is a refusal by a policy or a rule, and not a mistake of the test.
func refused(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) }

// make an object as maker, and give it a status as its writer, both by server-side apply.
func put(t *testing.T, maker string, o client.Object, writer string, status map[string]any) {
	t.Helper()
	if err := apply(t.Context(), as(maker), o); err != nil {
		t.Fatalf("make %s: %v", o.GetName(), err)
	}
	if status == nil {
		return
	}
	if err := try(as(writer), o, "status", "server-side apply", set("status", status), false); err != nil {
		t.Fatalf("status of %s: %v", o.GetName(), err)
	}
}
