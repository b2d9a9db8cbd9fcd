// Package lead says who of a component's processes acts: the holder of its Lease.
package lead

import (
	"crypto/rand"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// How fast another process takes over when the holder vanishes without a word. People wait that long for an answer; a holder that is
// told to end lets go at once.
const (
	Duration = 10 * time.Second
	Renew    = 7 * time.Second
	Retry    = 2 * time.Second
)

// InPod is the variable that the kubelet sets in every container.
const InPod = "KUBERNETES_SERVICE_HOST"

// Identity of this process as a holder. In a pod it is the pod's name: when its container is restarted the process before is surely
// gone, and the new one need not wait for the Lease to lapse. Elsewhere every process is somebody else.
func Identity() string {
	host, err := os.Hostname()
	if err != nil || os.Getenv(InPod) == "" {
		return host + "_" + rand.Text()
	}
	return host
}

// Lock is the Lease by which the holder is known. A request about it that hangs is given up while there is time for another.
func Lock(cfg *rest.Config, namespace, name, identity string) (resourcelock.Interface, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = Renew / 2
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("reach the API server: %w", err)
	}
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, namespace, name, kube.CoreV1(), kube.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: identity})
	if err != nil {
		return nil, fmt.Errorf("lease %s/%s: %w", namespace, name, err)
	}
	return lock, nil
}
