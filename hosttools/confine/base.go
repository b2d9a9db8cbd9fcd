package confine

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// What nearly every program needs: programs and libraries; settings; what the kernel tells of the machine (of processes it shows only
// what anybody may see, for Landlock keeps a program from looking into others); what was installed; logs of the journal.
var (
	software  = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store"}
	knowledge = []string{"/proc", "/sys/block", "/sys/bus", "/sys/class", "/sys/dev", "/sys/devices", "/sys/fs", "/sys/module", "/sys/kernel/mm",
		"/run/systemd", "/run/udev", "/run/utmp", "/run/resolvconf", "/run/NetworkManager/resolv.conf", "/run/log/journal",
		"/var/lib/dpkg", "/var/lib/rpm", "/var/lib/pacman/local", "/var/log/journal"}
	devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}
)

const settings = "/etc"

// base rules of a program that runs as a user.
func (b *builder) base(uid int) {
	b.add(run, software...)
	b.add(read, knowledge...)
	for _, d := range devices {
		b.one(device, d)
	}
	never := b.never
	if uid == 0 { // root may read all of /etc, passwords and host keys too; others are kept from that by the files' own rights
		b.never = append(slices.Clone(never), secrets.of(settings)...)
	}
	b.add(read, settings)
	b.never = never
}

// part of a directory around holes.
type part struct {
	path string
	// whole parts may be opened; of others, directories around the holes, only names may be known.
	whole bool
	// dir tells that it is a directory, as the one above lists it.
	dir bool
}

// carve holes out of what lies below a directory, or at it, since the kernel opens a directory with all that is below it.
func carve(p string, dir bool, holes []string) []part {
	inside := false
	for _, h := range holes {
		if below(h, p) {
			return nil
		}
		inside = inside || below(p, h)
	}
	if !inside {
		return []part{{p, true, dir}}
	}
	entries, err := os.ReadDir(p)
	if err != nil {
		return nil
	}
	all := []part{{p, false, true}}
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink == 0 { // what that leads to has a place of its own, or none
			all = append(all, carve(filepath.Join(p, e.Name()), e.IsDir(), holes)...)
		}
	}
	return all
}

// below tells whether p is dir or below it.
func below(dir, p string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}

// private files and directories, which not everybody may read, remembered for a while: to look at all of /etc takes longer than to start
// a program.
type private struct {
	mu    sync.Mutex
	at    time.Time
	known []string
}

var secrets private

const fresh = time.Minute

func (s *private) of(dir string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.at) > fresh {
		s.known, s.at = closed(dir), time.Now()
	}
	return s.known
}

// closed to others, at and below dir.
func closed(dir string) []string {
	var all []string
	_ = filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			all = append(all, p)
			return nil
		}
		if e.Type()&fs.ModeSymlink != 0 {
			return nil
		}
		info, err := e.Info()
		switch {
		case err != nil:
			all = append(all, p)
		case e.IsDir() && info.Mode().Perm()&0o5 != 0o5:
			all = append(all, p)
			return fs.SkipDir
		case info.Mode().Perm()&0o4 == 0:
			all = append(all, p)
		}
		return nil
	})
	return all
}
