package agent

import (
	"context"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"nisse.io/nisse/api/v1alpha1"
)

// A namesake that is not the agent's is never taken over, with or without the label, and whoever it belongs to. The agent says so, and
// without its walls and its state it gets no pod.
func TestForeignObjectsAreLeftAlone(t *testing.T) {
	ours := map[string]string{v1alpha1.LabelAgent: "ops"}
	of := func(agent string, controls bool) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: "nisse.io/v1alpha1", Kind: "Agent", Name: agent, UID: "of-another-time", Controller: &controls}}
	}
	for name, foreign := range map[string]struct {
		object client.Object
		labels map[string]string
		owners []metav1.OwnerReference
	}{
		"a ServiceAccount of nobody":                          {&corev1.ServiceAccount{}, nil, nil},
		"a ConfigMap of an earlier agent of that name":        {&corev1.ConfigMap{}, ours, of("ops", true)},
		"a NetworkPolicy that bears the label":                {&networkingv1.NetworkPolicy{}, ours, nil},
		"a NetworkPolicy that is not controlled":              {&networkingv1.NetworkPolicy{}, ours, of("ops", false)},
		"a StatefulSet of nobody":                             {selecting(ours), nil, nil},
		"a volume of nobody":                                  {claim(), nil, nil},
		"a volume of another agent":                           {claim(), map[string]string{v1alpha1.LabelAgent: "dev"}, nil},
		"a volume that bears the label and belongs to others": {claim(), ours, of("dev", true)},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			o := foreign.object
			o.SetNamespace(b.NS)
			o.SetName("agent-ops")
			if _, volume := o.(*corev1.PersistentVolumeClaim); volume {
				o.SetName("state-agent-ops-0")
			}
			o.SetLabels(foreign.labels)
			o.SetOwnerReferences(foreign.owners)
			b.Create(o)
			// Its deletion sends no news: the cache holds what bears the label, and a label of another agent wakes that one.
			if r := b.pass(); r.RequeueAfter != recheck {
				t.Errorf("looked at again after %s", r.RequeueAfter)
			}
			b.condition(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonForeignObject)
			version := o.GetResourceVersion()
			b.Read(o)
			if o.GetResourceVersion() != version {
				t.Error("it was changed")
			}
			if _, set := o.(*appsv1.StatefulSet); !set {
				if err := b.Admin.Get(t.Context(), client.ObjectKey{Namespace: b.NS, Name: "agent-ops"}, &appsv1.StatefulSet{}); !apierrors.IsNotFound(err) {
					t.Errorf("a pod all the same: %v", err)
				}
			}
			b.writes.n = 0
			b.pass()
			if b.writes.n != 0 {
				t.Errorf("%d writes while stalled", b.writes.n)
			}
			b.Delete(o)
			// The claim's protection finalizer has no controller here to lift it.
			if p, ok := o.(*corev1.PersistentVolumeClaim); ok {
				b.Update(p, func() { p.Finalizers = nil })
			}
			b.pass()
			b.condition(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonStarting)
			b.objects()
		})
	}
}

func claim() *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}}
}

func selecting(labels map[string]string) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}}}
}

// Somebody makes an object of the wanted name after it was looked for and before it is made. Theirs stays as it is; the loser is quiet
// and sees it the next time.
func TestNamesakeMadeMeanwhile(t *testing.T) {
	b := newBench(t, nil)
	theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.NS, Name: "agent-ops"}, Data: map[string]string{"config.json": "theirs"}}
	once := false
	b.r.Client = b.Intercepted(interceptor.Funcs{Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
		if err := b.Admin.Get(ctx, client.ObjectKey{Namespace: b.NS, Name: "agent-ops"}, &corev1.ServiceAccount{}); err == nil && !once {
			once = true
			b.Create(theirs)
		}
		return c.Apply(ctx, o, opts...)
	}})
	result, err := b.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(b.Agent)})
	if err != nil || result.RequeueAfter == 0 {
		t.Errorf("got %+v, %v; want a quiet second look", result, err)
	}
	b.pass()
	b.condition(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonForeignObject)
	b.Read(theirs)
	if theirs.Data["config.json"] != "theirs" || len(theirs.OwnerReferences) != 0 {
		t.Errorf("it was taken over: %+v", theirs)
	}
}
