package git

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"nisse.io/nisse/hosttools/command"
	"nisse.io/nisse/hosttools/program"
)

// person runs git as somebody does who trusts the place.
func person(t *testing.T, dir string, args ...string) string {
	t.Helper()
	c := exec.Command("git", args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.org",
		"GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.org")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func dir(t *testing.T) string {
	t.Helper()
	d, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// tree with one commit of a.txt and b.txt.
func tree(t *testing.T) Tree {
	t.Helper()
	d := filepath.Join(dir(t), "tree")
	if err := os.Mkdir(d, 0o755); err != nil {
		t.Fatal(err)
	}
	person(t, d, "init", "-q", "-b", "main")
	write(t, filepath.Join(d, "a.txt"), "a\n")
	write(t, filepath.Join(d, "b.txt"), "b\n")
	person(t, d, "add", ".")
	person(t, d, "commit", "-qm", "first")
	return at(d)
}

func at(d string) Tree {
	return Tree{Path: d, Command: command.Command{Timeout: time.Minute, Keep: 1 << 20}}
}

// bare repository that a tree was pushed to.
func bare(t *testing.T, from Tree) string {
	t.Helper()
	d := filepath.Join(dir(t), "remote.git")
	person(t, "/", "clone", "-q", "--bare", from.Path, d)
	person(t, d, "remote", "remove", "origin")
	return d
}

func TestStatus(t *testing.T) {
	w := tree(t)
	first := person(t, w.Path, "rev-parse", "HEAD")
	person(t, w.Path, "remote", "add", "origin", "file://"+bare(t, w))
	person(t, w.Path, "fetch", "-q", "origin")
	person(t, w.Path, "branch", "-q", "--set-upstream-to=origin/main")
	got, err := w.Status(t.Context(), 10)
	want := Status{Branch: "main", Commit: first, Upstream: "origin/main"}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Fatal(err, d)
	}

	write(t, filepath.Join(w.Path, "a.txt"), "changed\n")
	write(t, filepath.Join(w.Path, "new file\nwith a line"), "x")
	write(t, filepath.Join(w.Path, "staged"), "x")
	person(t, w.Path, "add", "staged")
	person(t, w.Path, "rm", "-q", "b.txt")
	got, err = w.Status(t.Context(), 10)
	want.Changes = []Change{{"a.txt", ".", "M"}, {"b.txt", "D", "."}, {"staged", "A", "."}, {"new file\nwith a line", "?", "?"}}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Error(err, d)
	}
	got, err = w.Status(t.Context(), 2)
	if err != nil || len(got.Changes) != 2 || !got.More {
		t.Errorf("%+v, %v", got, err)
	}

	person(t, w.Path, "commit", "-qm", "second")
	got, err = w.Status(t.Context(), 10)
	if err != nil || got.Ahead != 1 || got.Behind != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	person(t, w.Path, "checkout", "-q", "--detach")
	if got, err = w.Status(t.Context(), 10); err != nil || got.Branch != "" || got.Commit == "" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestStatusBeforeTheFirstCommit(t *testing.T) {
	d := dir(t)
	person(t, d, "init", "-q", "-b", "main")
	got, err := at(d).Status(t.Context(), 10)
	if diff := cmp.Diff(Status{Branch: "main"}, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
}

func TestCommit(t *testing.T) {
	w := tree(t)
	write(t, filepath.Join(w.Path, "a.txt"), "changed\n")
	write(t, filepath.Join(w.Path, "dir/*.txt"), "a name that is a pattern elsewhere")
	write(t, filepath.Join(w.Path, "dir/other.txt"), "not asked for")
	write(t, filepath.Join(w.Path, "staged"), "by a person")
	person(t, w.Path, "add", "staged")
	if err := os.Remove(filepath.Join(w.Path, "b.txt")); err != nil {
		t.Fatal(err)
	}
	message := "# a heading, not a comment\n\n--amend\n"
	got, err := w.Commit(t.Context(), []string{"a.txt", "b.txt", "dir/*.txt"}, message, "Grace Hopper <grace@example.org>")
	if err != nil {
		t.Fatal(err)
	}
	if id := person(t, w.Path, "rev-parse", "HEAD"); got != (Commit{ID: id, Branch: "main"}) {
		t.Errorf("%+v, HEAD is %s", got, id)
	}
	show := person(t, w.Path, "show", "--format=%an <%ae>%n%cn <%ce>%n%B", "--name-status", "--no-renames")
	want := "Grace Hopper <grace@example.org>\nGrace Hopper <grace@example.org>\n" + message + "\n\nM\ta.txt\nD\tb.txt\nA\tdir/*.txt"
	if d := cmp.Diff(want, show); d != "" {
		t.Error(d)
	}
	if left := person(t, w.Path, "status", "--porcelain"); left != "A  staged\n?? dir/other.txt" {
		t.Errorf("left is %q", left)
	}
}

func TestCommitAsTheOperator(t *testing.T) {
	w := tree(t)
	home := dir(t)
	ran := filepath.Join(home, "ran")
	write(t, filepath.Join(home, ".gitconfig"), "[user]\nname = Ada L\nemail = ada@home.example\n[core]\nfsmonitor = touch "+ran+"\nhooksPath = "+home+"\n[include]\npath = other\n")
	write(t, filepath.Join(home, "other"), "[user]\nname = Mallory\n")
	write(t, filepath.Join(w.Path, "a.txt"), "changed\n")
	if _, err := w.Commit(t.Context(), []string{"a.txt"}, "x", ""); !errors.Is(err, program.ErrRefused) || !strings.Contains(err.Error(), "author") {
		t.Errorf("got %v", err)
	}
	w.Command.Env = program.Env(nil, "HOME="+home)
	if _, err := w.Commit(t.Context(), []string{"a.txt"}, "x", ""); err != nil {
		t.Fatal(err)
	}
	if by := person(t, w.Path, "log", "-1", "--format=%an %ae"); by != "Ada L ada@home.example" {
		t.Error(by)
	}
	nothing(t, ran)
}

func TestCommitRefuses(t *testing.T) {
	w := tree(t)
	nested := filepath.Join(w.Path, "nested")
	write(t, filepath.Join(nested, "x"), "x")
	person(t, nested, "init", "-q")
	write(t, filepath.Join(w.Path, "dir/x"), "x")
	if err := os.Symlink("/etc", filepath.Join(w.Path, "out")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(w.Path, ".gitattributes"), "*.bin filter=lfs\n")
	write(t, filepath.Join(w.Path, "big.bin"), "x")
	before := person(t, w.Path, "rev-parse", "HEAD")
	for name, file := range map[string]string{
		"file of a nested repository": "nested/x",
		"nested repository":           "nested",
		"directory":                   "dir",
		"through a symlink":           "out/hostname",
		"filtered file":               "big.bin",
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := w.Commit(t.Context(), []string{file}, "x", "A <a@b.example>"); !errors.Is(err, program.ErrRefused) {
				t.Errorf("got %v", err)
			}
		})
	}
	var f *program.Failure
	if _, err := w.Commit(t.Context(), []string{"a.txt"}, "x", "A <a@b.example>"); !errors.As(err, &f) {
		t.Errorf("a commit without a change: %v", err)
	}
	if _, err := w.Commit(t.Context(), []string{"never-there"}, "x", "A <a@b.example>"); !errors.As(err, &f) || !strings.Contains(err.Error(), "never-there") {
		t.Errorf("a file that never was: %v", err)
	}
	if after := person(t, w.Path, "rev-parse", "HEAD"); after != before {
		t.Error("something was committed")
	}
}

