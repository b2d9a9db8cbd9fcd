package device_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/device/wire/chain"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/manifest"
)

func TestReads(t *testing.T) {
	w := newWorld(t)
	must(t, os.Chtimes(w.files+"/a", unixTime(1e9), unixTime(1e9)))
	a, _ := w.ask(w.free(w.call(manifest.FSRead, manifest.ReadArgs{Path: w.files + "/a"}), "1"))
	w.want(a, wire.Succeeded, "")
	if d := cmp.Diff(wire.ReadResult{Content: "hello", Encoding: "utf-8", Size: 5}, result[wire.ReadResult](t, a)); d != "" {
		t.Error(d)
	}
	a, _ = w.ask(w.free(w.call(manifest.FSRead, manifest.ReadArgs{Path: w.files + "/a", Offset: 1, Limit: 2}), "2"))
	if d := cmp.Diff(wire.ReadResult{Content: "el", Encoding: "utf-8", Size: 5, Truncated: true}, result[wire.ReadResult](t, a)); d != "" {
		t.Error(d)
	}
	entry := wire.Entry{Name: "a", Kind: "file", Size: 5, Mode: "-rw-r--r--", ModTime: "2001-09-09T01:46:40Z"}
	a, _ = w.ask(w.free(w.call(manifest.FSList, manifest.PathArgs{Path: w.files}), "3"))
	if d := cmp.Diff(wire.ListResult{Entries: []wire.Entry{entry}}, result[wire.ListResult](t, a)); d != "" {
		t.Error(d)
	}
	a, _ = w.ask(w.free(w.call(manifest.FSStat, manifest.PathArgs{Path: w.files + "/a"}), "4"))
	if d := cmp.Diff(entry, result[wire.Entry](t, a)); d != "" {
		t.Error(d)
	}
	a, _ = w.ask(w.free(w.call(manifest.FSRead, manifest.ReadArgs{Path: w.files + "/none"}), "5"))
	w.want(a, wire.Failed, "")
	if !strings.Contains(a.Message, "no such file") || a.Result != "" {
		t.Errorf("got %q, %q", a.Message, a.Result)
	}
}

func TestWritesAndRuns(t *testing.T) {
	w := newWorld(t)
	write, run := w.write("report.txt", "81%"), w.exec("append", w.files+"/log")
	s := w.statement("gate", write, run)
	a, _ := w.ask(w.approved(s, 1, write))
	w.want(a, wire.Succeeded, "")
	got := result[wire.WriteResult](t, a)
	if !got.Created || got.Bytes != 3 || got.Path != w.files+"/report.txt" || w.content("report.txt") != "81%" {
		t.Errorf("got %+v, file %q", got, w.content("report.txt"))
	}
	a, _ = w.ask(w.approved(s, 2, run))
	w.want(a, wire.Succeeded, "")
	if w.content("log") != "x" {
		t.Errorf("it ran %d times", len(w.content("log")))
	}
	if a.CallHash != run.Hash() || a.AuditRow != 5 || a.StartedAt == "" || a.FinishedAt == "" || a.Now != began {
		t.Errorf("got %+v", a)
	}
	fail := w.exec("fail", "x")
	a, _ = w.ask(w.one("other", fail))
	w.want(a, wire.Failed, "")
	if r := result[wire.ExecResult](t, a); r.ExitCode != 3 || !strings.Contains(a.Message, "code 3") {
		t.Errorf("got %+v, %q", r, a.Message)
	}
}

// The audit tells who did what under whose approval, and its end is in Status and in the answers.
func TestAuditTellsTheStory(t *testing.T) {
	w := newWorld(t)
	write := w.write("report.txt", "81%")
	done, _ := w.ask(w.one("gate", write))
	refused := w.one("gate2", w.write("../out/x", ""))
	a, _ := w.ask(refused)
	w.want(a, wire.Refused, wire.BadArgs)
	q, env := w.get("/v1/audit?after=0")
	page, err := wire.OpenAuditPage(env, pub(w.device), q)
	must(t, err)
	var rows []chain.Row
	for _, body := range page.Rows {
		r, err := chain.Decode(body)
		must(t, err)
		r.At, r.ArgsHash, r.ResultHash, r.Prev = "", "", "", ""
		rows = append(rows, r)
	}
	held := chain.Row{V: 1, Seq: 1, Kind: chain.Manifest, Approvers: []string{},
		Args: fmt.Sprintf(`{"by":"offline","digest":%q,"epoch":1800000000,"expiresAt":"2027-12-30T00:00:00Z","privilege":"User"}`, w.digest())}
	intent := chain.Row{V: 1, Seq: 2, Kind: chain.Intent, Deed: done.Deed, Agent: "ops", CorrelationID: "item", Capability: "fs.write", Args: write.Args, CallHash: write.Hash(),
		Gate: "gate", Step: 1, Attempt: 1, Approvers: []string{"lucas"}}
	outcome := intent
	outcome.Seq, outcome.Kind, outcome.State = 3, chain.Outcome, "Succeeded"
	no := chain.Row{V: 1, Seq: 4, Kind: chain.Refused, Deed: refused.Deed, Agent: "ops", CorrelationID: "item", Capability: "fs.write", Args: refused.Args, CallHash: refused.Call().Hash(),
		Gate: "gate2", Step: 1, Attempt: 1, Approvers: []string{}, State: "Refused", Reason: "BadArgs"}
	if d := cmp.Diff([]chain.Row{held, intent, outcome, no}, rows); d != "" {
		t.Error(d)
	}
	if h := chain.Hash(page.Rows[2]); done.AuditRow != 3 || done.AuditHash != h {
		t.Errorf("the answer names row %d %s, it is %s", done.AuditRow, done.AuditHash, h)
	}
	st := w.status()
	if st.AuditRows != 4 || st.AuditHead != chain.Hash(page.Rows[3]) || len(st.Manifests) != 1 || st.Manifests[0].Digest != w.digest() || len(troubles(st)) != 0 || st.Version != "test" || page.More {
		t.Errorf("got %+v", st)
	}
	q, env = w.get("/v1/audit?after=3")
	if page, err := wire.OpenAuditPage(env, pub(w.device), q); err != nil || len(page.Rows) != 1 {
		t.Errorf("got %d rows, %v", len(page.Rows), err)
	}
}

