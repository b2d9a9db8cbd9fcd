package join

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
)

// elevated is what the config of a device says that is root.
const elevated = `# By join --elevated. The device is root; who a manifest does not name runs as this account all the same.
allowRoot: true
user: ` + account + `
`

// elevate the config of a device that was not root: the one thing that join changes in it, and nothing else there.
func (m *machine) elevate(self owner) error {
	was, err := os.ReadFile(m.path(configFile))
	if err != nil {
		return err
	}
	return m.write(configFile, append(bytes.TrimRight(spoken.ReplaceAll(was, nil), "\n"), "\n"+elevated...), 0o600, self)
}

// spoken of already is what elevated says; twice would be none.
var spoken = regexp.MustCompile(`(?m)^(allowRoot|user):.*\n?`)

// rest lets the device stop, while what it has changes hands.
func (m *machine) rest(ctx context.Context) error {
	if m.systemctl == nil || m.systemctl(ctx, "is-active", "--quiet", service) != nil {
		return nil
	}
	return m.systemctl(ctx, "stop", service)
}

// give a file, or a directory with all in it, from whom the device was to whom it is: its state is no longer the account's when commands run as that
// and the device as root, nor root's when it is the account again. What belongs to a third was arranged by somebody. The directory comes first, so
// that nobody exchanges what is in it meanwhile, and no symlink is followed.
func (m *machine) give(name string, from, to owner) error {
	given := false
	err := filepath.WalkDir(m.path(name), func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if s, ok := info.Sys().(*syscall.Stat_t); !ok || int(s.Uid) != from.uid || from == to {
			return nil
		}
		given = true
		return os.Lchown(p, to.uid, to.gid)
	})
	if err != nil {
		return fmt.Errorf("give %s to whom the device runs as: %w", name, err)
	}
	if given {
		m.changed = true
		fmt.Fprintf(m.out, "%-9s %s to user %d\n", "given", name, to.uid)
	}
	return nil
}
