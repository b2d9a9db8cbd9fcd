package deed

import "testing"

func TestIDs(t *testing.T) {
	ids := map[string]string{}
	for name, id := range map[string]string{
		"step 1":             Approved("g", 1, 1),
		"step 2":             Approved("g", 2, 1),
		"attempt 2":          Approved("g", 1, 2),
		"other gate":         Approved("h", 1, 1),
		"step 11":            Approved("g", 11, 1),
		"gate that eats":     Approved("g1", 1, 1),
		"free":               Free("g", "1"),
		"free, parts moved":  Free("g1", ""),
		"free, parts moved2": Free("", "g1"),
	} {
		if prev, ok := ids[id]; ok {
			t.Errorf("%s and %s share the ID %s", name, prev, id)
		}
		ids[id] = name
		if len(id) != 64 {
			t.Errorf("%s: %q is not 64 hex digits", name, id)
		}
	}
	// Stored on devices for years: a change of this value would let done deeds run again.
	if got := Approved("11111111-2222-3333-4444-555555555555", 1, 1); got != "2d3e6ba3143978463b7eb338d8094d8b29623af3ffebccc8c8f5510cdb6e6840" {
		t.Errorf("the ID of an approved deed changed: %s", got)
	}
}
