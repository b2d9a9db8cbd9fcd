package approval

import (
	"crypto/ed25519"
	"errors"
	"strings"
	"testing"

	"nisse.io/nisse/internal/dsse"
)

func base() PlanPreimage {
	return PlanPreimage{AgentUID: "a", WorkItemUID: "w", PlanUID: "p", Revision: 1, ToolSchemaDigest: "sha256:00", WindowSeconds: 3600,
		Steps: []Step{
			{Call: Call{"web1", "sha256:11", "fs.write", `{"content":"x","path":"/a"}`}, Attempts: 1},
			{Call: Call{"web1", "sha256:11", "exec", `{"argv":["/bin/true"]}`}, Attempts: 1},
		}}
}

// Every bound field must change the digest; a field that does not is one that nobody approved.
func TestDigestBindsEveryField(t *testing.T) {
	want, err := base().Digest()
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*PlanPreimage){
		"agent":        func(p *PlanPreimage) { p.AgentUID = "b" },
		"work item":    func(p *PlanPreimage) { p.WorkItemUID = "x" },
		"plan":         func(p *PlanPreimage) { p.PlanUID = "q" },
		"revision":     func(p *PlanPreimage) { p.Revision = 2 },
		"schemas":      func(p *PlanPreimage) { p.ToolSchemaDigest = "sha256:01" },
		"window":       func(p *PlanPreimage) { p.WindowSeconds = 3601 },
		"device":       func(p *PlanPreimage) { p.Steps[0].Device = "web2" },
		"manifest":     func(p *PlanPreimage) { p.Steps[0].ManifestDigest = "sha256:12" },
		"capability":   func(p *PlanPreimage) { p.Steps[0].Capability = "fs.read" },
		"args":         func(p *PlanPreimage) { p.Steps[0].Args = `{"content":"y","path":"/a"}` },
		"args, space":  func(p *PlanPreimage) { p.Steps[0].Args = `{"content":"x", "path":"/a"}` },
		"checks":       func(p *PlanPreimage) { p.Steps[0].Checks = []string{"{}"} },
		"attempts":     func(p *PlanPreimage) { p.Steps[0].Attempts = 2 },
		"resolved":     func(p *PlanPreimage) { p.Steps[0].Resolved = "{}" },
		"order":        func(p *PlanPreimage) { p.Steps[0], p.Steps[1] = p.Steps[1], p.Steps[0] },
		"dropped step": func(p *PlanPreimage) { p.Steps = p.Steps[:1] },
		"no step":      func(p *PlanPreimage) { p.Steps = nil },
	} {
		t.Run(name, func(t *testing.T) {
			p := base()
			change(&p)
			if got, err := p.Digest(); err != nil || got == want {
				t.Errorf("digest is blind to it: %s, %v", got, err)
			}
		})
	}
	// Approved gates outlive upgrades: a new preimage gets a new domain, never another digest for the old one.
	if want != "sha256:c1318cf4721d5d40660c063d35e3c4e21dc69b06f81c00a38aeb8a3373bac64d" {
		t.Errorf("the digest of a fixed preimage changed: %s", want)
	}
}

func statement(t *testing.T) (Statement, string, ed25519.PublicKey) {
	t.Helper()
	key := ed25519.NewKeyFromSeed(make([]byte, 32))
	p := base()
	s := Statement{GateUID: "g", Digest: "sha256:d", Approvers: []string{"lucas"}, ExpiresAt: 1000, Calls: []string{p.Steps[0].Hash(), p.Steps[1].Hash()}, Attempts: []int32{1, 1}}
	env, err := s.Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	return s, env, key.Public().(ed25519.PublicKey)
}

