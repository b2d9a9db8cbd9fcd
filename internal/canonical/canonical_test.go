package canonical

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

func TestJSON(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"keys are sorted", `{"b":1,"a":[2, 3]}`, `{"a":[2,3],"b":1}`},
		{"keys sort by UTF-16 code units", `{"\ufb33":1,"\ud83d\ude02":2}`, "{\"\U0001f602\":2,\"\ufb33\":1}"},
		{"escapes become characters", `{"a":"\u0041\/"}`, `{"a":"A/"}`},
		{"control characters stay escaped", `{"a":"\u0001\n"}`, `{"a":"\u0001\n"}`},
		{"markup is left alone", `{"a":"<&>"}`, `{"a":"<&>"}`},
		{"largest integer", `[9007199254740991,-9007199254740991,0]`, `[9007199254740991,-9007199254740991,0]`},
		{"string alone", ` "x" `, `"x"`},
		{"true alone", `true`, `true`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := JSON([]byte(c.in))
			if err != nil || string(got) != c.want {
				t.Fatalf("got %s, %v; want %s", got, err, c.want)
			}
			if !Equal(got) {
				t.Errorf("canonical form %s is not its own canonical form", got)
			}
		})
	}
}

func TestJSONRefuses(t *testing.T) {
	for _, c := range []struct{ name, in string }{
		{"duplicate key", `{"a":1,"a":1}`},
		{"duplicate key by escape", `{"a":1,"\u0061":2}`},
		{"duplicate key deep", `[{"x":{"a":1,"a":2}}]`},
		{"float", `[1.0]`},
		{"exponent", `[1e3]`},
		{"minus zero", `[-0]`},
		{"2^53", `[9007199254740992]`},
		{"huge", `[123456789012345678901234567890]`},
		{"lone surrogate", `"\ud800"`},
		{"swapped surrogates", `"\udc00\ud800"`},
		{"invalid UTF-8", "\"\xff\""},
		{"trailing data", `{} {}`},
		{"empty", ``},
		{"blank", `  `},
		{"unfinished", `{"a":`},
		{"deep", strings.Repeat("[", 40) + strings.Repeat("]", 40)},
		{"NaN", `[NaN]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, err := JSON([]byte(c.in)); !errors.Is(err, ErrNotCanonical) {
				t.Fatalf("got %q, %v", got, err)
			}
		})
	}
}

func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,"x",null,true]}`, `"\ud83d\ude02"`, `[0,-1]`, `{"":{}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		out, err := JSON(in)
		if err != nil {
			return
		}
		again, err := JSON(out)
		if err != nil || string(again) != string(out) {
			t.Fatalf("not a fixed point: %q -> %q, %v", out, again, err)
		}
		var a, b any
		if json.Unmarshal(in, &a) != nil || json.Unmarshal(out, &b) != nil {
			t.Fatalf("accepted what encoding/json refuses: %q", in)
		}
	})
}

// Work grows with the size of a document and not with its square: an agent's pod chooses the document. Allocated bytes are counted and not
// seconds, which depend on who else is at work.
func TestHostileDocumentsCostWhatTheirSizeCosts(t *testing.T) {
	for name, doc := range map[string]string{
		"a long key over many elements":  `{"` + strings.Repeat("k", 120_000) + `":[` + strings.Repeat("1,", 60_000) + `1]}`,
		"a long key over many keys":      `{"` + strings.Repeat("k", 120_000) + `":{` + manyKeys(15_000) + `}}`,
		"many empty arrays":              `[` + strings.Repeat(`[],`, 80_000) + `[]]`,
		"an error below many long names": strings.Repeat(`{"`+strings.Repeat("k", 8_000)+`":`, MaxDepth) + "1.5" + strings.Repeat("}", MaxDepth),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := JSON([]byte(doc))
			runtime.ReadMemStats(&after)
			if spent := after.TotalAlloc - before.TotalAlloc; spent > 400*uint64(len(doc)) {
				t.Errorf("%d bytes for %d", spent, len(doc))
			}
			if err != nil && len(err.Error()) > 1000 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
		})
	}
}

func manyKeys(n int) string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf(`"%d":1`, i)
	}
	return strings.Join(keys, ",")
}
