package fs

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Content of a file, or a part of it.
type Content struct {
	Bytes []byte
	// Size of the whole file; for files that do not know their size, as in procfs, what was seen of it.
	Size int64
	// More tells that there is more after Bytes.
	More bool
}

// slow is how long a read may take: some files of procfs wait for news.
const slow = 5 * time.Second

// Read at most limit bytes from offset of a regular file.
func Read(p Place, offset, limit int64) (Content, error) {
	b, err := open(p)
	if err != nil {
		return Content{}, err
	}
	defer b.Close()
	// Look before opening: to open a device can do something. What was seen may be exchanged, so the open file is judged again.
	info, err := b.Stat(b.rel)
	if err != nil {
		return Content{}, b.explain(err)
	}
	if err := regular(p.Path, info); err != nil {
		return Content{}, err
	}
	f, err := b.OpenFile(b.rel, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return Content{}, b.explain(err)
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return Content{}, err
	}
	if err := regular(p.Path, info); err != nil {
		return Content{}, err
	}
	if err := oneName(p.Path, info); err != nil {
		return Content{}, err
	}
	if err := b.admit(f, ""); err != nil {
		return Content{}, err
	}
	_ = f.SetReadDeadline(time.Now().Add(slow)) // plain files cannot wait and know no deadlines
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return Content{}, fmt.Errorf("read %s from %d: %w", p.Path, offset, err)
	}
	got, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return Content{}, fmt.Errorf("read %s: %w", p.Path, err)
	}
	c := Content{Bytes: got, More: int64(len(got)) > limit, Size: info.Size()}
	if len(got) > 0 {
		c.Size = max(c.Size, offset+int64(len(got)))
	}
	if c.More {
		c.Bytes = got[:limit]
	}
	return c, nil
}

func regular(name string, info os.FileInfo) error {
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		return &os.PathError{Op: "read", Path: name, Err: unix.EISDIR}
	default:
		return fmt.Errorf("%w: %s is not a regular file (%s)", ErrRefused, name, mode.Type())
	}
}

// oneName refuses hard links: by name they are here, but the file may live where nobody may look.
func oneName(name string, info os.FileInfo) error {
	if s, ok := info.Sys().(*unixStat); !ok || s.Nlink != 1 {
		return fmt.Errorf("%w: %s has hard links, or its name was taken away", ErrRefused, name)
	}
	return nil
}
