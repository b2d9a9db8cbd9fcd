// Package confine starts programs that are held by more than their arguments: by a user, by limits, by what Landlock lets them reach,
// and by the very bytes that were looked at.
//
// Go cannot do anything between fork and exec, so a program is started in two steps. The process executes itself again under a name
// that only package shim knows; that shim reads an order from a descriptor, drops what it may not keep, and becomes the program by
// executing the open file. A binary that links this package is such a shim of itself.
package confine

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"

	"nisse.io/nisse/hosttools/confine/shim"
)

// ErrUnconfined is wrapped when a program or a function cannot be held as it should be. Nothing was run.
var ErrUnconfined = errors.New("it cannot be confined")

// Confinement of one program.
type Confinement struct {
	// User that it runs as; nil for this process's own.
	User *User
	// Rules of what it may reach; nil leaves that to the rights of its user alone.
	Rules *Rules
}

// User of the machine.
type User = shim.User

// Lookup a user that programs shall run as, in the machine's own files: /etc/passwd and /etc/group. It is nil when that is this process's
// own already or no name is given. Only root can be another.
func Lookup(name string) (*User, error) {
	if name == "" {
		return nil, nil
	}
	account, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("%w: user %s: %w; make the account, or name another in the manifest", ErrUnconfined, name, err)
	}
	uid, err := strconv.Atoi(account.Uid)
	if err != nil {
		return nil, fmt.Errorf("%w: user %s: %w", ErrUnconfined, name, err)
	}
	if uid == os.Geteuid() {
		return nil, nil
	}
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("%w: it shall run as %s, and this daemon, as user %d, cannot be anybody else; run it as that account, or as root (nisse-device join --elevated)", ErrUnconfined, name, os.Geteuid())
	}
	gid, err := strconv.Atoi(account.Gid)
	if err != nil {
		return nil, fmt.Errorf("%w: user %s: %w", ErrUnconfined, name, err)
	}
	u := &User{Name: name, UID: uid, GID: gid}
	ids, err := account.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("%w: groups of %s: %w", ErrUnconfined, name, err)
	}
	for _, id := range ids {
		n, err := strconv.Atoi(id)
		if err != nil {
			return nil, fmt.Errorf("%w: groups of %s: %w", ErrUnconfined, name, err)
		}
		u.Groups = append(u.Groups, n)
	}
	return u, nil
}

// Self is the name of this process's user, or its number when it has none.
func Self() string {
	uid := strconv.Itoa(os.Geteuid())
	if u, err := user.LookupId(uid); err == nil {
		return u.Username
	}
	return uid
}

// uid that a program of this confinement has.
func (c Confinement) uid() int {
	if c.User != nil {
		return c.User.UID
	}
	return os.Geteuid()
}
