package join

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Local address of this machine.
type Local struct {
	Interface string
	Addr      netip.Addr
}

// locals of this machine.
func locals() ([]Local, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var all []Local
	for _, i := range interfaces {
		addresses, err := i.Addrs()
		if err != nil {
			continue // it went away
		}
		for _, a := range addresses {
			if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLinkLocalUnicast() {
				all = append(all, Local{i.Name, p.Addr().Unmap()})
			}
		}
	}
	return all, nil
}

// carrier is the range of RFC 6598, which Tailscale gives its addresses from.
var carrier = netip.MustParsePrefix("100.64.0.0/10")

// inner addresses are none that the internet leads to.
func inner(a netip.Addr) bool {
	return a.IsPrivate() || a.IsLoopback() || carrier.Contains(a)
}

// address to listen on, of what somebody asked for. With open it may be one that anybody can reach.
func address(asked string, open bool, here []Local, resolve func(host string) ([]netip.Addr, error)) (netip.AddrPort, error) {
	var none netip.AddrPort
	host, port, err := net.SplitHostPort(asked)
	if err != nil {
		return none, fmt.Errorf("--listen %q: want address:port, such as 10.8.0.7:7443", asked)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n < 1024 {
		return none, fmt.Errorf("--listen %q: want a port from 1024 to 65535: the device's user is not root", asked)
	}
	at, err := netip.ParseAddr(host)
	switch {
	case host == "":
		at = netip.IPv6Unspecified()
	case err != nil:
		if at, err = named(host, here, resolve); err != nil {
			return none, fmt.Errorf("--listen %q: %w", asked, err)
		}
	}
	at = at.Unmap()
	switch {
	case at.IsUnspecified() && !open:
		return none, fmt.Errorf("--listen %q is every address of this machine, those that strangers reach too: name the mesh address alone; here are %s. If you do mean it: --open-to-everybody", asked, tell(here))
	case at.IsUnspecified():
	case !slices.ContainsFunc(here, func(l Local) bool { return l.Addr == at }):
		return none, fmt.Errorf("--listen %q: no interface of this machine has that address; here are %s. Bring the mesh up first", asked, tell(here))
	case !inner(at) && !open:
		return none, fmt.Errorf("--listen %q is a public address, which strangers reach: name the mesh address; here are %s. If you do mean it: --open-to-everybody", asked, tell(here))
	}
	return netip.AddrPortFrom(at, uint16(n)), nil
}

// named address: the one that a name leads to and that is this machine's. A machine's own name often leads to a loopback address at home.
func named(host string, here []Local, resolve func(string) ([]netip.Addr, error)) (netip.Addr, error) {
	all, err := resolve(host)
	if err != nil {
		return netip.Addr{}, err
	}
	var mine []netip.Addr
	for _, a := range all {
		a = a.Unmap()
		if !a.IsLoopback() && !slices.Contains(mine, a) && slices.ContainsFunc(here, func(l Local) bool { return l.Addr == a }) {
			mine = append(mine, a)
		}
	}
	switch len(mine) {
	case 0:
		return netip.Addr{}, fmt.Errorf("that name leads to no address of this machine; name the address itself; here are %s", tell(here))
	case 1:
		return mine[0], nil
	}
	return netip.Addr{}, errors.New("that name leads to several addresses of this machine; name the one of the mesh")
}

func tell(here []Local) string {
	var all []string
	for _, l := range here {
		if !l.Addr.IsLoopback() {
			all = append(all, l.Addr.String()+" ("+l.Interface+")")
		}
	}
	if len(all) == 0 {
		return "loopback addresses alone"
	}
	return strings.Join(all, ", ")
}
