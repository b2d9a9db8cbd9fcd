package wire

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nisse.io/nisse/internal/dsse"
)

func pair(seed byte) (ed25519.PublicKey, ed25519.PrivateKey) {
	k := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, ed25519.SeedSize))
	return k.Public().(ed25519.PublicKey), k
}

func request() Request {
	return Request{V: Version, Device: "web1", ManifestDigest: "sha256:11", Capability: "fs.write", Args: `{"content":"x","path":"/a"}`, Deed: "d1",
		At: 100, ExpiresAt: 160, CorrelationID: "c", Agent: "ops", Approved: &Approved{GateUID: "g", Step: 1, Attempt: 1, Statement: "s"}}
}

func TestRequestRoundTrip(t *testing.T) {
	pub, priv := pair(1)
	env, err := SignRequest(priv, request())
	if err != nil {
		t.Fatal(err)
	}
	other, _ := pair(2)
	got, by, err := OpenRequest(env, []ed25519.PublicKey{other, pub})
	if err != nil || !by.Equal(pub) {
		t.Fatalf("signed by %x, %v", by, err)
	}
	if d := cmp.Diff(request(), got); d != "" {
		t.Error(d)
	}
}

// A peer of another version is told so even where its fields are unknown, and the deed is named only because the signature is good.
func TestOpenRequestOtherVersion(t *testing.T) {
	pub, priv := pair(1)
	_, stranger := pair(2)
	for name, payload := range map[string]map[string]any{
		"older":               {"v": 0, "deed": "d1"},
		"newer":               {"v": 2, "deed": "d1"},
		"newer, with a field": {"v": 2, "deed": "d1", "quantum": true},
	} {
		t.Run(name, func(t *testing.T) {
			env, err := dsse.Sign(priv, dsse.TypeRequest, payload)
			if err != nil {
				t.Fatal(err)
			}
			r, by, err := OpenRequest(env, []ed25519.PublicKey{pub})
			if !errors.Is(err, ErrVersion) || r.Deed != "d1" || !by.Equal(pub) {
				t.Errorf("got %+v by %x, %v", r, by, err)
			}
			env, err = dsse.Sign(stranger, dsse.TypeRequest, payload)
			if err != nil {
				t.Fatal(err)
			}
			r, by, err = OpenRequest(env, []ed25519.PublicKey{pub})
			if !errors.Is(err, dsse.ErrRefused) || r.Deed != "" || by != nil {
				t.Errorf("a stranger got %+v, %v", r, err)
			}
		})
	}
}

