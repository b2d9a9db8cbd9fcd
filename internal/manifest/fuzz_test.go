package manifest

import (
	"encoding/json"
	"path"
	"slices"
	"strings"
	"testing"

	"nisse.io/nisse/internal/canonical"
)

func object(t *testing.T, v any) (string, bool) {
	t.Helper()
	b, err := canonical.Marshal(v)
	return string(b), err == nil
}

// FuzzPath: an allowed path is absolute, clean and below the directory that was meant.
func FuzzPath(f *testing.F) {
	m := parse(f, sample())
	for _, s := range []string{"/srv/nisse/a", "/srv/nisse", "/srv/nisse/../x", "/srv/nisse/./x", "/srv/nisse//x", "/srv/nisse/x/", "srv/nisse/x", "/srv/nisse\x00/x",
		"/srv/nisse/..x", "/SRV/nisse/x", "/srv/nisse/{a,b}", "/srv/nisse/*", "/srv/nisse/\u202e", "/proc/self/environ", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, p string) {
		args, ok := object(t, PathArgs{Path: p})
		if !ok {
			return
		}
		v, err := m.Check(FSList, args)
		if err != nil {
			return
		}
		got := v.Args.(PathArgs).Path
		if got != "/srv/nisse" && !strings.HasPrefix(got, "/srv/nisse/") || path.Clean(got) != got || strings.ContainsRune(got, 0) {
			t.Errorf("%q is allowed", got)
		}
	})
}

// FuzzArgv: an allowed command line begins with a listed program, has as many arguments as its line, and every argument of it is
// either that line's own or no option.
func FuzzArgv(f *testing.F) {
	m := parse(f, sample())
	for _, s := range []string{"/usr/bin/df\n-h", "/usr/bin/df\n-h\n", "/usr/bin/du\n-sh\n/srv/x", "/usr/bin/du\n-sh\n-x", "/usr/bin/systemctl\nrestart\nx", "/usr/bin/systemctl\n--now\nx",
		"/bin/sh\n-c\nid", "df\n-h", "/usr/bin/seq\n-1", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, lines string) {
		args, ok := object(t, ExecArgs{Argv: strings.Split(lines, "\n")})
		if !ok {
			return
		}
		v, err := m.Check(Exec, args)
		if err != nil {
			return
		}
		argv := v.Args.(ExecArgs).Argv
		i := slices.IndexFunc(m.Commands, func(c Command) bool { return c.matches(argv) })
		if i < 0 || argv[0] != m.Commands[i].Argv[0] || len(argv) != len(m.Commands[i].Argv) {
			t.Fatalf("%q is allowed", argv)
		}
		for n, a := range argv {
			if want := m.Commands[i].Argv[n]; a != want && strings.HasPrefix(a, "-") && want != "{count}" {
				t.Errorf("%q came in through %s", a, want)
			}
		}
	})
}

// FuzzParse: what Parse accepts says the same when it is read back.
func FuzzParse(f *testing.F) {
	f.Add(sample())
	f.Add("v: 1")
	f.Add("{}")
	f.Add(strings.ReplaceAll(sample(), "/srv/nisse/**", "/srv/{a,b}/**"))
	f.Fuzz(func(t *testing.T, text string) {
		m, err := Parse([]byte(text))
		if err != nil {
			return
		}
		c, err := m.Canonical()
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(c) {
			t.Fatalf("not JSON: %s", c)
		}
		again, err := Parse(c)
		if err != nil {
			t.Fatalf("its own text is refused: %v", err)
		}
		if a, b := must(m.Digest()), must(again.Digest()); a != b {
			t.Errorf("%s became %s", a, b)
		}
	})
}

func must(s string, err error) string {
	if err != nil {
		panic(err)
	}
	return s
}
