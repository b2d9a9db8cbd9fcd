package device_test

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/internal/approval"
	"nisse.io/nisse/internal/deed"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/manifest"
	"nisse.io/nisse/internal/testrig"
)

// Every attack asks for one file to be written; it must not be there afterwards. Requests are signed by the real request key, as a
// stolen broker would.
func TestAttacks(t *testing.T) {
	for _, c := range []struct {
		name   string
		attack func(w *world, r wire.Request) wire.Request
		reason wire.Reason
	}{
		{"no statement", func(_ *world, r wire.Request) wire.Request { r.Approved = nil; return r }, wire.NeedsApproval},
		{"no statement, as a free deed", func(_ *world, r wire.Request) wire.Request {
			r.Approved, r.Deed = nil, deed.Free("agent", "1")
			return r
		}, wire.NeedsApproval},
		{"empty statement", func(_ *world, r wire.Request) wire.Request { r.Approved.Statement = ""; return r }, wire.NotCovered},
		{"statement signed by the request key", func(w *world, r wire.Request) wire.Request {
			s, err := w.statement("gate", r.Call()).Sign(w.request)
			must(w.t, err)
			r.Approved.Statement = s
			return r
		}, wire.NotCovered},
		{"statement signed by the device", func(w *world, r wire.Request) wire.Request {
			s, err := w.statement("gate", r.Call()).Sign(w.device)
			must(w.t, err)
			r.Approved.Statement = s
			return r
		}, wire.NotCovered},
		{"a request for a statement", func(w *world, r wire.Request) wire.Request {
			b, err := dsse.Sign(w.approve, dsse.TypeRequest, w.statement("gate", r.Call()))
			must(w.t, err)
			r.Approved.Statement = string(b)
			return r
		}, wire.NotCovered},
		{"a call outside the statement", func(w *world, r wire.Request) wire.Request {
			r.Approved.Statement = w.sign(w.statement("gate", w.write("approved.txt", "pwned")))
			return r
		}, wire.NotCovered},
		{"other content than approved", func(w *world, r wire.Request) wire.Request {
			r.Args = w.write("target", "Pwned").Args
			return r
		}, wire.NotCovered},
		{"another step", func(w *world, r wire.Request) wire.Request {
			r.Approved.Step, r.Deed = 2, deed.Approved("gate", 2, 1)
			return r
		}, wire.NotCovered},
		{"step 0", func(w *world, r wire.Request) wire.Request {
			r.Approved.Step, r.Deed = 0, deed.Approved("gate", 0, 1)
			return r
		}, wire.NotCovered},
		{"more attempts than approved", func(w *world, r wire.Request) wire.Request {
			r.Approved.Attempt, r.Deed = 2, deed.Approved("gate", 1, 2)
			return r
		}, wire.NotCovered},
		{"another gate's name", func(w *world, r wire.Request) wire.Request {
			r.Approved.GateUID, r.Deed = "gate2", deed.Approved("gate2", 1, 1)
			return r
		}, wire.NotCovered},
		{"approval ended", func(w *world, r wire.Request) wire.Request {
			s := w.statement("gate", r.Call())
			s.ExpiresAt = w.now.Load()
			r.Approved.Statement = w.sign(s)
			return r
		}, wire.NotCovered},
		{"approved by nobody", func(w *world, r wire.Request) wire.Request {
			s := w.statement("gate", r.Call())
			s.Approvers = nil
			r.Approved.Statement = w.sign(s)
			return r
		}, wire.NotCovered},
		{"a deed of its own choosing", func(_ *world, r wire.Request) wire.Request { r.Deed = deed.Free("agent", "7"); return r }, wire.WrongDeed},
		{"the deed of another attempt", func(_ *world, r wire.Request) wire.Request { r.Deed = deed.Approved("gate", 1, 2); return r }, wire.WrongDeed},
		{"other device", func(_ *world, r wire.Request) wire.Request { r.Device = "web2"; return r }, wire.OtherDevice},
		{"other manifest", func(_ *world, r wire.Request) wire.Request { r.ManifestDigest = "sha256:00"; return r }, wire.OtherManifest},
		{"expired", func(w *world, r wire.Request) wire.Request { w.now.Add(600); return r }, wire.Expired},
		{"dated in the near future", func(w *world, r wire.Request) wire.Request {
			r.At += wire.SkewSeconds + 1
			r.ExpiresAt = r.At + 60
			return r
		}, wire.NotYet},
		{"dated far in the future", func(w *world, r wire.Request) wire.Request {
			r.At, r.ExpiresAt = 1<<52, 1<<52+60
			return r
		}, wire.NotYet},
		{"good for years", func(w *world, r wire.Request) wire.Request { r.ExpiresAt = r.At + 1<<30; return r }, wire.WindowTooLong},
		{"a window from long ago", func(w *world, r wire.Request) wire.Request { r.At = 1; return r }, wire.WindowTooLong},
		{"not listed", func(w *world, r wire.Request) wire.Request {
			return w.one("gate", w.call(manifest.FSWrite, manifest.WriteArgs{Path: w.out + "/target", Content: "pwned"}))
		}, wire.NotAllowed},
		{"a shell", func(w *world, r wire.Request) wire.Request {
			return w.one("gate", w.call(manifest.Exec, manifest.ExecArgs{Argv: []string{"/bin/sh", "-c", "touch " + w.files + "/target"}}))
		}, wire.NotAllowed},
		{"an option in a slot", func(w *world, r wire.Request) wire.Request { return w.one("gate", w.exec("append", "-x")) }, wire.NotAllowed},
		{"dots", func(w *world, r wire.Request) wire.Request { return w.one("gate", w.write("../out/target", "pwned")) }, wire.BadArgs},
		{"unknown capability", func(w *world, r wire.Request) wire.Request {
			return w.one("gate", w.call("fs.remove", manifest.PathArgs{Path: w.files}))
		}, wire.BadArgs},
		{"arguments that are not canonical", func(w *world, r wire.Request) wire.Request {
			c := r.Call()
			c.Args = strings.Replace(c.Args, `{"`, `{ "`, 1)
			return w.one("gate", c)
		}, wire.BadArgs},
		{"a field in another case", func(w *world, r wire.Request) wire.Request {
			c := r.Call()
			c.Args = strings.Replace(c.Args, `{"content"`, `{"Path":"`+w.files+`/shown","content"`, 1)
			return w.one("gate", c)
		}, wire.BadArgs},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			good := w.one("gate", w.write("target", "pwned"))
			bad := c.attack(w, copied(good))
			a, env := w.ask(bad)
			w.want(a, wire.Refused, c.reason)
			if a.Message == "" || a.Result != "" {
				t.Errorf("message %q, result %q", a.Message, a.Result)
			}
			if got := w.content("target") + w.content("approved.txt"); got != "" {
				t.Errorf("it was written: %q", got)
			}
			if c.reason.Transient() {
				return
			}
			// A final refusal is one for ever, and over a restart.
			w.restart()
			if _, again := w.ask(bad); c.reason != wire.OtherDevice && !bytes.Equal(again, env) {
				t.Error("the refusal is not kept")
			}
			if w.content("target") != "" {
				t.Error("it was written the second time")
			}
		})
	}
}

