package kubectl

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
)

// judged waits until an Approval counts or is refused. That it counts, counted tells from what it is about, whose kind is that of the list.
func judged(ctx context.Context, cl client.WithWatch, made *v1alpha1.Approval, wait time.Duration, about client.Object, list client.ObjectList, counted func(client.Object) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	follow := func(list client.ObjectList, name string) (watch.Interface, error) {
		return cl.Watch(ctx, list, client.InNamespace(made.Namespace), client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", name)})
	}
	changes, err := follow(list, about.GetName())
	if err != nil {
		return err
	}
	defer changes.Stop()
	approvals, err := follow(&v1alpha1.ApprovalList{}, made.Name)
	if err != nil {
		return err
	}
	defer approvals.Stop()
	for {
		var e watch.Event
		select {
		case e = <-changes.ResultChan():
		case e = <-approvals.ResultChan():
		}
		switch o := e.Object.(type) {
		case *v1alpha1.Approval:
			if o.Status.Reason != "" {
				return fmt.Errorf("it does not count (%s): %s", o.Status.Reason, o.Status.Message)
			}
		case nil: // the watch has ended
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("nobody has judged approval %s within %s; it counts as soon as the manager has", made.Name, wait)
			}
			return errors.Join(ctx.Err(), fmt.Errorf("the API server ended the watch; look at %s", about.GetName()))
		case client.Object:
			if done, err := counted(o); done || err != nil {
				return err
			}
		}
	}
}
