package rig

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/test/signed"
)

// DeviceUser is the account that the demo's device runs as, and a test's own.
const DeviceUser = "nisse"

// Machine of a test's own, with a device on it.
type Machine struct {
	Name string
	// Files that agents may use; they belong to DeviceUser.
	Files string
	// Process of the device.
	Process *os.Process

	rig    *Rig
	dir    string
	prefix []string // of its programs
}

// Machine whose device is an account of its own and listens beside the demo's.
func (r *Rig) Machine(t testing.TB, name string) *Machine {
	t.Helper()
	m := r.machine(t, name, DeviceUser, "setpriv", "--reuid="+DeviceUser, "--regid="+DeviceUser, "--init-groups", "--no-new-privs")
	m.run(t, m.freeAddress(t, r.NodeIP), "")
	return m
}

// RootMachine whose device is root, in a network namespace of the test's own; what names nobody runs as DeviceUser.
func (r *Rig) RootMachine(t testing.TB, name string) *Machine {
	t.Helper()
	const here, there = "198.18.73.1", "198.18.73.2" // of RFC 2544, which nobody routes
	space, cable := "nisse-"+name, "ve-"+name
	ip := func(args ...string) { t.Helper(); r.Command(t, "ip", args...) }
	_ = command(exec.CommandContext(t.Context(), "ip", "netns", "delete", space)) // of a run that was killed
	ip("netns", "add", space)
	t.Cleanup(func() { // and the cable with it
		if err := command(exec.CommandContext(context.WithoutCancel(t.Context()), "ip", "netns", "delete", space)); err != nil {
			t.Error(err)
		}
	})
	ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
	ip("address", "add", here+"/30", "dev", cable)
	ip("link", "set", cable, "up")
	ip("-n", space, "address", "add", there+"/30", "dev", "eth0")
	ip("-n", space, "link", "set", "eth0", "up")
	ip("-n", space, "link", "set", "lo", "up")
	m := r.machine(t, name, "root", "ip", "netns", "exec", space)
	m.run(t, there+":7443", "allowRoot: true\nuser: "+DeviceUser+"\n")
	return m
}

// machine with a key, whose device does not run yet; its programs are run with a prefix, which makes them the owner's.
func (r *Rig) machine(t testing.TB, name, owner string, prefix ...string) *Machine {
	t.Helper()
	dir, err := os.MkdirTemp("", "nisse-e2e-") // where other accounts come to, too
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	m := &Machine{Name: name, Files: filepath.Join(dir, "files"), rig: r, dir: dir, prefix: prefix}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	m.Give(t, m.Files)
	r.Command(t, "install", "-d", "-m", "0700", "-o", owner, filepath.Join(dir, "state"))
	m.nisseDevice(t, "init", "--dir", filepath.Join(dir, "state"))
	return m
}

// Give the device's account a directory, which is made.
func (m *Machine) Give(t testing.TB, dir string) {
	t.Helper()
	m.rig.Command(t, "install", "-d", "-m", "0755", "-o", DeviceUser, "-g", DeviceUser, dir)
}

func (m *Machine) freeAddress(t testing.TB, ip string) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (m *Machine) command(ctx context.Context, args ...string) *exec.Cmd {
	args = append(append([]string{}, m.prefix[1:]...), append([]string{filepath.Join(m.rig.Dir, "bin", "nisse-device")}, args...)...)
	return exec.CommandContext(ctx, m.prefix[0], args...)
}

func (m *Machine) nisseDevice(t testing.TB, args ...string) string {
	t.Helper()
	out, err := m.command(t.Context(), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("nisse-device %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// run the device, and let the cluster know it.
func (m *Machine) run(t testing.TB, address, more string) {
	t.Helper()
	root := m.rig.Fact("root-key")
	config, state := filepath.Join(m.dir, "config.yaml"), filepath.Join(m.dir, "state")
	text := fmt.Sprintf("listen: [%q]\nstateDir: %s\ndevice: %s\nrootKey: %s\nkey: %s/device.key\n%s", address, state, m.Name, root, state, more)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(m.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	c := m.command(context.WithoutCancel(t.Context()), "run", "--config", config)
	c.Stdout, c.Stderr = log, log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	m.Process = c.Process
	t.Cleanup(func() {
		_ = c.Process.Signal(os.Interrupt) // it may have ended
		_ = c.Wait()
		if said, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("--- device %s\n%s", m.Name, said)
		}
	})
	id := regexp.MustCompile(`publicKey: (\S+)`).FindStringSubmatch(m.nisseDevice(t, "id", "--config", config))
	if id == nil {
		t.Fatalf("device %s tells no key", m.Name)
	}
	d := &api.Device{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: m.Name}, Spec: api.DeviceSpec{URL: "https://" + address, PublicKey: id[1], RootKey: root}}
	m.rig.create(t, d)
}

// create an object for the time of the test, in the place of one that a killed test left.
func (r *Rig) create(t testing.TB, o client.Object) {
	t.Helper()
	old := o.DeepCopyObject().(client.Object)
	if err := r.Admin.Delete(t.Context(), old); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	if err := r.Admin.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Admin.Delete(context.WithoutCancel(t.Context()), old); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
}

// Allow what a manifest says beyond its head and its keys; the demo's root key signs it.
func (m *Machine) Allow(t testing.TB, p api.Privilege, rules string) {
	t.Helper()
	pem, err := os.ReadFile(filepath.Join(m.rig.Dir, "root.key"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := dsse.ParsePrivateKey(pem)
	if err != nil {
		t.Fatal(err)
	}
	var keys corev1.ConfigMap
	if err := m.rig.Admin.Get(t.Context(), client.ObjectKey{Namespace: System, Name: "nisse-public-keys"}, &keys); err != nil {
		t.Fatal(err)
	}
	head := fmt.Sprintf("v: 1\ndevice: %s\nprivilege: %s\nkeys: {request: [%q], approval: [%q]}\nlimits: {writeBytes: 65536, outputBytes: 262144, timeoutSeconds: 60}\n",
		m.Name, p, keys.Data["request"], keys.Data["approval"])
	o, _ := signed.Manifest(t, key, Namespace, head+rules)
	m.rig.create(t, o)
}

// Online waits until the device answers the broker under what it is allowed.
func (m *Machine) Online(t testing.TB) {
	t.Helper()
	m.rig.Wait(t, "device "+m.Name+" is online", Patience, func(ctx context.Context) error {
		var d api.Device
		if err := m.rig.Admin.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: m.Name}, &d); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(d.Status.Conditions, api.ConditionOnline) {
			return fmt.Errorf("%+v", d.Status.Conditions)
		}
		return nil
	})
}

// AuditIsWhole fails unless the device's audit chain verifies.
func (m *Machine) AuditIsWhole(t testing.TB) {
	t.Helper()
	if out := m.nisseDevice(t, "audit", "verify", "--config", filepath.Join(m.dir, "config.yaml")); !strings.Contains(out, "whole") {
		t.Errorf("audit verify of %s: %s", m.Name, out)
	}
}