func copied(r wire.Request) wire.Request {
	a := *r.Approved
	r.Approved = &a
	return r
}

// Requests that the request key did not sign teach nobody anything and leave no trace.
func TestUnauthentic(t *testing.T) {
	w := newWorld(t)
	r := w.one("gate", w.write("target", "pwned"))
	good, err := wire.SignRequest(w.request, r)
	must(t, err)
	sign := func(k ed25519.PrivateKey, typ string, v any) []byte {
		b, err := dsse.Sign(k, typ, v)
		must(t, err)
		return b
	}
	attacks := map[string][]byte{
		"wrong key":            sign(key(9), dsse.TypeRequest, r),
		"the approval key":     sign(w.approve, dsse.TypeRequest, r),
		"signed for an answer": sign(w.request, dsse.TypeAnswer, r),
		"unknown field":        sign(w.request, dsse.TypeRequest, map[string]any{"v": 1, "deed": r.Deed, "sudo": true}),
		"no signature":         []byte(fmt.Sprintf(`{"payload":"e30=","payloadType":%q,"signatures":[]}`, dsse.TypeRequest)),
	}
	for at := 20; at < len(good); at += 97 {
		flipped := bytes.Clone(good)
		flipped[at] ^= 1
		attacks[fmt.Sprintf("byte %d flipped", at)] = flipped
	}
	for name, body := range attacks {
		t.Run(name, func(t *testing.T) {
			status, env := w.post(body)
			if status == 400 {
				return // no envelope any more
			}
			a, err := wire.OpenAnswer(env, pub(w.device), "web1", "")
			if err == nil || a.State != "" {
				t.Fatalf("got %+v, %v", a, err)
			}
			if !strings.Contains(err.Error(), string(wire.BadSignature)) || strings.Contains(err.Error(), r.Deed) {
				t.Errorf("got %v", err)
			}
		})
	}
	if st := w.status(); st.AuditRows != 1 {
		t.Errorf("strangers wrote %d rows", st.AuditRows-1)
	}
	if w.content("target") != "" {
		t.Error("it was written")
	}
	a, _ := w.read(good, r.Deed)
	w.want(a, wire.Succeeded, "") // the untouched one was good all along
}

