package render

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"nisse.io/nisse/api/v1alpha1"
	"nisse.io/nisse/internal/manifest"
	"nisse.io/nisse/internal/sanitize"
)

const (
	// maxPitfalls that are told; a plan with more is told so.
	maxPitfalls = 32
	// manySpaces in a row push what follows out of sight: a phone shows about as many columns.
	manySpaces = 40
	// maxExamples of characters in one pitfall.
	maxExamples = 8
	// program that a step was resolved to, among its arguments.
	program = "what it runs"
)

// Pitfalls tells where a plan's arguments, or the programs they lead to, may read as something that they are not, though they are shown in full: characters that
// look like others in paths and command lines, words of mixed alphabets, bytes that no person can read, and gaps.
func Pitfalls(steps []v1alpha1.PlanStep) []string {
	var all []string
	for i, s := range steps {
		var args map[string]any
		d := json.NewDecoder(strings.NewReader(s.Args))
		d.UseNumber()
		if d.Decode(&args) != nil {
			continue // such a plan is shown to nobody
		}
		for _, k := range slices.Sorted(maps.Keys(args)) {
			for _, what := range pitfalls(s.Capability, k, args) {
				all = append(all, Cut(fmt.Sprintf("step %d: %s %s", i+1, sanitize.Line(k, 40), what), 250))
			}
		}
		if r := s.Resolved; r != nil {
			for _, what := range pitfalls("", program, map[string]any{program: r.Executable}) {
				all = append(all, Cut(fmt.Sprintf("step %d: %s %s", i+1, program, what), 250))
			}
		}
	}
	if len(all) > maxPitfalls {
		all = append(all[:maxPitfalls], fmt.Sprintf("and %d more of this kind", len(all)-maxPitfalls))
	}
	return all
}

// proseOf a capability is written for people and in their letters; a look-alike in it is one only within a word.
var proseOf = map[string]string{manifest.FSWrite: "content", manifest.ClipboardWrite: "content", manifest.GitCommit: "message"}

func pitfalls(capability, key string, args map[string]any) []string {
	var found []string
	text := strings.Join(stringsIn(args[key]), "\x00")
	prose := proseOf[capability] == key
	if prose && args["encoding"] == "base64" {
		return []string{"is base64, which nobody can read here; decode it before you decide"}
	}
	if prose {
		if words := mixed(text); len(words) > 0 {
			found = append(found, "has words of mixed alphabets, which may read as others: "+strings.Join(words, ", "))
		}
	} else if odd := beyondASCII(text); len(odd) > 0 {
		found = append(found, "has characters beyond ASCII, which may look like others: "+strings.Join(odd, ", "))
	}
	if strings.Contains(text, strings.Repeat(" ", manySpaces)) {
		found = append(found, fmt.Sprintf("has %d spaces or more in a row; read what comes after them", manySpaces))
	}
	return found
}

// stringsIn a JSON value, keys of objects included.
func stringsIn(v any) []string {
	var all []string
	switch v := v.(type) {
	case string:
		all = append(all, v)
	case []any:
		for _, e := range v {
			all = append(all, stringsIn(e)...)
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			all = append(all, k)
			all = append(all, stringsIn(v[k])...)
		}
	}
	return all
}

// beyondASCII lists the characters that a reader sees and may take for others, by their code points.
func beyondASCII(s string) []string {
	var odd []string
	for _, r := range s {
		if r <= unicode.MaxASCII || sanitize.Hidden(r) { // hidden ones are shown as escapes
			continue
		}
		name := fmt.Sprintf("U+%04X", r)
		if slices.Contains(odd, name) {
			continue
		}
		if len(odd) == maxExamples {
			return append(odd, "…")
		}
		odd = append(odd, name)
	}
	return odd
}

// mixed lists words that mix alphabets whose letters look alike.
func mixed(s string) []string {
	var words []string
	for _, w := range strings.FieldsFunc(s, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsMark(r) }) {
		if !sanitize.Lookalike(w) || slices.Contains(words, Cut(w, 24)) {
			continue
		}
		if len(words) == maxExamples {
			return append(words, "…")
		}
		words = append(words, Cut(w, 24))
	}
	return words
}
