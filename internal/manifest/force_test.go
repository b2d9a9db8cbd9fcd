package manifest

import (
	"encoding/json"
	"errors"
	"testing"
	"time"
)

// kept is the sample as the cluster keeps it, signed an hour before at.
func kept(t testing.TB) (Kept, *Manifest) {
	t.Helper()
	m := parse(t, sample())
	envelope, err := m.Sign(privateKey(9), at.Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return Kept{Text: text, Signature: envelope, RootKey: publicKey(9)}, m
}

func TestInForce(t *testing.T) {
	_, m := kept(t)
	end, err := m.Expiry()
	if err != nil {
		t.Fatal(err)
	}
	changed := *m
	changed.Limits.WriteBytes++
	other, err := json.Marshal(changed)
	if err != nil {
		t.Fatal(err)
	}
	thiefs, err := m.Sign(privateKey(8), at)
	if err != nil {
		t.Fatal(err)
	}
	_, m = kept(t)
	for name, tt := range map[string]struct {
		change func(*Kept)
		now    time.Time
		want   error
	}{
		"in force":                        {func(*Kept) {}, at, nil},
		"in its last second":              {func(*Kept) {}, end.Add(-time.Second), nil},
		"over":                            {func(*Kept) {}, end, ErrEnded},
		"never signed":                    {func(k *Kept) { k.Signature = "" }, at, ErrUnsigned},
		"changed since":                   {func(k *Kept) { k.Text = other }, at, ErrOtherText},
		"signed by another":               {func(k *Kept) { k.Signature = thiefs }, at, ErrOtherKey},
		"another key in the Device":       {func(k *Kept) { k.RootKey = publicKey(8) }, at, ErrOtherKey},
		"no key in the Device":            {func(k *Kept) { k.RootKey = "" }, at, ErrOtherKey},
		"not an envelope":                 {func(k *Kept) { k.Signature = "{}" }, at, ErrOtherKey},
		"not a manifest":                  {func(k *Kept) { k.Text = []byte(`{"v":1}`) }, at, ErrInvalid},
		"not even text":                   {func(k *Kept) { k.Text = nil }, at, ErrInvalid},
		"revoked":                         {func(k *Kept) { k.Revoked = m.Epoch }, at, ErrRevoked},
		"revoked far beyond":              {func(k *Kept) { k.Revoked = 1<<53 - 1 }, at, ErrRevoked},
		"an earlier one was revoked":      {func(k *Kept) { k.Revoked = m.Epoch - 1 }, at, nil},
		"revoked and over":                {func(k *Kept) { k.Revoked = m.Epoch }, end, ErrRevoked},
		"changed, and revoked beside it":  {func(k *Kept) { k.Text, k.Revoked = other, m.Epoch }, at, ErrOtherText},
		"by a clock before it was signed": {func(*Kept) {}, at.Add(-24 * time.Hour), nil},
	} {
		t.Run(name, func(t *testing.T) {
			k, _ := kept(t)
			tt.change(&k)
			got, err := k.InForce(tt.now)
			if !errors.Is(err, tt.want) || (tt.want == nil && got == nil) {
				t.Errorf("got %v, %v; want %v", got, err, tt.want)
			}
		})
	}
}

func BenchmarkInForce(b *testing.B) {
	k, _ := kept(b)
	for b.Loop() {
		if _, err := k.InForce(at); err != nil {
			b.Fatal(err)
		}
	}
}
