package checkpoint

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"nisse.io/nisse/internal/canonical"
	"nisse.io/nisse/internal/dsse"
)

func key(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
}

func public(seed byte) ed25519.PublicKey { return key(seed).Public().(ed25519.PublicKey) }

// log is a tree as a device keeps it: every node.
type log struct{ nodes []tlog.Hash }

func (l *log) ReadHashes(at []int64) ([]tlog.Hash, error) {
	var all []tlog.Hash
	for _, i := range at {
		all = append(all, l.nodes[i])
	}
	return all, nil
}

// grow to n rows, whose content begins with a word.
func (l *log) grow(t *testing.T, from, n int64, word string) {
	t.Helper()
	for i := from; i < n; i++ {
		leaf, err := Leaf(canonical.Hex([]byte(fmt.Sprint(word, i))))
		if err != nil {
			t.Fatal(err)
		}
		nodes, err := tlog.StoredHashesForRecordHash(i, leaf, l)
		if err != nil {
			t.Fatal(err)
		}
		l.nodes = append(l.nodes, nodes...)
	}
}

func (l *log) at(t *testing.T, rows int64) Checkpoint {
	t.Helper()
	root, err := tlog.TreeHash(rows, l)
	if err != nil {
		t.Fatal(err)
	}
	return Checkpoint{Rows: rows, Root: root}
}

func (l *log) proof(t *testing.T, rows, since int64) []string {
	t.Helper()
	p, err := tlog.ProveTree(rows, since, l)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, h := range p {
		all = append(all, h.String())
	}
	return all
}

// The tree that needs no nodes has the roots of the one that keeps them all.
func TestTreeIsTheOneOfTheStandard(t *testing.T) {
	var l log
	var tree Tree
	if tree.Now() != (Checkpoint{}) {
		t.Error("an empty tree says something")
	}
	for n := int64(1); n <= 300; n++ {
		l.grow(t, n-1, n, "row")
		leaf, err := Leaf(canonical.Hex([]byte(fmt.Sprint("row", n-1))))
		if err != nil {
			t.Fatal(err)
		}
		tree.Add(leaf)
		if got, want := tree.Now(), l.at(t, n); got != want {
			t.Fatalf("%d rows: got %v, want %v", n, got, want)
		}
	}
}

func TestNote(t *testing.T) {
	for _, line := range []int64{0, 1_800_000_000} {
		noteOf(t, Checkpoint{Line: line, Rows: 7, Root: tlog.RecordHash([]byte("x"))})
	}
}

