package device_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/hosttools/confine"
	"nisse.io/nisse/internal/approval"
	"nisse.io/nisse/internal/manifest"
)

// hold a changed manifest from now on.
func (w *world) hold(change func(*manifest.Manifest)) {
	w.t.Helper()
	w.now.Add(1)
	m := w.another(change)
	_, err := w.d.Install(w.t.Context(), w.signed(m, w.root))
	must(w.t, err)
	w.m = m
}

// list a command line in the manifest.
func list(m *manifest.Manifest, approval manifest.Approval, argv ...string) {
	m.Commands = append(m.Commands, manifest.Command{Argv: argv, Rule: manifest.Rule{Approval: approval}})
}

func (w *world) argv(argv ...string) approval.Call {
	return w.call(manifest.Exec, manifest.ExecArgs{Argv: argv})
}

func sum(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:])
}

// script of the machine's owner, in what agents may read.
func (w *world) script(name, text string) string {
	w.t.Helper()
	file := filepath.Join(w.files, name)
	must(w.t, errors.Join(os.WriteFile(file, []byte(text), 0o755), os.Chmod(file, 0o755)))
	return file
}

// resolve one call.
func (w *world) resolve(c approval.Call, change ...func(*wire.Resolve)) (wire.ResolvedCall, error) {
	w.t.Helper()
	r, err := w.resolveAll([]approval.Call{c}, change...)
	if err != nil {
		return wire.ResolvedCall{}, err
	}
	if got := r.Calls[0]; got.Reason != "" {
		return got, &wire.RefusedError{Reason: got.Reason, Message: got.Message}
	}
	return r.Calls[0], nil
}

func (w *world) resolveAll(calls []approval.Call, change ...func(*wire.Resolve)) (wire.Resolved, error) {
	w.t.Helper()
	r := wire.Resolve{Device: calls[0].Device, ManifestDigest: calls[0].ManifestDigest, At: w.now.Load(), ExpiresAt: w.now.Load() + 60, Nonce: fmt.Sprint("n", time.Now().UnixNano())}
	for _, c := range calls {
		r.Calls = append(r.Calls, wire.AskedCall{Capability: c.Capability, Args: c.Args})
	}
	sent := r
	sent.Calls = slices.Clone(r.Calls)
	for _, do := range change {
		do(&sent)
	}
	body, err := wire.SignResolve(w.request, sent)
	must(w.t, err)
	status, env := w.send("/v1/resolve", "", body)
	if status != 200 {
		w.t.Fatalf("status %d: %s", status, env)
	}
	return wire.OpenResolved(env, pub(w.device), r)
}

const honest, pwned = "#!/bin/sh\necho honest\n", "#!/bin/sh\necho pwned > %s/pwned\n"

