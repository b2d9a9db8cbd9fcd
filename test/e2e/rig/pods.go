package rig

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Component that runs in a pod: one of agent, manager, broker, gateway.
type Component string

// Components of the product that a test may kill.
const (
	AgentPod Component = "agent"
	Manager  Component = "manager"
	Broker   Component = "broker"
	Gateway  Component = "gateway"
)

// Pod of a component that is meant to run.
func (r *Rig) Pod(ctx context.Context, c Component) (*corev1.Pod, error) {
	in, labels := client.InNamespace(System), client.MatchingLabels{"app.kubernetes.io/component": string(c)}
	if c == AgentPod {
		in, labels = client.InNamespace(Namespace), client.MatchingLabels{"nisse.io/agent": r.Agent}
	}
	var l corev1.PodList
	if err := r.Admin.List(ctx, &l, in, labels); err != nil {
		return nil, err
	}
	for i := range l.Items {
		if p := &l.Items[i]; p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning {
			return p, nil
		}
	}
	return nil, fmt.Errorf("no pod of %s runs (%d pods)", c, len(l.Items))
}

// Kill a component's pod without a word to it: its process gets SIGKILL, then its object is gone at once.
func (r *Rig) Kill(t testing.TB, c Component) {
	t.Helper()
	var pod *corev1.Pod
	r.Wait(t, fmt.Sprintf("a pod of %s", c), Patience, func(ctx context.Context) (err error) {
		pod, err = r.Pod(ctx, c)
		return err
	})
	pid, err := Process(pod)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := r.Admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
}

// Ready waits until a component's pod is ready.
func (r *Rig) Ready(t testing.TB, c Component) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	r.Wait(t, fmt.Sprintf("%s is ready", c), Patience, func(ctx context.Context) (err error) {
		if pod, err = r.Pod(ctx, c); err != nil {
			return err
		}
		for _, k := range pod.Status.Conditions {
			if k.Type == corev1.PodReady && k.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("%s is not ready", pod.Name)
	})
	return pod
}

// Process of a pod on this machine, found by the pod's UID in its control group. The pause process is not meant.
func Process(pod *corev1.Pod) (int, error) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return 0, err
	}
	for _, dir := range dirs {
		group, err := os.ReadFile(filepath.Join(dir, "cgroup"))
		if err != nil || !strings.Contains(strings.ReplaceAll(string(group), "_", "-"), string(pod.UID)) {
			continue
		}
		exe, err := os.Readlink(filepath.Join(dir, "exe"))
		if err != nil || filepath.Base(exe) == "pause" {
			continue
		}
		return strconv.Atoi(filepath.Base(dir))
	}
	return 0, fmt.Errorf("no process of pod %s is found on this machine", pod.Name)
}

// Dump what every component said last into the test's log.
func (r *Rig) Dump(t testing.TB) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	cs, err := kubernetes.NewForConfig(r.Config)
	if err != nil {
		t.Log(err)
		return
	}
	lines := int64(15)
	for _, ns := range []string{System, Namespace} {
		pods, err := cs.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Log(err)
			return
		}
		for _, p := range pods.Items {
			text, err := cs.CoreV1().Pods(ns).GetLogs(p.Name, &corev1.PodLogOptions{TailLines: &lines}).DoRaw(ctx)
			t.Logf("--- %s/%s %s: %v\n%s", ns, p.Name, p.Status.Phase, err, text)
		}
	}
	if out, err := os.ReadFile(filepath.Join(r.Dir, "log", "device.log")); err == nil {
		all := strings.Split(strings.TrimSpace(string(out)), "\n")
		t.Logf("--- device\n%s", strings.Join(all[max(0, len(all)-15):], "\n"))
	}
	if c, err := r.You.Conversation(ctx, r.Room); err == nil {
		var b strings.Builder
		if err := c.Print(&b); err == nil {
			t.Logf("--- the room\n%s", b.String())
		}
	}
}