func noteOf(t *testing.T, c Checkpoint) {
	t.Helper()
	text, err := c.Sign("web1", key(3))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := c.Sign("web1", key(3)); err != nil || again != text {
		t.Errorf("made again it is another: %q, %v", again, err)
	}
	if got, err := Open(text, "web1", public(3)); err != nil || got != c {
		t.Errorf("got %v, %v", got, err)
	}
	if got := DeviceOf(text); got != "web1" {
		t.Errorf("it is of %q", got)
	}
	more, err := Checkpoint{Rows: 0}.Sign("web1", key(3))
	if err != nil {
		t.Fatal(err)
	}
	for name, try := range map[string]struct {
		text, device string
		key          byte
	}{
		"another key":          {text, "web1", 4},
		"another device":       {text, "web2", 3},
		"one row more":         {strings.Replace(text, "\n7\n", "\n8\n", 1), "web1", 3},
		"another root":         {strings.Replace(text, c.Root.String(), tlog.RecordHash(nil).String(), 1), "web1", 3},
		"no signature":         {text[:strings.Index(text, "\n\n")+2], "web1", 3},
		"no rows":              {more, "web1", 3},
		"nothing":              {"", "web1", 3},
		"longer than allowed":  {text + strings.Repeat("— x AAAAAAA=\n", 400), "web1", 3},
		"another's line":       {text + "— x AAAAAAA=\n", "web1", 3},
		"another's line first": {strings.Replace(text, "\n\n", "\n\n— x AAAAAAA=\n", 1), "web1", 3},
		"its line twice":       {text + text[strings.Index(text, "\n\n")+2:], "web1", 3},
		"another line":         {strings.Replace(text, "/web1", "/web1/3", 1), "web1", 3},
		"a line that is none":  {strings.Replace(text, "/web1", "/web1/-1", 1), "web1", 3},
	} {
		if got, err := Open(try.text, try.device, public(try.key)); !errors.Is(err, ErrRefused) || got != (Checkpoint{}) {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
}

func TestJudge(t *testing.T) {
	var honest, forged log
	honest.grow(t, 0, 12, "row")
	forged.nodes = append(forged.nodes, honest.nodes[:tlog.StoredHashCount(4)]...)
	forged.grow(t, 4, 12, "forged")
	kept := honest.at(t, 5)
	broken := &Finding{Edited, 3, "x"}
	for _, c := range []struct {
		name  string
		kept  Checkpoint
		log   *log
		rows  int64
		line  int64
		since int64
		proof []string // nil: as the log proves it
		// known root that it was asked with; the honest one when empty, and none when untold.
		known  string
		untold bool
		found  *Finding
		want   Trouble
		row    int64
		err    error
	}{
		{name: "grown", kept: kept, log: &honest, rows: 12, since: 5},
		{name: "the same", kept: kept, log: &honest, rows: 5, since: 5},
		{name: "the same, asked by one who had less", kept: kept, log: &honest, rows: 5, since: 3},
		{name: "the first", log: &honest, rows: 12},
		{name: "nothing yet", log: &honest, rows: 0},
		{name: "grown, to one who told no root", kept: kept, log: &honest, rows: 12, since: 5, untold: true},
		{name: "fewer", kept: kept, log: &honest, rows: 4, since: 5, want: Truncated, row: 5},
		{name: "none left", kept: kept, log: &honest, rows: 0, since: 5, want: Truncated, row: 1},
		{name: "fewer, from before", kept: kept, log: &honest, rows: 4, since: 3, err: ErrOlder},
		{name: "fewer, asked before by one who did not know the root", kept: kept, log: &honest, rows: 4, since: 5, untold: true, err: ErrOlder},
		{name: "fewer, asked by one who guessed the root", kept: kept, log: &honest, rows: 4, since: 5, known: forged.at(t, 5).Root.String(), err: ErrOlder},
		{name: "other rows, as many", kept: kept, log: &forged, rows: 5, since: 5, want: Forked, row: 5},
		{name: "other rows, and more", kept: kept, log: &forged, rows: 12, since: 5, want: Forked, row: 5},
		{name: "other rows, with an honest proof", kept: kept, log: &forged, rows: 12, since: 5, proof: honest.proof(t, 12, 5), want: Forked, row: 5},
		{name: "no proof", kept: kept, log: &honest, rows: 12, since: 5, proof: []string{}, want: Forked, row: 5},
		{name: "for another", kept: kept, log: &honest, rows: 12, since: 4, err: ErrOtherSince},
		{name: "its own finding", kept: kept, log: &honest, rows: 12, since: 5, found: broken, want: Edited, row: 3},
		{name: "its own finding, and nothing was kept", log: &honest, rows: 12, since: 5, found: broken, want: Edited, row: 3},
		{name: "a finding from before", kept: kept, log: &honest, rows: 12, since: 4, found: broken, err: ErrOlder},
		{name: "a new line", kept: kept, log: &forged, rows: 2, line: 7, since: 5, err: ErrAnchored},
		{name: "a new line, and nothing was kept", log: &honest, rows: 2, line: 7},
		{name: "the line that was kept", kept: Checkpoint{Line: 7, Rows: kept.Rows, Root: kept.Root}, log: &honest, rows: 12, line: 7, since: 5},
		{name: "back at the line before", kept: Checkpoint{Line: 7, Rows: kept.Rows, Root: kept.Root}, log: &honest, rows: 12, since: 5, want: Truncated, row: 1},
		{name: "from the line before", kept: Checkpoint{Line: 7, Rows: kept.Rows, Root: kept.Root}, log: &honest, rows: 12, since: 4, err: ErrOlder},
		{name: "a finding in words that nobody knows", kept: kept, log: &honest, rows: 12, since: 5, found: &Finding{"Eaten", -3, strings.Repeat("x", 1<<20)}, want: Forked},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := Reply{Device: "web1", Since: c.since, Known: c.known, Proof: c.proof, Finding: c.found, Now: 1000}
			if c.known == "" && c.since > 0 && !c.untold {
				r.Known = honest.at(t, c.since).Root.String()
			}
			if c.rows > 0 {
				var err error
				now := c.log.at(t, c.rows)
				now.Line = c.line
				if r.Checkpoint, err = now.Sign("web1", key(3)); err != nil {
					t.Fatal(err)
				}
			}
			if c.proof == nil && c.since > 0 && c.since < c.rows {
				r.Proof = c.log.proof(t, c.rows, c.since)
			}
			env, err := r.Sign(key(3))
			if err != nil {
				t.Fatal(err)
			}
			o, err := OpenReply(env, "web1", public(3))
			if err != nil {
				t.Fatal(err)
			}
			err = Judge(c.kept, o)
			var f *Finding
			switch {
			case c.want != "":
				if !errors.As(err, &f) || f.Trouble != c.want || f.Row != c.row || len(f.Detail) > 1000 {
					t.Errorf("got %v, want %s at row %d", err, c.want, c.row)
				}
			case !errors.Is(err, c.err):
				t.Errorf("got %v, want %v", err, c.err)
			}
		})
	}
}

