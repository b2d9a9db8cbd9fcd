// Package children describes the objects that an Agent has: pure functions from the Agent to server-side apply configurations.
// They name every field that Nisse has an opinion on, and no other.
package children

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/doors"
)

// Settings of the installation, the same for every agent.
type Settings struct {
	// Image of the agent's runtime.
	Image string
	// PullPolicy of that image; the cluster's default when empty.
	PullPolicy corev1.PullPolicy
	// PullSecrets of that image, by name, in the agents' namespace.
	PullSecrets []string
	// BrokerURL and GatewayURL are the pod's two doors.
	BrokerURL  string
	GatewayURL string
	// SystemNamespace is where the doors' pods are.
	SystemNamespace string
}

// What a turn may take when the Agent says nothing.
const (
	DefaultToolCallsPerTurn = 12
	DefaultModelTimeout     = 120
)

// Name of everything an agent has, but for pod and volume.
func Name(agent string) string { return "agent-" + agent }

// Pod is the name of the agent's only pod.
func Pod(agent string) string { return Name(agent) + "-0" }

// Volume is the name of the claim that holds the agent's state.
func Volume(agent string) string { return "state-" + Pod(agent) }

func labels(agent string) map[string]string {
	return map[string]string{v1alpha1.LabelAgent: agent, "app.kubernetes.io/name": "nisse-agent", "app.kubernetes.io/instance": agent, "app.kubernetes.io/managed-by": "nisse-manager"}
}

// owner makes the Agent the controller of a child. Without blockOwnerDeletion, which needs a right on finalizers.
func owner(a *v1alpha1.Agent) *metav1ac.OwnerReferenceApplyConfiguration {
	return metav1ac.OwnerReference().WithAPIVersion(v1alpha1.GroupVersion.String()).WithKind("Agent").WithName(a.Name).WithUID(a.UID).WithController(true)
}

// ServiceAccount of the pod. It has no rights, and its token is not mounted: the pod has no business with the API server.
func ServiceAccount(a *v1alpha1.Agent) *corev1ac.ServiceAccountApplyConfiguration {
	return corev1ac.ServiceAccount(Name(a.Name), a.Namespace).WithLabels(labels(a.Name)).WithOwnerReferences(owner(a)).WithAutomountServiceAccountToken(false)
}

// ConfigKey is the file name of the pod's configuration.
const ConfigKey = "config.json"

// ConfigMap with the pod's configuration.
func ConfigMap(a *v1alpha1.Agent, s Settings) (*corev1ac.ConfigMapApplyConfiguration, error) {
	b, err := json.MarshalIndent(runtimeConfig(a, s), "", "  ")
	if err != nil {
		return nil, fmt.Errorf("configuration of agent %s: %w", a.Name, err)
	}
	return corev1ac.ConfigMap(Name(a.Name), a.Namespace).WithLabels(labels(a.Name)).WithOwnerReferences(owner(a)).
		WithData(map[string]string{ConfigKey: string(b) + "\n"}), nil
}

func runtimeConfig(a *v1alpha1.Agent, s Settings) doors.RuntimeConfig {
	role := a.Spec.Models.Roles["executor"]
	c := doors.RuntimeConfig{Agent: a.Name, AgentUID: string(a.UID), BrokerURL: s.BrokerURL, GatewayURL: s.GatewayURL, Prompt: a.Spec.Prompt,
		Model: doors.Model{URL: a.Spec.Models.Endpoint.URL, Model: role.Model, TemperatureMilli: role.TemperatureMilli, MaxTokens: role.MaxTokens,
			TimeoutSeconds: DefaultModelTimeout},
		ToolCallsPerTurn: DefaultToolCallsPerTurn}
	if role.TimeoutSeconds != nil {
		c.Model.TimeoutSeconds = int(*role.TimeoutSeconds)
	}
	if l := a.Spec.Limits; l != nil && l.ToolCallsPerTurn != nil {
		c.ToolCallsPerTurn = int(*l.ToolCallsPerTurn)
	}
	return c
}
