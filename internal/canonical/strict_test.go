package canonical

import "testing"

func TestStrict(t *testing.T) {
	for name, tc := range map[string]struct {
		raw string
		ok  bool
	}{
		"as it should be":    {` {"a": 1} `, true},
		"a field too many":   {`{"a":1,"b":2}`, false},
		"another value":      {`{"a":1}{"a":2}`, false},
		"a brace too many":   {`{"a":1}}`, false},
		"a bracket too many": {`{"a":1}]`, false},
		"words after it":     {`{"a":1} and more`, false},
		"cut off":            {`{"a":1`, false},
		"nothing":            {``, false},
	} {
		t.Run(name, func(t *testing.T) {
			var out struct {
				A int `json:"a"`
			}
			if err := Strict([]byte(tc.raw), &out); (err == nil) != tc.ok || tc.ok && out.A != 1 {
				t.Errorf("error %v, read %+v", err, out)
			}
		})
	}
}
