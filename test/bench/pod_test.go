//go:build bench

package bench

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"nisse.io/nisse/test/apitest"
	"nisse.io/nisse/test/stack"
)

// TestPod deletes an agent's pod on the demo's cluster again and again, and tells how long the next one takes: from the moment the
// API server has it until it is Ready, which it is once the broker has told it what to work on.
func TestPod(t *testing.T) {
	cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		t.Fatal(err)
	}
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	pods, name, began := kube.CoreV1().Pods("nisse"), "agent-"+stack.Agent+"-0", load(t)
	var ways Ways
	n := number(t, "BENCH_PODS", 5)
	for range n {
		var old *corev1.Pod
		apitest.Wait(t, 2*time.Minute, func(ctx context.Context) (err error) { // the one before may just have been replaced by a newer template
			if old, err = pods.Get(ctx, name, metav1.GetOptions{}); err == nil && (!is(old, corev1.PodReady) || !old.DeletionTimestamp.IsZero()) {
				err = fmt.Errorf("pod %s is not ready", name)
			}
			return err
		})
		w, err := pods.Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name, ResourceVersion: old.ResourceVersion})
		if err != nil {
			t.Fatal(err)
		}
		if err := pods.Delete(t.Context(), name, *metav1.NewPreconditionDeleteOptions(string(old.UID))); err != nil {
			t.Fatal(err)
		}
		var made, running, ready time.Time
		for e := range w.ResultChan() {
			p, ok := e.Object.(*corev1.Pod)
			if !ok || p.UID == old.UID {
				continue
			}
			if made.IsZero() {
				made = time.Now()
			}
			if running.IsZero() && p.Status.Phase == corev1.PodRunning {
				running = time.Now()
			}
			if is(p, corev1.PodReady) {
				ready = time.Now()
				break
			}
		}
		w.Stop()
		if err := ways.Add(made, []Mark{{"pod made → Running", running}, {"Ready", ready}}); err != nil {
			t.Fatal(err)
		}
	}
	heading("An agent's pod on the demo's cluster, its image there already (N=%d, load %s → %s)", n, began, load(t))
	if err := ways.Print(os.Stdout); err != nil {
		t.Fatal(err)
	}
	fmt.Println()
}

func is(p *corev1.Pod, kind corev1.PodConditionType) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
