// Package canonical turns JSON into the one byte string that everybody hashes: RFC 8785 (JCS), with the numbers narrowed to
// integers below 2^53 in magnitude, so that no two implementations can read one document differently.
package canonical

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/gowebpki/jcs"
)

// MaxDepth of nested arrays and objects.
const MaxDepth = 32

const maxInt = 1<<53 - 1

// ErrNotCanonical is wrapped by every refusal of this package.
var ErrNotCanonical = errors.New("not acceptable as canonical JSON")

// JSON checks raw and returns its canonical form. It refuses what readers of JSON are known to disagree about: duplicate keys,
// floats, exponents, minus zero, integers at or beyond 2^53, invalid UTF-8, lone surrogates, trailing data, deep nesting.
func JSON(raw []byte) ([]byte, error) {
	if !utf8.Valid(raw) {
		return nil, fmt.Errorf("%w: invalid UTF-8", ErrNotCanonical)
	}
	if err := surrogates(raw); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := value(d, &place{}, 0); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: data after the value", ErrNotCanonical)
	}
	if c := bytes.TrimSpace(raw)[0]; c != '{' && c != '[' {
		// The transformer takes objects and arrays only; wrapping is exact because an array of one adds two bytes.
		out, err := jcs.Transform([]byte("[" + string(raw) + "]"))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNotCanonical, err)
		}
		return out[1 : len(out)-1], nil
	}
	out, err := jcs.Transform(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotCanonical, err)
	}
	return out, nil
}

// Marshal encodes v and returns its canonical form.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return JSON(b.Bytes())
}

// Equal tells whether raw is canonical already.
func Equal(raw []byte) bool {
	c, err := JSON(raw)
	return err == nil && bytes.Equal(c, raw)
}

// Digest of the canonical form of v, as sha256:<hex>.
func Digest(v any) (string, error) {
	b, err := Marshal(v)
	if err != nil {
		return "", err
	}
	return DigestBytes(b), nil
}

// DigestBytes of b, as sha256:<hex>.
func DigestBytes(b []byte) string { return "sha256:" + Hex(b) }

// Hex is the SHA-256 of b in lower-case hex.
func Hex(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// place in a document. It becomes words only where something is wrong: a path written out for every element would cost the square of
// the document's size.
type place struct {
	parent *place
	key    string
	index  int // of an array's element, when key is empty
	array  bool
}

// String names the place, at most maxPlace bytes of it.
func (p *place) String() string {
	const maxPlace = 200
	s := ""
	for ; p != nil && len(s) <= maxPlace; p = p.parent {
		switch {
		case p.array:
			s = "[" + strconv.Itoa(p.index) + "]" + s
		case p.parent == nil:
			s = "$" + s
		default:
			s = "." + p.key + s
		}
	}
	if len(s) > maxPlace {
		s = "…" + strings.ToValidUTF8(s[len(s)-maxPlace:], "")
	}
	return s
}

// value walks one JSON value. at names it in errors.
func value(d *json.Decoder, at *place, depth int) error {
	if depth > MaxDepth {
		return fmt.Errorf("%w: nested deeper than %d at %s", ErrNotCanonical, MaxDepth, at)
	}
	t, err := d.Token()
	if err != nil {
		return fmt.Errorf("%w: %w at %s", ErrNotCanonical, err, at)
	}
	switch t := t.(type) {
	case json.Number:
		return number(string(t), at)
	case json.Delim:
		if t == '{' {
			return object(d, at, depth)
		}
		for i := 0; d.More(); i++ {
			if err := value(d, &place{parent: at, index: i, array: true}, depth+1); err != nil {
				return err
			}
		}
		if _, err := d.Token(); err != nil {
			return fmt.Errorf("%w: %w at %s", ErrNotCanonical, err, at)
		}
	}
	return nil
}

func object(d *json.Decoder, at *place, depth int) error {
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return fmt.Errorf("%w: %w at %s", ErrNotCanonical, err, at)
		}
		k, ok := t.(string)
		if !ok {
			return fmt.Errorf("%w: key is not a string at %s", ErrNotCanonical, at)
		}
		if seen[k] {
			return fmt.Errorf("%w: duplicate key %q at %s", ErrNotCanonical, k, at)
		}
		seen[k] = true
		if err := value(d, &place{parent: at, key: k}, depth+1); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return fmt.Errorf("%w: %w at %s", ErrNotCanonical, err, at)
	}
	return nil
}

func number(s string, at *place) error {
	if strings.ContainsAny(s, ".eE") {
		return fmt.Errorf("%w: %s is a float at %s; use an integer or a string", ErrNotCanonical, s, at)
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n > maxInt || n < -maxInt {
		return fmt.Errorf("%w: integer %s is at or beyond 2^53 at %s; use a string", ErrNotCanonical, s, at)
	}
	if s == "-0" {
		return fmt.Errorf("%w: minus zero at %s", ErrNotCanonical, at)
	}
	return nil
}

// surrogates refuses \uD800-style escapes that do not form a pair; encoding/json would quietly replace them.
func surrogates(raw []byte) error {
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' || i+1 >= len(raw) {
			continue
		}
		i++
		if raw[i] != 'u' {
			continue
		}
		r, ok := hex4(raw, i+1)
		if !ok {
			continue // the decoder refuses it with a better message
		}
		i += 4
		if !utf16.IsSurrogate(r) {
			continue
		}
		if i+2 < len(raw) && raw[i+1] == '\\' && raw[i+2] == 'u' {
			if r2, ok := hex4(raw, i+3); ok && utf16.DecodeRune(r, r2) != utf8.RuneError {
				i += 6
				continue
			}
		}
		return fmt.Errorf("%w: lone surrogate \\u%04x", ErrNotCanonical, r)
	}
	return nil
}

func hex4(raw []byte, at int) (rune, bool) {
	if at+4 > len(raw) {
		return 0, false
	}
	n, err := strconv.ParseUint(string(raw[at:at+4]), 16, 32)
	return rune(n), err == nil
}