func TestCovers(t *testing.T) {
	s, env, pub := statement(t)
	got, err := Verify(env, []ed25519.PublicKey{pub})
	if err != nil {
		t.Fatal(err)
	}
	if got.GateUID != s.GateUID || len(got.Calls) != 2 {
		t.Fatalf("got %+v", got)
	}
	one, two := base().Steps[0].Call, base().Steps[1].Call
	changed := one
	changed.Args = strings.Replace(one.Args, "/a", "/b", 1)
	for _, c := range []struct {
		name          string
		step, attempt int32
		call          Call
		now           int64
		ok            bool
	}{
		{"first step", 1, 1, one, 999, true},
		{"second step", 2, 1, two, 0, true},
		{"at its end", 1, 1, one, 1000, false},
		{"other step's call", 1, 1, two, 0, false},
		{"one character", 1, 1, changed, 0, false},
		{"step 0", 0, 1, one, 0, false},
		{"step 3", 3, 1, one, 0, false},
		{"attempt 2", 1, 2, one, 0, false},
		{"attempt 0", 1, 0, one, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := got.Covers(c.step, c.attempt, c.call, c.now)
			if (err == nil) != c.ok || (err != nil && !errors.Is(err, ErrNotCovered)) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestVerifyRefusesIncompleteStatements(t *testing.T) {
	key := ed25519.NewKeyFromSeed(make([]byte, 32))
	pub := key.Public().(ed25519.PublicKey)
	good, _, _ := statement(t)
	for name, change := range map[string]func(*Statement){
		"no gate":            func(s *Statement) { s.GateUID = "" },
		"no calls":           func(s *Statement) { s.Calls, s.Attempts = nil, nil },
		"attempts too few":   func(s *Statement) { s.Attempts = s.Attempts[:1] },
		"nobody approved":    func(s *Statement) { s.Approvers = nil },
		"approvers unsorted": func(s *Statement) { s.Approvers = []string{"b", "a"} },
		"resolved too few":   func(s *Statement) { s.Resolved = []string{""} },
		"resolved to words":  func(s *Statement) { s.Resolved = []string{"", "/bin/true"} },
	} {
		t.Run(name, func(t *testing.T) {
			s := good
			change(&s)
			env, err := s.Sign(key)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Verify(env, []ed25519.PublicKey{pub}); !errors.Is(err, dsse.ErrRefused) {
				t.Errorf("accepted: %v", err)
			}
		})
	}
}

// A program has one form, which gates that are open during an upgrade keep.
func TestProgram(t *testing.T) {
	p := Program{Executable: "/usr/bin/df", SHA256: strings.Repeat("0a", 32), User: "nobody"}
	if got, want := p.Canonical(), `{"executable":"/usr/bin/df","sha256":"`+p.SHA256+`","user":"nobody"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	pre := base()
	pre.Steps[1].Resolved = p.Canonical()
	if got, err := pre.Digest(); err != nil || got != "sha256:eb3fb0b16253b2d3975b1b9da3880fe4b2790c953e24f625a4c774098efb0bba" {
		t.Errorf("the digest of a fixed preimage changed: %s, %v", got, err)
	}
}

func TestExecutable(t *testing.T) {
	hash := strings.Repeat("0a", 32)
	for _, c := range []struct {
		name     string
		resolved []string
		want     [4]string // of steps 0 to 3
	}{
		{"nothing resolved", nil, [4]string{}},
		{"one step", []string{"", hash}, [4]string{2: hash}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, plain, pub := statement(t)
			s.Resolved = c.resolved
			env, err := s.Sign(ed25519.NewKeyFromSeed(make([]byte, 32)))
			if err != nil || (env == plain) != (c.resolved == nil) {
				t.Fatalf("%v; a statement that resolves nothing must be what it always was", err)
			}
			got, err := Verify(env, []ed25519.PublicKey{pub})
			if err != nil {
				t.Fatal(err)
			}
			for step, want := range c.want {
				if e := got.Executable(int32(step)); e != want {
					t.Errorf("step %d: %q", step, e)
				}
			}
		})
	}
}

func TestCanonicalArgs(t *testing.T) {
	if got, err := CanonicalArgs([]byte(`{"b":1, "a":"x"}`)); err != nil || got != `{"a":"x","b":1}` {
		t.Errorf("got %q, %v", got, err)
	}
	for _, in := range []string{`[]`, `"x"`, `null`, `{"a":1.5}`, `{"a":1,"a":2}`, ``} {
		if got, err := CanonicalArgs([]byte(in)); err == nil {
			t.Errorf("%q gave %q", in, got)
		}
	}
}

func TestCode(t *testing.T) {
	c := Code("sha256:d", "g")
	if len(c) != 6 || c == Code("sha256:d", "h") || c == Code("sha256:e", "g") {
		t.Errorf("code %q does not depend on digest and gate", c)
	}
}
