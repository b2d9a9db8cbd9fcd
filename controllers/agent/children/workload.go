package children

import (
	"path"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/canonical"
	"nisse.io/nisse/internal/doors"
)

const (
	// Container of the pod.
	Container = "agentruntime"
	// AnnotationConfig on the pod carries the digest of what the pod reads at its start: another configuration is another pod.
	AnnotationConfig = "nisse.io/config"

	metricsPort  = 9090
	nonRoot      = 65532
	tokenSeconds = 3600
)

// PersistentVolumeClaim of the agent's state. It has no owner: deleting an Agent deletes nothing that people said or decided, and
// an Agent of that name made later finds its memory again.
func PersistentVolumeClaim(a *v1alpha1.Agent) *corev1ac.PersistentVolumeClaimApplyConfiguration {
	size, class := resource.MustParse("1Gi"), ""
	if r := a.Spec.Runtime; r != nil && r.Storage != nil {
		class = r.Storage.ClassName
		if r.Storage.Size != nil {
			size = *r.Storage.Size
		}
	}
	spec := corev1ac.PersistentVolumeClaimSpec().WithAccessModes(corev1.ReadWriteOnce).
		WithResources(corev1ac.VolumeResourceRequirements().WithRequests(corev1.ResourceList{corev1.ResourceStorage: size}))
	if class != "" {
		spec = spec.WithStorageClassName(class)
	}
	return corev1ac.PersistentVolumeClaim(Volume(a.Name), a.Namespace).WithLabels(labels(a.Name)).WithSpec(spec)
}

// StatefulSet of one pod at most, whose updates wait until the manager deletes the pod at a safe point.
func StatefulSet(a *v1alpha1.Agent, s Settings, config *corev1ac.ConfigMapApplyConfiguration) *appsv1ac.StatefulSetApplyConfiguration {
	replicas := int32(1)
	if a.Spec.Suspend {
		replicas = 0
	}
	selector := map[string]string{v1alpha1.LabelAgent: a.Name}
	return appsv1ac.StatefulSet(Name(a.Name), a.Namespace).WithLabels(labels(a.Name)).WithOwnerReferences(owner(a)).
		WithSpec(appsv1ac.StatefulSetSpec().
			WithReplicas(replicas).
			WithServiceName(Name(a.Name)).
			WithSelector(metav1ac.LabelSelector().WithMatchLabels(selector)).
			WithUpdateStrategy(appsv1ac.StatefulSetUpdateStrategy().WithType(appsv1.OnDeleteStatefulSetStrategyType)).
			WithRevisionHistoryLimit(2).
			WithTemplate(corev1ac.PodTemplateSpec().
				WithLabels(labels(a.Name)).
				WithAnnotations(map[string]string{AnnotationConfig: canonical.DigestBytes([]byte(config.Data[ConfigKey]))}).
				WithSpec(pod(a, s))))
}

func pod(a *v1alpha1.Agent, s Settings) *corev1ac.PodSpecApplyConfiguration {
	var secrets []*corev1ac.LocalObjectReferenceApplyConfiguration
	for _, name := range s.PullSecrets {
		secrets = append(secrets, corev1ac.LocalObjectReference().WithName(name))
	}
	return corev1ac.PodSpec().
		WithImagePullSecrets(secrets...).
		WithServiceAccountName(Name(a.Name)).
		WithAutomountServiceAccountToken(false).
		WithEnableServiceLinks(false).
		WithTerminationGracePeriodSeconds(30).
		// A network plugin that enforces policies may drop what a pod sends before it knows the pod's address, and the first to go is a
		// question to DNS. It is asked again after one second and not after five, which is most of a pod's start.
		WithDNSConfig(corev1ac.PodDNSConfig().WithOptions(
			corev1ac.PodDNSConfigOption().WithName("timeout").WithValue("1"), corev1ac.PodDNSConfigOption().WithName("attempts").WithValue("5"))).
		WithSecurityContext(corev1ac.PodSecurityContext().WithRunAsNonRoot(true).WithRunAsUser(nonRoot).WithRunAsGroup(nonRoot).WithFSGroup(nonRoot).
			WithFSGroupChangePolicy(corev1.FSGroupChangeOnRootMismatch).
			WithSeccompProfile(corev1ac.SeccompProfile().WithType(corev1.SeccompProfileTypeRuntimeDefault))).
		WithContainers(container(a, s)).
		WithVolumes(volumes(a)...)
}

