package manifest

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// machineSample is an Elevated manifest with every section.
func machineSample() string {
	return strings.Replace(sample(), "privilege: User", "privilege: Elevated", 1) + `
repositories:
- {operations: [git.status], glob: "/srv/src/*", approval: None}
- {operations: [git.commit, git.push], glob: /srv/src/secret, remotes: [https://git.example/team/secret.git], approval: Required, tier: High}
- {operations: [git.commit, git.push, git.clone], glob: "/srv/src/*", remotes: [https://git.example/team/*, git@git.example:team/tool.git, file:///srv/git/*], approval: Required}
packages:
- {operations: [pkg.search], names: [nginx*], approval: None}
- {operations: [pkg.search], names: [redis*], approval: None}
- {operations: [pkg.install], names: [nginx, "lib*"], approval: Required, tier: Low}
- {operations: [pkg.install], names: [postgresql*], approval: Required, irreversible: true}
- {operations: [pkg.install], names: [vault*], approval: Required, signature: Person}
- {operations: [pkg.install], names: [htop], approval: Required}
processes:
- {operations: [proc.list], approval: None}
- {operations: [proc.kill], approval: Required}
- {operations: [proc.kill], owner: Any, signals: [HUP, KILL], approval: Required, tier: High}
containers:
- {operations: [docker.container.list, docker.container.logs], names: [web-*], approval: None}
- {operations: [docker.container.list], names: [db-*], approval: Required}
- operations: [docker.container.exec]
  names: [web-*]
  approval: Required
  tier: Low
  commands:
  - {argv: [/usr/sbin/nginx, -s, "{how}"], slots: {how: {type: enum, values: [reload, reopen]}}, approval: Required, tier: High, timeoutSeconds: 60}
desktop:
- {operations: [display.capture], approval: Required, tier: Low}
- {operations: [clipboard.read, clipboard.write], approval: Required}
`
}

func machine(t testing.TB) *Manifest {
	t.Helper()
	return parse(t, strings.Replace(machineSample(), "  approval: [\""+publicKey(2)+"\"]", "  approval: [\""+publicKey(2)+"\"]\n  persons: {ada: [\""+publicKey(3)+"\"]}", 1))
}

