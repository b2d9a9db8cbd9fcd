package manifests

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"nisse.io/nisse/device/store"
	"nisse.io/nisse/device/wire"
	"nisse.io/nisse/internal/dsse"
	"nisse.io/nisse/internal/manifest"
)

const now = 1_800_000_000

func key(seed byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
}

func pub(seed byte) ed25519.PublicKey { return key(seed).Public().(ed25519.PublicKey) }

// envelope of a manifest for a device, signed by key 9 at a time: its epoch is that time.
func envelope(t testing.TB, device string, privilege manifest.Privilege, signed, days int64, change ...func(*manifest.Manifest)) string {
	t.Helper()
	m, err := manifest.Parse([]byte(fmt.Sprintf(`
v: 1
device: %s
privilege: %s
epoch: 1
expiresAt: %s
keys: {request: [%q], approval: [%q]}
limits: {writeBytes: 1, outputBytes: 1, timeoutSeconds: 1}
`, device, privilege, time.Unix(signed+days*86400, 0).UTC().Format(time.RFC3339), dsse.EncodeKey(pub(1)), dsse.EncodeKey(pub(2)))))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range change {
		c(m)
	}
	e, err := m.Sign(key(9), time.Unix(signed, 0))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func held(t testing.TB, privilege manifest.Privilege, signed, days int64, change ...func(*manifest.Manifest)) *Held {
	t.Helper()
	h, err := Open(envelope(t, "web1", privilege, signed, days, change...), pub(9))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestAccept(t *testing.T) {
	user, elevated := held(t, manifest.User, now-100, 30), held(t, manifest.Elevated, now-50, 30)
	other, err := Open(envelope(t, "web2", manifest.User, now, 30), pub(9))
	if err != nil {
		t.Fatal(err)
	}
	wider := func(m *manifest.Manifest) { m.Limits.WriteBytes = 2 }
	// Signed by a clock that was years behind, for what was then a year.
	long := held(t, manifest.Elevated, now+600, 90)
	both := Set{held: []*Held{elevated, user}}
	for _, c := range []struct {
		name    string
		set     Set
		h       *Held
		now     int64
		reason  wire.Reason
		changed bool
		want    []*Held
	}{
		{"the first", Set{}, user, now, "", true, []*Held{user}},
		{"the other privilege's", Set{held: []*Held{user}}, elevated, now, "", true, []*Held{elevated, user}},
		{"the same again", both, user, now, "", false, both.held},
		{"another device's", Set{}, other, now, wire.OtherDevice, false, nil},
		{"an older one", both, held(t, manifest.User, now-101, 30), now, wire.OlderManifest, false, both.held},
		{"another text of the same epoch", both, held(t, manifest.User, now-100, 30, wider), now, wire.OlderManifest, false, both.held},
		{"older than the other privilege's", both, held(t, manifest.User, now-99, 30, wider), now, "", true, nil},
		{"its last second", Set{}, user, user.Ends - 1, "", true, []*Held{user}},
		{"ended", Set{}, user, user.Ends, wire.ManifestExpired, false, nil},
		{"held, and ended", both, user, user.Ends, wire.ManifestExpired, false, both.held},
		{"revoked", Set{Revoked: user.Epoch}, user, now, wire.Revoked, false, nil},
		{"held, and revoked", Set{held: both.held, Revoked: user.Epoch}, user, now, wire.Revoked, false, both.held},
		{"just above what is revoked", Set{Revoked: user.Epoch - 1}, user, now, "", true, []*Held{user}},
		{"longest life, by a clock that is behind a little", Set{}, long, now + 600 - wire.SkewSeconds, "", true, []*Held{long}},
		{"longer than an elevated one may last", Set{}, long, now, wire.BadArgs, false, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			next, changed, reason, message := c.set.Accept(c.h, "web1", c.now)
			if reason != c.reason || changed != c.changed || (reason == "") != (message == "") {
				t.Fatalf("got %s %q, changed %t", reason, message, changed)
			}
			if next.Revoked != c.set.Revoked {
				t.Errorf("the floor is %d", next.Revoked)
			}
			if c.want == nil && changed {
				c.want = []*Held{elevated, c.h}
			}
			if d := cmp.Diff(Set{held: c.want}.Wire(), next.Wire()); d != "" {
				t.Error(d)
			}
		})
	}
	if d := cmp.Diff([]wire.HeldManifest{elevated.Wire(), user.Wire()}, both.Wire()); d != "" {
		t.Errorf("a set was changed: %s", d)
	}
}

func TestRevoke(t *testing.T) {
	set := Set{held: []*Held{held(t, manifest.User, now-100, 30), held(t, manifest.Elevated, now+1000, 30)}, Revoked: now - 200}
	for _, c := range []struct {
		name        string
		set         Set
		epoch, want int64
	}{
		{"one of two", set, now - 100, now - 100},
		{"all", set, now + 1000, now + 1000},
		{"lower than before", set, now - 300, now - 200},
		{"up to now", Set{}, now, now},
		{"a clock ahead by the skew", Set{}, now + wire.SkewSeconds, now + wire.SkewSeconds},
		{"more than can have been signed", set, 1<<53 - 1, now + 1000},
		{"more than can have been signed, nothing held", Set{Revoked: 5}, 1<<53 - 1, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := c.set.Revoke(c.epoch, now)
			if got.Revoked != c.want || len(got.held) != len(c.set.held) {
				t.Errorf("got %d, want %d", got.Revoked, c.want)
			}
			if again := got.Revoke(c.epoch, now); again.Revoked != got.Revoked {
				t.Errorf("the second time it is %d", again.Revoked)
			}
		})
	}
}

