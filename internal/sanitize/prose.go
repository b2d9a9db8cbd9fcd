package sanitize

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

const (
	zwnj = 0x200C
	zwj  = 0x200D
	vs15 = 0xFE0E // the symbol before it as text
	vs16 = 0xFE0F // the symbol before it as a picture
)

// Prose makes what an agent says safe to show to people, in lines and paragraphs: characters that nobody sees, that turn the order of
// others around or that steer a terminal become escapes. What people need to write their languages stays: scripts from right to left,
// the joiners within words of scripts that have them, and those within an emoji. Odd spaces become plain ones.
func Prose(s string) string {
	runes := []rune(strings.ToValidUTF8(strings.ReplaceAll(s, "\r\n", "\n"), "\uFFFD"))
	var b strings.Builder
	for i, r := range runes {
		switch {
		case r == '\n', r == '\t', !Hidden(r), r == unicode.ReplacementChar, joins(runes, i):
			b.WriteRune(r)
		case unicode.Is(unicode.Zs, r):
			b.WriteByte(' ')
		default:
			escape(&b, r)
		}
	}
	return b.String()
}

var numeric = regexp.MustCompile(`&#([xX][0-9a-fA-F]{1,8}|[0-9]{1,10});`)

// Markup does the same to HTML in which others' words stand, where they may also have come in as character references.
func Markup(html string) string {
	return Prose(numeric.ReplaceAllStringFunc(html, func(ref string) string {
		digits, base := ref[2:len(ref)-1], 10
		if digits[0] == 'x' || digits[0] == 'X' {
			digits, base = digits[1:], 16
		}
		n, err := strconv.ParseUint(digits, base, 32)
		if err != nil || n > unicode.MaxRune || n < ' ' || Hidden(rune(n)) {
			return "&amp;" + ref[1:]
		}
		return ref
	}))
}

// joins tells whether a joiner or variation selector does what it is there for.
func joins(s []rune, i int) bool {
	r := s[i]
	if i == 0 || (r != zwnj && r != zwj && r != vs15 && r != vs16) {
		return false
	}
	before := s[i-1]
	if r == vs15 || r == vs16 {
		return picture(before) || (strings.ContainsRune("0123456789#*", before) && i+1 < len(s) && s[i+1] == 0x20E3) // a keycap
	}
	if i+1 == len(s) {
		return false
	}
	after := s[i+1]
	if r == zwj && (picture(before) || before == vs16 && joins(s, i-1)) && picture(after) {
		return true
	}
	return joined(before) && joined(after)
}

// picture tells whether a character is a symbol, or a colour of skin.
func picture(r rune) bool {
	return r > 0x7F && (unicode.Is(unicode.So, r) || unicode.Is(unicode.Sm, r) || (r >= 0x1F3FB && r <= 0x1F3FF) || r == 0x203C || r == 0x2049)
}

// joined tells whether a character is of a script that knows joiners within words.
func joined(r rune) bool {
	return unicode.In(r, unicode.Arabic, unicode.Syriac, unicode.Nko, unicode.Mongolian, unicode.Devanagari, unicode.Bengali, unicode.Gurmukhi, unicode.Gujarati,
		unicode.Oriya, unicode.Tamil, unicode.Telugu, unicode.Kannada, unicode.Malayalam, unicode.Sinhala, unicode.Myanmar, unicode.Khmer)
}
