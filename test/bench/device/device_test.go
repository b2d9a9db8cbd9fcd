//go:build bench

// Package device measures one call of a device beside ssh, for docs/performance.md. See hack/bench-device.sh, which sets the environment.
package device

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"nisse.io/nisse/broker/devices"
	"nisse.io/nisse/device/config"
	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/internal/deed"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/testrig"
	"nisse.io/nisse/internal/testrig/port"
	"nisse.io/nisse/test/bench"
	"nisse.io/nisse/test/signed"
)

const args = `{"argv":["/bin/true"]}`

func key(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
}

func public(seed byte) ed25519.PublicKey { return key(seed).Public().(ed25519.PublicKey) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// setting of the environment that the script makes.
func setting(t *testing.T, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		t.Fatalf("%s is not set; run hack/bench-device.sh", name)
	}
	return v
}

func number(t *testing.T, name string) int {
	t.Helper()
	n, err := strconv.Atoi(setting(t, name))
	must(t, err)
	return n
}

// rig is a device as it is shipped, in a process of its own, and whoever calls it.
type rig struct {
	t      *testing.T
	target devices.Target
	digest string
	pid    int
	mu     sync.Mutex
	calls  int
}

func start(t *testing.T) *rig {
	t.Helper()
	dir, err := os.MkdirTemp(setting(t, "BENCH_DIR"), "device-")
	must(t, err)
	r := &rig{t: t}
	binary, address := setting(t, "BENCH_DEVICE"), fmt.Sprintf("127.0.0.1:%d", port.For(t))
	o, m := signed.Manifest(t, key(4), "nisse", fmt.Sprintf(`
v: 1
device: web1
privilege: User
keys: {request: [%q], approval: [%q]}
commands: [{argv: [/bin/true], approval: None}]
limits: {writeBytes: 65536, outputBytes: 65536, timeoutSeconds: 60}`, dsse.EncodeKey(public(1)), dsse.EncodeKey(public(2))))
	r.digest, err = m.Digest()
	must(t, err)
	own, _, err := config.MakeKey(filepath.Join(dir, "state"))
	must(t, err)
	file, envelope := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "manifest.json")
	must(t, os.WriteFile(file, []byte(fmt.Sprintf("listen: [%q]\nstateDir: state\ndevice: web1\nrootKey: %s\nkey: state/device.key\nallowRoot: true\n", address, dsse.EncodeKey(public(4)))), 0o600))
	must(t, os.WriteFile(envelope, []byte(o.Spec.Signature), 0o600))
	out, err := exec.CommandContext(t.Context(), binary, "manifest", "install", "--config", file, envelope).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c := exec.Command(binary, "run", "--config", file)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM) // it may have ended
		_ = c.Wait()
	})
	r.pid = c.Process.Pid
	r.target = devices.Target{Name: "web1", URL: "https://" + address, Key: own.Public().(ed25519.PublicKey)}
	client := devices.NewClient(key(1), time.Now)
	testrig.Until(t, "the device to answer", func() bool {
		_, err := client.Status(t.Context(), r.target)
		return err == nil
	})
	return r
}

// call it as the broker does: TLS on a warm connection, request signed, answer verified.
func (r *rig) call(c *devices.Client) error {
	r.mu.Lock()
	r.calls++
	id := fmt.Sprint(r.calls)
	r.mu.Unlock()
	now := time.Now().Unix()
	a, err := c.Call(r.t.Context(), r.target, wire.Request{Device: "web1", ManifestDigest: r.digest, Capability: "exec", Args: args,
		Deed: deed.Free("bench", id), At: now, ExpiresAt: now + 60, CorrelationID: "bench", Agent: "bench"})
	if err == nil && a.State != wire.Succeeded {
		err = fmt.Errorf("it ended %s: %s %s", a.State, a.Reason, a.Message)
	}
	return err
}

// rss of the device in MiB.
func (r *rig) rss() string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.pid))
	must(r.t, err)
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.Atoi(strings.Fields(v)[0])
			must(r.t, err)
			return fmt.Sprintf("%.1f", float64(kb)/1024)
		}
	}
	r.t.Fatal("no VmRSS")
	return ""
}

// run a program and wait for it.
func run(argv ...string) error {
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", argv[0], err, out)
	}
	return nil
}

// rate of calls a second by so many at once, for a time.
func rate(t *testing.T, clients int, d time.Duration, do func() func() error) float64 {
	t.Helper()
	var all sync.WaitGroup
	counts, failed := make([]int, clients), make([]error, clients)
	begun := time.Now()
	for i := range clients {
		all.Go(func() {
			for one := do(); time.Since(begun) < d && failed[i] == nil; counts[i]++ {
				failed[i] = one()
			}
		})
	}
	all.Wait()
	n := 0
	for i := range clients {
		must(t, failed[i])
		n += counts[i]
	}
	return float64(n) / time.Since(begun).Seconds()
}

func TestDevice(t *testing.T) {
	r, ssh, n := start(t), strings.Fields(setting(t, "BENCH_SSH")), number(t, "CALLS")
	atStart := r.rss()
	client := devices.NewClient(key(1), time.Now)
	device := func() error { return r.call(client) }
	ways := []struct {
		name string
		do   func() error
		took []time.Duration
	}{
		{name: "nisse-device: TLS, signatures, manifest, Landlock, run, two audit rows on disk, signed answer", do: device},
		{name: "ssh with a warm ControlMaster", do: func() error { return run(append(ssh, "/bin/true")...) }},
		{name: "of that the program ssh, doing nothing (`ssh -V`)", do: func() error { return run(ssh[0], "-V") }},
		{name: "bare fork of `/bin/true`", do: func() error { return run("/bin/true") }},
	}
	for range 20 { // warm
		for _, w := range ways {
			must(t, w.do())
		}
	}
	for range n {
		for i := range ways {
			begun := time.Now()
			must(t, ways[i].do())
			ways[i].took = append(ways[i].took, time.Since(begun))
		}
	}
	ms := func(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d.Microseconds())/1000) }
	rows := [][]string{{"`exec /bin/true` over loopback", "p50 ms", "p90 ms", "p99 ms"}}
	for _, w := range ways {
		rows = append(rows, []string{w.name, ms(bench.Percentile(w.took, 50)), ms(bench.Percentile(w.took, 90)), ms(bench.Percentile(w.took, 99))})
	}
	must(t, bench.Table(os.Stdout, rows))
	fmt.Println()

	span := time.Duration(number(t, "SECONDS_EACH")) * time.Second
	device1 := func() func() error {
		own := devices.NewClient(key(1), time.Now)
		return func() error { return r.call(own) }
	}
	ssh1 := func() func() error { return ways[1].do }
	rows = [][]string{{"calls a second", "one client", "two clients"}}
	for _, w := range []struct {
		name string
		do   func() func() error
	}{{"nisse-device", device1}, {"ssh with a warm ControlMaster", ssh1}} {
		one, two := rate(t, 1, span, w.do), rate(t, 2, span, w.do)
		rows = append(rows, []string{w.name, fmt.Sprintf("%.0f", one), fmt.Sprintf("%.0f", two)})
	}
	must(t, bench.Table(os.Stdout, rows))
	fmt.Println()

	time.Sleep(time.Duration(number(t, "REST_SECONDS")) * time.Second)
	must(t, bench.Table(os.Stdout, [][]string{{"memory of nisse-device", "RSS MiB"}, {"started, manifest held", atStart},
		{fmt.Sprintf("after %d calls and %s s of rest", r.calls, setting(t, "REST_SECONDS")), r.rss()}}))
}
