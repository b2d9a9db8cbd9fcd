package device_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"nisse.io/nisse/device"
	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/manifest"
)

const manifestsPath, revokePath = "/v1/manifests", "/v1/revoke"

// bring an envelope, in a query that a key signed and somebody changed.
func (w *world) bring(envelope string, k ed25519.PrivateKey, change ...func(*wire.Query)) (wire.Status, error) {
	w.t.Helper()
	return w.change(manifestsPath, []byte(envelope), k, change...)
}

func (w *world) change(path string, body []byte, k ed25519.PrivateKey, change ...func(*wire.Query)) (wire.Status, error) {
	w.t.Helper()
	q := w.query(path)
	sent := q
	for _, c := range change {
		c(&sent)
	}
	h, err := wire.SignQuery(k, sent)
	must(w.t, err)
	status, env := w.send(path, h, body)
	if status != http.StatusOK {
		w.t.Fatalf("status %d: %s", status, env)
	}
	return wire.OpenStatus(env, pub(w.device), q)
}

func wantReason(t testing.TB, err error, reason wire.Reason) {
	t.Helper()
	var refused *wire.RefusedError
	if !errors.As(err, &refused) || refused.Reason != reason || refused.Message == "" {
		t.Errorf("got %v, want %s", err, reason)
	}
}

// another manifest of the world, changed.
func (w *world) another(change func(*manifest.Manifest)) *manifest.Manifest {
	w.t.Helper()
	b, err := w.m.Canonical()
	must(w.t, err)
	m, err := manifest.Parse(b)
	must(w.t, err)
	change(m)
	return m
}

// elevated manifest with keys of its own, under which everything that the other gives needs approval.
func (w *world) elevated() (m *manifest.Manifest, request, approve ed25519.PrivateKey) {
	request, approve = key(5), key(6)
	return w.another(func(m *manifest.Manifest) {
		m.Privilege, m.ExpiresAt = manifest.Elevated, "2027-02-01T00:00:00Z"
		m.Keys = manifest.Keys{Request: []string{text(request)}, Approval: []string{text(approve)}}
		for c := range m.Paths {
			m.Paths[c] = []manifest.PathRule{{Glob: w.files + "/**", Rule: manifest.Rule{Approval: manifest.Required}}}
		}
	}), request, approve
}

func (w *world) reads(id string) wire.Request {
	return w.free(w.call(manifest.FSRead, manifest.ReadArgs{Path: w.files + "/a"}), id)
}

// From nothing to a call: a device without a manifest believes nobody, the root key's word is enough to bring it one, and once it is held
// it stays.
func TestBringManifest(t *testing.T) {
	w := newMachine(t)
	env := w.signed(w.m, w.root)
	a, _ := w.ask(w.reads("1"))
	w.want(a, wire.Refused, wire.NoManifest)
	if a.Deed != "" {
		t.Errorf("it names deed %s", a.Deed)
	}
	for _, path := range []string{"/v1/status", "/v1/audit?after=0", "/v1/deeds/" + w.reads("1").Deed} {
		q, reply := w.get(path)
		_, err := wire.OpenStatus(reply, pub(w.device), q)
		wantReason(t, err, wire.NoManifest)
	}
	st, err := w.bring(env, w.request)
	if err != nil || len(st.Manifests) != 1 || st.Manifests[0] != (wire.HeldManifest{Privilege: manifest.User, Epoch: began, Digest: w.digest(), ExpiresAt: w.m.ExpiresAt}) ||
		st.RevokedEpoch != 0 || st.AuditRows != 1 {
		t.Fatalf("got %+v, %v", st, err)
	}
	a, _ = w.ask(w.reads("1")) // what was answered NoManifest has left nothing behind
	w.want(a, wire.Succeeded, "")
	rows := w.status().AuditRows
	for range 2 {
		if st, err := w.bring(env, w.request); err != nil || st.AuditRows != rows {
			t.Errorf("brought again: %+v, %v", st, err)
		}
	}
	w.restart()
	a, _ = w.ask(w.reads("2"))
	w.want(a, wire.Succeeded, "")
}

