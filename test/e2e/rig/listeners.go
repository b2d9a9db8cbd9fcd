package rig

import (
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Listener is a TCP socket that waits for connections on this machine.
type Listener struct {
	Program string
	Address net.IP
	Port    int
}

// Listeners of the programs that run out of any of these directories, or were told of one of them.
func Listeners(dirs ...string) ([]Listener, error) {
	byInode := map[string]Listener{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil {
			return nil, err
		}
		for _, line := range strings.Split(string(text), "\n")[1:] {
			f := strings.Fields(line)
			if len(f) < 10 || f[3] != "0A" { // 0A is LISTEN
				continue
			}
			l, err := parseSocket(f[1])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", table, err)
			}
			byInode["socket:["+f[9]+"]"] = l
		}
	}
	var found []Listener
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	for _, proc := range procs {
		exe, _ := os.Readlink(filepath.Join(proc, "exe")) // a process that ends meanwhile has none
		args, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
		if !slices.ContainsFunc(dirs, func(d string) bool {
			return d != "" && (strings.HasPrefix(exe, d+"/") || strings.Contains(string(args), d+"/"))
		}) {
			continue
		}
		sockets, _ := filepath.Glob(filepath.Join(proc, "fd", "*"))
		for _, s := range sockets {
			to, _ := os.Readlink(s)
			if l, ok := byInode[to]; ok {
				l.Program = filepath.Base(exe)
				found = append(found, l)
			}
		}
	}
	return found, nil
}

// parseSocket reads the kernel's ADDRESS:PORT: hexadecimal, the address in words of the machine's own byte order (little).
func parseSocket(s string) (Listener, error) {
	address, port, _ := strings.Cut(s, ":")
	b, err := hex.DecodeString(address)
	if err != nil || len(b)%4 != 0 {
		return Listener{}, fmt.Errorf("socket %q: %w", s, err)
	}
	for word := 0; word < len(b); word += 4 {
		slices.Reverse(b[word : word+4])
	}
	n, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return Listener{}, fmt.Errorf("socket %q: %w", s, err)
	}
	return Listener{Address: net.IP(b), Port: int(n)}, nil
}