func TestOtherVersions(t *testing.T) {
	w := newWorld(t)
	for _, v := range []int{0, 2, 1 << 40} {
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			r := w.one("gate", w.write("target", "pwned"))
			r.V = v
			body, err := dsse.Sign(w.request, dsse.TypeRequest, r)
			must(t, err)
			a, _ := w.read(body, r.Deed)
			w.want(a, wire.Refused, wire.BadVersion)
		})
	}
	a, _ := w.ask(w.one("gate", w.write("target", "fine")))
	w.want(a, wire.Succeeded, "")
}

// One changed byte in any field that a statement or a request binds, signed anew by the right key, must not run. The fields come from
// the types, so that a new one cannot be forgotten.
func TestEveryFieldIsBound(t *testing.T) {
	audited := map[string]bool{"CorrelationID": true, "Agent": true} // told, not bound
	times := map[string]bool{"V": true, "At": true, "ExpiresAt": true, "Approved": true}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[wire.Request]()) {
		if audited[f.Name] || times[f.Name] {
			continue
		}
		t.Run("request "+f.Name, func(t *testing.T) {
			w := newWorld(t)
			r := w.one("gate", w.write("target", "pwned"))
			v := reflect.ValueOf(&r).Elem().FieldByIndex(f.Index)
			v.SetString(flip(v.String()))
			refused(t, w, r)
		})
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[wire.Approved]()) {
		if f.Name == "Signature" { // where it is demanded: TestStolenClusterWithoutThePersonsKey
			continue
		}
		t.Run("approved "+f.Name, func(t *testing.T) {
			w := newWorld(t)
			r := w.one("gate", w.write("target", "pwned"))
			change(reflect.ValueOf(r.Approved).Elem().FieldByIndex(f.Index))
			refused(t, w, r)
		})
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[approval.Statement]()) {
		if f.Name == "V" || f.Name == "Digest" || f.Name == "Approvers" { // Sign sets V; the device cannot know the others
			continue
		}
		t.Run("statement "+f.Name, func(t *testing.T) {
			w := newWorld(t)
			c := w.write("target", "pwned")
			s := w.statement("gate", c)
			r := w.approved(s, 1, c)
			switch f.Name {
			case "ExpiresAt":
				s.ExpiresAt = w.now.Load()
			case "Calls":
				s.Calls = []string{flip(s.Calls[0])}
			case "Attempts":
				s.Attempts = []int32{0}
			case "Resolved": // to a program, for a call that runs none
				s.Resolved = []string{sum("program")}
			default:
				change(reflect.ValueOf(&s).Elem().FieldByIndex(f.Index))
			}
			r.Approved.Statement = w.sign(s)
			refused(t, w, r)
		})
	}
}

