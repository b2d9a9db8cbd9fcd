package children

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	networkingv1ac "k8s.io/client-go/applyconfigurations/networking/v1"

	"nisse.io/nisse/api/v1alpha1"
)

const (
	// DoorPort of broker and gateway.
	DoorPort = 8080
	dnsPort  = 53
)

// Endpoint is where the model is, in the terms of a NetworkPolicy.
type Endpoint struct {
	CIDR netip.Prefix
	Port int32
}

// ModelEndpoint turns the Agent's model endpoint into a network rule. NetworkPolicy knows no host names, so a name needs a CIDR
// beside it.
func ModelEndpoint(e v1alpha1.ModelEndpoint) (Endpoint, error) {
	u, err := url.Parse(e.URL)
	if err != nil {
		return Endpoint{}, fmt.Errorf("url: %w", err)
	}
	port := map[string]int32{"http": 80, "https": 443}[u.Scheme]
	if port == 0 || u.Hostname() == "" {
		return Endpoint{}, fmt.Errorf("url %q: want http:// or https:// and a host", e.URL)
	}
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return Endpoint{}, fmt.Errorf("url %q: port %q is not one", e.URL, p)
		}
		port = int32(n)
	}
	if e.CIDR != "" {
		prefix, err := netip.ParsePrefix(e.CIDR)
		if err != nil {
			return Endpoint{}, fmt.Errorf("cidr: %w", err)
		}
		return Endpoint{prefix.Masked(), port}, nil
	}
	addr, err := netip.ParseAddr(u.Hostname())
	if err != nil {
		return Endpoint{}, errors.New("cidr is required when the URL's host is a name: NetworkPolicy knows no host names")
	}
	return Endpoint{netip.PrefixFrom(addr, addr.BitLen()), port}, nil
}

// NetworkPolicy lets nothing in, and out only to the two doors, DNS, the model and what the Agent lists with a reason.
func NetworkPolicy(a *v1alpha1.Agent, s Settings, model Endpoint) *networkingv1ac.NetworkPolicyApplyConfiguration {
	egress := []*networkingv1ac.NetworkPolicyEgressRuleApplyConfiguration{
		rule(podsIn(s.SystemNamespace, "app.kubernetes.io/name", "nisse", "app.kubernetes.io/component", "broker"), tcp(DoorPort)),
		rule(podsIn(s.SystemNamespace, "app.kubernetes.io/name", "nisse", "app.kubernetes.io/component", "gateway"), tcp(DoorPort)),
		rule(podsIn("kube-system", "k8s-app", "kube-dns"), port(corev1.ProtocolUDP, dnsPort), tcp(dnsPort)),
		rule(block(model.CIDR.String()), tcp(model.Port)),
	}
	for _, e := range a.Spec.Egress {
		var ports []*networkingv1ac.NetworkPolicyPortApplyConfiguration
		for _, p := range e.Ports {
			ports = append(ports, tcp(p))
		}
		egress = append(egress, rule(block(e.To), ports...))
	}
	return networkingv1ac.NetworkPolicy(Name(a.Name), a.Namespace).WithLabels(labels(a.Name)).WithOwnerReferences(owner(a)).
		WithSpec(networkingv1ac.NetworkPolicySpec().
			WithPodSelector(metav1ac.LabelSelector().WithMatchLabels(map[string]string{v1alpha1.LabelAgent: a.Name})).
			WithPolicyTypes(networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress).
			WithEgress(egress...))
}

func rule(to *networkingv1ac.NetworkPolicyPeerApplyConfiguration, ports ...*networkingv1ac.NetworkPolicyPortApplyConfiguration) *networkingv1ac.NetworkPolicyEgressRuleApplyConfiguration {
	return networkingv1ac.NetworkPolicyEgressRule().WithTo(to).WithPorts(ports...)
}

func podsIn(namespace string, pairs ...string) *networkingv1ac.NetworkPolicyPeerApplyConfiguration {
	match := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		match[pairs[i]] = pairs[i+1]
	}
	return networkingv1ac.NetworkPolicyPeer().
		WithNamespaceSelector(metav1ac.LabelSelector().WithMatchLabels(map[string]string{corev1.LabelMetadataName: namespace})).
		WithPodSelector(metav1ac.LabelSelector().WithMatchLabels(match))
}

func block(cidr string) *networkingv1ac.NetworkPolicyPeerApplyConfiguration {
	return networkingv1ac.NetworkPolicyPeer().WithIPBlock(networkingv1ac.IPBlock().WithCIDR(cidr))
}

func tcp(n int32) *networkingv1ac.NetworkPolicyPortApplyConfiguration {
	return port(corev1.ProtocolTCP, n)
}

func port(protocol corev1.Protocol, n int32) *networkingv1ac.NetworkPolicyPortApplyConfiguration {
	return networkingv1ac.NetworkPolicyPort().WithProtocol(protocol).WithPort(intstr.FromInt32(n))
}