// A newer manifest takes the older one's place at once, and for good.
func TestReplaceManifest(t *testing.T) {
	w := newWorld(t)
	old := w.signed(w.m, w.root)
	_, err := w.bring(old, w.request)
	must(t, err)
	before := w.reads("1")
	approved := w.one("gate", w.write("target", "pwned"))
	w.now.Add(10)
	w.m = w.another(func(m *manifest.Manifest) { m.Paths[manifest.FSRead] = nil; m.Keys.Request = []string{text(key(7))} })
	env := w.signed(w.m, w.root)
	if _, err := w.bring(env, key(8)); err == nil {
		t.Error("a stranger's query was taken")
	}
	_, err = w.bring(env, key(7)) // a key that this manifest itself names
	must(t, err)
	for _, restart := range []bool{false, true} {
		if restart {
			w.restart()
		}
		a, _ := w.ask(before) // signed by a key that no manifest names any more
		w.want(a, wire.Refused, wire.BadSignature)
		w.request = key(7)
		for _, r := range []wire.Request{before, approved} {
			a, _ = w.ask(r)
			w.want(a, wire.Refused, wire.OtherManifest)
		}
		a, _ = w.ask(w.reads("2"))
		w.want(a, wire.Refused, wire.NotAllowed)
		_, err := w.bring(old, key(7))
		wantReason(t, err, wire.OlderManifest)
		w.request = key(1)
	}
	if w.content("target") != "" {
		t.Error("it was written")
	}
}

// Whatever the root key did not sign for this device, for now, is not held; nothing else changes.
func TestManifestsRefused(t *testing.T) {
	sign := func(k ed25519.PrivateKey, kind string, v any) string {
		b, err := dsse.Sign(k, kind, v)
		must(t, err)
		return string(b)
	}
	for _, c := range []struct {
		name   string
		env    func(w *world, good *manifest.Manifest) string
		key    ed25519.PrivateKey // of the query; the request key
		change func(q *wire.Query)
		reason wire.Reason
	}{
		{"the request key's", func(w *world, m *manifest.Manifest) string { return w.signed(m, w.request) }, nil, nil, wire.BadSignature},
		{"the approval key's", func(w *world, m *manifest.Manifest) string { return w.signed(m, w.approve) }, nil, nil, wire.BadSignature},
		{"another root key's", func(w *world, m *manifest.Manifest) string { return w.signed(m, key(9)) }, nil, nil, wire.BadSignature},
		{"unsigned", func(w *world, m *manifest.Manifest) string {
			b, err := m.Canonical()
			must(t, err)
			return fmt.Sprintf(`{"payloadType":%q,"payload":%q,"signatures":[]}`, dsse.TypeManifest, base64.StdEncoding.EncodeToString(b))
		}, nil, nil, wire.BadSignature},
		{"signed as something else", func(w *world, m *manifest.Manifest) string { return sign(w.root, dsse.TypeStatement, m) }, nil, nil, wire.BadSignature},
		{"with a field that is not known", func(w *world, m *manifest.Manifest) string {
			return sign(w.root, dsse.TypeManifest, map[string]any{"v": 1, "device": "web1", "sudo": true})
		}, nil, nil, wire.BadSignature},
		{"of a newer version", func(w *world, m *manifest.Manifest) string { m.V++; return sign(w.root, dsse.TypeManifest, m) }, nil, nil, wire.BadArgs},
		{"that lists a shell", func(w *world, m *manifest.Manifest) string {
			m.Commands = []manifest.Command{{Argv: []string{"/bin/sh"}, Rule: manifest.Rule{Approval: manifest.None}}}
			return sign(w.root, dsse.TypeManifest, m)
		}, nil, nil, wire.BadArgs},
		{"for another device", func(w *world, m *manifest.Manifest) string { m.Device = "web2"; return w.signed(m, w.root) }, nil, nil, wire.OtherDevice},
		{"expired", func(w *world, m *manifest.Manifest) string {
			m.ExpiresAt = unixTime(began).UTC().Format("2006-01-02T15:04:05Z")
			m.Epoch = began + 5
			return sign(w.root, dsse.TypeManifest, m)
		}, nil, nil, wire.ManifestExpired},
		{"elevated for a year", func(w *world, m *manifest.Manifest) string {
			m.Privilege, m.Epoch = manifest.Elevated, began+5
			return sign(w.root, dsse.TypeManifest, m)
		}, nil, nil, wire.BadArgs},
		{"of an older epoch", func(w *world, m *manifest.Manifest) string {
			m.Epoch = began - 1
			return sign(w.root, dsse.TypeManifest, m)
		}, nil, nil, wire.OlderManifest},
		{"of the same epoch", func(w *world, m *manifest.Manifest) string {
			m.Epoch = began
			return sign(w.root, dsse.TypeManifest, m)
		}, nil, nil, wire.OlderManifest},
		{"brought by a stranger", func(w *world, m *manifest.Manifest) string { return w.signed(m, w.root) }, key(9), nil, wire.BadSignature},
		{"brought by who approves", func(w *world, m *manifest.Manifest) string { return w.signed(m, w.root) }, key(2), nil, wire.BadSignature},
		{"in a query for another device", func(w *world, m *manifest.Manifest) string { return w.signed(m, w.root) }, nil, func(q *wire.Query) { q.Device = "web2" }, wire.OtherDevice},
		{"in a query for something else", func(w *world, m *manifest.Manifest) string { return w.signed(m, w.root) }, nil, func(q *wire.Query) { q.Path = "/v1/status" }, wire.BadArgs},
		{"in a query that is over", func(w *world, m *manifest.Manifest) string { return w.signed(m, w.root) }, nil, func(q *wire.Query) { q.ExpiresAt = q.At }, wire.Expired},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			before := w.status()
			k, change := c.key, c.change
			if k == nil {
				k = w.request
			}
			if change == nil {
				change = func(*wire.Query) {}
			}
			_, err := w.bring(c.env(w, w.another(func(m *manifest.Manifest) { m.Limits.WriteBytes++ })), k, change)
			wantReason(t, err, c.reason)
			for _, restart := range []bool{false, true} {
				if restart {
					w.restart()
				}
				if after := w.status(); !slices.Equal(after.Manifests, before.Manifests) || after.AuditRows != before.AuditRows {
					t.Errorf("now it holds %+v, %d rows", after.Manifests, after.AuditRows)
				}
			}
		})
	}
}