func TestResolve(t *testing.T) {
	w := newWorld(t)
	file := w.script("report", honest)
	must(t, os.Symlink("report", w.files+"/link"))
	must(t, os.Symlink("/usr/bin/env", w.files+"/tool"))
	w.hold(func(m *manifest.Manifest) {
		list(m, manifest.Required, w.files+"/link")
		list(m, manifest.Required, w.files+"/tool")
		list(m, manifest.Required, w.files+"/none")
		list(m, manifest.Required, w.files+"/odd")
	})
	must(t, errors.Join(os.WriteFile(w.files+"/\xff", []byte(honest), 0o700), os.Symlink("\xff", w.files+"/odd")))
	rows := w.status().AuditRows
	got, err := w.resolve(w.argv(w.files + "/link"))
	must(t, err)
	link := wire.ResolvedCall{CallHash: w.argv(w.files + "/link").Hash(), Executable: file, SHA256: sum(honest), User: confine.Self(), Confined: confine.Missing() == ""}
	if d := cmp.Diff(link, got); d != "" {
		t.Error(d)
	}
	got, err = w.resolve(w.write("x", "y"))
	if err != nil || got.Executable != "" || got.SHA256 != "" || got.User == "" {
		t.Errorf("got %+v, %v", got, err)
	}
	// Many in one question, of which some would not run.
	all, err := w.resolveAll([]approval.Call{w.argv(w.files + "/none"), w.argv(w.files + "/link"), w.write("x", "y"), w.argv(file)})
	must(t, err)
	reasons := make([]wire.Reason, len(all.Calls))
	for i, c := range all.Calls {
		reasons[i] = c.Reason
	}
	if d := cmp.Diff([]wire.Reason{wire.Unavailable, "", "", wire.NotAllowed}, reasons); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(link, all.Calls[1]); d != "" {
		t.Error(d)
	}
	malformed := w.argv(file)
	malformed.Args = "{ }"
	for name, c := range map[string]struct {
		call   approval.Call
		change func(*wire.Resolve)
		want   wire.Reason
	}{
		"another device":   {w.argv(w.files + "/link"), func(r *wire.Resolve) { r.Device = "web2" }, wire.OtherDevice},
		"another manifest": {w.argv(w.files + "/link"), func(r *wire.Resolve) { r.ManifestDigest = "sha256:00" }, wire.OtherManifest},
		"too late":         {w.argv(w.files + "/link"), func(r *wire.Resolve) { r.ExpiresAt = w.now.Load() }, wire.Expired},
		"too early":        {w.argv(w.files + "/link"), func(r *wire.Resolve) { r.At += 60; r.ExpiresAt += 60 }, wire.NotYet},
		"not listed":       {w.argv(file), func(*wire.Resolve) {}, wire.NotAllowed},
		"malformed":        {malformed, func(*wire.Resolve) {}, wire.BadArgs},
		"no calls":         {w.argv(file), func(r *wire.Resolve) { r.Calls = nil }, wire.BadArgs},
		"too many calls":   {w.argv(file), func(r *wire.Resolve) { r.Calls = slices.Repeat(r.Calls, wire.MaxResolve+1) }, wire.BadArgs},
		"a wrapper":        {w.argv(w.files + "/tool"), func(*wire.Resolve) {}, wire.PathRefused},
		"not text":         {w.argv(w.files + "/odd"), func(*wire.Resolve) {}, wire.PathRefused},
		"not there":        {w.argv(w.files + "/none"), func(*wire.Resolve) {}, wire.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.resolve(c.call, c.change)
			wantReason(t, err, c.want)
		})
	}
	if now := w.status().AuditRows; now != rows {
		t.Errorf("questions left %d rows", now-rows)
	}
	w.request = key(9)
	_, err = w.resolve(w.argv(w.files + "/link"))
	wantReason(t, err, wire.BadSignature)
}

// Case 5: what lies on the disk when it runs must be what was approved; another refuses the deed for good, and nothing of it runs.
func TestScriptChangedAfterApproval(t *testing.T) {
	w := newWorld(t)
	file := w.script("report", honest)
	w.hold(func(m *manifest.Manifest) { list(m, manifest.Required, file) })
	resolved, err := w.resolve(w.argv(file))
	must(t, err)
	under := func(gate string) wire.Request {
		s := w.statement(gate, w.argv(file))
		s.Resolved = []string{resolved.SHA256}
		return w.approved(s, 1, w.argv(file))
	}
	a, _ := w.ask(under("gate1"))
	w.want(a, wire.Succeeded, "")
	if r := result[wire.ExecResult](t, a); r.Stdout != "honest\n" {
		t.Errorf("it said %q", r.Stdout)
	}
	r := under("gate2")
	w.script("report", fmt.Sprintf(pwned, w.files))
	a, env := w.ask(r)
	w.want(a, wire.Refused, wire.ExecutableChanged)
	w.script("report", honest)
	if _, again := w.ask(r); string(again) != string(env) {
		t.Error("the refusal is not kept")
	}
	if w.content("pwned") != "" {
		t.Error("it ran")
	}
	// Another program under the name, and a statement that resolves other bytes.
	must(t, errors.Join(os.Remove(file), os.Symlink("/bin/true", file)))
	a, _ = w.ask(under("gate3"))
	w.want(a, wire.Refused, wire.ExecutableChanged)
	// A statement from before anything was resolved runs what the name leads to.
	a, _ = w.ask(w.one("gate4", w.argv(file)))
	w.want(a, wire.Succeeded, "")
}

