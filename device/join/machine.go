package join

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"

	"nisse.io/nisse/device/daemon"
)

// Run on this machine, as root.
func Run(ctx context.Context, o Options, out io.Writer) error {
	if os.Geteuid() != 0 {
		return errors.New("join: it makes an account and a unit of systemd, so run it as root; the device itself will not be, unless you say --elevated")
	}
	here, err := locals()
	if err != nil {
		return fmt.Errorf("join: %w", err)
	}
	m := &machine{root: "/", self: "/proc/self/exe", here: here, out: out, identity: identity, holds: daemon.HoldsElevated,
		resolve: func(host string) ([]netip.Addr, error) { return net.DefaultResolver.LookupNetIP(ctx, "ip", host) }}
	if _, err := os.Stat("/run/systemd/system"); err == nil {
		m.systemctl = systemctl
	}
	if err := m.join(ctx, o); err != nil {
		return fmt.Errorf("join: %w", err)
	}
	return nil
}

func identity(ctx context.Context) (uid, gid int, made bool, err error) {
	u, err := user.Lookup(account)
	var unknown user.UnknownUserError
	if errors.As(err, &unknown) {
		if err := run(ctx, "useradd", "--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin", account); err != nil {
			return 0, 0, false, fmt.Errorf("make the account %s: %w", account, err)
		}
		made = true
		u, err = user.Lookup(account)
	}
	if err != nil {
		return 0, 0, false, err
	}
	uid, err = strconv.Atoi(u.Uid)
	if err == nil {
		gid, err = strconv.Atoi(u.Gid)
	}
	return uid, gid, made, err
}

func systemctl(ctx context.Context, args ...string) error { return run(ctx, "systemctl", args...) }

func run(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