// One flipped byte in any field of a signed manifest, and it is not the root key's any more. The fields come from the type.
func TestEveryFieldOfManifestIsBound(t *testing.T) {
	w := newMachine(t)
	w.m.User, w.m.Confine, w.m.Environment = "agent", manifest.Available, map[string]string{"HOME": "/home/agent"}
	w.m.Repositories = []manifest.RepositoryRule{{Operations: []string{manifest.GitStatus}, Glob: w.files, Rule: manifest.Rule{Approval: manifest.None}}}
	w.m.Packages = []manifest.PackageRule{{Operations: []string{manifest.PkgSearch}, Names: []string{"nginx"}, Rule: manifest.Rule{Approval: manifest.None}}}
	w.m.Processes = []manifest.ProcessRule{{Operations: []string{manifest.ProcList}, Rule: manifest.Rule{Approval: manifest.None}}}
	w.m.Containers = []manifest.ContainerRule{{Operations: []string{manifest.DockerList}, Names: []string{"web"}, Rule: manifest.Rule{Approval: manifest.None}}}
	w.m.Desktop = []manifest.DesktopRule{{Operations: []string{manifest.DisplayCapture}, Rule: manifest.Rule{Approval: manifest.None}}}
	good := w.signed(w.m, w.root)
	payload, err := manifest.Payload(good)
	must(t, err)
	for _, f := range reflect.VisibleFields(reflect.TypeFor[manifest.Manifest]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		t.Run(name, func(t *testing.T) {
			var fields map[string]json.RawMessage
			must(t, json.Unmarshal(payload, &fields))
			value, ok := fields[name]
			if !ok {
				t.Fatalf("the manifest of this test lacks %s", name)
			}
			at := strings.Index(string(payload), fmt.Sprintf("%q:%s", name, value)) + len(name) + 3
			for i := range value {
				flipped := slices.Clone(payload)
				flipped[at+i] ^= 1
				_, err := w.bring(strings.Replace(good, base64.StdEncoding.EncodeToString(payload), base64.StdEncoding.EncodeToString(flipped), 1), w.request)
				wantReason(t, err, wire.BadSignature)
			}
		})
	}
	_, err = w.bring(good, w.request)
	must(t, err)
}

// Two manifests on one device: each call is judged by the one that it names, with that one's keys and rules alone.
func TestTwoManifests(t *testing.T) {
	w := newWorld(t)
	user := w.m
	elevated, request, approve := w.elevated()
	if st, err := w.bring(w.signed(elevated, w.root), request); err != nil || len(st.Manifests) != 2 {
		t.Fatalf("got %+v, %v", st, err)
	}
	readsFree := w.reads("1")
	w.m = elevated
	readsApproved := w.reads("2")
	under := func(gate string, signer ed25519.PrivateKey) wire.Request {
		c := w.write(gate, "1")
		r := w.one(gate, c)
		s, err := w.statement(gate, c).Sign(signer)
		must(t, err)
		r.Approved.Statement = s
		return r
	}
	for _, c := range []struct {
		name    string
		request wire.Request
		key     ed25519.PrivateKey
		state   wire.State
		reason  wire.Reason
	}{
		{"free under the user's", readsFree, w.request, wire.Succeeded, ""},
		{"not free under the elevated one", readsApproved, request, wire.Refused, wire.NeedsApproval},
		{"the user's key asks under the elevated one", under("stolen", approve), w.request, wire.Refused, wire.BadSignature},
		{"the user's approver approves under the elevated one", under("forged", w.approve), request, wire.Refused, wire.NotCovered},
		{"approved under the elevated one", under("done", approve), request, wire.Succeeded, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			body, err := wire.SignRequest(c.key, c.request)
			must(t, err)
			a, _ := w.read(body, c.request.Deed)
			w.want(a, c.state, c.reason)
		})
	}
	if w.content("stolen")+w.content("forged") != "" || w.content("done") != "1" {
		t.Errorf("files: %q %q %q", w.content("stolen"), w.content("forged"), w.content("done"))
	}
	w.m = user
	w.restart()
	if st := w.status(); len(st.Manifests) != 2 || st.Manifests[0].Privilege != manifest.Elevated || st.Manifests[1].Digest != w.digest() {
		t.Errorf("after a restart it holds %+v", st.Manifests)
	}
}