func refused(t *testing.T, w *world, r wire.Request) {
	t.Helper()
	a, _ := w.ask(r)
	if a.State != wire.Refused || w.content("target") != "" {
		t.Errorf("got %s %s, file %q", a.State, a.Message, w.content("target"))
	}
}

func flip(s string) string {
	b := []byte(s)
	b[len(b)/2] ^= 1
	return string(b)
}

func change(v reflect.Value) {
	if v.Kind() == reflect.String {
		v.SetString(flip(v.String()))
		return
	}
	v.SetInt(v.Int() + 1)
}

// Replayed, doubled and sent all at once, over restarts and past its end: one deed is one effect and one answer, to the byte.
func TestOnce(t *testing.T) {
	w := newWorld(t)
	r := w.one("gate", w.exec("append", w.files+"/log"))
	body, err := wire.SignRequest(w.request, r)
	must(t, err)
	var mu sync.Mutex
	answers := map[string]int{}
	together(20, func(int) {
		_, env := w.post(body)
		a, err := wire.OpenAnswer(env, pub(w.device), "web1", r.Deed)
		if err != nil || a.State != wire.Succeeded && a.State != wire.Running {
			t.Errorf("got %+v, %v", a, err)
			return
		}
		if a.State == wire.Succeeded {
			mu.Lock()
			answers[string(env)]++
			mu.Unlock()
		}
	})
	if len(answers) != 1 {
		t.Errorf("%d different answers", len(answers))
	}
	_, first := w.ask(r)
	w.restart()
	for _, jump := range []int64{0, 3600, 100 * 86400, -200 * 86400} {
		w.now.Add(jump)
		if a, again := w.ask(r); !bytes.Equal(again, first) {
			t.Errorf("after %d s: %s %s %s", jump, a.State, a.Reason, a.Message)
		}
	}
	if w.content("log") != "x" {
		t.Errorf("it ran %d times", len(w.content("log")))
	}
	w.now.Store(began)
	if got := w.seen(r.Deed); got.State != wire.Succeeded {
		t.Errorf("got %+v", got)
	}
}

func TestDeedOfAnotherCall(t *testing.T) {
	w := newWorld(t)
	r := w.free(w.call(manifest.FSRead, manifest.ReadArgs{Path: w.files + "/a"}), "1")
	a, _ := w.ask(r)
	w.want(a, wire.Succeeded, "")
	other := w.free(w.call(manifest.FSStat, manifest.PathArgs{Path: w.files + "/a"}), "1")
	a, _ = w.ask(other)
	w.want(a, wire.Refused, wire.DeedConflict)
	a, _ = w.ask(r)
	w.want(a, wire.Succeeded, "") // the first stands
	malformed := w.free(w.call(manifest.FSRead, manifest.ReadArgs{Path: w.files + "/a"}), "2")
	malformed.Deed = "../x"
	a, _ = w.ask(malformed)
	w.want(a, wire.Refused, wire.WrongDeed)
}

