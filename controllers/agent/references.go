package agent

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/agent/children"
	"nisse.io/nisse/controllers/pass"
)

// recheck is how often an unusable Secret is looked at, and an object that has an agent's name and is another's: nothing tells the manager
// of a change, as it may not watch Secrets, and watches only what bears an agent's label.
const recheck = 15 * time.Second

// references checks that everything the Agent names is there and may be used.
func (r *Reconciler) references(ctx context.Context, a *v1alpha1.Agent) error {
	for _, p := range a.Spec.People {
		if found, err := r.exists(ctx, a.Namespace, p.Name, &v1alpha1.Person{}); err != nil {
			return err
		} else if !found {
			return pass.Stalled(v1alpha1.ReasonPersonNotFound, "Person %s does not exist.", p.Name)
		}
	}
	for _, d := range a.Spec.Devices {
		if found, err := r.exists(ctx, a.Namespace, d, &v1alpha1.Device{}); err != nil {
			return err
		} else if !found {
			return pass.Stalled(v1alpha1.ReasonDeviceNotFound, "Device %s does not exist.", d)
		}
	}
	if c := a.Spec.Models.Endpoint.Credentials; c != nil {
		return r.secret(ctx, a.Namespace, *c)
	}
	return nil
}

func (r *Reconciler) exists(ctx context.Context, namespace, name string, obj client.Object) (bool, error) {
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, obj)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", name, err)
	}
	return true, nil
}

// secret checks that a Secret exists, has the key, and says itself that agents may have it. Without that label whoever may edit
// Agents could read every Secret of the namespace through a pod.
func (r *Reconciler) secret(ctx context.Context, namespace string, k v1alpha1.SecretKey) error {
	unusable := func(format string, args ...any) error {
		return &pass.Stall{Reason: v1alpha1.ReasonSecretNotUsable, Message: fmt.Sprintf(format, args...), Recheck: recheck}
	}
	var s corev1.Secret
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: k.Name}, &s)
	switch {
	case apierrors.IsNotFound(err):
		return unusable("Secret %s does not exist.", k.Name)
	case err != nil:
		return fmt.Errorf("read Secret %s: %w", k.Name, err)
	case s.Labels[v1alpha1.LabelAgentAccess] != "true":
		return unusable(`Secret %s lacks the label %s: "true", by which it is given to agents.`, k.Name, v1alpha1.LabelAgentAccess)
	}
	if _, ok := s.Data[k.Key]; !ok {
		return unusable("Secret %s has no key %s.", k.Name, k.Key)
	}
	return nil
}

// endpoint of the model as a network rule.
func endpoint(a *v1alpha1.Agent) (children.Endpoint, error) {
	e, err := children.ModelEndpoint(a.Spec.Models.Endpoint)
	if err != nil {
		return children.Endpoint{}, pass.Stalled(v1alpha1.ReasonEndpointInvalid, "models.endpoint: %v.", err)
	}
	return e, nil
}
