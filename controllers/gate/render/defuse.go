package render

import (
	"regexp"
	"strings"

	"nisse.io/nisse/internal/sanitize"
)

// inert shows an untrusted string on one line between quotes, complete: hidden characters as escapes, and whatever a client would
// turn into a link, a mention or markup broken by a JSON escape. Reading it as JSON gives the original back.
func inert(s string) string { return defuse(sanitize.Quote(s)) }

// live matches what Matrix clients and terminals make clickable, and what an HTML reader would take for markup. Each alternative
// is broken at one character.
var live = regexp.MustCompile(`(?i)` +
	`:(//+)` + // any scheme; the whole run, so that no slash is left beside an escaped one
	`|\b(?:mailto|tel|sms|sip|geo|matrix|javascript|data|magnet|bitcoin|im|xmpp|news|nntp|webcal)(:)` + // schemes without //
	`|(//+)[^\s/]` + // links without a scheme
	`|\bwww(\.)` +
	`|(@)(?:room\b|` + local + `[:.])` + // whole-room mentions, user IDs, mail addresses
	`|(#)` + local + `:` + // room aliases
	`|(!)` + local + `:` + // room IDs
	`|(<)[a-z/!?]` +
	`|(&)(?:#|[a-z]+;)`)

// local part of an identifier. It holds no backslash: behind one stands an escape, which no client reads as part of a name.
const local = `[^\s:@#!\\"]+`

var escapes = map[string]string{"/": `\/`, ":": `\u003a`, ".": `\u002e`, "@": `\u0040`, "#": `\u0023`, "!": `\u0021`, "<": `\u003c`, "&": `\u0026`}

// defuse breaks live text in a string that is JSON-quoted already. It repeats until nothing is live, since a match may begin
// inside the one before it; each round takes live characters away, so it ends.
func defuse(s string) string {
	for {
		found := live.FindAllStringSubmatchIndex(s, -1)
		if found == nil {
			return s
		}
		var b strings.Builder
		last := 0
		for _, m := range found {
			for g := 2; g < len(m); g += 2 {
				if m[g] < 0 {
					continue
				}
				b.WriteString(s[last:m[g]])
				for _, c := range s[m[g]:m[g+1]] {
					b.WriteString(escapes[string(c)])
				}
				last = m[g+1]
			}
		}
		b.WriteString(s[last:])
		s = b.String()
	}
}

// Title makes a title of at most 200 characters that is safe to show in a table.
func Title(s string) string {
	s = defuse(sanitize.Line(s, 160))
	if r := []rune(s); len(r) > 200 {
		s = string(r[:199]) + "…"
	}
	return s
}

// Cut keeps the first n runes, and says with an ellipsis that there were more.
func Cut(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n]) + "…"
}
