package manifest

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"nisse.io/nisse/internal/dsse"
)

func publicKey(seed byte) string {
	k := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
	return dsse.EncodeKey(k.Public().(ed25519.PublicKey))
}

func sample() string {
	return `
v: 1
device: web1
privilege: User
epoch: 7
expiresAt: 2027-11-30T00:00:00Z
keys:
  request: ["` + publicKey(1) + `"]
  approval: ["` + publicKey(2) + `"]
paths:
  fs.read:
  - {glob: /srv/nisse/private/**, approval: Required}
  - {glob: /srv/nisse/**, approval: None}
  - {glob: /etc/hostname, approval: None}
  fs.list:
  - {glob: /srv/nisse/**, approval: None}
  fs.write:
  - {glob: "/srv/nisse/*.txt", approval: Required}
commands:
- argv: [/usr/bin/df, -h]
  approval: None
- argv: [/usr/bin/du, -sh, "{path}"]
  slots: {path: {type: path, glob: "/srv/**"}}
  approval: None
  timeoutSeconds: 60
- argv: [/usr/bin/systemctl, "{verb}", "{unit}"]
  slots: {verb: {type: enum, values: [restart, reload]}, unit: {type: word}}
  approval: Required
- argv: [/usr/bin/cmp, "{a}", "{a}"]
  slots: {a: {type: word}}
  approval: None
- argv: [/usr/bin/seq, "{count}"]
  slots: {count: {type: integer, dash: true}}
  approval: None
- argv: [/usr/bin/docker, ps, --format, "{{.Names}}"]
  approval: None
limits: {writeBytes: 10, outputBytes: 1000, timeoutSeconds: 120}
`
}

