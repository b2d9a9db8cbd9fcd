package daemon

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
)

// listens tells whether an address can be listened on, and who reaches it.
func listens(w io.Writer, fail func(error), warn func(string, ...any), address string) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		fail(fmt.Errorf("listen %s: %w", address, err))
		return
	}
	at, err := netip.ParseAddr(host)
	switch {
	case host == "" || err == nil && at.Unmap().IsUnspecified():
		warn("%s listens on every address; name the mesh address alone", address)
		return
	case err != nil: // a name, which may lead elsewhere by the time the device starts
		fmt.Fprintf(w, "ok    listen %s\n", address)
		return
	}
	// A port of its own choice: the device itself may have the other.
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		fail(fmt.Errorf("listen %s: this machine does not have that address now (%w); bring the mesh up, or name its address", address, err))
		return
	}
	_ = l.Close() // nobody knew of it
	fmt.Fprintf(w, "ok    listen %s\n", address)
}

// systemd tells whether it keeps the device running.
func systemd(ctx context.Context, w io.Writer, warn func(string, ...any)) {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		fmt.Fprintln(w, "      systemd: it does not run here; have whatever starts things on this machine start nisse-device run")
		return
	}
	out, err := exec.CommandContext(ctx, "systemctl", "is-active", "nisse-device.service").Output()
	if state := strings.TrimSpace(string(out)); err != nil {
		warn("systemd: nisse-device.service is %s; systemctl enable --now nisse-device starts it, journalctl -u nisse-device tells why it ended", state)
		return
	}
	fmt.Fprintln(w, "ok    systemd: nisse-device.service is active")
}
