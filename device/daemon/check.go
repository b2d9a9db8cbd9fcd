package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nisse.io/nisse/device/config"
	"nisse.io/nisse/device/store"
	"nisse.io/nisse/hosttools/confine"
	"nisse.io/nisse/hosttools/fs"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/manifest"
)

// Check tells in words what the config and the manifests held allow and what works on this machine. It fails when the device could not
// run; why, it has written.
func Check(ctx context.Context, c config.Config, w io.Writer) error {
	failures := 0
	fail := func(err error) {
		failures++
		fmt.Fprintf(w, "FAIL  %s\n", err)
	}
	say := func(err error, format string, args ...any) {
		what := fmt.Sprintf(format, args...)
		if err == nil {
			fmt.Fprintf(w, "ok    %s\n", what)
			return
		}
		fail(fmt.Errorf("%s: %w", what, err))
	}
	warn := func(format string, args ...any) { fmt.Fprintf(w, "warn  "+format+"\n", args...) }

	say(MayRun(c), "user %d", os.Geteuid())
	key, err := config.PrivateKey(c.Key)
	if err == nil {
		fmt.Fprintf(w, "ok    device key %s\n      publicKey %s\n", c.Key, dsse.EncodeKey(public(key)))
	} else {
		fail(err)
	}
	say(stateDir(c), "state directory %s", c.StateDir)
	fmt.Fprintf(w, "ok    device %s, rootKey %s\n", c.Device, c.RootKey)
	held, strange, err := holds(ctx, c)
	if err != nil {
		say(err, "manifests")
	}
	for _, err := range strange {
		warn("%s", err)
	}
	if len(held.All()) == 0 && err == nil {
		warn("no manifest is held yet: everything is refused until the cluster brings one, or nisse-device manifest install does")
	}
	for _, h := range held.All() {
		if reason, message := held.Dead(h, time.Now().Unix()); reason != "" {
			warn("%s", message)
		} else {
			fmt.Fprintf(w, "ok    %s\n", headline(h))
		}
		runsAs(w, warn, c, h.Manifest)
		describe(w, warn, h.Manifest)
		describeMachine(w, h.Manifest)
		means(ctx, w, warn, h.Manifest)
	}
	if len(held.All()) == 0 {
		means(ctx, w, warn, &manifest.Manifest{})
	}
	for _, a := range c.Listen {
		listens(w, fail, warn, a)
	}
	systemd(ctx, w, warn)
	if missing := confine.Missing(); missing != "" {
		warn("%s; manifests that say confine: Required cannot be served here", missing)
	} else {
		fmt.Fprintf(w, "ok    Landlock ABI %d\n", confine.ABI())
	}
	if _, err := os.Readlink("/proc/self/exe"); err != nil {
		say(err, "/proc, without which no path is served")
	}
	if failures > 0 {
		return fmt.Errorf("%d of these would keep the device from running; each FAIL above says what to do", failures)
	}
	return nil
}

// stateDir must be there: the device would make one, but where a config names another than before, what it knew would be forgotten.
func stateDir(c config.Config) error {
	dir := c.StateDir
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist) && c.Key == config.KeyFile(dir):
		return fmt.Errorf("it does not exist; make it, with the device's key, as the device's user: nisse-device init --dir %s", dir)
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("it does not exist; make it as the device's user: mkdir -m 700 %s", dir)
	case err != nil:
		return usersOwn(err)
	case !info.IsDir():
		return errors.New("it is not a directory; name another as stateDir")
	}
	if _, err := os.Stat(store.File(dir)); err == nil {
		return usersOwn(unix.Access(store.File(dir), unix.R_OK|unix.W_OK))
	}
	return usersOwn(unix.Access(dir, unix.W_OK|unix.X_OK))
}

func usersOwn(err error) error {
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w; it belongs to the device's user: run this as that user", err)
	}
	return err
}

// describe what the manifest allows, and warn of what cannot work or says more than it seems to.
func describe(w io.Writer, warn func(string, ...any), m *manifest.Manifest) {
	if len(m.Keys.Approval) == 0 {
		warn("keys.approval is empty: nothing that needs approval can ever run")
	}
	for _, capability := range manifest.Capabilities() {
		for _, r := range m.Paths[capability] {
			fmt.Fprintf(w, "      %-8s %-40s approval %s\n", capability, r.Glob, r.Approval)
			dir := fs.Dir(r.Glob)
			mode := uint32(unix.R_OK | unix.X_OK)
			if capability == manifest.FSWrite {
				mode = unix.W_OK | unix.X_OK
			}
			if err := unix.Access(dir, mode); err != nil {
				warn("%s: %s: %s", capability, dir, err)
			}
		}
	}
	for _, c := range m.Commands {
		fmt.Fprintf(w, "      exec     %-40s approval %s\n", strings.Join(c.Argv, " "), c.Approval)
		real, err := filepath.EvalSymlinks(c.Argv[0])
		if err == nil {
			err = unix.Access(real, unix.X_OK)
		}
		switch {
		case err != nil:
			warn("exec: %s: %s", c.Argv[0], err)
		case manifest.Wrapper(real) && !manifest.MultiCall(real):
			warn("exec: %s is %s, which runs whatever it is given; it will be refused", c.Argv[0], real)
		}
	}
}