func TestTrusts(t *testing.T) {
	h := held(t, manifest.User, now, 30)
	for seed, want := range map[byte]bool{1: true, 2: false, 9: false} {
		if h.Trusts(pub(seed)) != want {
			t.Errorf("key %d: %t", seed, !want)
		}
	}
	if h.Trusts(nil) {
		t.Error("it trusts no key at all")
	}
}

// What is stored is as good as its signature: another root key or another name, and it is not held.
func TestLoad(t *testing.T) {
	st, err := store.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	user, elevated := held(t, manifest.User, now, 30), held(t, manifest.Elevated, now, 30)
	newer := held(t, manifest.User, now+1, 30)
	for _, h := range []*Held{user, elevated, newer} {
		if err := h.Save(t.Context(), st.DB()); err != nil {
			t.Fatal(err)
		}
	}
	if err := SaveRevoked(t.Context(), st.DB(), 7); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, device string
		root         byte
		want         []*Held
		refused      bool
	}{
		{"as pinned", "web1", 9, []*Held{elevated, newer}, false},
		{"another root key", "web1", 8, nil, true},
		{"another name", "web2", 9, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, strange, err := Load(t.Context(), st.DB(), c.device, pub(c.root))
			if err != nil || s.Revoked != 7 || len(s.held)+len(strange) != 2 {
				t.Fatalf("got %+v, %v, %v", s, strange, err)
			}
			if d := cmp.Diff(Set{held: c.want}.Wire(), s.Wire()); d != "" {
				t.Error(d)
			}
			for _, err := range strange {
				if errors.Is(err, dsse.ErrRefused) != c.refused {
					t.Errorf("got %v", err)
				}
			}
		})
	}
	if _, err := st.DB().Exec("UPDATE manifests SET envelope = replace(envelope, 'A', 'B') WHERE privilege = 'User'"); err != nil {
		t.Fatal(err)
	}
	if s, strange, err := Load(t.Context(), st.DB(), "web1", pub(9)); err != nil || len(s.held) != 1 || len(strange) != 1 {
		t.Errorf("one was tampered with: %+v, %v, %v", s.Wire(), strange, err)
	}
}

// A program that reads more strictly than the one that took a manifest does not hold it; what is older than that manifest does not come back all the same.
func TestWhatCannotBeReadKeepsItsEpoch(t *testing.T) {
	st, err := store.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if err := held(t, manifest.User, now, 30).Save(t.Context(), st.DB()); err != nil {
		t.Fatal(err)
	}
	// What this root key signed, and this program does not take for a manifest.
	strict, err := dsse.Sign(key(9), dsse.TypeManifest, map[string]any{"v": 1, "device": "web1", "unheardOf": true})
	if err != nil {
		t.Fatal(err)
	}
	set := func(query string, args ...any) {
		t.Helper()
		if _, err := st.DB().Exec(query, args...); err != nil {
			t.Fatal(err)
		}
	}
	older, newer := held(t, manifest.User, now-1, 30), held(t, manifest.User, now+1, 30)
	other := held(t, manifest.Elevated, now-1, 30)
	for _, c := range []struct {
		name, envelope, root, device string
		older                        wire.Reason
	}{
		{"it does not parse", string(strict), dsse.EncodeKey(pub(9)), "web1", wire.OlderManifest},
		{"it is no envelope", "{", dsse.EncodeKey(pub(9)), "web1", wire.OlderManifest},
		{"it does not parse, and an older version wrote it", string(strict), "", "", wire.OlderManifest},
		{"it is another root key's", string(strict), dsse.EncodeKey(pub(8)), "web1", ""},
		{"it is another device's", string(strict), dsse.EncodeKey(pub(9)), "web2", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			set("UPDATE manifests SET envelope = ?, root = ?, device = ?", c.envelope, c.root, c.device)
			s, strange, err := Load(t.Context(), st.DB(), "web1", pub(9))
			if err != nil || len(s.held) != 0 || len(strange) != 1 {
				t.Fatalf("got %+v, %v, %v", s, strange, err)
			}
			if _, changed, reason, _ := s.Accept(older, "web1", now); reason != c.older || changed != (c.older == "") {
				t.Errorf("an older one: %q, changed %t", reason, changed)
			}
			next, changed, reason, message := s.Accept(newer, "web1", now+1)
			if !changed {
				t.Fatalf("a newer one: %q %s", reason, message)
			}
			if _, _, reason, _ := next.Accept(older, "web1", now+1); reason != wire.OlderManifest {
				t.Errorf("an older one after it: %q", reason)
			}
			if _, changed, reason, _ := s.Accept(other, "web1", now); !changed {
				t.Errorf("the other privilege's: %q", reason)
			}
			if r := s.Revoke(now, now-1000); c.older != "" && r.Revoked != now {
				t.Errorf("a revocation of it reaches to %d", r.Revoked)
			}
		})
	}
}
