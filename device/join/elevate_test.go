package join

import (
	"context"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	sample "nisse.io/nisse/config/device"
	"nisse.io/nisse/device/config"
)

var raised = Options{Device: fine.Device, RootKey: fine.RootKey, Listen: fine.Listen, Namespace: fine.Namespace, Elevated: true}

// someone is the device's account where the test may give files away, and the test itself where it may not.
func someone() int {
	if os.Getuid() == 0 {
		return 65534
	}
	return os.Getuid()
}

func newRaisable(t *testing.T) *bench {
	b := newBench(t)
	b.identity = func(context.Context) (int, int, bool, error) { return someone(), os.Getgid(), false, nil }
	b.admin = owner{os.Getuid(), os.Getgid()}
	return b
}

// owners of what join makes.
func (b *bench) owners() map[string]int {
	b.t.Helper()
	all := map[string]int{}
	for _, f := range []string{stateDir, config.KeyFile(stateDir), configFile, filesDir} {
		info, err := os.Lstat(b.path(f))
		if err != nil {
			b.t.Fatal(err)
		}
		all[f] = int(info.Sys().(*syscall.Stat_t).Uid)
	}
	return all
}

// A device that is root: what it is held by is root's alone, and what no manifest says runs as root does not.
func TestJoinElevated(t *testing.T) {
	b := newRaisable(t)
	if _, err := b.do(raised); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(b.path(configFile))
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	c, err := config.Read(b.path(configFile))
	if err != nil || !c.AllowRoot || c.User != account {
		t.Errorf("%+v, %v", c, err)
	}
	if got, err := os.ReadFile(b.path(unitFile)); err != nil || string(got) != sample.ElevatedUnit {
		t.Errorf("%v: %s", err, got)
	}
	me := os.Getuid()
	if d := cmp.Diff(map[string]int{stateDir: me, config.KeyFile(stateDir): me, configFile: me, filesDir: someone()}, b.owners()); d != "" {
		t.Error(d)
	}
	before := b.files()
	out, err := b.do(raised)
	if err != nil || !strings.Contains(out, "nothing was changed") || len(b.ran) > 0 {
		t.Errorf("%v, systemctl %q:\n%s", err, b.ran, out)
	}
	if d := cmp.Diff(before, b.files()); d != "" {
		t.Error(d)
	}
	// Root is not taken from it in passing.
	if _, err := b.do(fine); err == nil || !strings.Contains(err.Error(), "Say --elevated; or, if the device shall not be root any more, take allowRoot and user out") {
		t.Errorf("got %v", err)
	}
	if d := cmp.Diff(before, b.files()); d != "" {
		t.Error(d)
	}

	b.systemctl = nil
	if out, err = b.do(raised); err != nil || !strings.Contains(out, "\n    /usr/local/bin/nisse-device run --config") {
		t.Errorf("%v:\n%s", err, out)
	}
}

// A device that becomes root keeps its key, its state and what somebody wrote into its config; and so does one that is root no more.
func TestJoinBecomesElevated(t *testing.T) {
	b := newRaisable(t)
	if _, err := b.do(fine); err != nil {
		t.Fatal(err)
	}
	was, err := os.ReadFile(b.path(configFile))
	if err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(b.path(config.KeyFile(stateDir)))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.path(configFile), append(was, "busy: 3\nallowRoot: false # never"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := b.do(raised); err != nil {
		t.Fatal(err)
	}
	if want := []string{"stop", "daemon-reload", "enable", "restart"}; !slices.Equal(b.ran, want) {
		t.Errorf("systemctl %q, want %q", b.ran, want)
	}
	text, err := os.ReadFile(b.path(configFile))
	if want := string(was) + "busy: 3\n" + elevated; err != nil || string(text) != want {
		t.Errorf("%v: %s\nwant %s", err, text, want)
	}
	if c, err := config.Read(b.path(configFile)); err != nil || !c.AllowRoot || c.Busy != 3 {
		t.Errorf("%+v, %v", c, err)
	}
	me := os.Getuid()
	if d := cmp.Diff(map[string]int{stateDir: me, config.KeyFile(stateDir): me, configFile: me, filesDir: someone()}, b.owners()); d != "" {
		t.Error(d)
	}
	if got, err := os.ReadFile(b.path(config.KeyFile(stateDir))); err != nil || string(got) != string(key) {
		t.Errorf("another key: %v", err)
	}

	if err := os.WriteFile(b.path(configFile), was, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := b.do(fine); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]int{stateDir: someone(), config.KeyFile(stateDir): someone(), configFile: someone(), filesDir: someone()}, b.owners()); d != "" {
		t.Error(d)
	}
	if got, err := os.ReadFile(b.path(unitFile)); err != nil || string(got) != sample.Unit {
		t.Errorf("%v: %s", err, got)
	}
}

// A machine that holds an Elevated manifest, and whose device is not to be root, says what comes of that.
func TestJoinTellsOfAnElevatedManifest(t *testing.T) {
	b := newRaisable(t)
	b.holds = func(context.Context, config.Config) bool { return true }
	out, err := b.do(fine)
	if err != nil || !strings.Contains(out, "run this line again with --elevated") {
		t.Errorf("%v:\n%s", err, out)
	}
	if out, err = b.do(raised); err != nil || strings.Contains(out, "with --elevated") {
		t.Errorf("%v:\n%s", err, out)
	}
}
