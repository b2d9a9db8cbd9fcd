package agent

import (
	"context"
	"fmt"
	"log/slog"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/telemetry"
)

// Outdated tells whether the pod runs an older template than the StatefulSet has. It says so only of what the StatefulSet's
// controller has seen: before that, nobody knows the newer revision. Another's pod of that name is not the manager's to replace.
func Outdated(set *appsv1.StatefulSet, pod *corev1.Pod) bool {
	if set == nil || pod == nil || !pod.DeletionTimestamp.IsZero() || set.Status.ObservedGeneration != set.Generation || set.Status.UpdateRevision == "" {
		return false
	}
	return metav1.IsControlledBy(pod, set) && pod.Labels[appsv1.ControllerRevisionHashLabelKey] != set.Status.UpdateRevision
}

// Safe tells whether the pod may be replaced: no item is active, or the active one waits for a person, or the pod runs no turn
// because it does not run at all. The last keeps a template that cannot start from blocking its own cure.
func Safe(pod *corev1.Pod, active *v1alpha1.WorkItem) bool {
	return active == nil || active.Status.State != v1alpha1.WorkItemWorking || stuck(pod) != ""
}

// stuck returns why the pod's container does not run; empty when it runs or has just been made.
func stuck(pod *corev1.Pod) string {
	if pod == nil {
		return ""
	}
	for _, c := range pod.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			return w.Reason
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Reason
		}
	}
	return ""
}

// replace deletes an outdated pod at a safe point, so that the StatefulSet makes the newer one. It tells whether the update still
// waits for such a point.
func (r *Reconciler) replace(ctx context.Context, s *scope) (pending bool, err error) {
	if !Outdated(s.set, s.pod) {
		return false, nil
	}
	var active *v1alpha1.WorkItem
	if name := s.agent.Status.ActiveWorkItem; name != "" {
		// Live: what the cache shows as waiting may have been approved a moment ago.
		active = &v1alpha1.WorkItem{}
		if err := r.Live.Get(ctx, client.ObjectKey{Namespace: s.agent.Namespace, Name: name}, active); apierrors.IsNotFound(err) {
			active = nil
		} else if err != nil {
			return false, fmt.Errorf("read work item %s: %w", name, err)
		}
	}
	if !Safe(s.pod, active) {
		return true, nil
	}
	err = r.Client.Delete(ctx, s.pod, client.Preconditions{UID: &s.pod.UID})
	if err != nil {
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return false, nil // gone already, or replaced by another
		}
		return false, fmt.Errorf("replace pod %s: %w", s.pod.Name, err)
	}
	telemetry.Changed(ctx, r.Log, "pod.replaced", telemetry.Event{Agent: s.agent.Name, TaskID: s.task, Cause: s.set.Status.UpdateRevision},
		slog.String("pod", s.pod.Name), slog.String("pod_uid", string(s.pod.UID)))
	r.Events.Eventf(s.agent, s.pod, corev1.EventTypeNormal, "Updated", "Replace", "Pod %s is replaced by its newer template.", s.pod.Name)
	return false, nil
}
