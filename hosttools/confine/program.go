package confine

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrProgram is wrapped when a file may not be run whatever it is called. Nothing was run.
var ErrProgram = errors.New("program refused")

// Program is an open file that can be executed: the same bytes that its hash is of, whatever becomes of its name.
type Program struct {
	// Path of the file, symlinks resolved.
	Path string
	file *os.File
	sum  string
	// script runs from memory, and its interpreter opens it by its descriptor.
	script bool
}

// mostCopied of a program that runs from memory.
const mostCopied = 256 << 20

// Open a program by a path without symlinks. A script, and a file that its owner could change between a look at it and its start, is
// copied to memory and sealed: scripts see themselves as /proc/self/fd/N then. What group or others may change is refused.
func Open(path string) (*Program, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	p := &Program{Path: path, file: f}
	if err := p.look(); err != nil {
		f.Close()
		return nil, err
	}
	return p, nil
}

func (p *Program) look() error {
	info, err := p.file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%w: %s is not a regular file", ErrProgram, p.Path)
	}
	if name, err := os.Readlink(fdPath(p.file)); err != nil || name != p.Path {
		return fmt.Errorf("%w: %s was exchanged while it was looked at", ErrProgram, p.Path)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%w: %s may be changed by others than its owner (%s): chmod go-w it", ErrProgram, p.Path, info.Mode().Perm())
	}
	if info.Mode().Perm()&0o111 == 0 {
		return &os.PathError{Op: "start", Path: p.Path, Err: unix.EACCES}
	}
	head := make([]byte, 2)
	n, _ := p.file.ReadAt(head, 0)
	p.script = bytes.Equal(head[:n], []byte("#!"))
	if owner := info.Sys().(*syscall.Stat_t).Uid; owner == 0 && !p.script {
		return nil
	}
	return p.copy(info.Size())
}

// copy to a sealed file in memory, hashed on the way.
func (p *Program) copy(size int64) error {
	if size > mostCopied {
		return fmt.Errorf("%w: %s has %d bytes, and what does not belong to root runs from memory, up to %d", ErrProgram, p.Path, size, mostCopied)
	}
	const flags = unix.MFD_ALLOW_SEALING | unix.MFD_CLOEXEC
	fd, err := unix.MemfdCreate("program", flags|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate("program", flags)
	}
	if err != nil {
		return fmt.Errorf("copy %s to memory: %w", p.Path, err)
	}
	m := os.NewFile(uintptr(fd), "program")
	h := sha256.New()
	_, err = io.Copy(io.MultiWriter(m, h), io.LimitReader(p.file, mostCopied))
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)
	}
	if err != nil {
		m.Close()
		return fmt.Errorf("copy %s to memory: %w", p.Path, err)
	}
	p.file.Close()
	p.file, p.sum = m, hex.EncodeToString(h.Sum(nil))
	return nil
}

// SHA256 of the bytes that run, in hex.
func (p *Program) SHA256() (string, error) {
	if p.sum == "" {
		h := sha256.New()
		if _, err := io.Copy(h, io.NewSectionReader(p.file, 0, 1<<62)); err != nil {
			return "", fmt.Errorf("hash %s: %w", p.Path, err)
		}
		p.sum = hex.EncodeToString(h.Sum(nil))
	}
	return p.sum, nil
}

// Close the file. A program that was started has it open itself.
func (p *Program) Close() error { return p.file.Close() }

func fdPath(f *os.File) string {
	n := -1
	if c, err := f.SyscallConn(); err == nil {
		_ = c.Control(func(fd uintptr) { n = int(fd) })
	}
	return "/proc/self/fd/" + strconv.Itoa(n)
}