// Case 6: other arguments, another environment or another time are another call.
func TestOtherCallsNeedTheirOwnApproval(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]approval.Call{
		"arguments": w.exec("append", w.files+"/log2"),
		"timeout":   w.call(manifest.Exec, manifest.ExecArgs{Argv: []string{w.self, "act", "append", w.files + "/log"}, TimeoutSeconds: 5}),
	} {
		t.Run(name, func(t *testing.T) {
			a, _ := w.ask(w.approved(w.statement(name, w.exec("append", w.files+"/log")), 1, c))
			w.want(a, wire.Refused, wire.NotCovered)
		})
	}
	s := w.statement("environment", w.exec("append", w.files+"/log"))
	w.hold(func(m *manifest.Manifest) { m.Environment = map[string]string{"DISPLAY": ":0"} })
	a, _ := w.ask(w.approved(s, 1, w.exec("append", w.files+"/log")))
	w.want(a, wire.Refused, wire.NotCovered)
	if w.content("log")+w.content("log2") != "" {
		t.Error("it ran")
	}
}

// Case 42: a wrapper cannot be listed, and one that a listed name leads to does not run.
func TestWrapperBySymlink(t *testing.T) {
	w := newWorld(t)
	must(t, os.Symlink("/usr/bin/env", w.files+"/tool"))
	w.hold(func(m *manifest.Manifest) {
		list(m, manifest.Required, w.files+"/tool", "/usr/bin/touch", w.files+"/pwned")
	})
	a, _ := w.ask(w.one("gate", w.argv(w.files+"/tool", "/usr/bin/touch", w.files+"/pwned")))
	w.want(a, wire.Refused, wire.PathRefused)
	if _, err := os.Stat(w.files + "/pwned"); err == nil {
		t.Error("it ran")
	}
	b, err := w.another(func(m *manifest.Manifest) { list(m, manifest.Required, "/usr/bin/env", "id") }).Canonical()
	must(t, err)
	if _, err := manifest.Parse(b); err == nil {
		t.Error("env can be listed")
	}
}

// demand Landlock where the kernel lacks it: what is promised there is that nothing runs, and the tests of what it holds see to that instead.
func demand(m *manifest.Manifest) {
	if confine.Missing() != "" {
		m.Confine = manifest.ConfineRequired
	}
}