func TestCloneAndPush(t *testing.T) {
	from := tree(t)
	remote := bare(t, from)
	person(t, remote, "config", "http.receivepack", "true")
	backend := filepath.Join(person(t, "/", "--exec-path"), "git-http-backend")
	server := httptest.NewServer(&cgi.Handler{Path: backend, Env: []string{"GIT_PROJECT_ROOT=" + filepath.Dir(remote), "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=x"}})
	t.Cleanup(server.Close)
	local := bare(t, from)
	for name, r := range map[string]struct{ url, dir string }{
		"http": {server.URL + "/remote.git", remote},
		"file": {"file://" + local, local},
	} {
		t.Run(name, func(t *testing.T) {
			ran := filepath.Join(dir(t), "ran")
			hook(t, filepath.Join(r.dir, "hooks/post-receive"), ran)
			w := at(filepath.Join(dir(t), "clone"))
			got, err := w.Clone(t.Context(), r.url, "", 0)
			first := person(t, from.Path, "rev-parse", "HEAD")
			if d := cmp.Diff(Commit{ID: first, Branch: "main"}, got); d != "" || err != nil {
				t.Fatal(err, d)
			}
			if _, err := os.Stat(filepath.Join(w.Path, ".git/hooks")); err == nil {
				t.Error("the clone has hooks of a template")
			}
			write(t, filepath.Join(w.Path, "a.txt"), name)
			hook(t, filepath.Join(w.Path, ".git/hooks/pre-push"), ran)
			made, err := w.Commit(t.Context(), []string{"a.txt"}, "second", "A <a@b.example>")
			if err != nil {
				t.Fatal(err)
			}
			if got, err := w.Push(t.Context(), r.url, "main", first); err != nil || got.ID != first {
				t.Errorf("push of the exact commit: %+v, %v", got, err)
			}
			if there := person(t, r.dir, "rev-parse", "main"); there != first {
				t.Errorf("the remote is at %s", there)
			}
			if got, err := w.Push(t.Context(), r.url, "main", ""); err != nil || got != made {
				t.Errorf("push: %+v, %v", got, err)
			}
			if there := person(t, r.dir, "rev-parse", "main"); there != made.ID {
				t.Errorf("the remote is at %s", there)
			}
			var f *program.Failure
			if _, err := w.Push(t.Context(), r.url, "main", first); !errors.As(err, &f) || errors.Is(err, command.ErrUnproven) {
				t.Errorf("a push backwards: %v", err)
			}
			if there := person(t, r.dir, "rev-parse", "main"); there != made.ID {
				t.Errorf("the remote went back to %s", there)
			}
			if _, err := w.Push(t.Context(), r.url, "nowhere", ""); !errors.As(err, &f) {
				t.Errorf("a push of no branch: %v", err)
			}
			if name == "file" {
				nothing(t, ran) // at a server, its hooks are its own affair
			}
			if _, err := w.Clone(t.Context(), r.url, "", 0); !errors.Is(err, program.ErrRefused) {
				t.Errorf("a clone over what is there: %v", err)
			}
			shallow := at(filepath.Join(dir(t), "shallow"))
			if _, err := shallow.Clone(t.Context(), r.url, "main", 1); err != nil {
				t.Fatal(err)
			}
			if n := person(t, shallow.Path, "rev-list", "--count", "HEAD"); n != "1" {
				t.Errorf("%s commits", n)
			}
		})
	}
}

