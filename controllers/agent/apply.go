package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/agent/children"
	"nisse.io/nisse/controllers/pass"
	"nisse.io/nisse/internal/canonical"
	"nisse.io/nisse/internal/telemetry"
)

// fieldOwner of everything the manager applies.
const fieldOwner = client.FieldOwner("nisse-manager")

// child is one object of an agent: what it should be, and where it is read.
type child struct {
	kind    string
	desired runtime.ApplyConfiguration
	object  client.Object
	name    string
}

// applied remembers what was applied and what came of it, so that an object nobody touched is not applied again. It is a saving
// and no truth: a manager that has just started applies everything once, which changes nothing.
type applied struct {
	mu   sync.Mutex
	last map[string]state
}

// state of an object after it was applied.
type state struct {
	UID     types.UID
	version string
	desired string
}

func (a *applied) get(key string) (state, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s, ok := a.last[key]
	return s, ok
}

func (a *applied) set(key string, s state) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last == nil {
		a.last = map[string]state{}
	}
	a.last[key] = s
}

// apply brings the agent's objects to what its spec asks, in an order in which each finds what it needs.
func (r *Reconciler) apply(ctx context.Context, s *scope) error {
	a := s.agent
	e, err := endpoint(a)
	if err != nil {
		return err
	}
	config, err := children.ConfigMap(a, r.Settings)
	if err != nil {
		return err
	}
	name := children.Name(a.Name)
	for _, c := range []child{
		{"ServiceAccount", children.ServiceAccount(a), &corev1.ServiceAccount{}, name},
		{"ConfigMap", config, &corev1.ConfigMap{}, name},
		// Before the pod: it must never run without its walls.
		{"NetworkPolicy", children.NetworkPolicy(a, r.Settings, e), &networkingv1.NetworkPolicy{}, name},
		{"PersistentVolumeClaim", children.PersistentVolumeClaim(a), &corev1.PersistentVolumeClaim{}, children.Volume(a.Name)},
		{"StatefulSet", children.StatefulSet(a, r.Settings, config), &appsv1.StatefulSet{}, name},
	} {
		if err := r.applyOne(ctx, s, c); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reconciler) applyOne(ctx context.Context, s *scope, c child) error {
	a := s.agent
	b, err := json.Marshal(c.desired)
	if err != nil {
		return fmt.Errorf("%s of agent %s: %w", c.kind, a.Name, err)
	}
	desired, key := canonical.Hex(b), string(a.UID)+"/"+c.kind
	found, err := r.find(ctx, a.Namespace, c)
	if err != nil {
		return err
	}
	// Without force where nothing was found: whoever makes an object of that name at this moment keeps it, and is seen next time.
	opts := []client.ApplyOption{fieldOwner}
	if found {
		if !owned(c.object, a) {
			message := fmt.Sprintf("%s %s exists and belongs to somebody else; delete it, or name the agent otherwise.", c.kind, c.name)
			return &pass.Stall{Reason: v1alpha1.ReasonForeignObject, Message: message, Recheck: recheck}
		}
		if last, ok := r.applied.get(key); ok && last == (state{c.object.GetUID(), version(c.object), desired}) {
			return nil
		}
		opts = append(opts, client.ForceOwnership)
	}
	if err := r.Client.Apply(ctx, c.desired, opts...); err != nil {
		if apierrors.IsInvalid(err) {
			return pass.Stalled(v1alpha1.ReasonChildRefused, "%s %s: %v", c.kind, c.name, err)
		}
		return fmt.Errorf("apply %s %s: %w", c.kind, c.name, err)
	}
	after, err := result(c.desired, c.object)
	if err != nil {
		return fmt.Errorf("%s %s: %w", c.kind, c.name, err)
	}
	if !found || version(c.object) != after.version {
		telemetry.Changed(ctx, r.Log, "child.applied", telemetry.Event{Agent: a.Name, TaskID: s.task, Cause: fmt.Sprintf("generation %d", a.Generation)},
			slog.String("kind", c.kind), slog.String("name", c.name))
	}
	after.desired = desired
	r.applied.set(key, after)
	return nil
}

// find reads the object from the cache, which shows only what bears an agent's label, and then live: a namesake without the label
// must be seen, and so must what the cache does not show yet.
func (r *Reconciler) find(ctx context.Context, namespace string, c child) (bool, error) {
	key := client.ObjectKey{Namespace: namespace, Name: c.name}
	for _, from := range []client.Reader{r.Client, r.Live} {
		err := from.Get(ctx, key, c.object)
		if err == nil {
			return true, nil
		}
		if !apierrors.IsNotFound(err) {
			return false, fmt.Errorf("read %s %s: %w", c.kind, c.name, err)
		}
	}
	return false, nil
}

// owned tells whether an object is this Agent's. A volume outlives its Agent and has no owner; the label says whose it is.
func owned(o client.Object, a *v1alpha1.Agent) bool {
	if _, volume := o.(*corev1.PersistentVolumeClaim); volume {
		return o.GetLabels()[v1alpha1.LabelAgent] == a.Name && metav1.GetControllerOf(o) == nil
	}
	return metav1.IsControlledBy(o, a)
}

// version of what the manager applies. A StatefulSet's status changes often and moves its resource version, not its generation.
func version(o client.Object) string {
	if _, set := o.(*appsv1.StatefulSet); set {
		return fmt.Sprint("generation ", o.GetGeneration())
	}
	return o.GetResourceVersion()
}

// result reads what the API server answered to an apply.
func result(answered runtime.ApplyConfiguration, like client.Object) (state, error) {
	b, err := json.Marshal(answered)
	if err != nil {
		return state{}, fmt.Errorf("read the answer to an apply: %w", err)
	}
	var o metav1.PartialObjectMetadata
	if err := json.Unmarshal(b, &o); err != nil {
		return state{}, fmt.Errorf("read the answer to an apply: %w", err)
	}
	s := state{UID: o.UID, version: o.ResourceVersion}
	if _, set := like.(*appsv1.StatefulSet); set {
		s.version = fmt.Sprint("generation ", o.Generation)
	}
	return s, nil
}
