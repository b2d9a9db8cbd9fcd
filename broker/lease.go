package broker

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// LeaseName of the Lease in the system namespace that the serving broker holds.
const LeaseName = "nisse-broker"

// Lease is the fence between an old leader and the new one: it is read live before anything is signed, because a process that was
// stopped for a while still believes what it knew before.
type Lease struct {
	Kube      kubernetes.Interface
	Namespace string
	Identity  string
}

// Held tells whether the lease is this broker's.
func (l Lease) Held(ctx context.Context) error {
	lease, err := l.Kube.CoordinationV1().Leases(l.Namespace).Get(ctx, LeaseName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read lease %s: %w", LeaseName, err)
	}
	if h := lease.Spec.HolderIdentity; h == nil || *h != l.Identity {
		return fmt.Errorf("lease %s is another broker's; this one sends nothing any more", LeaseName)
	}
	return nil
}