// A server that says no, or sends git elsewhere, gets a sentence and nothing else.
func TestRemoteFailures(t *testing.T) {
	server := httptest.NewServer(nil)
	gone := server.URL
	server.Close()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("git followed to another place") }))
	t.Cleanup(elsewhere.Close)
	redirects := httptest.NewServer(http.RedirectHandler(elsewhere.URL+"/x.git/info/refs?service=git-upload-pack", http.StatusFound))
	t.Cleanup(redirects.Close)
	for name, url := range map[string]string{"nobody there": gone + "/x.git", "no such host": "https://nobody.invalid/x.git", "sent elsewhere": redirects.URL + "/x.git"} {
		t.Run(name, func(t *testing.T) {
			w := at(filepath.Join(dir(t), "clone"))
			_, err := w.Clone(t.Context(), url, "", 0)
			var f *program.Failure
			if !errors.As(err, &f) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v", err)
			}
			if _, err := os.Lstat(w.Path); err == nil {
				t.Error("something was left behind")
			}
		})
	}
	var f *program.Failure
	_, err := at(filepath.Join(dir(t), "x")).Clone(t.Context(), "ssh://git@127.0.0.1:1/x.git", "", 0)
	if _, missing := program.Find("ssh"); missing != nil && !errors.Is(err, program.ErrMissing) || missing == nil && !errors.As(err, &f) {
		t.Errorf("by ssh to nobody: %v", err)
	}
	for _, url := range []string{"ext::sh -c id", "/srv/x", "--upload-pack=id"} {
		if _, err := at(filepath.Join(dir(t), "x")).Clone(t.Context(), url, "", 0); !errors.Is(err, program.ErrRefused) {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// A push of which nothing is heard any more may have arrived. Nobody is told that it failed.
func TestPushThatNobodyHeard(t *testing.T) {
	w := tree(t)
	remote := bare(t, w)
	backend := filepath.Join(person(t, "/", "--exec-path"), "git-http-backend")
	person(t, remote, "config", "http.receivepack", "true")
	serves := &cgi.Handler{Path: backend, Env: []string{"GIT_PROJECT_ROOT=" + filepath.Dir(remote), "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=x"}}
	take := false // what is pushed, before the connection breaks
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodPost:
			serves.ServeHTTP(out, r)
		case take:
			serves.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		default:
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(server.Close)
	for _, take = range []bool{false, true} {
		write(t, filepath.Join(w.Path, "a.txt"), fmt.Sprint(take))
		made, err := w.Commit(t.Context(), []string{"a.txt"}, "another", "A <a@b.example>")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Push(t.Context(), server.URL+"/remote.git", "main", ""); !errors.Is(err, command.ErrUnproven) {
			t.Errorf("taken: %t, got %v", take, err)
		}
		if there := person(t, remote, "rev-parse", "main"); (there == made.ID) != take {
			t.Errorf("taken: %t, the remote is at %s", take, there)
		}
	}
	server.Close()
	if _, err := w.Push(t.Context(), server.URL+"/remote.git", "main", ""); err == nil || errors.Is(err, command.ErrUnproven) {
		t.Errorf("nobody there: %v", err)
	}
	killed := &program.Failure{Argv: []string{"git"}, Result: command.Result{TimedOut: true}}
	if untaken(killed.Result, killed) {
		t.Error("a push that was killed surely changed nothing")
	}
	lost := &program.Failure{Argv: []string{"git"}, Result: command.Result{ExitCode: 1, Stdout: words(t, "!\ta:b\t[remote failure] (remote failed to report status)\n")}}
	if untaken(lost.Result, lost) {
		t.Error("a push whose status the remote did not tell surely changed nothing")
	}
}

// words as a program would have said them.
func words(t *testing.T, s string) command.Output {
	t.Helper()
	k := command.NewKeeper(len(s))
	if _, err := k.Write([]byte(s)); err != nil {
		t.Fatal(err)
	}
	return k.Output()
}

func TestDeadline(t *testing.T) {
	w := tree(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Status(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestProbe(t *testing.T) {
	if got, err := Probe(t.Context(), command.Command{Timeout: time.Minute, Keep: 1000}); err != nil || !strings.HasPrefix(got, "git version ") {
		t.Errorf("%q, %v", got, err)
	}
}
