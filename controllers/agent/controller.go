// Package agent gives every Agent its pod, with its walls and its configuration, and chooses what the agent works on.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/agent/children"
	"nisse.io/nisse/controllers/pass"
	"nisse.io/nisse/internal/telemetry"
)

// Reconciler keeps agents' pods and chooses their work.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Live reads from the API server. Secrets are read here and nowhere else, one at a time.
	Live client.Reader
	// Settings of the installation.
	Settings children.Settings
	Events   events.EventRecorder
	Log      *slog.Logger

	applied applied
}

// scope is what one pass knows of an agent.
type scope struct {
	// before is the Agent as it was read, agent the one whose status this pass computes.
	before, agent *v1alpha1.Agent
	// set and pod as the cache shows them; nil when they are not there. Set by observe.
	set *appsv1.StatefulSet
	pod *corev1.Pod
	// task is the ID by which logs tell the active item's story; empty when idle. Set by choose.
	task string
	// updatePending: a newer template waits for a safe point. Set by the phases.
	updatePending bool
}

// Reconcile one Agent.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (reconcile.Result, error) {
	var a v1alpha1.Agent
	if err := r.Client.Get(ctx, req.NamespacedName, &a); err != nil {
		return pass.Result(client.IgnoreNotFound(err))
	}
	if !a.DeletionTimestamp.IsZero() {
		return pass.Result(nil)
	}
	s := &scope{before: &a, agent: a.DeepCopy()}
	err := r.phases(ctx, s)
	s.settle(err)
	changed, werr := pass.WriteStatus(ctx, r.Client, s.before, s.agent)
	if werr != nil {
		if pass.Final(err) {
			err = nil // how the pass ended is of no use when it could not be written
		}
		return pass.Result(errors.Join(err, client.IgnoreNotFound(werr)))
	}
	if changed && a.Status.ActiveWorkItem != s.agent.Status.ActiveWorkItem {
		telemetry.Changed(ctx, r.Log, "agent.activated", telemetry.Event{Agent: a.Name, TaskID: s.task, Cause: a.Status.ActiveWorkItem})
	}
	return pass.Result(err)
}

func (r *Reconciler) phases(ctx context.Context, s *scope) error {
	if err := r.choose(ctx, s); err != nil {
		return err
	}
	if err := r.observe(ctx, s); err != nil {
		return err
	}
	// A suspended agent has no pod, so what the pod would need is not asked for.
	if !s.agent.Spec.Suspend {
		if err := r.references(ctx, s.agent); err != nil {
			return err
		}
	}
	if err := r.apply(ctx, s); err != nil {
		return err
	}
	var err error
	s.updatePending, err = r.replace(ctx, s)
	return err
}

// choose what the agent works on. It goes by the cache: choosing late is harmless, and the choice stands until the item is closed.
func (r *Reconciler) choose(ctx context.Context, s *scope) error {
	var items v1alpha1.WorkItemList
	if err := r.Client.List(ctx, &items, client.InNamespace(s.agent.Namespace), client.MatchingFields{v1alpha1.FieldAgent: s.agent.Name}); err != nil {
		return fmt.Errorf("list the work items of agent %s: %w", s.agent.Name, err)
	}
	s.agent.Status.ActiveWorkItem = Choose(s.agent.Status.ActiveWorkItem, items.Items)
	for i := range items.Items {
		if w := &items.Items[i]; w.Name == s.agent.Status.ActiveWorkItem {
			s.task = w.Correlation()
		}
	}
	return nil
}

// observe reads the workload.
func (r *Reconciler) observe(ctx context.Context, s *scope) error {
	set, pod := &appsv1.StatefulSet{}, &corev1.Pod{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.agent.Namespace, Name: children.Name(s.agent.Name)}, set)
	if err == nil {
		s.set = set
	} else if !apierrors.IsNotFound(err) {
		return fmt.Errorf("read StatefulSet %s: %w", children.Name(s.agent.Name), err)
	}
	err = r.Client.Get(ctx, client.ObjectKey{Namespace: s.agent.Namespace, Name: children.Pod(s.agent.Name)}, pod)
	if err == nil {
		s.pod = pod
	} else if !apierrors.IsNotFound(err) {
		return fmt.Errorf("read pod %s: %w", children.Pod(s.agent.Name), err)
	}
	return nil
}