// Who carries a reply can change nothing of it.
func TestReplyIsTheDevicesOwn(t *testing.T) {
	text, err := Checkpoint{Rows: 1, Root: tlog.RecordHash(nil)}.Sign("web1", key(3))
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := Checkpoint{Rows: 1, Root: tlog.RecordHash(nil)}.Sign("web1", key(4))
	if err != nil {
		t.Fatal(err)
	}
	for name, try := range map[string]struct {
		r Reply
		k byte
	}{
		"another key signed":         {Reply{Device: "web1", Checkpoint: text}, 4},
		"of another device":          {Reply{Device: "web2", Checkpoint: text}, 3},
		"with another's checkpoint":  {Reply{Device: "web1", Checkpoint: foreign}, 3},
		"with a proof that is none":  {Reply{Device: "web1", Checkpoint: text, Proof: []string{"x"}}, 3},
		"with a note that is cut up": {Reply{Device: "web1", Checkpoint: text[1:]}, 3},
	} {
		env, err := try.r.Sign(key(try.k))
		if err != nil {
			t.Fatal(err)
		}
		if o, err := OpenReply(env, "web1", public(3)); err == nil {
			t.Errorf("%s: taken: %+v", name, o)
		}
	}
	env, err := Reply{Device: "web1", Checkpoint: text}.Sign(key(3))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenReply(env, "web1", public(3)); err != nil {
		t.Error(err)
	}
}

func TestAnchor(t *testing.T) {
	good := Anchor{Device: "web1", Line: 1_800_000_000, Before: 0, Rows: 5, Root: tlog.RecordHash([]byte("x")).String(), Trouble: Edited, Row: 3, Reason: "disk restored", At: 1_800_000_000}
	order, err := good.Sign(key(9))
	if err != nil {
		t.Fatal(err)
	}
	a, err := OpenAnchor(order, "web1", public(9))
	good.V = Version
	if err != nil || a != good || a.Kept() != (Checkpoint{Rows: 5, Root: tlog.RecordHash([]byte("x"))}) {
		t.Errorf("got %+v, %v", a, err)
	}
	if a, by, err := ReadAnchor(order); err != nil || a != good || by != dsse.KeyID(public(9)) {
		t.Errorf("got %+v by %s, %v", a, by, err)
	}
	if _, err := OpenAnchor(order, "web1", public(8)); !errors.Is(err, dsse.ErrRefused) {
		t.Errorf("another key: %v", err)
	}
	if _, err := OpenAnchor(order, "web2", public(9)); !errors.Is(err, ErrOtherDevice) {
		t.Errorf("another device: %v", err)
	}
	if _, err := OpenAnchor(order+strings.Repeat(" ", 4000), "web1", public(9)); !errors.Is(err, dsse.ErrRefused) {
		t.Errorf("a long one: %v", err)
	}
	for name, change := range map[string]func(*Anchor){
		"no later line": func(a *Anchor) { a.Before = a.Line }, "a line before the first": func(a *Anchor) { a.Before = -1 }, "a line that is no number here": func(a *Anchor) { a.Line = 1 << 53 },
		"nothing was kept": func(a *Anchor) { a.Rows = 0 }, "no root": func(a *Anchor) { a.Root = "x" }, "a long reason": func(a *Anchor) { a.Reason = strings.Repeat("x", 301) },
	} {
		bad := good
		change(&bad)
		if _, err := bad.Sign(key(9)); err == nil {
			t.Errorf("%s: it was signed", name)
		}
		env, err := dsse.Sign(key(9), TypeAnchor, bad) // by somebody else's program
		if err != nil {
			continue // not even canonical
		}
		if _, err := OpenAnchor(string(env), "web1", public(9)); !errors.Is(err, dsse.ErrRefused) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	// The longest reason of the longest characters is kept in a row as a whole.
	good.Reason = strings.Repeat("\U0001F600", 300)
	if order, err = good.Sign(key(9)); err != nil || len(order) > 4096 {
		t.Errorf("%d bytes, %v", len(order), err)
	}
}

// Nothing that a hostile broker or device can send makes a reader fall, or is taken without its key.
func FuzzOpenAnchor(f *testing.F) {
	good, err := Anchor{Device: "web1", Line: 7, Rows: 5, Root: tlog.RecordHash(nil).String(), Trouble: Edited, Row: 3}.Sign(key(9))
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{good, "", "{}", `{"payloadType":"application/vnd.nisse.anchor.v1+json","payload":"e30=","signatures":[]}`, strings.Replace(good, "anchor", "manifest", 1)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := OpenAnchor(s, "web1", public(9))
		if err == nil && (a.Device != "web1" || a.Line != 7) {
			t.Errorf("taken: %+v", a)
		}
		_, _, _ = ReadAnchor(s)
	})
}

func FuzzOpenNote(f *testing.F) {
	for _, c := range []Checkpoint{{Rows: 7, Root: tlog.RecordHash([]byte("x"))}, {Line: 3, Rows: 1, Root: tlog.RecordHash([]byte("x"))}} {
		text, err := c.Sign("web1", key(3))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		c, err := Open(s, "web1", public(3))
		if err != nil {
			return
		}
		if again, err := c.Sign("web1", key(3)); err != nil || again != s {
			t.Errorf("another text was taken for %+v: %q", c, s)
		}
	})
}
