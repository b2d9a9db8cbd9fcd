package routing

import (
	"iter"
	"strings"
	"unicode/utf8"
)

// list joins names as a person would.
func list(names []string, last string) string {
	switch len(names) {
	case 0:
		return "nobody"
	case 1:
		return names[0]
	}
	return strings.Join(names[:len(names)-1], ", ") + " " + last + " " + names[len(names)-1]
}

// cut keeps at most n runes.
func cut(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

func lines(s string) iter.Seq[string] { return strings.Lines(s) }
