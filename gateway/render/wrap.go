package render

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

const (
	// columns of a block of code. Clients do not wrap its lines: what is further right stands where nobody looks, and a phone shows no
	// more than these.
	columns = 44
	// whole lines of a text may be this long and are not broken, so that a table of ordinary width stays one. The manager flags gaps
	// in which a phone could end.
	whole = 60
	// goesOn marks the rest of a line. No line of a message begins with it: what others wrote is indented further.
	goesOn = "  ↳ "
	// equals stands between an argument's name and its value.
	equals = " = "
)

var escape = regexp.MustCompile(`^\\u[0-9a-fA-F]{4}`)

// wrap a long line of a block of code: behind each line break that a JSON string in it spells, and elsewhere at a space if there
// is one. Nothing but line breaks and marks is added: without them, the line is what it was.
func wrap(s string) string {
	var b strings.Builder
	fresh := func() { b.WriteString("\n" + goesOn) }
	all := rows(s)
	for n, row := range all {
		width, most := 0, columns
		if n > 0 {
			fresh()
			width = utf8.RuneCountInString(goesOn)
		}
		if len(all) > 1 && fit(row, whole-width) == len(row) {
			most = whole
		}
		for {
			head := fit(row, most-width)
			b.WriteString(row[:head])
			if row = row[head:]; row == "" {
				break
			}
			fresh()
			width = utf8.RuneCountInString(goesOn)
		}
	}
	return b.String()
}

// rows of a line: it breaks behind every \n of a JSON string, but not before the end of the string alone.
func rows(s string) []string {
	var all []string
	from := 0
	for i := 0; i < len(s); {
		n := unit(s[i:])
		i2 := i + n
		if s[i:i2] == `\n` && strings.Trim(s[i2:], `"]}`) != "" {
			all = append(all, s[from:i2])
			from = i2
		}
		i = i2
	}
	all = append(all, s[from:])
	if i := strings.Index(all[0], equals); len(all) > 1 && i > 0 { // the lines of a string stand below each other
		i += len(equals)
		all = append([]string{all[0][:i], all[0][i:]}, all[1:]...)
	}
	return all
}

// fit is how much of a row goes into a width: all of it, or up to the last space, or else the last part of a path or list, or as much as there is room for. At least one unit.
func fit(s string, width int) int {
	at, space, part, used := 0, 0, 0, 0
	for at < len(s) {
		n := unit(s[at:])
		w := utf8.RuneCountInString(s[at : at+n])
		if r, _ := utf8.DecodeRuneInString(s[at:]); r >= 0x1100 { // may be drawn as wide as two
			w = 2
		}
		if used+w > width && at > 0 {
			for _, better := range []int{space, part} {
				if better > 0 {
					return better
				}
			}
			return at
		}
		at, used = at+n, used+w
		switch {
		case s[at-1] == ' ' && strings.TrimSpace(s[:at]) != "":
			space = at
		case s[at-1] == '/' || s[at-1] == ',':
			part = at
		}
	}
	return at
}

// unit at the beginning of a text: a character, or an escape of JSON, which stays whole.
func unit(s string) int {
	if s[0] != '\\' || len(s) == 1 {
		_, n := utf8.DecodeRuneInString(s)
		return n
	}
	if escape.MatchString(s) {
		return len(`\u0000`)
	}
	_, n := utf8.DecodeRuneInString(s[1:])
	return 1 + n
}
