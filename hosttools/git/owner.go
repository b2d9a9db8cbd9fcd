package git

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"nisse.io/nisse/hosttools/command"
	"nisse.io/nisse/hosttools/proc"
	"nisse.io/nisse/hosttools/program"
)

// owner is the account that git runs as. What was looked at is read again by its name when git runs, and where the repository is named,
// git itself does not ask whose it is. So all of it must be in the hands of this account and of root alone: nobody else can exchange it
// meanwhile, and what these two exchange they could have run themselves.
type owner uint32

func runsAs(c command.Command) owner {
	if c.Confine != nil && c.Confine.User != nil {
		return owner(c.Confine.User.UID)
	}
	return owner(os.Geteuid())
}

// place is a directory, and so is everything above it. It is looked at from the top, so that what is further down cannot be exchanged
// any more. In a sticky directory above, nobody moves what is another's; in the place itself, anybody could still add to it.
func (o owner) place(dir string) error {
	for i := range dir {
		if above := dir[:max(i, 1)]; dir[i] == '/' && above != dir {
			if err := o.holds(above, unix.S_IFDIR, true); err != nil {
				return err
			}
		}
	}
	return o.holds(dir, unix.S_IFDIR, false)
}

// free place, where something new shall be: what is there above it.
func (o owner) free(path string) error {
	above := filepath.Dir(path)
	for above != "/" {
		if _, err := os.Lstat(above); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		above = filepath.Dir(above)
	}
	return o.place(above)
}

// holds a file or directory, of one type unless that is 0, so that nobody but root can write to it beside.
func (o owner) holds(name string, kind uint32, sticky bool) error {
	var s unix.Stat_t
	if err := unix.Lstat(name, &s); err != nil {
		return fmt.Errorf("%w: %s: %w", program.ErrRefused, name, err)
	}
	if kind != 0 && s.Mode&unix.S_IFMT != kind {
		return fmt.Errorf("%w: %s is not what it was when it was looked up", program.ErrRefused, name)
	}
	if s.Uid != 0 && s.Uid != uint32(o) {
		whose, who := proc.Name(s.Uid), proc.Name(uint32(o))
		return fmt.Errorf("%w: %s belongs to %s, who could exchange what git reads while it runs as %s; let the manifest's user be %s, or give it to %s", program.ErrRefused, name, whose, who, whose, who)
	}
	if s.Mode&0o022 != 0 && (!sticky || s.Mode&unix.S_ISVTX == 0) {
		return fmt.Errorf("%w: others than its owner may write to %s (mode %#o), and so exchange what git reads while it runs as %s; chmod go-w it", program.ErrRefused, name, s.Mode&0o7777, proc.Name(uint32(o)))
	}
	return nil
}
