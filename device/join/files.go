package join

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// owner of a file.
type owner struct{ uid, gid int }

// unowned leaves a file to whoever makes it.
var unowned = owner{-1, -1}

func (m *machine) directory(dir string, mode os.FileMode, of owner) error {
	_, err := os.Stat(m.path(dir))
	if errors.Is(err, os.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(m.path(dir)), 0o755); err != nil {
			return err
		}
		if err := errors.Join(os.Mkdir(m.path(dir), mode), os.Chmod(m.path(dir), mode), os.Lchown(m.path(dir), of.uid, of.gid)); err != nil {
			return err
		}
		m.tell(true, dir)
		return nil
	}
	if err == nil {
		m.tell(false, dir)
	}
	return err
}

// write a file as a whole, or leave what was there.
func (m *machine) write(name string, content []byte, mode os.FileMode, of owner) error {
	file := m.path(name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	t, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(t.Name()) // gone already when all went well
	_, err = t.Write(content)
	if err = errors.Join(err, t.Chmod(mode), t.Chown(of.uid, of.gid), t.Sync(), t.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return os.Rename(t.Name(), file)
}