// The statement approved calls in an order, each to succeed.
func TestOrder(t *testing.T) {
	t.Run("backwards", func(t *testing.T) {
		w := newWorld(t)
		one, two := w.write("one", "1"), w.write("two", "2")
		s := w.statement("gate", one, two)
		a, _ := w.ask(w.approved(s, 2, two))
		w.want(a, wire.Succeeded, "") // step 1 may have been on another device
		a, _ = w.ask(w.approved(s, 1, one))
		w.want(a, wire.Refused, wire.NotCovered)
		if w.content("one") != "" {
			t.Error("step 1 ran after step 2")
		}
	})
	t.Run("after a failure", func(t *testing.T) {
		w := newWorld(t)
		one, two := w.exec("fail", "x"), w.write("two", "2")
		s := w.statement("gate", one, two)
		a, _ := w.ask(w.approved(s, 1, one))
		w.want(a, wire.Failed, "")
		a, _ = w.ask(w.approved(s, 2, two))
		w.want(a, wire.Refused, wire.NotCovered)
		if w.content("two") != "" {
			t.Error("step 2 ran after step 1 failed")
		}
	})
	t.Run("another attempt", func(t *testing.T) {
		w := newWorld(t)
		try := func(s approval.Statement, c approval.Call, attempt int32) wire.Answer {
			r := w.approved(s, 1, c)
			r.Approved.Attempt, r.Deed = attempt, deed.Approved(s.GateUID, 1, attempt)
			a, _ := w.ask(r)
			return a
		}
		fails := w.exec("fail", "x")
		s := w.statement("gate", fails)
		s.Attempts[0] = 2
		w.want(try(s, fails, 1), wire.Failed, "")
		w.want(try(s, fails, 2), wire.Failed, "")
		w.want(try(s, fails, 3), wire.Refused, wire.NotCovered)
		works := w.exec("append", w.files+"/log")
		s = w.statement("gate2", works)
		s.Attempts[0] = 2
		w.want(try(s, works, 1), wire.Succeeded, "")
		w.want(try(s, works, 2), wire.Refused, wire.NotCovered)
		if w.content("log") != "x" {
			t.Errorf("it ran %d times", len(w.content("log")))
		}
	})
	t.Run("while the step before runs", func(t *testing.T) {
		w := newWorld(t)
		one, two := w.exec("hang", w.files+"/started"), w.write("two", "2")
		s := w.statement("gate", one, two)
		first := make(chan struct{})
		go func() { defer close(first); w.ask(w.approved(s, 1, one)) }()
		testrig.Until(t, "step 1 to run", func() bool { return w.content("started") == "x" })
		a, _ := w.ask(w.approved(s, 2, two))
		w.want(a, wire.Refused, wire.NotCovered)
		must(t, w.d.Close()) // ends step 1
		<-first
		w.http.Close()
		w.start()
	})
}

func TestQueriesAreAuthentic(t *testing.T) {
	w := newWorld(t)
	good := wire.Query{V: wire.Version, Device: "web1", Path: "/v1/status", At: w.now.Load(), ExpiresAt: w.now.Load() + 60, Nonce: "n"}
	for name, c := range map[string]struct {
		key    ed25519.PrivateKey
		change func(*wire.Query)
		reason wire.Reason
	}{
		"wrong key":    {key(9), func(*wire.Query) {}, wire.BadSignature},
		"other device": {w.request, func(q *wire.Query) { q.Device = "web2" }, wire.OtherDevice},
		"other path":   {w.request, func(q *wire.Query) { q.Path = "/v1/audit?after=0" }, wire.BadArgs},
		"expired":      {w.request, func(q *wire.Query) { q.ExpiresAt = q.At }, wire.Expired},
		"not yet":      {w.request, func(q *wire.Query) { q.At += 40; q.ExpiresAt += 40 }, wire.NotYet},
		"for years":    {w.request, func(q *wire.Query) { q.ExpiresAt += 1 << 30 }, wire.WindowTooLong},
	} {
		t.Run(name, func(t *testing.T) {
			q := good
			c.change(&q)
			env := w.getAs(q, c.key, "/v1/status")
			q.Device, q.Nonce = "web1", "n"
			_, err := wire.OpenStatus(env, pub(w.device), q)
			if err == nil || !strings.Contains(err.Error(), string(c.reason)) {
				t.Errorf("got %v, want %s", err, c.reason)
			}
		})
	}
	if s, err := wire.OpenStatus(w.getAs(good, w.request, "/v1/status"), pub(w.device), good); err != nil || s.Now != began {
		t.Errorf("got %+v, %v", s, err)
	}
}