func parse(t testing.TB, text string) *Manifest {
	t.Helper()
	m, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestCheck(t *testing.T) {
	m := parse(t, sample())
	for _, c := range []struct {
		name, capability, args string
		want                   Approval
		timeout                int
		refused                bool // not listed
		malformed              bool
	}{
		{name: "read", capability: FSRead, args: `{"path":"/srv/nisse/a"}`, want: None, timeout: 30},
		{name: "read, first rule decides", capability: FSRead, args: `{"path":"/srv/nisse/private/a"}`, want: Required, timeout: 30},
		{name: "read one file", capability: FSRead, args: `{"path":"/etc/hostname"}`, want: None, timeout: 30},
		{name: "the directory itself", capability: FSList, args: `{"path":"/srv/nisse"}`, want: None, timeout: 30},
		{name: "read elsewhere", capability: FSRead, args: `{"path":"/etc/shadow"}`, refused: true},
		{name: "sibling with the same beginning", capability: FSRead, args: `{"path":"/srv/nisse2/a"}`, refused: true},
		{name: "capability without rules", capability: FSStat, args: `{"path":"/srv/nisse"}`, refused: true},
		{name: "dots", capability: FSRead, args: `{"path":"/srv/nisse/../../etc/shadow"}`, malformed: true},
		{name: "double slash", capability: FSRead, args: `{"path":"/srv//nisse"}`, malformed: true},
		{name: "relative", capability: FSRead, args: `{"path":"srv/nisse"}`, malformed: true},
		{name: "no path", capability: FSRead, args: `{}`, malformed: true},
		{name: "NUL", capability: FSRead, args: `{"path":"/srv/nisse/a\u0000"}`, malformed: true},
		{name: "too long", capability: FSRead, args: `{"path":"/srv/nisse/` + strings.Repeat("a", MaxPath) + `"}`, malformed: true},
		{name: "negative offset", capability: FSRead, args: `{"offset":-1,"path":"/srv/nisse/a"}`, malformed: true},
		{name: "unknown field", capability: FSRead, args: `{"follow":true,"path":"/srv/nisse/a"}`, malformed: true},
		{name: "same field in another case", capability: FSRead, args: `{"PATH":"/srv/nisse/a","path":"/srv/nisse/b"}`, malformed: true},
		{name: "field in another case alone", capability: FSRead, args: `{"Path":"/srv/nisse/a"}`, malformed: true},
		{name: "null", capability: FSRead, args: `{"offset":null,"path":"/srv/nisse/a"}`, malformed: true},
		{name: "not canonical", capability: FSRead, args: `{ "path":"/srv/nisse/a"}`, malformed: true},
		{name: "duplicate key", capability: FSRead, args: `{"path":"/srv/nisse/a","path":"/etc/shadow"}`, malformed: true},
		{name: "not an object", capability: FSRead, args: `["/srv/nisse/a"]`, malformed: true},
		{name: "empty", capability: FSRead, args: ``, malformed: true},
		{name: "unknown capability", capability: "fs.remove", args: `{"path":"/srv/nisse/a"}`, malformed: true},
		{name: "write", capability: FSWrite, args: `{"content":"0123456789","path":"/srv/nisse/a.txt"}`, want: Required, timeout: 30},
		{name: "write too much", capability: FSWrite, args: `{"content":"0123456789a","path":"/srv/nisse/a.txt"}`, refused: true},
		{name: "write too much in base64", capability: FSWrite, args: `{"content":"MDEyMzQ1Njc4OWE=","encoding":"base64","path":"/srv/nisse/a.txt"}`, refused: true},
		{name: "write base64", capability: FSWrite, args: `{"content":"MDEyMzQ1Njc4OQ==","encoding":"base64","path":"/srv/nisse/a.txt"}`, want: Required, timeout: 30},
		{name: "not base64", capability: FSWrite, args: `{"content":"?","encoding":"base64","path":"/srv/nisse/a.txt"}`, malformed: true},
		{name: "unknown encoding", capability: FSWrite, args: `{"content":"","encoding":"utf-16","path":"/srv/nisse/a.txt"}`, malformed: true},
		{name: "write a level deeper", capability: FSWrite, args: `{"content":"","path":"/srv/nisse/b/a.txt"}`, refused: true},
		{name: "exec", capability: Exec, args: `{"argv":["/usr/bin/df","-h"]}`, want: None, timeout: 30},
		{name: "exec, less time", capability: Exec, args: `{"argv":["/usr/bin/df","-h"],"timeoutSeconds":5}`, want: None, timeout: 5},
		{name: "exec, more time than it has", capability: Exec, args: `{"argv":["/usr/bin/df","-h"],"timeoutSeconds":300}`, want: None, timeout: 30},
		{name: "exec, its own time", capability: Exec, args: `{"argv":["/usr/bin/du","-sh","/srv/a"]}`, want: None, timeout: 60},
		{name: "one argument more", capability: Exec, args: `{"argv":["/usr/bin/df","-h","/"]}`, refused: true},
		{name: "one argument less", capability: Exec, args: `{"argv":["/usr/bin/df"]}`, refused: true},
		{name: "other program", capability: Exec, args: `{"argv":["/usr/bin/rm","-h"]}`, refused: true},
		{name: "program by name", capability: Exec, args: `{"argv":["df","-h"]}`, refused: true},
		{name: "path slot outside", capability: Exec, args: `{"argv":["/usr/bin/du","-sh","/etc"]}`, refused: true},
		{name: "path slot with dots", capability: Exec, args: `{"argv":["/usr/bin/du","-sh","/srv/../etc"]}`, refused: true},
		{name: "path slot with an option", capability: Exec, args: `{"argv":["/usr/bin/du","-sh","--files0-from=/etc/shadow"]}`, refused: true},
		{name: "enum", capability: Exec, args: `{"argv":["/usr/bin/systemctl","restart","nginx.service"]}`, want: Required, timeout: 30},
		{name: "enum, another", capability: Exec, args: `{"argv":["/usr/bin/systemctl","stop","nginx.service"]}`, refused: true},
		{name: "word with an option", capability: Exec, args: `{"argv":["/usr/bin/systemctl","restart","--force"]}`, refused: true},
		{name: "word with a space", capability: Exec, args: `{"argv":["/usr/bin/systemctl","restart","a b"]}`, refused: true},
		{name: "word with a line break at its end", capability: Exec, args: `{"argv":["/usr/bin/systemctl","restart","nginx\n"]}`, refused: true},
		{name: "word with a slash", capability: Exec, args: `{"argv":["/usr/bin/systemctl","restart","/tmp/x.service"]}`, refused: true},
		{name: "empty word", capability: Exec, args: `{"argv":["/usr/bin/systemctl","restart",""]}`, refused: true},
		{name: "word of 129", capability: Exec, args: `{"argv":["/usr/bin/systemctl","restart","` + strings.Repeat("a", 129) + `"]}`, refused: true},
		{name: "the slot's own text", capability: Exec, args: `{"argv":["/usr/bin/systemctl","restart","{unit}"]}`, refused: true},
		{name: "one slot twice", capability: Exec, args: `{"argv":["/usr/bin/cmp","x","x"]}`, want: None, timeout: 30},
		{name: "one slot twice, differing", capability: Exec, args: `{"argv":["/usr/bin/cmp","x","y"]}`, refused: true},
		{name: "integer", capability: Exec, args: `{"argv":["/usr/bin/seq","-12"]}`, want: None, timeout: 30},
		{name: "integer with a leading zero", capability: Exec, args: `{"argv":["/usr/bin/seq","012"]}`, refused: true},
		{name: "braces that are no slot", capability: Exec, args: `{"argv":["/usr/bin/docker","ps","--format","{{.Names}}"]}`, want: None, timeout: 30},
		{name: "braces changed", capability: Exec, args: `{"argv":["/usr/bin/docker","ps","--format","{{.Image}}"]}`, refused: true},
		{name: "no argv", capability: Exec, args: `{"argv":[]}`, malformed: true},
		{name: "argv is a string", capability: Exec, args: `{"argv":"/usr/bin/df -h"}`, malformed: true},
		{name: "NUL in argv", capability: Exec, args: `{"argv":["/usr/bin/df","-h\u0000"]}`, malformed: true},
		{name: "negative time", capability: Exec, args: `{"argv":["/usr/bin/df","-h"],"timeoutSeconds":-1}`, malformed: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, err := m.Check(c.capability, c.args)
			switch {
			case c.refused:
				if !errors.Is(err, ErrNotAllowed) {
					t.Errorf("got %+v, %v; want not allowed", v, err)
				}
			case c.malformed:
				if err == nil || errors.Is(err, ErrNotAllowed) {
					t.Errorf("got %+v, %v; want malformed", v, err)
				}
			case err != nil || v.Approval != c.want || v.TimeoutSeconds != c.timeout:
				t.Errorf("got %+v, %v; want %s and %d s", v, err, c.want, c.timeout)
			}
			if err != nil && v.Approval != "" {
				t.Errorf("a refusal bears the verdict %q", v.Approval)
			}
		})
	}
}