func TestCheckOfMachines(t *testing.T) {
	m := machine(t)
	id := strings.Repeat("0a", 20)
	required := Rule{Approval: Required}
	for _, c := range []struct {
		name, capability, args string
		want                   Verdict // without args; zero: refused
		malformed              bool
	}{
		{name: "status", capability: GitStatus, args: `{"path":"/srv/src/tool"}`, want: Verdict{Rule: Rule{Approval: None}, Glob: "/srv/src/*", TimeoutSeconds: 30}},
		{name: "status of another place", capability: GitStatus, args: `{"path":"/srv/src/a/b"}`},
		{name: "commit", capability: GitCommit, args: `{"files":["a.txt","dir/b"],"message":"x","path":"/srv/src/tool"}`, want: Verdict{Rule: required, Glob: "/srv/src/*", TimeoutSeconds: 30}},
		{name: "commit of the stricter rule", capability: GitCommit, args: `{"files":["a"],"message":"x","path":"/srv/src/secret"}`, want: Verdict{Rule: Rule{Approval: Required, Tier: High}, Glob: "/srv/src/secret", TimeoutSeconds: 30}},
		{name: "commit of nothing", capability: GitCommit, args: `{"files":[],"message":"x","path":"/srv/src/tool"}`, malformed: true},
		{name: "commit of an option", capability: GitCommit, args: `{"files":["../x"],"message":"x","path":"/srv/src/tool"}`, malformed: true},
		{name: "commit of the repository's own", capability: GitCommit, args: `{"files":["sub/.GIT/config"],"message":"x","path":"/srv/src/tool"}`, malformed: true},
		{name: "commit of the whole tree", capability: GitCommit, args: `{"files":["."],"message":"x","path":"/srv/src/tool"}`, malformed: true},
		{name: "commit without words", capability: GitCommit, args: `{"files":["a"],"message":" \n","path":"/srv/src/tool"}`, malformed: true},
		{name: "commit by an option", capability: GitCommit, args: `{"author":"--amend","files":["a"],"message":"x","path":"/srv/src/tool"}`, malformed: true},
		{name: "commit by two lines", capability: GitCommit, args: `{"author":"A\nB <a@b>","files":["a"],"message":"x","path":"/srv/src/tool"}`, malformed: true},
		{name: "clone", capability: GitClone, args: `{"path":"/srv/src/new","timeoutSeconds":100,"url":"https://git.example/team/new.git"}`, want: Verdict{Rule: required, Glob: "/srv/src/*", TimeoutSeconds: 100}},
		{name: "clone for longer than allowed", capability: GitClone, args: `{"path":"/srv/src/new","timeoutSeconds":300,"url":"https://git.example/team/new.git"}`, want: Verdict{Rule: required, Glob: "/srv/src/*", TimeoutSeconds: 120}},
		{name: "clone by the exact name", capability: GitClone, args: `{"path":"/srv/src/new","url":"git@git.example:team/tool.git"}`, want: Verdict{Rule: required, Glob: "/srv/src/*", TimeoutSeconds: 30}},
		{name: "clone of another remote", capability: GitClone, args: `{"path":"/srv/src/new","url":"https://git.example/other/new.git"}`},
		{name: "clone of the directory itself", capability: GitClone, args: `{"path":"/srv/src/new","url":"https://git.example/team/"}`},
		{name: "clone out of the directory", capability: GitClone, args: `{"path":"/srv/src/new","url":"https://git.example/team/../other/new.git"}`, malformed: true},
		{name: "clone through a helper", capability: GitClone, args: `{"path":"/srv/src/new","url":"ext::sh -c id"}`, malformed: true},
		{name: "push", capability: GitPush, args: `{"branch":"main","commit":"` + id + `","path":"/srv/src/tool","url":"file:///srv/git/tool.git"}`, want: Verdict{Rule: required, Glob: "/srv/src/*", TimeoutSeconds: 30}},
		{name: "push of a secret to its remote", capability: GitPush, args: `{"branch":"main","path":"/srv/src/secret","url":"https://git.example/team/secret.git"}`, want: Verdict{Rule: Rule{Approval: Required, Tier: High}, Glob: "/srv/src/secret", TimeoutSeconds: 30}},
		{name: "push by force", capability: GitPush, args: `{"branch":"+main","path":"/srv/src/tool","url":"file:///srv/git/tool.git"}`, malformed: true},
		{name: "push of a deletion", capability: GitPush, args: `{"branch":":main","path":"/srv/src/tool","url":"file:///srv/git/tool.git"}`, malformed: true},
		{name: "push of half an ID", capability: GitPush, args: `{"branch":"main","commit":"abc","path":"/srv/src/tool","url":"file:///srv/git/tool.git"}`, malformed: true},

		{name: "search tells of all names of its terms", capability: PkgSearch, args: `{"query":"ngi"}`, want: Verdict{Rule: Rule{Approval: None}, Names: []string{"nginx*", "redis*"}, TimeoutSeconds: 30}},
		{name: "search by a pattern", capability: PkgSearch, args: `{"query":".*"}`, malformed: true},
		{name: "install", capability: PkgInstall, args: `{"names":["htop"]}`, want: Verdict{Rule: required, TimeoutSeconds: 120}},
		{name: "install of several is as strict as the strictest", capability: PkgInstall, args: `{"names":["nginx","postgresql-17","libpq5"],"timeoutSeconds":60}`,
			want: Verdict{Rule: Rule{Approval: Required, Tier: High, Irreversible: true}, TimeoutSeconds: 60}},
		{name: "install with one that a person has to sign for", capability: PkgInstall, args: `{"names":["nginx","vault"]}`,
			want: Verdict{Rule: Rule{Approval: Required, Tier: Standard, Signature: PersonSignature}, TimeoutSeconds: 120}},
		{name: "install of one more than listed", capability: PkgInstall, args: `{"names":["nginx","sudo"]}`},
		{name: "install of a version", capability: PkgInstall, args: `{"names":["nginx=1.0"]}`, malformed: true},
		{name: "install of a release", capability: PkgInstall, args: `{"names":["nginx/sid"]}`, malformed: true},
		{name: "install of a file", capability: PkgInstall, args: `{"names":["./nginx.deb"]}`, malformed: true},
		{name: "install that removes", capability: PkgInstall, args: `{"names":["nginx-"]}`, malformed: true},
		{name: "install of an option", capability: PkgInstall, args: `{"names":["--allow-unauthenticated"]}`, malformed: true},
		{name: "install of a group", capability: PkgInstall, args: `{"names":["@core"]}`, malformed: true},
		{name: "install of a pattern", capability: PkgInstall, args: `{"names":["lib*"]}`, malformed: true},
		{name: "install of another architecture", capability: PkgInstall, args: `{"names":["nginx:i386"]}`, malformed: true},
		{name: "install of one twice", capability: PkgInstall, args: `{"names":["nginx","nginx"]}`, malformed: true},

		{name: "processes", capability: ProcList, args: `{}`, want: Verdict{Rule: Rule{Approval: None}, Owner: Own, TimeoutSeconds: 30}},
		{name: "kill", capability: ProcKill, args: `{"pid":77,"start":"123@0123abcd"}`, want: Verdict{Rule: required, Owner: Own, TimeoutSeconds: 30}},
		{name: "kill harder", capability: ProcKill, args: `{"pid":77,"signal":"KILL","start":"123@0123abcd"}`, want: Verdict{Rule: Rule{Approval: Required, Tier: High}, Owner: Any, TimeoutSeconds: 30}},
		{name: "kill otherwise", capability: ProcKill, args: `{"pid":77,"signal":"STOP","start":"123@0123abcd"}`},
		{name: "kill by a number", capability: ProcKill, args: `{"pid":77,"signal":"9","start":"123@0123abcd"}`, malformed: true},
		{name: "kill of init", capability: ProcKill, args: `{"pid":1,"start":"123@0123abcd"}`, malformed: true},
		{name: "kill of everything", capability: ProcKill, args: `{"pid":-1,"start":"123@0123abcd"}`, malformed: true},
		{name: "kill of whatever has the number", capability: ProcKill, args: `{"pid":77}`, malformed: true},

		{name: "containers of the first rule's terms", capability: DockerList, args: `{}`, want: Verdict{Rule: Rule{Approval: None}, Names: []string{"web-*"}, TimeoutSeconds: 30}},
		{name: "logs", capability: DockerLogs, args: `{"container":"web-1","tail":10}`, want: Verdict{Rule: Rule{Approval: None}, TimeoutSeconds: 30}},
		{name: "logs of another", capability: DockerLogs, args: `{"container":"db-1"}`},
		{name: "logs of a path", capability: DockerLogs, args: `{"container":"../web-1"}`, malformed: true},
		{name: "exec in a container", capability: DockerExec, args: `{"argv":["/usr/sbin/nginx","-s","reload"],"container":"web-1"}`, want: Verdict{Rule: Rule{Approval: Required, Tier: High}, TimeoutSeconds: 60}},
		{name: "exec of another line", capability: DockerExec, args: `{"argv":["/usr/sbin/nginx","-s","stop"],"container":"web-1"}`},
		{name: "exec in another container", capability: DockerExec, args: `{"argv":["/usr/sbin/nginx","-s","reload"],"container":"db-1"}`},
		{name: "exec in half an ID", capability: DockerExec, args: `{"argv":["/usr/sbin/nginx","-s","reload"],"container":"web-1","id":"abc"}`, malformed: true},

		{name: "screen", capability: DisplayCapture, args: `{}`, want: Verdict{Rule: Rule{Approval: Required, Tier: Low}, TimeoutSeconds: 30}},
		{name: "screen of another display", capability: DisplayCapture, args: `{"display":":1"}`, malformed: true},
		{name: "clipboard", capability: ClipboardWrite, args: `{"content":"x"}`, want: Verdict{Rule: required, TimeoutSeconds: 30}},
		{name: "clipboard over the limit", capability: ClipboardWrite, args: `{"content":"12345678901"}`},
		{name: "clipboard of nothing", capability: ClipboardWrite, args: `{"content":""}`, malformed: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, err := m.Check(c.capability, c.args)
			v.Args = nil
			switch {
			case c.malformed:
				if err == nil || errors.Is(err, ErrNotAllowed) {
					t.Errorf("got %+v, %v; want malformed", v, err)
				}
			case c.want.Approval == "":
				if !errors.Is(err, ErrNotAllowed) {
					t.Errorf("got %v; want not allowed", err)
				}
			case err != nil:
				t.Error(err)
			}
			if d := cmp.Diff(c.want, v); d != "" {
				t.Error(d)
			}
			if _, err := parse(t, sample()).Check(c.capability, c.args); err == nil {
				t.Error("a manifest without these sections allows it")
			}
		})
	}
	for _, c := range Capabilities() {
		if !m.Has(c) && c != FSStat {
			t.Errorf("%s is not seen in the manifest", c)
		}
	}
}

