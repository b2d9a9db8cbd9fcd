package e2e

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nisse.io/nisse/test/e2e/rig"
)

// What the kernel says of each component's process, not what its manifest asks for.
func TestProcessesAreConfined(t *testing.T) {
	r := rig.Open(t)
	for _, c := range []rig.Component{rig.AgentPod, rig.Manager, rig.Broker, rig.Gateway} {
		t.Run(string(c), func(t *testing.T) {
			pid, err := rig.Process(r.Ready(t, c))
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]string{
				"Uid": "65532 65532 65532 65532", "Gid": "65532 65532 65532 65532",
				"CapEff": "0000000000000000", "CapBnd": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2",
			}
			if diff := cmp.Diff(want, status(t, pid, want)); diff != "" {
				t.Errorf("/proc/%d/status (-want +got):\n%s", pid, diff)
			}
			if options := rootMount(t, pid); !strings.HasPrefix(options, "ro") {
				t.Errorf("the root file system is mounted %s", options)
			}
		})
	}
}

// The agent's pod holds nothing with which to talk to the API server.
func TestAgentHasNoKubernetesToken(t *testing.T) {
	r := rig.Open(t)
	pod := r.Ready(t, rig.AgentPod)
	pid, err := rig.Process(pod)
	if err != nil {
		t.Fatal(err)
	}
	root := fmt.Sprintf("/proc/%d/root", pid)
	if _, err := os.Stat(filepath.Join(root, "var/run/secrets/kubernetes.io")); !os.IsNotExist(err) {
		t.Errorf("there is a service account's directory: %v", err)
	}
	var tokens []string
	for _, v := range pod.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.ServiceAccountToken != nil {
				tokens = append(tokens, s.ServiceAccountToken.Audience)
			}
		}
	}
	if diff := cmp.Diff([]string{"broker", "gateway"}, sorted(tokens)); diff != "" {
		t.Errorf("audiences of its tokens (-want +got):\n%s", diff)
	}
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(env), "KUBERNETES_SERVICE") && pod.Spec.EnableServiceLinks != nil && *pod.Spec.EnableServiceLinks {
		t.Error("the pod is told of every Service of its namespace")
	}
	if strings.Contains(string(env), r.Fact("model-key")) {
		t.Error("the model's key is in the environment, where every child inherits it")
	}
}

// status reads the lines of /proc/PID/status whose names are in like.
func status(t *testing.T, pid int, like map[string]string) map[string]string {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := map[string]string{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		if _, wanted := like[name]; wanted {
			got[name] = strings.Join(strings.Fields(value), " ")
		}
	}
	return got
}

// rootMount is the mount options of a process's root.
func rootMount(t *testing.T, pid int) string {
	t.Helper()
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(mounts), "\n") {
		if f := strings.Fields(line); len(f) > 5 && f[4] == "/" {
			return f[5]
		}
	}
	t.Fatal("no root mount")
	return ""
}
