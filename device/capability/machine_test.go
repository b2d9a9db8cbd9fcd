package capability

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/hosttools/desktoptest"
	"nisse.io/nisse/hosttools/proc"
	"nisse.io/nisse/hosttools/program"
	"nisse.io/nisse/internal/canonical"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/manifest"
)

// machine that a manifest of these sections allows.
func machine(t *testing.T, sections string) Runner {
	t.Helper()
	key := func(seed byte) string {
		return dsse.EncodeKey(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, 32)).Public().(ed25519.PublicKey))
	}
	m, err := manifest.Parse([]byte(`
v: 1
device: web1
privilege: Elevated
epoch: 1
expiresAt: 2027-11-30T00:00:00Z
keys: {request: ["` + key(1) + `"], approval: ["` + key(2) + `"]}
limits: {writeBytes: 1000000, outputBytes: 1000000, timeoutSeconds: 60}
` + sections))
	if err != nil {
		t.Fatal(err)
	}
	return Runner{Manifest: m}
}

// does a call that the manifest allows. Whatever comes of it can be written into an answer, and kept smaller.
func (r Runner) does(t *testing.T, capability string, args any) Outcome {
	t.Helper()
	b, err := canonical.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	v, err := r.Manifest.Check(capability, string(b))
	if err != nil {
		t.Fatal(err)
	}
	o := r.Run(t.Context(), capability, v)
	if (o.State == wire.Succeeded) != (o.Message == "") || (o.State == wire.Refused) != (o.Reason != "") {
		t.Errorf("%s: %+v", capability, o)
	}
	if o.Result != nil {
		for _, keep := range []int{1 << 20, 100, 0} {
			b, err := canonical.Marshal(o.Result(keep))
			if err != nil {
				t.Errorf("%s: the result cannot be written: %v", capability, err)
			}
			if keep <= 100 && len(b) > 5000 {
				t.Errorf("%s: of %d bytes to keep it made %d", capability, keep, len(b))
			}
		}
	}
	return o
}

// result of a call that succeeded.
func result[T any](t *testing.T, o Outcome) T {
	t.Helper()
	var zero T
	if o.State != wire.Succeeded {
		t.Errorf("%s %s: %s", o.State, o.Reason, o.Message)
		return zero
	}
	got, ok := o.Result(1 << 20).(T)
	if !ok {
		t.Errorf("the result is a %T", o.Result(1<<20))
	}
	return got
}

func refused(t *testing.T, o Outcome, reason wire.Reason) {
	t.Helper()
	if o.State != wire.Refused || o.Reason != reason {
		t.Errorf("%s %s: %s; want it refused as %s", o.State, o.Reason, o.Message, reason)
	}
}

