package capability

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"nisse.io/nisse/internal/manifest"
)

// A symlink that is exchanged all the while leads git to what the rule says or nowhere, and never to what was looked up later.
func TestTreeOfExchangedSymlink(t *testing.T) {
	d, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	inside, outside := filepath.Join(d, "src/inside"), filepath.Join(d, "outside")
	link, other := filepath.Join(d, "src/link"), filepath.Join(d, "other")
	for _, p := range []string{inside, outside} {
		if err := os.MkdirAll(p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for at, to := range map[string]string{link: inside, other: outside} {
		if err := os.Symlink(to, at); err != nil {
			t.Fatal(err)
		}
	}
	stop, stopped := make(chan struct{}), make(chan error)
	go func() {
		for {
			select {
			case <-stop:
				close(stopped)
				return
			default:
			}
			if err := unix.Renameat2(unix.AT_FDCWD, link, unix.AT_FDCWD, other, unix.RENAME_EXCHANGE); err != nil {
				stopped <- err
				return
			}
		}
	}()
	r, v := machine(t, ""), manifest.Verdict{Glob: d + "/src/*"}
	led := 0
	for range 5000 {
		tree, err := r.tree(link, v)
		if err != nil {
			continue
		}
		if led++; tree.Path != inside {
			t.Errorf("git was led to %s", tree.Path)
			break
		}
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	if led == 0 {
		t.Error("the link never led inside")
	}
}
