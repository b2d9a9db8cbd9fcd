package manifest

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"nisse.io/nisse/internal/dsse"
)

var at = time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)

func privateKey(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
}

func roots(seeds ...byte) []ed25519.PublicKey {
	var all []ed25519.PublicKey
	for _, s := range seeds {
		all = append(all, privateKey(s).Public().(ed25519.PublicKey))
	}
	return all
}

func TestSignAndOpen(t *testing.T) {
	m := parse(t, sample())
	e, err := m.Sign(privateKey(9), at)
	if err != nil {
		t.Fatal(err)
	}
	if m.Epoch != at.Unix() {
		t.Errorf("epoch %d, want %d", m.Epoch, at.Unix())
	}
	got, err := Open(e, roots(8, 9))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(m, got); d != "" {
		t.Error(d)
	}
	if err := m.OpenAs(e, roots(9)); err != nil {
		t.Error(err)
	}

	first := m.Epoch
	if _, err := m.Sign(privateKey(9), at.Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	if m.Epoch != first+1 {
		t.Errorf("a clock that went back gave epoch %d after %d", m.Epoch, first)
	}
}

func TestOpenRefuses(t *testing.T) {
	m := parse(t, sample())
	e, err := m.Sign(privateKey(9), at)
	if err != nil {
		t.Fatal(err)
	}
	changed := *m
	changed.Limits.WriteBytes++
	if err := changed.OpenAs(e, roots(9)); !errors.Is(err, ErrOtherText) {
		t.Errorf("changed after signing: %v", err)
	}
	statement, err := dsse.Sign(privateKey(9), dsse.TypeStatement, m)
	if err != nil {
		t.Fatal(err)
	}
	invalid := *m
	invalid.Limits.WriteBytes = 0
	broken, err := dsse.Sign(privateKey(9), dsse.TypeManifest, invalid)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		envelope string
		roots    []ed25519.PublicKey
		refused  bool
	}{
		"another key":              {e, roots(8), true},
		"no key":                   {e, nil, true},
		"signed as something else": {string(statement), roots(9), true},
		"one byte flipped":         {strings.Replace(e, "A", "B", 1), roots(9), true},
		"not an envelope":          {"{}", roots(9), true},
		"signed and invalid":       {string(broken), roots(9), false},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Open(c.envelope, c.roots)
			if err == nil || errors.Is(err, dsse.ErrRefused) != c.refused {
				t.Errorf("got %v, refused %v is wanted", err, c.refused)
			}
		})
	}
}

func TestSignRefusesLongLife(t *testing.T) {
	for _, c := range []struct {
		name      string
		privilege Privilege
		life      time.Duration
		ok        bool
	}{
		{"user, a year", User, 365 * 24 * time.Hour, true},
		{"user, two years", User, 730 * 24 * time.Hour, false},
		{"elevated, 90 days", Elevated, 90 * 24 * time.Hour, true},
		{"elevated, a day more", Elevated, 91 * 24 * time.Hour, false},
		{"past", User, -time.Second, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := parse(t, sample())
			m.Privilege, m.ExpiresAt = c.privilege, at.Add(c.life).Format(time.RFC3339)
			if _, err := m.Sign(privateKey(9), at); (err == nil) != c.ok {
				t.Errorf("got %v", err)
			}
		})
	}
}

// What is written in two ways and means one thing has one digest.
func TestCanonicalForm(t *testing.T) {
	want, err := parse(t, sample()).Digest()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"empty lists":     sample() + "repositories: []\ndesktop: []\nenvironment: {}\n",
		"empty paths":     strings.Replace(sample(), "paths:\n", "paths:\n  fs.stat: []\n", 1),
		"the word User":   strings.Replace(sample(), "privilege: User", `privilege: "User"`, 1),
		"irreversible no": strings.Replace(sample(), "approval: Required}\n  - {glob", "approval: Required, irreversible: false}\n  - {glob", 1),
	} {
		if got, err := parse(t, text).Digest(); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", name, got, err, want)
		}
	}
}

