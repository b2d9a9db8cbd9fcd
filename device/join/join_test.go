package join

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	sample "nisse.io/nisse/config/device"
	"nisse.io/nisse/device/config"
	"nisse.io/nisse/internal/dsse"
)

var here = []Local{{"lo", netip.MustParseAddr("127.0.0.1")}, {"eth0", netip.MustParseAddr("203.0.113.9")}, {"wg0", netip.MustParseAddr("10.8.0.7")},
	{"tailscale0", netip.MustParseAddr("100.101.102.103")}, {"wg0", netip.MustParseAddr("fd7a::7")}}

func resolve(host string) ([]netip.Addr, error) {
	switch host {
	case "web1": // as Debian has it
		return []netip.Addr{netip.MustParseAddr("127.0.1.1")}, nil
	case "web1.mesh":
		return []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.8.0.7"), netip.MustParseAddr("192.168.1.1")}, nil
	case "both":
		return []netip.Addr{netip.MustParseAddr("10.8.0.7"), netip.MustParseAddr("fd7a::7")}, nil
	}
	return nil, errors.New("no such host")
}

func TestAddress(t *testing.T) {
	for _, c := range []struct {
		asked string
		open  bool
		want  string
		err   string
	}{
		{asked: "10.8.0.7:7443", want: "10.8.0.7:7443"},
		{asked: "100.101.102.103:7443", want: "100.101.102.103:7443"},
		{asked: "[fd7a::7]:7443", want: "[fd7a::7]:7443"},
		{asked: "[::ffff:10.8.0.7]:7443", want: "10.8.0.7:7443"},
		{asked: "127.0.0.1:7443", want: "127.0.0.1:7443"},
		{asked: "web1.mesh:7443", want: "10.8.0.7:7443"},
		{asked: "0.0.0.0:7443", err: "--open-to-everybody"},
		{asked: "[::]:7443", err: "every address"},
		{asked: ":7443", err: "10.8.0.7 (wg0)"},
		{asked: "[::ffff:0.0.0.0]:7443", err: "every address"},
		{asked: "0.0.0.0:7443", open: true, want: "0.0.0.0:7443"},
		{asked: ":7443", open: true, want: "[::]:7443"},
		{asked: "203.0.113.9:7443", err: "public address"},
		{asked: "203.0.113.9:7443", open: true, want: "203.0.113.9:7443"},
		{asked: "10.8.0.8:7443", err: "no interface"},
		{asked: "10.8.0.8:7443", open: true, err: "Bring the mesh up first"},
		{asked: "web1:7443", err: "leads to no address"},
		{asked: "both:7443", err: "several"},
		{asked: "elsewhere:7443", err: "no such host"},
		{asked: "10.8.0.7", err: "address:port"},
		{asked: "10.8.0.7:443", err: "1024"},
		{asked: "10.8.0.7:70000", err: "1024"},
		{asked: "", err: "address:port"},
	} {
		got, err := address(c.asked, c.open, here, resolve)
		if c.err == "" && (err != nil || got.String() != c.want) || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%q, open %v: %s, %v", c.asked, c.open, got, err)
		}
	}
}

// bench is a machine below a directory, whose account is the test's own.
type bench struct {
	t *testing.T
	*machine
	out bytes.Buffer
	ran []string // of systemctl
	on  bool
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t}
	self := filepath.Join(t.TempDir(), "nisse-device")
	if err := os.WriteFile(self, []byte("the program"), 0o755); err != nil {
		t.Fatal(err)
	}
	b.machine = &machine{root: t.TempDir(), self: self, here: here, resolve: resolve, out: &b.out,
		identity: func(context.Context) (int, int, bool, error) { return os.Getuid(), os.Getgid(), false, nil },
		admin:    owner{os.Getuid(), os.Getgid()}, holds: func(context.Context, config.Config) bool { return false },
		systemctl: func(_ context.Context, args ...string) error {
			switch args[0] {
			case "is-enabled", "is-active":
				if !b.on {
					return errors.New("no")
				}
				return nil
			case "restart":
				b.on = true
			}
			b.ran = append(b.ran, args[0])
			return nil
		}}
	return b
}

func root(seed byte) string {
	return dsse.EncodeKey(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize)).Public().(ed25519.PublicKey))
}

var fine = Options{Device: "web1", RootKey: root(1), Listen: "10.8.0.7:7443", Namespace: "nisse"}

func (b *bench) do(o Options) (string, error) {
	b.t.Helper()
	b.out.Reset()
	b.ran, b.changed = nil, false
	err := b.join(b.t.Context(), o)
	return b.out.String(), err
}

