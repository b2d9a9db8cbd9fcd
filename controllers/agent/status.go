package agent

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/controllers/condition"
	"nisse.io/nisse/controllers/pass"
)

// settle computes the status, however the pass ended.
func (s *scope) settle(err error) {
	st, gen := &s.agent.Status, s.agent.Generation
	s.connected()
	var stall *pass.Stall
	switch {
	case errors.As(err, &stall):
		condition.Stalled(&st.Conditions, gen, stall.Reason, stall.Message)
	case err != nil:
		condition.Retrying(&st.Conditions, gen, "The API server could not be asked; trying again.")
		return
	default:
		s.ready()
	}
	if s.updatePending {
		condition.Set(&st.Conditions, gen, v1alpha1.ConditionUpdatePending, metav1.ConditionTrue, v1alpha1.ReasonWorkInProgress,
			fmt.Sprintf("A newer pod waits until %s is done or waits for a person.", st.ActiveWorkItem))
	} else {
		meta.RemoveStatusCondition(&st.Conditions, v1alpha1.ConditionUpdatePending)
	}
	st.ObservedGeneration = gen
}

// ready derives Ready from the workload.
func (s *scope) ready() {
	st, gen := &s.agent.Status, s.agent.Generation
	switch {
	case s.agent.Spec.Suspend:
		condition.Ready(&st.Conditions, gen, metav1.ConditionFalse, v1alpha1.ReasonSuspended, "spec.suspend is true; the pod is away, its state is kept.")
	case s.set != nil && s.set.Status.ObservedGeneration == s.set.Generation && s.set.Status.ReadyReplicas > 0:
		condition.Ready(&st.Conditions, gen, metav1.ConditionTrue, v1alpha1.ReasonRunning, "")
	default:
		message := "The pod is not ready yet."
		if why := stuck(s.pod); why != "" {
			message = fmt.Sprintf("The pod does not run: %s. kubectl describe pod %s tells more.", why, s.pod.Name)
		}
		condition.Ready(&st.Conditions, gen, metav1.ConditionFalse, v1alpha1.ReasonStarting, message)
	}
}

// connected derives Connected from what the gateway reports.
func (s *scope) connected() {
	st, gen := &s.agent.Status, s.agent.Generation
	c := st.Conversation
	switch {
	case c == nil || c.Reason == "":
		condition.Set(&st.Conditions, gen, v1alpha1.ConditionConnected, metav1.ConditionUnknown, v1alpha1.ReasonConversationUnknown, "The gateway has not reported yet.")
	case c.Connected:
		condition.Set(&st.Conditions, gen, v1alpha1.ConditionConnected, metav1.ConditionTrue, v1alpha1.ReasonConnected, c.Message)
	default:
		condition.Set(&st.Conditions, gen, v1alpha1.ConditionConnected, metav1.ConditionFalse, c.Reason, c.Message)
	}
}
