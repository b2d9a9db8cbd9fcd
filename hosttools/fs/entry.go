package fs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// unixStat is what os.FileInfo.Sys holds on Linux.
type unixStat = syscall.Stat_t

// Entry of a directory.
type Entry struct {
	Name string
	// Kind: file, directory, symlink or other.
	Kind string
	Size int64
	// Mode as ls writes it.
	Mode    string
	ModTime time.Time
	// Target of a symlink, as it is written in it.
	Target string
}

// mostNames of a directory that are read at all, so that a directory without end cannot hold a call for ever.
const mostNames = 100_000

// List the first most entries of a directory by name. more tells that there are others.
func List(p Place, most int) (entries []Entry, more bool, err error) {
	b, err := open(p)
	if err != nil {
		return nil, false, err
	}
	defer b.Close()
	d, err := b.OpenFile(b.rel, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, false, b.explain(err)
	}
	defer d.Close()
	if err := b.admit(d, ""); err != nil {
		return nil, false, err
	}
	names, err := d.Readdirnames(mostNames)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, b.explain(err)
	}
	slices.Sort(names)
	if more = len(names) > most || len(names) == mostNames; len(names) > most {
		names = names[:most]
	}
	for _, name := range names {
		e, err := entry(d, name)
		if os.IsNotExist(err) {
			continue // gone between the two looks
		}
		if err != nil {
			return nil, false, fmt.Errorf("list %s: %w", p.Path, err)
		}
		entries = append(entries, e)
	}
	return entries, more, nil
}

// Stat tells about a path itself; a final symlink is not followed.
func Stat(p Place) (Entry, error) {
	b, err := open(p)
	if err != nil {
		return Entry{}, err
	}
	defer b.Close()
	if b.rel == "." {
		d, err := b.Open(".")
		if err != nil {
			return Entry{}, b.explain(err)
		}
		defer d.Close()
		if err := b.admit(d, ""); err != nil {
			return Entry{}, err
		}
		e, err := entry(d, ".")
		e.Name = lastElement(p.Path)
		return e, err
	}
	d, name, err := b.parent()
	if err != nil {
		return Entry{}, err
	}
	defer d.Close()
	e, err := entry(d, name)
	if err != nil {
		return Entry{}, &os.PathError{Op: "stat", Path: p.Path, Err: err}
	}
	return e, nil
}

func lastElement(p string) string { return p[strings.LastIndexByte(p, '/')+1:] }

// entry name of an open directory. name holds no slash, so nothing is followed.
func entry(d *os.File, name string) (Entry, error) {
	var s unix.Stat_t
	if err := unix.Fstatat(fdOf(d), name, &s, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return Entry{}, err
	}
	e := Entry{Name: strings.ToValidUTF8(name, "\uFFFD"), Size: s.Size, Mode: mode(s.Mode), ModTime: time.Unix(s.Mtim.Unix()).UTC()}
	switch s.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		e.Kind = "file"
	case unix.S_IFDIR:
		e.Kind = "directory"
	case unix.S_IFLNK:
		e.Kind = "symlink"
		buf := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(fdOf(d), name, buf)
		if err != nil {
			return Entry{}, err
		}
		e.Target = strings.ToValidUTF8(string(buf[:n]), "\uFFFD")
	default:
		e.Kind = "other"
	}
	return e, nil
}

// mode as ls writes it.
func mode(m uint32) string {
	b := []byte("?rwxrwxrwx")
	for kind, letter := range map[uint32]byte{unix.S_IFREG: '-', unix.S_IFDIR: 'd', unix.S_IFLNK: 'l', unix.S_IFIFO: 'p', unix.S_IFSOCK: 's', unix.S_IFCHR: 'c', unix.S_IFBLK: 'b'} {
		if m&unix.S_IFMT == kind {
			b[0] = letter
		}
	}
	for i := range 9 {
		if m&(1<<(8-i)) == 0 {
			b[i+1] = '-'
		}
	}
	for _, special := range []struct {
		bit  uint32
		at   int
		with byte
	}{{unix.S_ISUID, 3, 's'}, {unix.S_ISGID, 6, 's'}, {unix.S_ISVTX, 9, 't'}} {
		if m&special.bit == 0 {
			continue
		}
		if b[special.at] == '-' {
			b[special.at] = special.with - 'a' + 'A' // set, but nobody may execute it
			continue
		}
		b[special.at] = special.with
	}
	return string(b)
}
