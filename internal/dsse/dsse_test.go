package dsse

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"testing"
)

type payload struct {
	A int    `json:"a"`
	B string `json:"b"`
}

func pair(t *testing.T, seed byte) (ed25519.PublicKey, ed25519.PrivateKey) {
	t.Helper()
	s := make([]byte, ed25519.SeedSize)
	s[0] = seed
	k := ed25519.NewKeyFromSeed(s)
	return k.Public().(ed25519.PublicKey), k
}

func TestVerify(t *testing.T) {
	pub, priv := pair(t, 1)
	other, otherPriv := pair(t, 2)
	good, err := Sign(priv, TypeRequest, payload{1, "x"})
	if err != nil {
		t.Fatal(err)
	}
	flip := func(at string) []byte {
		var m map[string]any
		if err := json.Unmarshal(good, &m); err != nil {
			t.Fatal(err)
		}
		s := m[at].(string)
		c := byte('A')
		if s[3] == c {
			c = 'B'
		}
		m[at] = s[:3] + string(c) + s[4:]
		b, _ := json.Marshal(m)
		return b
	}
	extra, _ := Sign(priv, TypeRequest, map[string]any{"a": 1, "b": "x", "c": 2})
	foreign, _ := Sign(otherPriv, TypeRequest, payload{1, "x"})
	for _, c := range []struct {
		name    string
		env     []byte
		typ     string
		trusted []ed25519.PublicKey
		ok      bool
	}{
		{"good", good, TypeRequest, []ed25519.PublicKey{pub}, true},
		{"one of two keys", good, TypeRequest, []ed25519.PublicKey{other, pub}, true},
		{"other purpose", good, TypeStatement, []ed25519.PublicKey{pub}, false},
		{"nobody trusted", good, TypeRequest, nil, false},
		{"wrong key", foreign, TypeRequest, []ed25519.PublicKey{pub}, false},
		{"payload changed", flip("payload"), TypeRequest, []ed25519.PublicKey{pub}, false},
		{"unknown field", extra, TypeRequest, []ed25519.PublicKey{pub}, false},
		{"empty key", good, TypeRequest, []ed25519.PublicKey{{}}, false},
		{"not JSON", []byte("hello"), TypeRequest, []ed25519.PublicKey{pub}, false},
		{"data after", append(append([]byte{}, good...), '{', '}'), TypeRequest, []ed25519.PublicKey{pub}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var p payload
			k, err := Verify(c.env, c.typ, c.trusted, &p)
			if c.ok {
				if err != nil || p != (payload{1, "x"}) || !k.Equal(pub) {
					t.Fatalf("got %v, %v, %v", p, k, err)
				}
				return
			}
			if !errors.Is(err, ErrRefused) {
				t.Fatalf("accepted: %v", err)
			}
		})
	}
}

func TestKeysRoundTrip(t *testing.T) {
	pub, priv := pair(t, 3)
	b, err := EncodePrivateKey(priv)
	if err != nil {
		t.Fatal(err)
	}
	back, err := ParsePrivateKey(b)
	if err != nil || !back.Equal(priv) {
		t.Fatalf("private key did not come back: %v", err)
	}
	p, err := ParseKey(EncodeKey(pub))
	if err != nil || !p.Equal(pub) {
		t.Fatalf("public key did not come back: %v", err)
	}
	weak := EncodeKey(make(ed25519.PublicKey, ed25519.PublicKeySize))
	for _, s := range []string{"", "AAAA", weak, EncodeKey(append(ed25519.PublicKey{1}, make([]byte, 31)...)), EncodeKey(pub) + "=", "not base64 at all!"} {
		if _, err := ParseKey(s); err == nil {
			t.Errorf("%q was taken for a key", s)
		}
	}
}
