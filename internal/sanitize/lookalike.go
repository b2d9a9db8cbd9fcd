package sanitize

import (
	"strings"
	"unicode"
)

// Note is written after a word that mixes scripts whose letters look alike.
const Note = "⟨mixed alphabets⟩"

// Lookalike tells whether a word mixes Latin letters with Cyrillic or Greek ones, so that it may read as another word: pаypal with a
// Cyrillic а. Units such as kΩ and µs are no such words.
func Lookalike(word string) bool {
	var latin, other bool
	for _, r := range word {
		switch {
		case unicode.Is(unicode.Latin, r):
			latin = true
		case unicode.Is(unicode.Cyrillic, r):
			other = true
		case unicode.Is(unicode.Greek, r) && r != 'Ω' && r != 'µ' && r != 'μ':
			other = true
		}
	}
	return latin && other
}

// noteLookalikes writes Note after each such word.
func noteLookalikes(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return unicode.Is(unicode.Cyrillic, r) || unicode.Is(unicode.Greek, r) }) {
		return s
	}
	var b strings.Builder
	start := -1
	end := func(at int) {
		if start >= 0 && Lookalike(s[start:at]) {
			b.WriteString(Note)
		}
		start = -1
	}
	for i, r := range s {
		switch letter := unicode.IsLetter(r) || unicode.IsMark(r); {
		case letter && start < 0:
			start = i
		case !letter:
			end(i)
		}
		b.WriteRune(r)
	}
	end(len(s))
	return b.String()
}
