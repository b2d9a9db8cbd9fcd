package confine

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// grove is a directory with a/b/c, a/d and e, and a symlink into it.
func grove(t *testing.T) string {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(os.MkdirAll(top+"/a/b", 0o755), os.WriteFile(top+"/a/b/c", nil, 0o644), os.WriteFile(top+"/a/d", nil, 0o644), os.WriteFile(top+"/e", nil, 0o644),
		os.Symlink("a/b/c", top+"/link"))
	if err != nil {
		t.Fatal(err)
	}
	return top
}

func TestCarve(t *testing.T) {
	top := grove(t)
	for _, c := range []struct {
		name, dir    string
		holes        []string
		whole, names []string
	}{
		{"no hole", "", nil, []string{""}, nil},
		{"a hole elsewhere", "/a", []string{"/e"}, []string{"/a"}, nil},
		{"a hole of a like name", "/a", []string{"/ab"}, []string{"/a"}, nil},
		{"itself", "/a", []string{"/a"}, nil, nil},
		{"inside a hole", "/a/b", []string{"/a"}, nil, nil},
		{"a file", "", []string{"/a/b/c"}, []string{"/a/d", "/e"}, []string{"", "/a", "/a/b"}},
		{"a directory", "", []string{"/a/b"}, []string{"/a/d", "/e"}, []string{"", "/a"}},
		{"two", "", []string{"/a/b", "/e"}, []string{"/a/d"}, []string{"", "/a"}},
		{"one that is not there", "/a", []string{"/a/none"}, []string{"/a/b", "/a/d"}, []string{"/a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			under := func(all []string) []string {
				var out []string
				for _, p := range all {
					out = append(out, top+p)
				}
				return out
			}
			var whole, names []string
			for _, p := range carve(top+c.dir, true, under(c.holes)) {
				if info, err := os.Lstat(p.path); err == nil && info.IsDir() != p.dir {
					t.Errorf("%s: dir is %t", p.path, p.dir)
				}
				if p.whole {
					whole = append(whole, p.path)
				} else {
					names = append(names, p.path)
				}
			}
			if d := cmp.Diff([][]string{under(c.whole), under(c.names)}, [][]string{whole, names}); d != "" {
				t.Error(d)
			}
		})
	}
}

// The root directory has a slash of its own, and its holes are holes all the same.
func TestCarveRoot(t *testing.T) {
	for _, p := range carve("/", true, []string{"/proc/self", "/usr"}) {
		if filepath.Clean(p.path) != p.path || below("/usr", p.path) || p.whole && (p.path == "/" || p.path == "/proc") {
			t.Errorf("%+v", p)
		}
	}
}

func TestClosed(t *testing.T) {
	top := grove(t)
	if got := closed(top); got != nil {
		t.Errorf("everybody may read all, and closed are %q", got)
	}
	if err := errors.Join(os.Chmod(top+"/a/b", 0o750), os.Chmod(top+"/e", 0o640), os.Chmod(top+"/a/b/c", 0o600)); err != nil {
		t.Fatal(err)
	}
	got := closed(top)
	slices.Sort(got)
	if d := cmp.Diff([]string{top + "/a/b", top + "/e"}, got); d != "" {
		t.Error(d)
	}
}

// Nothing is held by rules that this kernel cannot keep, and who demands them is told.
func TestMissing(t *testing.T) {
	if (Missing() == "") != (ABI() >= LeastABI) {
		t.Errorf("ABI %d: %q", ABI(), Missing())
	}
}
