package command

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// input of a program: a file in memory, so that nobody has to wait for the program to read it, and nothing touches a disk.
func input(b []byte) (*os.File, error) {
	if len(b) == 0 {
		return os.Open(os.DevNull)
	}
	fd, err := unix.MemfdCreate("input", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("input of the program: %w", err)
	}
	f := os.NewFile(uintptr(fd), "input")
	if _, err := f.WriteAt(b, 0); err != nil {
		f.Close()
		return nil, fmt.Errorf("input of the program: %w", err)
	}
	return f, nil
}