func TestRemoteScheme(t *testing.T) {
	for _, c := range []struct{ url, want string }{
		{"https://git.example/team/tool.git", "https"},
		{"https://git.example:8443/tool", "https"},
		{"http://127.0.0.1:3000/a/b.git", "http"},
		{"https://bot@git.example/tool.git", "https"},
		{"ssh://git@[fd00::1]:2222/srv/git/tool.git", "ssh"},
		{"ssh://git.example/~ada/tool.git", "ssh"},
		{"git@git.example:team/tool.git", "ssh"},
		{"git@git.example:/srv/git/tool.git", "ssh"},
		{"file:///srv/git/tool.git", "file"},

		{"https://bot:secret@git.example/tool.git", ""},
		{"https://git.example/tool.git?x", ""},
		{"https://git.example/tool.git#x", ""},
		{"https://git.example//tool.git", ""},
		{"https://git.example/a/../tool.git", ""},
		{"https://git.example/%2e%2e/tool.git", ""},
		{"https://git.example/", ""},
		{"https:///tool.git", ""},
		{"HTTPS://git.example/tool.git", ""},
		{"https://git.example:0/x", ""},
		{"ssh://-oProxyCommand=id/x", ""},
		{"ssh://git@-oProxyCommand=id/x", ""},
		{"ssh://-l@git.example/x", ""},
		{"ssh://git.example/-x", ""},
		{"-oProxyCommand=id@git.example:x", ""},
		{"git@-oProxyCommand=id:x", ""},
		{"git@git.example:../x", ""},
		{"git@git.example:-x", ""},
		{"git@git.example:", ""},
		{"git.example:x", ""},
		{"file://host/srv/x", ""},
		{"file:///", ""},
		{"file:///srv/git/..", ""},
		{"file:///srv/$(id)", ""},
		{"ext::sh -c id", ""},
		{"fd::17", ""},
		{"git://git.example/x", ""},
		{"ftp://git.example/x", ""},
		{"/srv/git/x", ""},
		{"--upload-pack=id", ""},
		{"https://git.example/a\nb", ""},
		{"", ""},
	} {
		t.Run(c.url, func(t *testing.T) {
			if got := RemoteScheme(c.url); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestBranches(t *testing.T) {
	for name, ok := range map[string]bool{
		"main": true, "feature/x-1": true, "v1.2": true, "a+b": true, "_x": true,
		"": false, "-x": false, "+main": false, "a..b": false, "a b": false, "a:b": false, "a^": false, "a~1": false, "a@{1}": false, "HEAD": false, "refs/heads/x": false,
		"a/": false, "/a": false, "a//b": false, "a.lock": false, "a.lock/b": false, ".a": false, "a/.b": false, "a.": false, "a*": false, "a\\b": false, "ä": false,
	} {
		if err := checkBranch(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// The stricter of two rules, whichever comes first.
func TestRuleAnd(t *testing.T) {
	none, low, plain, high := Rule{Approval: None}, Rule{Approval: Required, Tier: Low}, Rule{Approval: Required}, Rule{Approval: Required, Tier: High}
	final := Rule{Approval: Required, Irreversible: true}
	for _, c := range []struct {
		name       string
		a, b, want Rule
	}{
		{"nothing yet", Rule{}, low, low},
		{"none and none", none, none, none},
		{"none and required", none, low, low},
		{"low and low", low, low, low},
		{"low and the usual", low, plain, Rule{Approval: Required, Tier: Standard}},
		{"low and high", low, high, high},
		{"low and irreversible", low, final, Rule{Approval: Required, Tier: High, Irreversible: true}},
		{"signature", low, Rule{Approval: Required, Tier: Low, Signature: PersonSignature}, Rule{Approval: Required, Tier: Low, Signature: PersonSignature}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if d := cmp.Diff(c.want, c.a.and(c.b)); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(c.want, c.b.and(c.a)); c.a != (Rule{}) && d != "" {
				t.Error("the other way round: " + d)
			}
		})
	}
}

// Nobody in user scope changes the machine for others.
func TestUserScope(t *testing.T) {
	for name, section := range map[string]string{
		"install": "packages:\n- {operations: [pkg.install], names: [htop], approval: Required}\n",
		"kill":    "processes:\n- {operations: [proc.kill], owner: Any, approval: Required}\n",
	} {
		if _, err := Parse([]byte(sample() + section)); err == nil || !strings.Contains(err.Error(), "Elevated manifests") {
			t.Errorf("%s: %v", name, err)
		}
		parse(t, strings.Replace(sample(), "privilege: User", "privilege: Elevated", 1)+section)
	}
}

func TestContainersNeedApproval(t *testing.T) {
	text := strings.Replace(machineSample(), "values: [reload, reopen]}}, approval: Required, tier: High", "values: [reload, reopen]}}, approval: None", 1)
	if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), "always needs approval") {
		t.Errorf("got %v", err)
	}
}

// FuzzRemote: whatever is taken for a URL names one place in one way, and no option, helper or way up.
func FuzzRemote(f *testing.F) {
	for _, s := range []string{"https://git.example/a", "ssh://git@h:22/a", "git@h:a/b", "file:///a/b", "ext::sh", "https://a:b@c/d", "ssh://-o/x", "https://h/a/%2e%2e/b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, u string) {
		scheme := RemoteScheme(u)
		if scheme == "" {
			return
		}
		if strings.HasPrefix(u, "-") || strings.Contains(u, "::") && !strings.Contains(u, "[") || strings.Contains(u, "..") && strings.Contains(u, "/../") || strings.ContainsAny(u, " \t\r\n\x00'\"`$;&|<>(){}\\*?#%") {
			t.Errorf("%q is taken for %s", u, scheme)
		}
	})
}