func person(t *testing.T, args ...string) string {
	t.Helper()
	c := exec.Command("git", args...)
	c.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.org", "GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.org")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func TestGit(t *testing.T) {
	d, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	seed, remote, clone := filepath.Join(d, "seed"), filepath.Join(d, "git/tool.git"), filepath.Join(d, "src/tool")
	person(t, "init", "-q", "-b", "main", seed)
	person(t, "-C", seed, "commit", "-q", "--allow-empty", "-m", "first")
	person(t, "clone", "-q", "--bare", seed, remote)
	person(t, "-C", remote, "remote", "remove", "origin")
	home := filepath.Join(d, "home")
	if err := os.MkdirAll(filepath.Join(d, "src"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(home, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, ".gitconfig"), []byte("[user]\nname = Op\nemail = op@example.org\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := machine(t, `
environment: {HOME: "`+home+`"}
repositories:
- {operations: [git.status], glob: "`+d+`/src/*", approval: None}
- {operations: [git.commit, git.clone, git.push], glob: "`+d+`/src/*", remotes: ["file://`+d+`/git/*"], approval: Required}
`)
	url := "file://" + remote
	cloned := result[wire.GitResult](t, r.does(t, manifest.GitClone, manifest.GitCloneArgs{URL: url, Path: clone}))
	if d := cmp.Diff(wire.GitResult{Commit: person(t, "-C", seed, "rev-parse", "HEAD"), Branch: "main"}, cloned); d != "" {
		t.Error(d)
	}
	if err := os.WriteFile(filepath.Join(clone, "a.txt"), []byte("a"), 0o644); err != nil {
		t.Fatal(err)
	}
	status := result[wire.GitStatusResult](t, r.does(t, manifest.GitStatus, manifest.GitStatusArgs{Path: clone}))
	if d := cmp.Diff(wire.GitStatusResult{Branch: "main", Commit: cloned.Commit, Upstream: "origin/main", Changes: []wire.GitChange{{Path: "a.txt", Index: "?", Worktree: "?"}}}, status); d != "" {
		t.Error(d)
	}
	made := result[wire.GitResult](t, r.does(t, manifest.GitCommit, manifest.GitCommitArgs{Path: clone, Files: []string{"a.txt"}, Message: "second"}))
	if by := person(t, "-C", clone, "log", "-1", "--format=%H %an"); by != made.Commit+" Op" {
		t.Errorf("%s, %+v", by, made)
	}
	pushed := result[wire.GitResult](t, r.does(t, manifest.GitPush, manifest.GitPushArgs{Path: clone, URL: url, Branch: "main", Commit: made.Commit}))
	if there := person(t, "-C", remote, "rev-parse", "main"); pushed.Commit != there || there != made.Commit {
		t.Errorf("pushed %+v, there is %s", pushed, there)
	}
	if o := r.does(t, manifest.GitPush, manifest.GitPushArgs{Path: clone, URL: url, Branch: "nowhere"}); o.State != wire.Failed {
		t.Errorf("%+v", o)
	}

	person(t, "-C", clone, "config", "core.fsmonitor", "true")
	refused(t, r.does(t, manifest.GitStatus, manifest.GitStatusArgs{Path: clone}), wire.TargetRefused)
	person(t, "-C", clone, "config", "--unset", "core.fsmonitor")
	if err := os.Symlink(seed, filepath.Join(d, "src/out")); err != nil {
		t.Fatal(err)
	}
	refused(t, r.does(t, manifest.GitStatus, manifest.GitStatusArgs{Path: filepath.Join(d, "src/out")}), wire.PathRefused)
	r.Never = []string{filepath.Join(clone, "state")}
	refused(t, r.does(t, manifest.GitStatus, manifest.GitStatusArgs{Path: clone}), wire.PathRefused)
}

func TestProc(t *testing.T) {
	r := machine(t, `
processes:
- {operations: [proc.list], approval: None}
- {operations: [proc.kill], approval: Required}
`)
	c := exec.Command("/bin/sleep", "1000")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	var child wire.Process
	for _, p := range result[wire.ProcListResult](t, r.does(t, manifest.ProcList, manifest.ProcListArgs{Name: "sleep"})).Processes {
		if p.Name != "sleep" {
			t.Errorf("%+v was not asked for", p)
		}
		if p.PID == c.Process.Pid {
			child = p
		}
	}
	if !cmp.Equal(child.Argv, []string{"/bin/sleep", "1000"}) || child.User != proc.Name(uint32(os.Geteuid())) || child.Parent != os.Getpid() {
		t.Errorf("%+v", child)
	}
	for _, p := range result[wire.ProcListResult](t, r.does(t, manifest.ProcList, manifest.ProcListArgs{})).Processes {
		if p.User != child.User && p.Argv != nil {
			t.Errorf("the command line of another's process is told: %+v", p)
		}
	}
	_, boot, _ := strings.Cut(child.Start, "@")
	refused(t, r.does(t, manifest.ProcKill, manifest.ProcKillArgs{PID: child.PID, Start: "1@" + boot, Signal: "TERM"}), wire.TargetRefused)
	refused(t, r.does(t, manifest.ProcKill, manifest.ProcKillArgs{PID: os.Getpid(), Start: child.Start}), wire.TargetRefused)
	killed := result[wire.ProcKillResult](t, r.does(t, manifest.ProcKill, manifest.ProcKillArgs{PID: child.PID, Start: child.Start}))
	if d := cmp.Diff(wire.ProcKillResult{PID: child.PID, Name: "sleep", Ended: true}, killed); d != "" {
		t.Error(d)
	}
	r.Manifest.User = "no-such-account"
	if o := r.does(t, manifest.ProcKill, manifest.ProcKillArgs{PID: child.PID, Start: child.Start}); o.Reason != wire.Unconfined {
		t.Errorf("%+v", o)
	}
}

func TestPkg(t *testing.T) {
	r := machine(t, `
packages:
- {operations: [pkg.search], names: ["a*"], approval: None}
- {operations: [pkg.install], names: ["*"], approval: Required}
`)
	search := r.does(t, manifest.PkgSearch, manifest.PkgSearchArgs{Query: "apt"})
	install := r.does(t, manifest.PkgInstall, manifest.PkgInstallArgs{Names: []string{"no-such-package-anywhere"}})
	if _, err := program.Find("apt-get", "dnf5", "dnf", "dnf-3", "pacman"); err != nil {
		refused(t, search, wire.Unavailable)
		refused(t, install, wire.Unavailable)
		return
	}
	for _, p := range result[wire.PkgSearchResult](t, search).Packages {
		if !strings.HasPrefix(p.Name, "a") {
			t.Errorf("%s is not the manifest's to tell of", p.Name)
		}
	}
	refused(t, install, wire.TargetRefused)
}

func TestUnavailable(t *testing.T) {
	r := machine(t, `
environment: {DOCKER_HOST: "unix:///nowhere/docker.sock"}
containers:
- {operations: [docker.container.list, docker.container.logs], names: ["*"], approval: None}
- {operations: [docker.container.exec], names: ["*"], approval: Required, commands: [{argv: [/bin/true], approval: Required}]}
desktop:
- {operations: [display.capture, clipboard.read, clipboard.write], approval: Required}
`)
	for capability, args := range map[string]any{
		manifest.DockerList: manifest.ContainerListArgs{}, manifest.DockerLogs: manifest.ContainerLogsArgs{Container: "web"},
		manifest.DockerExec:     manifest.ContainerExecArgs{Container: "web", Argv: []string{"/bin/true"}},
		manifest.DisplayCapture: manifest.CaptureArgs{}, manifest.ClipboardRead: manifest.ClipboardReadArgs{}, manifest.ClipboardWrite: manifest.ClipboardWriteArgs{Content: "x"},
	} {
		t.Run(capability, func(t *testing.T) { refused(t, r.does(t, capability, args), wire.Unavailable) })
	}
}

func TestDesktop(t *testing.T) {
	env, ok := desktoptest.X11(t)
	if !ok {
		return // TestUnavailable has seen what comes of that
	}
	r := machine(t, fmt.Sprintf(`
environment: {DISPLAY: %q}
desktop:
- {operations: [display.capture, clipboard.read, clipboard.write], approval: Required}
`, program.Variable(env, "DISPLAY")))
	capture := r.does(t, manifest.DisplayCapture, manifest.CaptureArgs{})
	if _, err := program.Find("maim", "import", "scrot"); err != nil {
		refused(t, capture, wire.Unavailable)
	} else {
		c := result[wire.CaptureResult](t, capture)
		b, err := base64.StdEncoding.DecodeString(c.Image)
		if err != nil || !bytes.HasPrefix(b, []byte("\x89PNG")) || c.Width != desktoptest.Width || c.ScreenHeight != desktoptest.Height {
			t.Errorf("%v, %.8q, %d of %d", err, b, c.Width, c.ScreenWidth)
		}
	}
	write := r.does(t, manifest.ClipboardWrite, manifest.ClipboardWriteArgs{Content: "Grüße\n"})
	if _, err := program.Find("xclip"); err != nil {
		refused(t, write, wire.Unavailable)
		return
	}
	if w := result[wire.ClipboardWriteResult](t, write); w.Bytes != 8 {
		t.Errorf("%+v", w)
	}
	got := r.does(t, manifest.ClipboardRead, manifest.ClipboardReadArgs{})
	if d := cmp.Diff(wire.ClipboardReadResult{Content: "Grüße\n", Encoding: UTF8, Size: 8}, result[wire.ClipboardReadResult](t, got)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(wire.ClipboardReadResult{Content: "Gr", Encoding: UTF8, Size: 8, Truncated: true}, got.Result(3)); d != "" {
		t.Error(d)
	}
	// No picture that shows anything fits into this.
	r.Manifest.Limits.OutputBytes = 10
	if o := r.does(t, manifest.DisplayCapture, manifest.CaptureArgs{}); o.State == wire.Succeeded || !strings.Contains(o.Message, "outputBytes") && o.Reason != wire.Unavailable {
		t.Errorf("%+v", o)
	}
}

// A manifest's environment is beside the clean one, and a later DISPLAY is the manifest's.
func TestEnvironment(t *testing.T) {
	r := machine(t, "environment: {HOME: /home/ada, DISPLAY: ':7'}\n")
	want := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "DISPLAY=:7", "HOME=/home/ada"}
	if d := cmp.Diff(want, r.environment()); d != "" {
		t.Error(d)
	}
}

// Each capability beside exec and fs.* is done with something that is probed, once.
func TestMeans(t *testing.T) {
	var all []string
	for _, m := range Means(t.Context(), &manifest.Manifest{}) {
		all = append(all, m.Capabilities...)
		if (m.Err == nil) == (m.What == "") {
			t.Errorf("%s: %q, %v", m.Name, m.What, m.Err)
		}
		if (m.Name == "display" || m.Name == "clipboard") && m.Err == nil {
			t.Errorf("%s without an environment that names one: %s", m.Name, m.What)
		}
	}
	var want []string
	for _, c := range manifest.Capabilities() {
		if !strings.HasPrefix(c, "fs.") && c != manifest.Exec {
			want = append(want, c)
		}
	}
	slices.Sort(all)
	if d := cmp.Diff(want, all); d != "" {
		t.Error(d)
	}
}

// Every capability that a manifest can list has something that does it: none says that it is not built in.
func TestEveryCapabilityIsBuiltIn(t *testing.T) {
	r := machine(t, "")
	samples := map[string]string{
		manifest.FSRead: `{"path":"/"}`, manifest.FSList: `{"path":"/"}`, manifest.FSStat: `{"path":"/"}`, manifest.FSWrite: `{"content":"","path":"/nowhere/x"}`, manifest.Exec: `{"argv":["/nowhere"]}`,
		manifest.GitStatus: `{"path":"/nowhere"}`, manifest.GitCommit: `{"files":["x"],"message":"x","path":"/nowhere"}`, manifest.GitClone: `{"path":"/nowhere/x","url":"file:///nowhere"}`,
		manifest.GitPush: `{"branch":"x","path":"/nowhere","url":"file:///nowhere"}`, manifest.PkgSearch: `{"query":"x"}`, manifest.PkgInstall: `{"names":["no-such-package-anywhere"]}`,
		manifest.ProcList: `{}`, manifest.ProcKill: `{"pid":4194304,"start":"1@00000000"}`, manifest.DockerList: `{}`, manifest.DockerLogs: `{"container":"x"}`,
		manifest.DockerExec: `{"argv":["/x"],"container":"x"}`, manifest.DisplayCapture: `{}`, manifest.ClipboardRead: `{}`, manifest.ClipboardWrite: `{"content":"x"}`,
	}
	for _, c := range manifest.Capabilities() {
		a, err := manifest.ParseArgs(c, samples[c])
		if err != nil {
			t.Errorf("%s: %v", c, err)
			continue
		}
		o := r.Run(t.Context(), c, manifest.Verdict{Args: a, TimeoutSeconds: 30, Glob: "/**"})
		if o.State == "" || strings.Contains(o.Message, "not built into") {
			t.Errorf("%s: %s", c, o.Message)
		}
	}
	if o := r.Run(t.Context(), "fs.delete", manifest.Verdict{Args: json.Number("1")}); o.Reason != wire.Unavailable || !strings.Contains(o.Message, "not built into") {
		t.Errorf("%+v", o)
	}
}
