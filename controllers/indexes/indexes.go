// Package indexes gives the cache the same selectable fields that the API server has, so that one query reads from either.
package indexes

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
)

// Register the fields of every kind that is looked up by what it belongs to. Call it once, before the cache starts.
func Register(ctx context.Context, to client.FieldIndexer) error {
	for _, f := range []struct {
		obj   client.Object
		field string
		of    func(client.Object) string
	}{
		{&v1alpha1.Approval{}, v1alpha1.FieldGate, func(o client.Object) string { return o.(*v1alpha1.Approval).Spec.Gate.Name }},
		{&v1alpha1.Gate{}, v1alpha1.FieldWorkItem, func(o client.Object) string { return o.(*v1alpha1.Gate).Spec.WorkItem.Name }},
		{&v1alpha1.Plan{}, v1alpha1.FieldWorkItem, func(o client.Object) string { return o.(*v1alpha1.Plan).Spec.WorkItem.Name }},
		{&v1alpha1.WorkItem{}, v1alpha1.FieldAgent, func(o client.Object) string { return o.(*v1alpha1.WorkItem).Spec.Agent }},
	} {
		if err := to.IndexField(ctx, f.obj, f.field, func(o client.Object) []string { return []string{f.of(o)} }); err != nil {
			return fmt.Errorf("index %T by %s: %w", f.obj, f.field, err)
		}
	}
	return nil
}