func TestCheckTellsWhereAPathMayLead(t *testing.T) {
	m := parse(t, sample())
	v, err := m.Check(FSRead, `{"path":"/srv/nisse/a"}`)
	if err != nil || v.Glob != "/srv/nisse/**" {
		t.Errorf("got %+v, %v", v, err)
	}
	v, err = m.Check(Exec, `{"argv":["/usr/bin/du","-sh","/srv/a"]}`)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]SlotPath{{Path: "/srv/a", Glob: "/srv/**"}}, v.Paths); d != "" {
		t.Error(d)
	}
}

func TestLeadsTo(t *testing.T) {
	m := parse(t, sample())
	for _, c := range []struct {
		name, asked, real string
		ok                bool
	}{
		{"itself", "/srv/nisse/a", "/srv/nisse/a", true},
		{"beside it", "/srv/nisse/a", "/srv/nisse/b", true},
		{"outside", "/srv/nisse/a", "/etc/shadow", false},
		{"into what needs approval", "/srv/nisse/a", "/srv/nisse/private/a", false},
		{"out of what needs approval", "/srv/nisse/private/a", "/srv/nisse/a", true},
		{"not asked for lawfully", "/etc/shadow", "/srv/nisse/a", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := m.LeadsTo(FSRead, c.asked, c.real); (err == nil) != c.ok || (err != nil && !errors.Is(err, ErrNotAllowed)) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	parse(t, sample()) // else everything below would be refused for one reason
	for name, change := range map[string][2]string{
		"version":                     {"v: 1", "v: 2"},
		"no version":                  {"v: 1\n", ""},
		"no device":                   {"device: web1", "device: ''"},
		"awkward device":              {"device: web1", "device: Web_1"},
		"no request key":              {`request: ["` + publicKey(1) + `"]`, "request: []"},
		"request key is no key":       {publicKey(1), "AAAA"},
		"approval key is no key":      {publicKey(2), "AAAA"},
		"one key for both":            {publicKey(2), publicKey(1)},
		"unknown field":               {"device: web1", "device: web1\nsudo: true"},
		"field twice":                 {"device: web1", "device: web1\ndevice: web2"},
		"unknown capability":          {"fs.list:", "fs.remove:"},
		"write without approval":      {`{glob: "/srv/nisse/*.txt", approval: Required}`, `{glob: "/srv/nisse/*.txt", approval: None}`},
		"approval left out":           {"{glob: /etc/hostname, approval: None}", "{glob: /etc/hostname}"},
		"approval unknown":            {"{glob: /etc/hostname, approval: None}", "{glob: /etc/hostname, approval: Maybe}"},
		"glob relative":               {"/etc/hostname", "etc/hostname"},
		"glob with dots":              {"/etc/hostname", "/srv/nisse/../../etc"},
		"glob with hidden dots":       {"/etc/hostname", "'/srv/{a,b}/../c'"},
		"glob unclean":                {"/etc/hostname", "/etc//hostname"},
		"glob escaped":                {"/etc/hostname", `'/etc/\*'`},
		"glob broken":                 {"/etc/hostname", "'/etc/[a'"},
		"program by name":             {"/usr/bin/df, -h", "df, -h"},
		"program in a slot":           {"/usr/bin/df, -h", "'{path}', -h"},
		"program unclean":             {"/usr/bin/df, -h", "/usr/bin/../bin/df, -h"},
		"no program":                  {"[/usr/bin/df, -h]", "[]"},
		"slot not described":          {"/usr/bin/df, -h", "/usr/bin/df, '{x}'"},
		"slot not used":               {"[/usr/bin/cmp, \"{a}\", \"{a}\"]", "[/usr/bin/cmp, x]"},
		"slot inside an argument":     {`-sh, "{path}"`, `"--x={path}", "{path}"`},
		"slot type":                   {"type: word", "type: anything"},
		"path slot without glob":      {`{type: path, glob: "/srv/**"}`, "{type: path}"},
		"path slot unclean":           {`{type: path, glob: "/srv/**"}`, "{type: path, glob: '/srv/../**'}"},
		"enum without values":         {"{type: enum, values: [restart, reload]}", "{type: enum}"},
		"enum that could never match": {"[restart, reload]", "[--force]"},
		"command approval":            {"commands:\n- argv: [/usr/bin/df, -h]\n  approval: None", "commands:\n- argv: [/usr/bin/df, -h]"},
		"time above the limit":        {"timeoutSeconds: 60", "timeoutSeconds: 121"},
		"limits left out":             {"limits: {writeBytes: 10, outputBytes: 1000, timeoutSeconds: 120}", ""},
		"limit above the most":        {"timeoutSeconds: 120", "timeoutSeconds: 301"},
		"a float":                     {"outputBytes: 1000", "outputBytes: 1000.5"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.ReplaceAll(sample(), change[0], change[1])
			if text == sample() {
				t.Fatalf("%q is not in the sample", change[0])
			}
			if m, err := Parse([]byte(text)); err == nil {
				t.Errorf("accepted: %+v", m)
			}
		})
	}
}

// Case 42: a list that names a wrapper names everything.
// What is wrong with a manifest stands in its status, which is compared with what stood there before: of several faults it is always the same.
func TestRefusesInOneOrder(t *testing.T) {
	for name, text := range map[string]string{
		"paths": strings.NewReplacer("{glob: /etc/hostname,", "{glob: /etc/,", `"/srv/nisse/*.txt"`, "/srv/").Replace(sample()),
		"slots": strings.Replace(sample(), "slots: {count: {type: integer, dash: true}}", "slots: {count: {type: integer}, a: {type: word}, b: {type: word}, c: {type: word}}", 1),
	} {
		first := ""
		for range 50 {
			_, err := Parse([]byte(text))
			if err == nil {
				t.Fatalf("%s: taken", name)
			}
			if first == "" {
				first = err.Error()
			}
			if err.Error() != first {
				t.Errorf("%s: once %q, then %q", name, first, err)
				break
			}
		}
	}
}

func TestWrappersCannotBeListed(t *testing.T) {
	parse(t, sample())
	for _, program := range []string{"/bin/sh", "/bin/bash", "/usr/bin/env", "/bin/busybox", "/usr/bin/xargs", "/usr/bin/sudo", "/usr/bin/nice", "/usr/bin/python3.13",
		"/usr/bin/perl5.40.1", "/usr/bin/systemd-run", "/usr/bin/setpriv", "/usr/bin/find", "/usr/bin/gawk", "/usr/bin/mawk", "/usr/bin/timeout",
		"/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-x86_64.so.1", "/lib/ld-linux.so.2", "/opt/SH", "/usr/bin/lua5.4", "/usr/bin/node-22"} {
		t.Run(program, func(t *testing.T) {
			text := strings.ReplaceAll(sample(), "/usr/bin/df, -h", program+", -c, id")
			if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), "list the program itself") {
				t.Errorf("got %v", err)
			}
		})
	}
	for _, program := range []string{"/usr/bin/df", "/usr/bin/du", "/usr/bin/free", "/usr/bin/uptime", "/usr/bin/systemctl", "/usr/bin/envsubst", "/usr/sbin/ldconfig", "/usr/bin/7z",
		"/usr/bin/ld-report"} {
		if Wrapper(program) {
			t.Errorf("%s is no wrapper", program)
		}
	}
}

