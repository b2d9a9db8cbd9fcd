// Package controllers puts the manager's controllers together: people, agents, devices' manifests, work items, plans and gates.
package controllers

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/admission"
	"nisse.io/nisse/controllers/agent"
	"nisse.io/nisse/controllers/agent/children"
	"nisse.io/nisse/controllers/deviceaudit"
	"nisse.io/nisse/controllers/devicemanifest"
	"nisse.io/nisse/controllers/gate"
	"nisse.io/nisse/controllers/indexes"
	"nisse.io/nisse/controllers/person"
	"nisse.io/nisse/controllers/plan"
	"nisse.io/nisse/controllers/workitem"
	"nisse.io/nisse/internal/approval"
)

// Options of the controllers.
type Options struct {
	// Sign a statement with the approval key.
	Sign func(approval.Statement) (string, error)
	// Settings of agents' pods.
	Settings children.Settings
	Log      *slog.Logger
	// Now is the clock.
	Now func() time.Time
	// Metrics of the manager.
	Metrics prometheus.Registerer
}

// Setup adds every controller to the manager.
func Setup(ctx context.Context, mgr ctrl.Manager, o Options) error {
	if err := indexes.Register(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	c, live, events := mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder("nisse-manager")
	guard := &admission.Probe{Client: c, Now: o.Now}
	for name, setup := range map[string]func(ctrl.Manager) error{
		"deviceaudit":    (&deviceaudit.Reconciler{Client: c, Live: live, System: o.Settings.SystemNamespace, Events: events, Log: o.Log, Now: o.Now}).Setup,
		"devicemanifest": (&devicemanifest.Reconciler{Client: c, Now: o.Now}).Setup,
		"person":         (&person.Reconciler{Client: c}).Setup,
		"agent":          (&agent.Reconciler{Client: c, Live: live, Settings: o.Settings, Events: events, Log: o.Log}).Setup,
		"workitem":       (&workitem.Reconciler{Client: c, Live: live, Guard: guard, Events: events, Log: o.Log, Now: o.Now}).Setup,
		"plan":           (&plan.Reconciler{Client: c, Live: live, Guard: guard, Log: o.Log, Now: o.Now}).Setup,
		"gate":           (&gate.Reconciler{Client: c, Live: live, Sign: o.Sign, Events: events, Log: o.Log, Now: o.Now, Metrics: o.Metrics}).Setup,
	} {
		if err := setup(mgr); err != nil {
			return fmt.Errorf("controller %s: %w", name, err)
		}
	}
	return nil
}

// Cache holds what the controllers read: of the agents' namespaces alone, of Kubernetes' own kinds only what bears an agent's
// label, and nothing of who wrote which field. Five thousand foreign Pods cost nothing.
func Cache(namespaces []string) (cache.Options, error) {
	r, err := labels.NewRequirement(v1alpha1.LabelAgent, selection.Exists, nil)
	if err != nil {
		return cache.Options{}, fmt.Errorf("cache: %w", err)
	}
	ours := cache.ByObject{Label: labels.NewSelector().Add(*r)}
	o := cache.Options{
		DefaultNamespaces: map[string]cache.Config{},
		DefaultTransform:  cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{&appsv1.StatefulSet{}: ours, &corev1.Pod{}: ours, &corev1.ServiceAccount{}: ours,
			&corev1.ConfigMap{}: ours, &corev1.PersistentVolumeClaim{}: ours, &networkingv1.NetworkPolicy{}: ours},
	}
	for _, ns := range namespaces {
		o.DefaultNamespaces[ns] = cache.Config{}
	}
	return o, nil
}

// Live kinds are never cached: they are read one at a time, when they are needed.
func Live() []client.Object { return []client.Object{&corev1.Secret{}} }
