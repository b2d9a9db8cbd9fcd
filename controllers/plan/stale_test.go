package plan

import (
	"context"
	"testing"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/controllertest"
)

// remembering is a cache that still shows a plan as it was.
func (b *bench) remembering(p *v1alpha1.Plan) client.Client {
	was := p.DeepCopy()
	return b.Intercepted(interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if shown, plan := o.(*v1alpha1.Plan); plan && k == client.ObjectKeyFromObject(was) {
			was.DeepCopyInto(shown)
			return nil
		}
		return c.Get(ctx, k, o, opts...)
	}})
}

// Nobody is asked about a plan that only a cache still shows.
func TestStalePlanIsNotAskedAbout(t *testing.T) {
	for _, tc := range []struct {
		name  string
		since func(*bench, *v1alpha1.Plan)
	}{
		{"deleted", func(*bench, *v1alpha1.Plan) {}},
		{"deleted, and noted on the item", func(b *bench, p *v1alpha1.Plan) {
			b.Status(b.Item, func() { b.Item.Status.Plan = &v1alpha1.PlanRef{Name: p.Name, Revision: p.Spec.Revision} })
		}},
		{"deleted, and made anew with other steps", func(b *bench, _ *v1alpha1.Plan) { b.Plan(2, `{"content":"","path":"/etc/passwd"}`) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, nil)
			b.Plan(1, controllertest.Report)
			p := b.Plan(2, controllertest.Report)
			b.r.Client = b.remembering(p)
			if err := b.Admin.Delete(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			tc.since(b, p)
			// Whether the status of what is gone can be written is of no interest.
			if _, err := b.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(p)}); err != nil {
				t.Error(err)
			}
			if all := b.gates(); len(all) != 0 {
				t.Errorf("%d gates, the first about %+v", len(all), all[0].Spec.Subject)
			}
		})
	}
}

// A status that others changed since the cache saw it is not overwritten: the pass comes again.
func TestStaleStatusIsNotOverwritten(t *testing.T) {
	b := newBench(t, nil)
	p := b.Plan(1)
	b.r.Client = b.remembering(p)
	b.Status(p, func() { p.Status.State = v1alpha1.PlanApproved })
	result, err := b.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(p)})
	if err != nil || result.RequeueAfter == 0 {
		t.Errorf("got %+v, %v; want a quiet second look", result, err)
	}
	b.Read(p)
	if p.Status.State != v1alpha1.PlanApproved {
		t.Errorf("state %q", p.Status.State)
	}
}