// What lies in an allowed directory may lead elsewhere; the device refuses it for good.
func TestPathTraps(t *testing.T) {
	w := newWorld(t)
	must(t, os.WriteFile(w.out+"/secret", []byte("secret"), 0o644))
	must(t, os.Symlink(w.out+"/secret", w.files+"/link"))
	must(t, os.Symlink(w.out, w.files+"/dir"))
	must(t, os.Link(w.out+"/secret", w.files+"/hard"))
	must(t, os.Mkdir(w.files+"/private", 0o755))
	must(t, os.WriteFile(w.files+"/private/p", []byte("private"), 0o644))
	must(t, os.Symlink("private/p", w.files+"/to-private"))
	must(t, os.Symlink(w.out+"/born", w.files+"/dangling"))
	must(t, unix.Mkfifo(w.files+"/fifo", 0o644))
	for name, r := range map[string]wire.Request{
		"read a symlink":                  w.free(w.call(manifest.FSRead, manifest.ReadArgs{Path: w.files + "/link"}), "1"),
		"read through a directory":        w.free(w.call(manifest.FSRead, manifest.ReadArgs{Path: w.files + "/dir/secret"}), "2"),
		"read a hard link":                w.free(w.call(manifest.FSRead, manifest.ReadArgs{Path: w.files + "/hard"}), "3"),
		"read a FIFO":                     w.free(w.call(manifest.FSRead, manifest.ReadArgs{Path: w.files + "/fifo"}), "4"),
		"read what needs approval":        w.free(w.call(manifest.FSRead, manifest.ReadArgs{Path: w.files + "/to-private"}), "5"),
		"list a symlink":                  w.free(w.call(manifest.FSList, manifest.PathArgs{Path: w.files + "/dir"}), "6"),
		"write a symlink":                 w.one("g1", w.write("link", "pwned")),
		"write through a directory":       w.one("g2", w.write("dir/new", "pwned")),
		"write a hard link":               w.one("g3", w.write("hard", "pwned")),
		"a command's path out":            w.one("g4", w.exec("append", w.files+"/link")),
		"a command's path, not there yet": w.one("g5", w.exec("append", w.files+"/dangling")),
	} {
		t.Run(name, func(t *testing.T) {
			a, env := w.ask(r)
			w.want(a, wire.Refused, wire.PathRefused)
			if _, again := w.ask(r); string(again) != string(env) {
				t.Error("the refusal is not kept")
			}
		})
	}
	if b, err := os.ReadFile(w.out + "/secret"); err != nil || string(b) != "secret" {
		t.Errorf("the secret is %q, %v", b, err)
	}
	if all, err := os.ReadDir(w.out); err != nil || len(all) != 1 {
		t.Errorf("out holds %v, %v", all, err)
	}
}

// The worst that can be said in JSON in JSON in base64 still fits into an envelope that can be read.
func TestLargeResultsFit(t *testing.T) {
	w := newWorld(t)
	a, env := w.ask(w.free(w.exec("controls", "x"), "1"))
	w.want(a, wire.Succeeded, "")
	r := result[wire.ExecResult](t, a)
	if len(env) > dsse.MaxEnvelope || r.StdoutBytes != 4<<20 || r.StderrBytes != 4<<20 || len(r.Stdout) < 100_000 || !strings.Contains(r.Stdout, "bytes left out") {
		t.Errorf("envelope of %d bytes, kept %d of %d and %d of %d", len(env), len(r.Stdout), r.StdoutBytes, len(r.Stderr), r.StderrBytes)
	}
	big := strings.Repeat("0123456789abcdef", 4<<20/16)
	must(t, os.WriteFile(w.files+"/big", []byte(big), 0o644))
	a, _ = w.ask(w.free(w.call(manifest.FSRead, manifest.ReadArgs{Path: w.files + "/big"}), "2"))
	if got := result[wire.ReadResult](t, a); got.Content != big || got.Truncated {
		t.Errorf("read %d bytes, truncated %t", len(got.Content), got.Truncated)
	}
	must(t, os.WriteFile(w.files+"/binary", make([]byte, 4<<20), 0o644))
	a, _ = w.ask(w.free(w.call(manifest.FSRead, manifest.ReadArgs{Path: w.files + "/binary"}), "3"))
	got := result[wire.ReadResult](t, a)
	b, err := base64.StdEncoding.DecodeString(got.Content)
	if err != nil || got.Encoding != "base64" || got.Size != 4<<20 || got.Truncated != (len(b) < 4<<20) {
		t.Errorf("%s, %d bytes of %d, truncated %t, %v", got.Encoding, len(b), got.Size, got.Truncated, err)
	}
}

func TestUnreadable(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]struct {
		body   string
		status int
	}{
		"nothing":         {"", http.StatusBadRequest},
		"words":           {"hello", http.StatusBadRequest},
		"another object":  {`{"hello":1}`, http.StatusBadRequest},
		"larger than all": {strings.Repeat("x", wire.MaxRequest+1), http.StatusRequestEntityTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			if status, b := w.post([]byte(c.body)); status != c.status {
				t.Errorf("status %d: %s", status, b)
			}
		})
	}
}
