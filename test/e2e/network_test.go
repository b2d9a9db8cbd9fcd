package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nisse.io/nisse/test/e2e/rig"
)

// An agent's pod reaches its two doors, DNS and its model, and nothing else. Asked from inside the pod's own network namespace.
func TestAgentReachesItsDoorsAlone(t *testing.T) {
	r := rig.Open(t)
	pid, err := rig.Process(r.Ready(t, rig.AgentPod))
	if err != nil {
		t.Fatal(err)
	}
	broker, gateway := r.Ready(t, rig.Broker), r.Ready(t, rig.Gateway)
	model := strings.TrimSuffix(strings.TrimPrefix(r.Fact("model-url"), "http://"), "/v1")
	for name, to := range map[string]struct {
		address string
		reached bool
	}{
		"the broker's door":              {service(t, r, rig.System, "nisse-broker") + ":8080", true},
		"the gateway's door":             {service(t, r, rig.System, "nisse-gateway") + ":8080", true},
		"DNS":                            {service(t, r, "kube-system", "kube-dns") + ":53", true},
		"the model":                      {model, true},
		"the API server, by its Service": {service(t, r, "default", "kubernetes") + ":443", false},
		"the API server, by its node":    {r.NodeIP + ":6443", false},
		"the kubelet":                    {r.NodeIP + ":10250", false},
		"the homeserver":                 {r.NodeIP + ":8008", false},
		"the device":                     {r.NodeIP + ":7443", false},
		"the broker's metrics":           {broker.Status.PodIP + ":9090", false},
		"the gateway's metrics":          {gateway.Status.PodIP + ":9090", false},
		"the manager's metrics":          {r.Ready(t, rig.Manager).Status.PodIP + ":9090", false},
		"a cloud's metadata":             {"169.254.169.254:80", false},
		"an address outside":             {"192.0.2.1:80", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of them wait for an answer that does not come
			if got := connects(t, pid, to.address); got != to.reached {
				t.Errorf("connection to %s: %t, want %t", to.address, got, to.reached)
			}
		})
	}
}

// Nothing but agents' pods reaches a door: not another pod of the agents' namespace, and not one of another agent's name elsewhere.
func TestDoorsAreForAgentsAlone(t *testing.T) {
	r := rig.Open(t)
	for _, door := range []rig.Component{rig.Broker, rig.Gateway} {
		other := rig.Broker
		if door == rig.Broker {
			other = rig.Gateway
		}
		pid, err := rig.Process(r.Ready(t, other))
		if err != nil {
			t.Fatal(err)
		}
		address := r.Ready(t, door).Status.PodIP + ":8080"
		t.Run(fmt.Sprintf("%s from %s", door, other), func(t *testing.T) {
			t.Parallel()
			if connects(t, pid, address) {
				t.Errorf("%s reaches the door of %s", other, door)
			}
		})
	}
}

func service(t *testing.T, r *rig.Rig, namespace, name string) string {
	t.Helper()
	var s corev1.Service
	if err := r.Admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &s); err != nil {
		t.Fatal(err)
	}
	return s.Spec.ClusterIP
}

// connects tells whether a TCP connection from the process's network namespace comes about. Policies drop packets, so that it does
// not is seen by time passing; the wait covers the retransmission of a lost first packet.
func connects(t *testing.T, pid int, address string) bool {
	t.Helper()
	host, port, found := strings.Cut(address, ":")
	if !found {
		t.Fatalf("%q has no port", address)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	return exec.CommandContext(ctx, "nsenter", "--target", strconv.Itoa(pid), "--net", "--",
		"bash", "-c", fmt.Sprintf("exec 3<>/dev/tcp/%s/%s", host, port)).Run() == nil
}

func sorted(s []string) []string {
	slices.Sort(s)
	return s
}
