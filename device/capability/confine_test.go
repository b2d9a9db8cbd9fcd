package capability

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/hosttools/command"
	"nisse.io/nisse/hosttools/confine"
	"nisse.io/nisse/hosttools/fs"
	"nisse.io/nisse/internal/manifest"
)

// lair with the device's own directory in it, a file beside that, and a runner whose command lines reach all of its data.
func lair(t *testing.T) (d string, r Runner) {
	t.Helper()
	d, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(d+"/data/own", 0o755), os.MkdirAll(d+"/data/logs", 0o755), os.WriteFile(d+"/data/own/key", []byte("secret\n"), 0o600),
		os.WriteFile(d+"/data/logs/a", []byte("secret of nobody\n"), 0o644), os.WriteFile(d+"/outside", []byte("outside\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	r = machine(t, `
confine: Required
commands:
- {argv: [/usr/bin/grep, -rhs, secret, "{path}"], slots: {path: {type: path, glob: "`+d+`/data/**"}}, approval: None}
- {argv: [/usr/bin/cat, "{path}"], slots: {path: {type: path, glob: "`+d+`/data/**"}}, approval: None}
- {argv: [/usr/bin/head, "{path}"], slots: {path: {type: path, glob: "`+d+`/gone/**"}}, approval: None}
- {argv: [/usr/bin/touch, "{path}"], slots: {path: {type: path, glob: "`+d+`/data/**"}}, approval: Required}
- {argv: [/usr/bin/mkdir, "{path}"], slots: {path: {type: path, glob: "`+d+`/gone/**"}}, approval: Required}
`)
	r.Never = []string{d + "/data/own"}
	return d, r
}

// A path in a command line opens nothing of the device's own, and no directory beyond its glob for what is not there.
func TestPathsOfACommandLine(t *testing.T) {
	d, r := lair(t)
	holds := confine.Missing() == "" // a kernel that cannot hold them runs none of these
	for name, c := range map[string]struct {
		argv  []string
		state wire.State
		said  string
	}{
		"what holds the device's own":              {[]string{"/usr/bin/grep", "-rhs", "secret", d + "/data"}, wire.Refused, ""},
		"the device's own":                         {[]string{"/usr/bin/cat", d + "/data/own/key"}, wire.Refused, ""},
		"beside it":                                {[]string{"/usr/bin/grep", "-rhs", "secret", d + "/data/logs"}, wire.Succeeded, "secret of nobody\n"},
		"not there":                                {[]string{"/usr/bin/cat", d + "/data/logs/none"}, wire.Failed, ""},
		"not there, nor its glob's":                {[]string{"/usr/bin/head", d + "/gone/none"}, wire.Failed, ""},
		"to be made":                               {[]string{"/usr/bin/touch", d + "/data/logs/born"}, wire.Succeeded, ""},
		"to be made beside the device's own":       {[]string{"/usr/bin/touch", d + "/data/born"}, wire.Refused, ""},
		"to be made where the glob's is not there": {[]string{"/usr/bin/mkdir", d + "/gone/born"}, wire.Refused, ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := r.does(t, manifest.Exec, manifest.ExecArgs{Argv: c.argv})
			switch {
			case c.state == wire.Refused:
				refused(t, o, wire.PathRefused)
			case !holds:
				refused(t, o, wire.Unconfined)
			case c.state == wire.Failed:
				if o.State != wire.Failed {
					t.Errorf("%+v", o)
				}
			default:
				if got := result[wire.ExecResult](t, o); got.Stdout != c.said {
					t.Errorf("it said %q", got.Stdout)
				}
			}
		})
	}
	for file, want := range map[string]bool{"/data/logs/born": holds, "/data/born": false, "/gone": false} {
		if _, err := os.Stat(d + file); (err == nil) != want {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// Who makes a symlink after the look, of what was not there, leads a command that needs no approval nowhere: nothing is open to it.
func TestWhatIsNotThereOpensNothing(t *testing.T) {
	d, r := lair(t)
	for name, c := range map[string]struct{ path, glob, target string }{
		"to a neighbour":             {d + "/data/logs/none", d + "/data/**", d + "/data/logs/a"},
		"out of a glob that is gone": {d + "/gone/none", d + "/gone/**", d + "/outside"},
	} {
		t.Run(name, func(t *testing.T) {
			v := manifest.Verdict{Rule: manifest.Rule{Approval: manifest.None}, Paths: []manifest.SlotPath{{Path: c.path, Glob: c.glob}}}
			held, err := r.holdAll(v.Paths, false)
			if err != nil || len(held) != 0 {
				t.Errorf("holds %v, %v", held, err)
			}
			defer closeAll(held)
			if err := errors.Join(os.MkdirAll(filepath.Dir(c.path), 0o755), os.Symlink(c.target, c.path)); err != nil {
				t.Fatal(err)
			}
			confined, err := r.confinement(v, held)
			if err != nil {
				t.Fatal(err)
			}
			confined.Rules.Never = nil // so that nothing but what is held keeps it out
			res, err := command.Run(t.Context(), command.Command{Argv: []string{"/usr/bin/cat", c.path}, Timeout: time.Minute, Keep: 100, Confine: confined})
			if confine.Missing() != "" {
				if !errors.Is(err, confine.ErrUnconfined) {
					t.Errorf("it says %q, %v", res.Stdout.Text(), err)
				}
				return
			}
			if err != nil || res.ExitCode == 0 || res.Stdout.Text() != "" {
				t.Errorf("it exits with %d and says %q, %v", res.ExitCode, res.Stdout.Text(), err)
			}
		})
	}
}

// A directory opens for what is to be made in it if its glob fixes it or one above it; symlinks up to there are the administrator's.
func TestRoom(t *testing.T) {
	d, r := lair(t)
	if err := os.Symlink(d+"/data/logs", d+"/link"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ path, glob, opens string }{
		"the glob's own":           {"/data/logs/x", "/data/logs/*", "/data/logs"},
		"a file by its name":       {"/data/logs/x", "/data/logs/x", "/data/logs"},
		"deep below":               {"/data/logs/x/y/z", "/data/logs/**", "/data/logs"},
		"by a symlink":             {"/link/x", "/link/*", "/data/logs"},
		"above the glob's own":     {"/data/logs/new/x", "/data/logs/new/*", ""},
		"holding the device's":     {"/data/x", "/data/*", ""},
		"a glob that is not there": {"/gone/x", "/gone/**", ""},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := r.hold(manifest.SlotPath{Path: d + c.path, Glob: d + c.glob}, true)
			if c.opens == "" {
				if err == nil || failed(err).Reason != wire.PathRefused {
					t.Fatalf("%+v, %v", h, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer closeAll([]confine.Held{h})
			if name, err := fs.NameOf(h.File); err != nil || name != d+c.opens || !h.Make || h.Write {
				t.Errorf("it opens %s with %+v, %v", name, h, err)
			}
		})
	}
}