func container(a *v1alpha1.Agent, s Settings) *corev1ac.ContainerApplyConfiguration {
	memory := resource.MustParse("256Mi")
	if r := a.Spec.Runtime; r != nil && r.MemoryLimit != nil {
		memory = *r.MemoryLimit
	}
	args := []string{"--config=" + doors.PathConfig, "--state=" + doors.PathState, "--broker-token=" + doors.PathBrokerToken, "--gateway-token=" + doors.PathGatewayToken}
	if a.Spec.Models.Endpoint.Credentials != nil {
		args = append(args, "--model-token="+doors.PathModelToken)
	}
	probe := func(p string, period int32) *corev1ac.ProbeApplyConfiguration {
		return corev1ac.Probe().WithHTTPGet(corev1ac.HTTPGetAction().WithPath(p).WithPort(intstr.FromString("metrics"))).WithPeriodSeconds(period)
	}
	mounts := []*corev1ac.VolumeMountApplyConfiguration{
		corev1ac.VolumeMount().WithName("state").WithMountPath(doors.PathState),
		corev1ac.VolumeMount().WithName("config").WithMountPath(path.Dir(doors.PathConfig)).WithReadOnly(true),
		corev1ac.VolumeMount().WithName("tokens").WithMountPath(path.Dir(doors.PathBrokerToken)).WithReadOnly(true),
		corev1ac.VolumeMount().WithName("tmp").WithMountPath("/tmp"),
	}
	if a.Spec.Models.Endpoint.Credentials != nil {
		mounts = append(mounts, corev1ac.VolumeMount().WithName("model").WithMountPath(path.Dir(doors.PathModelToken)).WithReadOnly(true))
	}
	c := corev1ac.Container().WithName(Container).WithImage(s.Image).
		WithArgs(append(args, "--metrics-bind-address=:9090")...).
		WithPorts(corev1ac.ContainerPort().WithName("metrics").WithContainerPort(metricsPort).WithProtocol(corev1.ProtocolTCP)).
		WithSecurityContext(corev1ac.SecurityContext().WithAllowPrivilegeEscalation(false).WithReadOnlyRootFilesystem(true).WithPrivileged(false).
			WithCapabilities(corev1ac.Capabilities().WithDrop("ALL"))).
		WithResources(corev1ac.ResourceRequirements().
			WithRequests(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: minQuantity(resource.MustParse("64Mi"), memory)}).
			WithLimits(corev1.ResourceList{corev1.ResourceMemory: memory})).
		WithLivenessProbe(probe("/healthz", 10).WithFailureThreshold(6)).
		WithReadinessProbe(probe("/readyz", 1)).
		WithVolumeMounts(mounts...)
	if s.PullPolicy != "" {
		c = c.WithImagePullPolicy(s.PullPolicy)
	}
	return c
}

// minQuantity: a request above the limit would be refused.
func minQuantity(a, b resource.Quantity) resource.Quantity {
	if a.Cmp(b) > 0 {
		return b
	}
	return a
}

func volumes(a *v1alpha1.Agent) []*corev1ac.VolumeApplyConfiguration {
	token := func(audience, file string) *corev1ac.VolumeProjectionApplyConfiguration {
		return corev1ac.VolumeProjection().WithServiceAccountToken(corev1ac.ServiceAccountTokenProjection().
			WithAudience(audience).WithExpirationSeconds(tokenSeconds).WithPath(path.Base(file)))
	}
	all := []*corev1ac.VolumeApplyConfiguration{
		corev1ac.Volume().WithName("state").WithPersistentVolumeClaim(corev1ac.PersistentVolumeClaimVolumeSource().WithClaimName(Volume(a.Name))),
		corev1ac.Volume().WithName("config").WithConfigMap(corev1ac.ConfigMapVolumeSource().WithName(Name(a.Name))),
		corev1ac.Volume().WithName("tokens").WithProjected(corev1ac.ProjectedVolumeSource().
			WithSources(token(doors.AudienceBroker, doors.PathBrokerToken), token(doors.AudienceGateway, doors.PathGatewayToken))),
		// SQLite spills large sorts to files; the root is read-only.
		corev1ac.Volume().WithName("tmp").WithEmptyDir(corev1ac.EmptyDirVolumeSource().WithSizeLimit(resource.MustParse("64Mi"))),
	}
	if c := a.Spec.Models.Endpoint.Credentials; c != nil {
		all = append(all, corev1ac.Volume().WithName("model").WithSecret(corev1ac.SecretVolumeSource().WithSecretName(c.Name).
			WithItems(corev1ac.KeyToPath().WithKey(c.Key).WithPath(path.Base(doors.PathModelToken)))))
	}
	return all
}
