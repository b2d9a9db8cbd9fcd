package fs

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Written tells what a write did.
type Written struct {
	Bytes int64
	// SHA256 of the content, in hex.
	SHA256 string
	// Created tells that there was no file before.
	Created bool
}

// ErrUnproven is wrapped when a file was replaced and nobody can tell whether that lasts.
var ErrUnproven = errors.New("nobody can tell whether it lasts")

// newMode of a file that was not there before, whatever the umask.
const newMode = 0o644

// Write replaces a regular file as a whole, or makes it: a temporary file beside it (.nisse-<random>), synced, renamed over it, and the
// directory synced. A crash leaves the old file or the new one, and at worst the temporary one too. Mode and owner of an existing file
// stay, but for set-user-ID and set-group-ID bits, which any write takes away; access lists and other extended attributes do not.
func Write(p Place, content []byte) (Written, error) {
	b, err := open(p)
	if err != nil {
		return Written{}, err
	}
	defer b.Close()
	if b.rel == "." {
		return Written{}, &os.PathError{Op: "write", Path: p.Path, Err: unix.EISDIR}
	}
	d, name, err := b.parent()
	if err != nil {
		return Written{}, err
	}
	defer d.Close()
	old, err := target(d, name, p.Path)
	if err != nil {
		return Written{}, err
	}
	tmp, err := temporary(d, content, old)
	if err != nil {
		return Written{}, fmt.Errorf("write %s: %w", p.Path, err)
	}
	if err := replace(d, tmp, name, p.Path, old); err != nil {
		_ = unix.Unlinkat(fdOf(d), tmp, 0)
		return Written{}, err
	}
	if err := d.Sync(); err != nil {
		return Written{}, fmt.Errorf("%w: %s is replaced, but the directory could not be synced; after a power cut it may be the old file: %w", ErrUnproven, p.Path, err)
	}
	sum := sha256.Sum256(content)
	return Written{Bytes: int64(len(content)), SHA256: hex.EncodeToString(sum[:]), Created: old == nil}, nil
}

// target looks at what would be replaced; nil when there is nothing.
func target(d *os.File, name, asked string) (*unix.Stat_t, error) {
	var s unix.Stat_t
	err := unix.Fstatat(fdOf(d), name, &s, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, nil
	case err != nil:
		return nil, &os.PathError{Op: "write", Path: asked, Err: err}
	case s.Mode&unix.S_IFMT == unix.S_IFDIR:
		return nil, &os.PathError{Op: "write", Path: asked, Err: unix.EISDIR}
	case s.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, fmt.Errorf("%w: %s is not a regular file (%s)", ErrRefused, asked, mode(s.Mode))
	case s.Nlink != 1:
		return nil, fmt.Errorf("%w: %s has hard links; its other names would keep the old content", ErrRefused, asked)
	}
	return &s, nil
}

// temporary writes content to a new file in d and returns its name. On failure nothing is left.
func temporary(d *os.File, content []byte, old *unix.Stat_t) (string, error) {
	var random [8]byte
	if _, err := rand.Read(random[:]); err != nil {
		return "", err
	}
	name := ".nisse-" + hex.EncodeToString(random[:])
	fd, err := unix.Openat(fdOf(d), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return "", err
	}
	f := os.NewFile(uintptr(fd), name)
	if err := errors.Join(fill(f, content, old), f.Close()); err != nil {
		_ = unix.Unlinkat(fdOf(d), name, 0)
		return "", err
	}
	return name, nil
}

func fill(f *os.File, content []byte, old *unix.Stat_t) error {
	if _, err := f.Write(content); err != nil {
		return err
	}
	if err := own(f, old); err != nil {
		return err
	}
	return f.Sync()
}

// own gives a new file the owner and the mode of the old one.
func own(f *os.File, old *unix.Stat_t) error {
	if old == nil {
		return f.Chmod(newMode)
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if s := info.Sys().(*unixStat); s.Uid != old.Uid || s.Gid != old.Gid {
		if err := f.Chown(int(old.Uid), int(old.Gid)); err != nil {
			return fmt.Errorf("its owner %d:%d cannot be kept: %w", old.Uid, old.Gid, err)
		}
	}
	return f.Chmod(os.FileMode(old.Mode & 0o777))
}

// replace renames tmp over name, if name is still what was looked at.
func replace(d *os.File, tmp, name, asked string, old *unix.Stat_t) error {
	dir := fdOf(d)
	if old == nil {
		err := unix.Renameat2(dir, tmp, dir, name, unix.RENAME_NOREPLACE)
		if errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("%w: %s appeared while it was being written", ErrRefused, asked)
		}
		if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) { // file systems that cannot do it get the plain rename
			return wrap(asked, err)
		}
	}
	now, err := target(d, name, asked)
	if err != nil {
		return err
	}
	if (now == nil) != (old == nil) || now != nil && (now.Dev != old.Dev || now.Ino != old.Ino) {
		return fmt.Errorf("%w: %s was exchanged while it was being written", ErrRefused, asked)
	}
	return wrap(asked, unix.Renameat(dir, tmp, dir, name))
}

func wrap(asked string, err error) error {
	if err == nil {
		return nil
	}
	return &os.PathError{Op: "write", Path: asked, Err: err}
}