// files with their modes, contents and times.
func (b *bench) files() map[string]string {
	b.t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(b.root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		what := info.Mode().String()
		if !d.IsDir() {
			content, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			what += info.ModTime().String() + string(content)
		}
		all[strings.TrimPrefix(p, b.root)] = what
		return nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return all
}

func TestJoin(t *testing.T) {
	b := newBench(t)
	out, err := b.do(fine)
	if err != nil {
		t.Fatal(err)
	}
	for file, mode := range map[string]fs.FileMode{configFile: 0o600, stateDir: fs.ModeDir | 0o700, config.KeyFile(stateDir): 0o600, program: 0o755, unitFile: 0o644, filesDir: fs.ModeDir | 0o755} {
		if info, err := os.Stat(b.path(file)); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v, want %v", file, info.Mode(), err, mode)
		}
	}
	c, err := config.Read(b.path(configFile))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(config.Config{Listen: []string{"10.8.0.7:7443"}, StateDir: stateDir, Device: "web1", RootKey: root(1), Key: config.KeyFile(stateDir), File: b.path(configFile)}, c); d != "" {
		t.Error(d)
	}
	key, err := config.PrivateKey(b.path(c.Key))
	if err != nil {
		t.Fatal(err)
	}
	line := "kubectl nisse enroll web1 -n nisse --device-key " + dsse.EncodeKey(key.Public().(ed25519.PublicKey))
	if !strings.Contains(out, line) {
		t.Errorf("it does not say %q:\n%s", line, out)
	}
	if d := cmp.Diff([]string{"daemon-reload", "enable", "restart"}, b.ran); d != "" {
		t.Error(d)
	}

	// Again: nothing is written, nothing is restarted, and the line is told once more.
	before := b.files()
	out, err = b.do(fine)
	if err != nil || !strings.Contains(out, "nothing was changed") || !strings.Contains(out, line) || len(b.ran) > 0 {
		t.Errorf("%v, systemctl %q:\n%s", err, b.ran, out)
	}
	if d := cmp.Diff(before, b.files()); d != "" {
		t.Error(d)
	}

	// It was stopped meanwhile.
	b.on = false
	if out, err = b.do(fine); err != nil || !slices.Equal(b.ran, []string{"enable", "restart"}) || strings.Contains(out, "nothing was changed") {
		t.Errorf("%v, systemctl %q:\n%s", err, b.ran, out)
	}

	// A newer program is put in place and runs.
	if err := os.WriteFile(b.self, []byte("a newer program"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err = b.do(fine); err != nil || !slices.Equal(b.ran, []string{"enable", "restart"}) {
		t.Errorf("%v, systemctl %q", err, b.ran)
	}
	if got, _ := os.ReadFile(b.path(program)); string(got) != "a newer program" {
		t.Errorf("got %q", got)
	}
}

// What somebody set themselves stays.
func TestJoinKeepsWhatIsThere(t *testing.T) {
	b := newBench(t)
	if _, err := b.do(fine); err != nil {
		t.Fatal(err)
	}
	own := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(b.path(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	conf, err := os.ReadFile(b.path(configFile))
	if err != nil {
		t.Fatal(err)
	}
	own(configFile, string(conf)+"busy: 3\n")
	own(unitFile, "[Unit]\n")
	before := b.files()
	out, err := b.do(fine)
	if err != nil || !strings.Contains(out, "which join did not write") {
		t.Errorf("%v:\n%s", err, out)
	}
	if d := cmp.Diff(before, b.files()); d != "" {
		t.Error(d)
	}
	// A unit of an older join is brought up to date.
	mark, _, _ := strings.Cut(sample.Unit, "\n")
	own(unitFile, mark+"\n[Unit]\n")
	if _, err := b.do(fine); err != nil || !slices.Contains(b.ran, "daemon-reload") {
		t.Errorf("%v, systemctl %q", err, b.ran)
	}
	if got, _ := os.ReadFile(b.path(unitFile)); string(got) != sample.Unit {
		t.Errorf("got %q", got)
	}
	// A key that others may read is no key.
	if err := os.Chmod(b.path(config.KeyFile(stateDir)), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := b.do(fine); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("got %v", err)
	}
}

// A line that is wrong, or another machine's, does nothing at all.
func TestJoinRefuses(t *testing.T) {
	joined := newBench(t)
	if _, err := joined.do(fine); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		on    *bench
		spoil func(*Options)
		want  string
	}{
		"no name":            {newBench(t), func(o *Options) { o.Device = "Web_1" }, "lower-case"},
		"a path as a name":   {newBench(t), func(o *Options) { o.Device = "../x" }, "lower-case"},
		"no key":             {newBench(t), func(o *Options) { o.RootKey = "AAAA" }, "--root-key"},
		"a key of no use":    {newBench(t), func(o *Options) { o.RootKey = strings.Repeat("A", 43) + "=" }, "--root-key"},
		"every address":      {newBench(t), func(o *Options) { o.Listen = "0.0.0.0:7443" }, "strangers"},
		"another name":       {joined, func(o *Options) { o.Device = "web2" }, "device: web1"},
		"another root key":   {joined, func(o *Options) { o.RootKey = root(2) }, "rootKey: " + root(1)},
		"another address":    {joined, func(o *Options) { o.Listen = "100.101.102.103:7443" }, `listen: ["10.8.0.7:7443"]`},
		"every address, too": {joined, func(o *Options) { o.Listen, o.Open = ":7443", true }, `listen: ["10.8.0.7:7443"]`},
	} {
		t.Run(name, func(t *testing.T) {
			before, o := c.on.files(), fine
			c.spoil(&o)
			if _, err := c.on.do(o); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if d := cmp.Diff(before, c.on.files()); d != "" || len(c.on.ran) > 0 {
				t.Errorf("it did something: %s, %q", d, c.on.ran)
			}
		})
	}
}

// Without systemd it says what to run.
func TestJoinWithoutSystemd(t *testing.T) {
	b := newBench(t)
	b.systemctl = nil
	out, err := b.do(fine)
	if err != nil || !strings.Contains(out, "runuser -u nisse-device -- /usr/local/bin/nisse-device run --config /etc/nisse/device.yaml") {
		t.Errorf("%v:\n%s", err, out)
	}
}