// What a listed program does beyond its arguments: it reaches what the manifest's paths open, and no further.
func TestCommandsReach(t *testing.T) {
	w := newWorld(t)
	secret := w.out + "/secret"
	must(t, os.WriteFile(secret, []byte("secret"), 0o644))
	must(t, os.Mkdir(w.files+"/sub", 0o755))
	lines := map[string]struct {
		approval manifest.Approval
		argv     []string
		state    wire.State
		said     string
	}{
		"reads what agents may read":              {manifest.None, []string{"/usr/bin/cat", w.files + "/a"}, wire.Succeeded, "hello"},
		"reads another file":                      {manifest.None, []string{"/usr/bin/cat", secret}, wire.Failed, ""},
		"reads passwords":                         {manifest.Required, []string{"/usr/bin/cat", "/etc/shadow"}, wire.Failed, ""},
		"reads the device's state":                {manifest.Required, []string{"/usr/bin/cat", w.state + "/device.db"}, wire.Failed, ""},
		"writes what agents may write":            {manifest.Required, []string{"/usr/bin/touch", w.files + "/born"}, wire.Succeeded, ""},
		"writes elsewhere":                        {manifest.Required, []string{"/usr/bin/touch", w.out + "/born"}, wire.Failed, ""},
		"copies a secret":                         {manifest.Required, []string{"/usr/bin/cp", secret, w.files + "/copy"}, wire.Failed, ""},
		"moves out":                               {manifest.Required, []string{"/usr/bin/mv", w.files + "/a", w.out + "/a"}, wire.Failed, ""},
		"writes though it needs no approval":      {manifest.None, []string{"/usr/bin/touch", w.files + "/free"}, wire.Failed, ""},
		"removes though it needs no approval":     {manifest.None, []string{"/usr/bin/rm", w.files + "/a"}, wire.Failed, ""},
		"writes in its own temporary directory":   {manifest.None, []string{"/usr/bin/mktemp"}, wire.Succeeded, "/nisse-"},
		"reads the environment of its own parent": {manifest.Required, []string{"/usr/bin/cat", fmt.Sprintf("/proc/%d/environ", os.Getpid())}, wire.Failed, ""},
	}
	w.hold(func(m *manifest.Manifest) {
		for _, l := range lines {
			list(m, l.approval, l.argv...)
		}
		demand(m)
	})
	n := 0
	for name, l := range lines {
		n++
		t.Run(name, func(t *testing.T) {
			r := w.free(w.argv(l.argv...), fmt.Sprint(n))
			if l.approval == manifest.Required {
				r = w.one(fmt.Sprint("gate", n), w.argv(l.argv...))
			}
			a, _ := w.ask(r)
			if confine.Missing() != "" {
				w.want(a, wire.Refused, wire.Unconfined)
				return
			}
			w.want(a, l.state, "")
			got := result[wire.ExecResult](t, a)
			if !strings.Contains(got.Stdout, l.said) || l.state == wire.Failed && !strings.Contains(got.Stderr, "ermission denied") {
				t.Errorf("it said %q and %q", got.Stdout, got.Stderr)
			}
		})
	}
	for file, want := range map[string]bool{w.files + "/a": true, w.files + "/born": confine.Missing() == "", w.out + "/born": false, w.files + "/copy": false, w.out + "/a": false, w.files + "/free": false} {
		if _, err := os.Stat(file); (err == nil) != want {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// The state stays closed to commands even where the manifest opens everything.
func TestStateIsNeverOpened(t *testing.T) {
	w := newWorld(t)
	state, err := filepath.Glob(w.state + "/*")
	must(t, err)
	w.hold(func(m *manifest.Manifest) {
		m.Paths[manifest.FSRead] = []manifest.PathRule{{Glob: "/**", Rule: manifest.Rule{Approval: manifest.None}}}
		list(m, manifest.None, "/usr/bin/cat", w.out+"/other")
		list(m, manifest.None, append([]string{"/usr/bin/cat"}, state...)...)
		demand(m)
	})
	must(t, os.WriteFile(w.out+"/other", []byte("other"), 0o644))
	a, _ := w.ask(w.free(w.argv("/usr/bin/cat", w.out+"/other"), "1"))
	if confine.Missing() != "" {
		w.want(a, wire.Refused, wire.Unconfined)
		return
	}
	w.want(a, wire.Succeeded, "")
	a, _ = w.ask(w.free(w.argv(append([]string{"/usr/bin/cat"}, state...)...), "2"))
	w.want(a, wire.Failed, "")
	if r := result[wire.ExecResult](t, a); r.StdoutBytes != 0 {
		t.Errorf("it read %d bytes of %s", r.StdoutBytes, state)
	}
}

func TestUnknownUser(t *testing.T) {
	w := newWorld(t)
	w.hold(func(m *manifest.Manifest) { m.User = "no-such-user" })
	a, _ := w.ask(w.one("gate", w.exec("append", w.files+"/log")))
	w.want(a, wire.Refused, wire.Unconfined)
	a, _ = w.ask(w.one("gate2", w.write("x", "y")))
	w.want(a, wire.Refused, wire.Unconfined)
	_, err := w.resolve(w.exec("append", w.files+"/log"))
	wantReason(t, err, wire.Unconfined)
	if w.content("log")+w.content("x") != "" {
		t.Error("it ran")
	}
	if p := w.status().Problems; !contains(p, "no-such-user") {
		t.Errorf("problems: %q", p)
	}
}

// A daemon that is root does everything as the manifest's user, whose files its rights never touch; any other daemon cannot and says so.
func TestManifestsUser(t *testing.T) {
	w := newWorld(t)
	other := "nobody"
	if confine.Self() == other {
		other = "root"
	}
	for d := w.files; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		must(t, os.Chmod(d, 0o755))
	}
	theirs, secret := w.files+"/theirs", w.files+"/root-only"
	must(t, errors.Join(os.Mkdir(theirs, 0o777), os.Chmod(theirs, 0o777), os.WriteFile(secret, []byte("secret"), 0o600)))
	w.hold(func(m *manifest.Manifest) {
		m.User = other
		list(m, manifest.None, "/usr/bin/id", "-un")
	})
	if os.Geteuid() != 0 {
		a, _ := w.ask(w.free(w.argv("/usr/bin/id", "-un"), "1"))
		w.want(a, wire.Refused, wire.Unconfined)
		if !strings.Contains(a.Message, "run it as "+other) {
			t.Errorf("it says %q", a.Message)
		}
		return
	}
	u, err := confine.Lookup(other)
	must(t, err)
	a, _ := w.ask(w.free(w.argv("/usr/bin/id", "-un"), "1"))
	w.want(a, wire.Succeeded, "")
	if r := result[wire.ExecResult](t, a); r.Stdout != other+"\n" {
		t.Errorf("it ran as %q", r.Stdout)
	}
	for name, c := range map[string]struct {
		r    wire.Request
		want wire.State
	}{
		"write in their directory": {w.one("g1", w.write("theirs/file", "mine")), wire.Succeeded},
		"read it":                  {w.free(w.call(manifest.FSRead, manifest.ReadArgs{Path: w.files + "/a"}), "2"), wire.Succeeded},
		"list":                     {w.free(w.call(manifest.FSList, manifest.PathArgs{Path: w.files}), "3"), wire.Succeeded},
		"stat":                     {w.free(w.call(manifest.FSStat, manifest.PathArgs{Path: w.files + "/a"}), "4"), wire.Succeeded},
		"read what is root's":      {w.free(w.call(manifest.FSRead, manifest.ReadArgs{Path: secret}), "5"), wire.Failed},
		"write where root may":     {w.one("g2", w.write("new", "x")), wire.Failed},
		"replace what is root's":   {w.one("g3", w.write("a", "x")), wire.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			a, _ := w.ask(c.r)
			w.want(a, c.want, "")
			if c.want == wire.Failed && !strings.Contains(a.Message, "permission denied") {
				t.Errorf("it says %q", a.Message)
			}
		})
	}
	info, err := os.Stat(theirs + "/file")
	must(t, err)
	if s := info.Sys().(*syscall.Stat_t); int(s.Uid) != u.UID || int(s.Gid) != u.GID || w.content("theirs/file") != "mine" || w.content("a") != "hello" {
		t.Errorf("the file is of %d:%d, and holds %q", s.Uid, s.Gid, w.content("theirs/file"))
	}
	must(t, os.Symlink(secret, theirs+"/trap"))
	a, _ = w.ask(w.one("g4", w.write("theirs/trap", "x")))
	w.want(a, wire.Refused, wire.PathRefused)
	got, err := w.resolve(w.argv("/usr/bin/id", "-un"))
	if err != nil || got.User != other || got.Executable != "/usr/bin/id" {
		t.Errorf("got %+v, %v", got, err)
	}
}
