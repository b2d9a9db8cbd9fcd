package dispatch

import (
	"bytes"
	"encoding/json"
	"math"

	"nisse.io/nisse/internal/sanitize"
)

// maxResult is the most of a result that is stored and that a model sees, in bytes.
const maxResult = 8192

// shrink makes a device's result safe to store, to show and to put before a model: every string sanitised, and the whole, still
// JSON, held to maxResult by cutting the middle out of long strings and the tail off long lists. What was cut says so.
func shrink(result string) string {
	if result == "" {
		return ""
	}
	d := json.NewDecoder(bytes.NewReader([]byte(result)))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		v = map[string]any{"text": result}
	}
	v = sanitised(v)
	for text, items := maxResult, 4096; ; text, items = text*3/4, items*3/4 {
		out := encode(cut(v, text, items))
		if len(out) <= maxResult {
			return out
		}
		if text < 16 {
			return encode(map[string]any{"leftOut": "the result is too deep or too wide to show"})
		}
	}
}

// sanitised makes every string and key safe, once and whole: what is cut afterwards stays safe.
func sanitised(v any) any {
	switch v := v.(type) {
	case string:
		return sanitize.Data(v, math.MaxInt)
	case []any:
		for i := range v {
			v[i] = sanitised(v[i])
		}
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, e := range v {
			m[sanitize.Data(k, 128)] = sanitised(e)
		}
		return m
	}
	return v
}

func cut(v any, text, items int) any {
	switch v := v.(type) {
	case string:
		return sanitize.Cap(v, text)
	case []any:
		kept := make([]any, 0, min(len(v), items))
		for _, e := range v[:min(len(v), items)] {
			kept = append(kept, cut(e, text, items))
		}
		return kept
	case map[string]any:
		m := make(map[string]any, len(v))
		shorter := false
		for k, e := range v {
			if l, ok := e.([]any); ok && len(l) > items {
				shorter = true
			}
			m[k] = cut(e, text, items)
		}
		if shorter {
			m["truncated"] = true
		}
		return m
	}
	return v
}

func encode(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return `{"leftOut":"the result cannot be shown"}` // what was decoded encodes; never reached
	}
	return string(bytes.TrimSpace(b.Bytes()))
}