func TestOpenRequestRefuses(t *testing.T) {
	pub, priv := pair(1)
	sign := func(payloadType string, v any) []byte {
		b, err := dsse.Sign(priv, payloadType, v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, env := range map[string][]byte{
		"unknown field": sign(dsse.TypeRequest, map[string]any{"v": Version, "sudo": true}),
		"an answer":     sign(dsse.TypeAnswer, request()),
		"wrong type":    sign(dsse.TypeRequest, map[string]any{"v": Version, "device": 1}),
		"a string":      sign(dsse.TypeRequest, "hello"),
		"empty":         nil,
	} {
		t.Run(name, func(t *testing.T) {
			if r, by, err := OpenRequest(env, []ed25519.PublicKey{pub}); !errors.Is(err, dsse.ErrRefused) || r.Deed != "" || by != nil {
				t.Errorf("got %+v, %v", r, err)
			}
		})
	}
}

func TestOpenAnswer(t *testing.T) {
	pub, priv := pair(1)
	_, other := pair(2)
	for _, c := range []struct {
		name    string
		key     ed25519.PrivateKey
		answer  Answer
		want    error
		refused bool
	}{
		{"good", priv, Answer{Device: "web1", Deed: "d1", State: Succeeded}, nil, false},
		{"other key", other, Answer{Device: "web1", Deed: "d1", State: Succeeded}, dsse.ErrRefused, false},
		{"other device", priv, Answer{Device: "web2", Deed: "d1", State: Succeeded}, ErrMismatch, false},
		{"other deed", priv, Answer{Device: "web1", Deed: "d2", State: Succeeded}, ErrMismatch, false},
		{"unread", priv, Answer{Device: "web1", State: Refused, Reason: BadSignature}, nil, true},
		{"no deed, but not refused", priv, Answer{Device: "web1", State: Succeeded}, ErrMismatch, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			env, err := SignAnswer(c.key, c.answer)
			if err != nil {
				t.Fatal(err)
			}
			got, err := OpenAnswer(env, pub, "web1", "d1")
			var refused *RefusedError
			switch {
			case c.refused:
				if !errors.As(err, &refused) || refused.Reason != BadSignature {
					t.Errorf("got %v", err)
				}
			case c.want != nil:
				if !errors.Is(err, c.want) || got != (Answer{}) {
					t.Errorf("got %+v, %v", got, err)
				}
			case err != nil || got.State != Succeeded:
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestQueryAndStatus(t *testing.T) {
	pub, priv := pair(1)
	devicePub, devicePriv := pair(2)
	q := Query{V: Version, Device: "web1", Path: "/v1/status", At: 1, ExpiresAt: 2, Nonce: "n"}
	h, err := SignQuery(priv, q)
	if err != nil {
		t.Fatal(err)
	}
	got, by, err := OpenQuery(h, []ed25519.PublicKey{pub})
	if err != nil || got != q || !by.Equal(pub) {
		t.Fatalf("got %+v by %x, %v", got, by, err)
	}
	if _, _, err := OpenQuery(h+"=", []ed25519.PublicKey{pub}); !errors.Is(err, dsse.ErrRefused) {
		t.Errorf("padding was accepted: %v", err)
	}
	env, err := SignStatus(devicePriv, Status{Device: "web1", Nonce: "n", Now: 5})
	if err != nil {
		t.Fatal(err)
	}
	s, err := OpenStatus(env, devicePub, q)
	if err != nil || s.Now != 5 || s.Manifests == nil {
		t.Fatalf("got %+v, %v", s, err)
	}
	stale := q
	stale.Nonce = "m"
	if _, err := OpenStatus(env, devicePub, stale); !errors.Is(err, ErrMismatch) {
		t.Errorf("an old status passed for a new one: %v", err)
	}
	env, err = SignAnswer(devicePriv, Answer{Device: "web1", State: Refused, Reason: Expired, Message: "late"})
	if err != nil {
		t.Fatal(err)
	}
	var refused *RefusedError
	if _, err := OpenAuditPage(env, devicePub, q); !errors.As(err, &refused) || refused.Reason != Expired {
		t.Errorf("got %v", err)
	}
	env, err = SignAuditPage(devicePriv, AuditPage{Device: "web1", Nonce: "n", Rows: []string{"{}"}})
	if err != nil {
		t.Fatal(err)
	}
	if p, err := OpenAuditPage(env, devicePub, q); err != nil || len(p.Rows) != 1 {
		t.Errorf("got %+v, %v", p, err)
	}
	if _, err := OpenStatus(env, devicePub, q); !errors.Is(err, dsse.ErrRefused) {
		t.Errorf("an audit page passed for a status: %v", err)
	}
}

func TestRevocation(t *testing.T) {
	pub, priv := pair(1)
	_, stranger := pair(2)
	want := Revocation{V: Version, Device: "web1", Epoch: 7, At: 100}
	sign := func(key ed25519.PrivateKey, payloadType string, v any) []byte {
		b, err := dsse.Sign(key, payloadType, v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	good, err := SignRevocation(priv, Revocation{Device: "web1", Epoch: 7, At: 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		env  []byte
		want error
	}{
		{"good", good, nil},
		{"a stranger's", sign(stranger, dsse.TypeRevocation, want), dsse.ErrRefused},
		{"signed as a request", sign(priv, dsse.TypeRequest, want), dsse.ErrRefused},
		{"unknown field", sign(priv, dsse.TypeRevocation, map[string]any{"v": Version, "epoch": 7, "all": true}), dsse.ErrRefused},
		{"an epoch in words", sign(priv, dsse.TypeRevocation, map[string]any{"v": Version, "epoch": "7"}), dsse.ErrRefused},
		{"newer", sign(priv, dsse.TypeRevocation, map[string]any{"v": Version + 1, "all": true}), ErrVersion},
		{"nothing", nil, dsse.ErrRefused},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, by, err := OpenRevocation(c.env, []ed25519.PublicKey{pub})
			switch {
			case c.want == nil:
				if err != nil || got != want || !by.Equal(pub) {
					t.Errorf("got %+v by %x, %v", got, by, err)
				}
			case !errors.Is(err, c.want) || got.Epoch != 0:
				t.Errorf("got %+v, %v, want %v", got, err, c.want)
			}
		})
	}
}

func TestStatusHolds(t *testing.T) {
	s := Status{Manifests: []HeldManifest{{Digest: "a", Epoch: 5}, {Digest: "b", Epoch: 6}}, RevokedEpoch: 5}
	for digest, want := range map[string]bool{"a": false, "b": true, "c": false} {
		if got := s.Holds(digest); got != want {
			t.Errorf("%s: %t", digest, got)
		}
	}
}

// Only what the device has kept no record of may be asked again.
func TestTransient(t *testing.T) {
	for reason, want := range map[Reason]bool{NoManifest: true, NotYet: true, Busy: true, TableFull: true, AuditUnwritable: true,
		BadSignature: false, BadVersion: false, OtherDevice: false, OtherManifest: false, ManifestExpired: false, Revoked: false, OlderManifest: false,
		Expired: false, NotAllowed: false, NotCovered: false, PathRefused: false} {
		if reason.Transient() != want {
			t.Errorf("%s: %t", reason, !want)
		}
	}
}

// FuzzOpenRevocation and FuzzOpenQuery: as FuzzOpenRequest.
func FuzzOpenRevocation(f *testing.F) {
	pub, priv := pair(1)
	want := Revocation{V: Version, Device: "web1", Epoch: 7, At: 100}
	good, err := SignRevocation(priv, want)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"payloadType":"` + dsse.TypeRevocation + `","payload":"eyJ2IjoxfQ==","signatures":[{"keyid":"","sig":"AAAA"}]}`))
	f.Add(bytes.Replace(good, []byte("A"), []byte("B"), 1))
	f.Fuzz(func(t *testing.T, env []byte) {
		r, by, err := OpenRevocation(env, []ed25519.PublicKey{pub})
		if err != nil && (r != Revocation{} || by != nil) || err == nil && r != want {
			t.Errorf("got %+v by %x, %v", r, by, err)
		}
	})
}

func FuzzOpenQuery(f *testing.F) {
	pub, priv := pair(1)
	want := Query{V: Version, Device: "web1", Path: "/v1/status", At: 1, ExpiresAt: 2, Nonce: "n"}
	good, err := SignQuery(priv, want)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add("")
	f.Add(good + "=")
	f.Add(base64.RawURLEncoding.EncodeToString([]byte(`{"payloadType":"` + dsse.TypeQuery + `","payload":"bnVsbA==","signatures":[]}`)))
	f.Fuzz(func(t *testing.T, header string) {
		q, by, err := OpenQuery(header, []ed25519.PublicKey{pub})
		if err != nil && (q != Query{} || by != nil) || err == nil && q != want {
			t.Errorf("got %+v by %x, %v", q, by, err)
		}
	})
}

// FuzzOpenRequest: whatever comes, no panic, and nothing is believed that the trusted key did not sign.
func FuzzOpenRequest(f *testing.F) {
	pub, priv := pair(1)
	good, err := SignRequest(priv, request())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"payloadType":"application/vnd.nisse.request.v1+json","payload":"bnVsbA==","signatures":[{"keyid":"","sig":""}]}`))
	f.Add([]byte(`{"payload":"` + base64.StdEncoding.EncodeToString([]byte(`{"v":1}`)) + `","payloadType":"","signatures":[]}`))
	f.Add(bytes.Replace(good, []byte(`"sig"`), []byte(`"SIG"`), 1))
	f.Add(append(bytes.Clone(good), good...))
	want, err := json.Marshal(request())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, env []byte) {
		r, by, err := OpenRequest(env, []ed25519.PublicKey{pub})
		if err != nil {
			if r.Deed != "" || by != nil {
				t.Errorf("refused (%v), yet %+v came out", err, r)
			}
			return
		}
		if got, err := json.Marshal(r); err != nil || !bytes.Equal(got, want) {
			t.Errorf("believed %s", got)
		}
	})
}