func TestInvalidSections(t *testing.T) {
	elevated := strings.Replace(sample(), "privilege: User", "privilege: Elevated", 1)
	for _, c := range []struct{ name, text, add, want string }{
		{"no privilege", strings.Replace(sample(), "privilege: User\n", "", 1), "", "privilege"},
		{"no expiry", strings.Replace(sample(), "expiresAt: 2027-11-30T00:00:00Z\n", "", 1), "", "expiresAt"},
		{"expiry in another zone", strings.Replace(sample(), "2027-11-30T00:00:00Z", "2027-11-30T00:00:00+02:00", 1), "", "expiresAt"},
		{"no epoch", strings.Replace(sample(), "epoch: 7\n", "", 1), "", "epoch"},
		{"a user with a space", sample(), `user: "a b"`, "user"},
		{"loader variable", sample(), `environment: {LD_PRELOAD: /tmp/x.so}`, "LD_PRELOAD"},
		{"a JVM's agent", sample(), `environment: {JAVA_TOOL_OPTIONS: "-javaagent:/tmp/x.jar"}`, "JAVA_TOOL_OPTIONS"},
		{"what a pager runs", sample(), `environment: {LESSOPEN: "|/tmp/x %s"}`, "LESSOPEN"},
		{"git's own variables", sample(), `environment: {GIT_SSH_COMMAND: x}`, "GIT_SSH_COMMAND"},
		{"PATH", sample(), `environment: {PATH: /tmp}`, "PATH"},
		{"commit without approval", sample(), `repositories: [{operations: [git.commit], glob: /srv/r, approval: None}]`, "always needs approval"},
		{"push without remotes", sample(), `repositories: [{operations: [git.push], glob: /srv/r, approval: Required}]`, "remotes"},
		{"a remote that runs a helper", sample(), `repositories: [{operations: [git.clone], glob: /srv/r, remotes: ["ext::sh -c x"], approval: Required}]`, "remote"},
		{"a remote that is an option", sample(), `repositories: [{operations: [git.clone], glob: /srv/r, remotes: ["--upload-pack=x"], approval: Required}]`, "remote"},
		{"install without approval", sample(), `packages: [{operations: [pkg.install], names: ["*"], approval: None}]`, "always needs approval"},
		{"no names", sample(), `packages: [{operations: [pkg.search], names: [], approval: None}]`, "names"},
		{"unknown operation", sample(), `packages: [{operations: [pkg.remove], names: ["*"], approval: Required}]`, "pkg.remove"},
		{"kill of anybody's as a user", sample(), `processes: [{operations: [proc.kill], owner: Any, approval: Required}]`, "Elevated"},
		{"unknown signal", elevated, `processes: [{operations: [proc.kill], owner: Any, signals: [SEGV], approval: Required}]`, "SEGV"},
		{"exec in containers without commands", sample(), `containers: [{operations: [docker.container.exec], names: [web], approval: Required}]`, "commands"},
		{"a shell in containers", sample(), `containers: [{operations: [docker.container.exec], names: [web], commands: [{argv: [/bin/sh], approval: Required}], approval: Required}]`, "list the program itself"},
		{"tier of what needs none", sample(), `desktop: [{operations: [display.capture], approval: None, tier: High}]`, "say nothing"},
		{"unknown tier", sample(), `desktop: [{operations: [display.capture], approval: Required, tier: Highest}]`, "Highest"},
		{"signature without persons", sample(), `desktop: [{operations: [clipboard.write], approval: Required, signature: Person}]`, "keys.persons"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := Parse([]byte(c.text + c.add + "\n")); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want one about %q", err, c.want)
			}
		})
	}
	if _, err := Parse([]byte(elevated + `
environment: {HOME: /home/lucas, WAYLAND_DISPLAY: wayland-0}
user: lucas
confine: Required
repositories: [{operations: [git.clone, git.push], glob: "/srv/r/**", remotes: ["https://git.example.org/*", "git@git.example.org:team/app.git"], approval: Required, irreversible: true}]
packages: [{operations: [pkg.search], names: ["*"], approval: None}, {operations: [pkg.install], names: ["nginx*"], approval: Required, tier: High}]
processes: [{operations: [proc.list], approval: None}, {operations: [proc.kill], owner: Any, signals: [TERM, KILL], approval: Required}]
containers: [{operations: [docker.container.list, docker.container.logs], names: ["web-*"], approval: None}]
desktop: [{operations: [display.capture, clipboard.read], approval: Required}]
`)); err != nil {
		t.Error(err)
	}
}
