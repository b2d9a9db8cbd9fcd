package judge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/sanitize"
)

// around is how many characters are shown on each side of the first difference of two values.
const around = 60

// mismatch tells a person what was approved and what was called instead. Everything in quotes came from the agent.
func mismatch(agent, rev string, n int, want v1alpha1.PlanStep, called Call) string {
	head := fmt.Sprintf("Step %d of %s wants %s", n, rev, what(want.Device, want.Capability))
	if want.Device != called.Device || want.Capability != called.Capability {
		return fmt.Sprintf("%s with %s;\n%s called %s with %s.\nNothing was run.", head, short(want.Args), agent, what(called.Device, called.Capability), short(called.Args))
	}
	w, c := differing(want.Args, called.Args)
	return fmt.Sprintf("%s with %s;\n%s called it with %s.\nNothing was run.", head, w, agent, c)
}

func what(device, capability string) string {
	return sanitize.Line(device, 63) + " · " + sanitize.Line(capability, 64)
}

// differing shows those arguments of two calls that are not equal, each around its first difference.
func differing(want, called string) (string, string) {
	var w, c map[string]json.RawMessage
	if json.Unmarshal([]byte(want), &w) != nil || json.Unmarshal([]byte(called), &c) != nil {
		return short(want), short(called)
	}
	keys := map[string]bool{}
	for k := range w {
		keys[k] = true
	}
	for k := range c {
		keys[k] = true
	}
	var ws, cs []string
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		a, b := text(w[k]), text(c[k])
		if string(w[k]) == string(c[k]) {
			continue
		}
		if len(ws) == 4 {
			ws, cs = append(ws, "…"), append(cs, "…")
			break
		}
		at := firstDifference(a, b)
		name := sanitize.Line(k, 64)
		ws = append(ws, name+"="+excerpt(w[k], a, at))
		cs = append(cs, name+"="+excerpt(c[k], b, at))
	}
	return strings.Join(ws, ", "), strings.Join(cs, ", ")
}

// text of a value: a string's characters, anything else as it stands in JSON.
func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

func firstDifference(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	for n > 0 && n < len(a) && !utf8.RuneStart(a[n]) {
		n--
	}
	return n
}

func excerpt(raw json.RawMessage, s string, at int) string {
	if raw == nil {
		return "(absent)"
	}
	if v, ok := structure(raw); ok {
		return v
	}
	from, to := max(0, at-around), min(len(s), at+around)
	for from > 0 && !utf8.RuneStart(s[from]) {
		from--
	}
	for to < len(s) && !utf8.RuneStart(s[to]) {
		to++
	}
	q := sanitize.Quote(s[from:to])
	if from > 0 {
		q = "…" + q
	}
	if to < len(s) {
		q += "…"
	}
	return q
}

// maxWhole is how long a list or an object may be to be shown as it is, in bytes.
const maxWhole = 300

// structure shows a short list or object as the question about a plan does. What is longer would have to be cut within a string, and the
// rest of that would look like our own words.
func structure(raw json.RawMessage) (shown string, ok bool) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if len(raw) > maxWhole || d.Decode(&v) != nil || d.More() {
		return "", false
	}
	switch v.(type) {
	case []any, map[string]any:
		return inert(v), true
	}
	return "", false
}

// inert shows a value of JSON with every string in it quoted.
func inert(v any) string {
	switch v := v.(type) {
	case string:
		return sanitize.Quote(v)
	case []any:
		parts := make([]string, len(v))
		for i, e := range v {
			parts[i] = inert(e)
		}
		return "[" + strings.Join(parts, ",") + "]"
	case map[string]any:
		parts := make([]string, 0, len(v))
		for _, k := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, sanitize.Quote(k)+":"+inert(v[k]))
		}
		return "{" + strings.Join(parts, ",") + "}"
	case nil:
		return "null"
	}
	return fmt.Sprint(v) // a number or a boolean
}

func short(s string) string { return excerpt(json.RawMessage(s), s, around) }

// UnknownMessage tells a person that nobody knows how a deed ended.
func UnknownMessage(j *v1alpha1.DeviceJob) string {
	m := fmt.Sprintf("Nobody can prove how step %d ended: %s with %s. It will not run again by itself. Look at %s before you answer.",
		j.Spec.Step, what(j.Spec.Device, j.Spec.Capability), short(j.Spec.Args), sanitize.Line(j.Spec.Device, 63))
	if j.Status.Message != "" {
		m += " The broker noted: " + sanitize.Line(j.Status.Message, 400)
	}
	return m + fmt.Sprintf("\nIf it was done, answer continue: it counts as done. If it was not, run\nkubectl nisse job settle %s -n %s --as Failed --reason '...'\nand it counts as failed: the plan is over, and the agent makes another.", j.Name, j.Namespace)
}

// feedback of the person who rejected a gate, as part of a sentence.
func feedback(g *v1alpha1.Gate) string {
	for _, d := range g.Status.Decisions {
		if d.Decision != v1alpha1.DecisionReject {
			continue
		}
		if d.Text == "" {
			return " by " + d.Person
		}
		return " by " + d.Person + ": " + sanitize.Quote(d.Text)
	}
	return ""
}

func list(s []string) string {
	if len(s) == 0 {
		return "none"
	}
	return strings.Join(s, ", ")
}