// Nothing begins under a manifest from its last second on, wherever the clock is set later; the other manifest goes on.
func TestManifestExpires(t *testing.T) {
	w := newWorld(t)
	elevated, request, _ := w.elevated()
	_, err := w.bring(w.signed(elevated, w.root), request)
	must(t, err)
	end, err := elevated.Expiry()
	must(t, err)
	w.now.Store(end.Unix())
	user := w.m
	w.m = elevated
	r := w.reads("1")
	body, err := wire.SignRequest(request, r)
	must(t, err)
	a, first := w.read(body, r.Deed)
	w.want(a, wire.Refused, wire.ManifestExpired)
	w.m = user
	a, _ = w.ask(w.reads("2")) // dated at the end: the clock does not go back behind it any more
	w.want(a, wire.Succeeded, "")
	w.now.Add(-20)
	w.m = elevated
	late := w.reads("3")
	body, err = wire.SignRequest(request, late)
	must(t, err)
	a, _ = w.read(body, late.Deed)
	w.want(a, wire.Refused, wire.ManifestExpired)
	body, err = wire.SignRequest(request, r)
	must(t, err)
	if _, again := w.read(body, r.Deed); string(again) != string(first) {
		t.Error("the refusal is not kept")
	}
	w.m.ExpiresAt = "2027-03-01T00:00:00Z"
	_, err = w.bring(w.signed(w.m, w.root), request) // signed anew, it counts again
	must(t, err)
	next := w.reads("4")
	body, err = wire.SignRequest(request, next)
	must(t, err)
	a, _ = w.read(body, next.Deed)
	w.want(a, wire.Refused, wire.NeedsApproval)
}

// What cannot be written down is not held, and neither is anything while the clock is not believed.
func TestManifestNotHeld(t *testing.T) {
	t.Run("full disk", func(t *testing.T) {
		w := newMachine(t)
		env := w.signed(w.m, w.root)
		w.breakDisk()
		_, err := w.bring(env, w.request)
		wantReason(t, err, wire.AuditUnwritable)
		a, _ := w.ask(w.reads("1"))
		w.want(a, wire.Refused, wire.NoManifest)
		w.mend()
		st, err := w.bring(env, w.request)
		if err != nil || st.AuditRows != 1 || len(troubles(st)) != 0 {
			t.Errorf("got %+v, %v", st, err)
		}
	})
	t.Run("clock in 1970", func(t *testing.T) {
		w := newMachine(t)
		env := w.signed(w.m, w.root)
		w.now.Store(100)
		_, err := w.bring(env, w.request)
		wantReason(t, err, wire.NotYet)
		w.now.Store(began)
		_, err = w.bring(env, w.request)
		must(t, err)
	})
	t.Run("another root key is pinned", func(t *testing.T) {
		w := newWorld(t)
		w.stop()
		w.root = key(8)
		w.start()
		a, _ := w.ask(w.reads("1"))
		w.want(a, wire.Refused, wire.NoManifest)
		_, err := w.bring(w.signed(w.m, w.root), w.request)
		must(t, err)
	})
	t.Run("no root key at all", func(t *testing.T) {
		for name, o := range map[string]device.Options{
			"no root key": {Dir: t.TempDir(), Device: "web1", Key: key(3)},
			"no name":     {Dir: t.TempDir(), RootKey: pub(key(4)), Key: key(3)},
			"no key":      {Dir: t.TempDir(), Device: "web1", RootKey: pub(key(4))},
		} {
			if d, _, err := device.New(t.Context(), o); err == nil {
				t.Errorf("%s: it runs", name)
				must(t, d.Close())
			}
		}
	})
}