// A manifest read from its own canonical text is the same manifest, or a Device object could never pin one.
func TestCanonicalRoundTrip(t *testing.T) {
	m := parse(t, sample())
	text, err := m.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	again := parse(t, string(text))
	if d := cmp.Diff(m, again); d != "" {
		t.Error(d)
	}
	a, errA := m.Digest()
	b, errB := again.Digest()
	if a != b || errA != nil || errB != nil {
		t.Errorf("%s, %v; %s, %v", a, errA, b, errB)
	}
	changed := parse(t, strings.Replace(sample(), "/etc/hostname", "/etc/hostnamf", 1))
	if c, _ := changed.Digest(); c == a {
		t.Error("the digest is blind to a path")
	}
}

func TestKeysAndHas(t *testing.T) {
	m := parse(t, sample())
	if r, a := m.Keys.RequestKeys(), m.Keys.ApprovalKeys(); len(r) != 1 || len(a) != 1 || dsse.EncodeKey(r[0]) != publicKey(1) || dsse.EncodeKey(a[0]) != publicKey(2) {
		t.Errorf("got %v, %v", r, a)
	}
	var got []string
	for _, c := range Capabilities() {
		if m.Has(c) {
			got = append(got, c)
		}
	}
	want := []string{Exec, FSList, FSRead, FSWrite}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for c, text := range Schemas {
		var schema struct {
			Closed     *bool          `json:"additionalProperties"`
			Properties map[string]any `json:"properties"`
		}
		if err := json.Unmarshal([]byte(text), &schema); err != nil || schema.Closed == nil || *schema.Closed {
			t.Errorf("%s: the schema takes what it does not name (%v)", c, err)
		}
		if d := cmp.Diff(slices.Sorted(maps.Keys(schema.Properties)), slices.Sorted(slices.Values(fields[c])), cmpopts.EquateEmpty()); d != "" {
			t.Errorf("%s: schema and arguments differ: %s", c, d)
		}
		if readers[c] == nil || Descriptions[c] == "" {
			t.Errorf("%s has no reader or no description", c)
		}
	}
	if !strings.HasPrefix(SchemaDigest(), "sha256:") {
		t.Error(SchemaDigest())
	}
}
