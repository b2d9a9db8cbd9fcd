// Package render turns text into the content of Matrix messages: a plain body that says everything, and the same as HTML. Nothing
// that others wrote becomes markup, mentions anybody, or is cut off: what is too long for one event becomes several.
package render

import (
	"encoding/json"
	"fmt"
	"html"
	"regexp"
	"strings"
	"unicode/utf8"

	"maunium.net/go/mautrix/format"

	"nisse.io/nisse/internal/sanitize"
)

// Budget of one message in bytes of JSON. A homeserver takes events of 64 KiB; relations, IDs, signatures and what an edit repeats
// want room as well.
const Budget = 40 << 10

// Content of an m.room.message, without relations.
type Content struct {
	Type      string   `json:"msgtype"`
	Body      string   `json:"body"`
	Format    string   `json:"format,omitempty"`
	Formatted string   `json:"formatted_body,omitempty"`
	Mentions  Mentions `json:"m.mentions"`
	// Short stands for the body where an edit is shown by a client that knows no edits.
	Short string `json:"io.nisse.short,omitempty"`
}

// Mentions are the people whose clients make a sound.
type Mentions struct {
	UserIDs []string `json:"user_ids,omitempty"`
}

// JSON of the content.
func (c Content) JSON() json.RawMessage {
	b, err := json.Marshal(c)
	if err != nil { // strings alone: cannot fail
		panic(fmt.Sprintf("render: %v", err))
	}
	return b
}

const (
	text     = "m.text"
	notice   = "m.notice"
	htmlType = "org.matrix.custom.html"
)

var span = regexp.MustCompile("`([^`\n]+)`")

// Notice is a remark of our own: lines of plain text, in which `…` marks what is to be typed.
func Notice(s string) Content {
	return Content{Type: notice, Body: s, Format: htmlType, Formatted: lines(s)}
}

// Text is like Notice, for what should make a sound.
func Text(s string) Content {
	c := Notice(s)
	c.Type = text
	return c
}

func lines(s string) string {
	return strings.ReplaceAll(span.ReplaceAllString(html.EscapeString(s), "<code>$1</code>"), "\n", "<br>")
}

// Markdown is what an agent says. HTML in it is shown as text, it mentions nobody, and what nobody would see in it is seen.
func Markdown(s string) []Content {
	s = sanitize.Prose(s)
	var out []Content
	for _, part := range split(s, func(line string) int { return 2*size(line) + size(html.EscapeString(line)) + 32 }) {
		// A part that becomes longer than foreseen, such as a table of many cells, is said plainly.
		c := Content{Type: text, Body: part, Format: htmlType, Formatted: sanitize.Markup(format.RenderMarkdown(part, true, false).FormattedBody)}
		if c.Formatted == "" || size(c.Body)+size(c.Formatted) > Budget {
			c.Format, c.Formatted = "", ""
		}
		out = append(out, c)
	}
	return out
}

// Progress is the one message about work under way: a line an entry.
func Progress(s string) Content { return Notice(s) }

// Editable tells whether the content also fits into an event that edits another: it says the body twice, once for clients that know no
// edits.
func (c Content) Editable() bool { return 2*size(c.Body)+size(c.Formatted) <= Budget }

// size of a string within an event, which is JSON without needless escapes.
func size(s string) int {
	n := 2
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\' || c == '\n' || c == '\t' || c == '\r':
			n += 2
		case c < ' ':
			n += 6
		default:
			n++
		}
	}
	return n
}

// room of one message for its lines; the rest is for what is around them.
const room = Budget - 1024

// split Markdown into parts whose lines cost no more than the budget together. Nothing is lost: lines stay whole where they can, and
// a block of code that is cut goes on as one.
func split(s string, cost func(string) int) []string {
	var parts []string
	var part []string
	spent, fence := 0, ""
	end := func() {
		if len(part) == 0 {
			return
		}
		if fence != "" {
			part = append(part, "```")
		}
		parts = append(parts, strings.Join(part, "\n"))
		part, spent = nil, 0
		if fence != "" {
			part = append(part, fence)
			spent = cost(fence)
		}
	}
	for _, line := range strings.Split(s, "\n") {
		for n, piece := range pieces(line, cost, room/2) {
			c := cost(piece)
			if spent+c > room {
				end()
			}
			if n > 0 && len(part) > 0 && spent > 0 && fence == "" {
				part[len(part)-1] += piece // the line goes on
			} else {
				part = append(part, piece)
			}
			spent += c
			if marker := strings.TrimSpace(piece); strings.HasPrefix(marker, "```") {
				if fence == "" {
					fence = marker
				} else {
					fence = ""
				}
			}
		}
	}
	fence = ""
	end()
	return parts
}

// pieces of one line, each within the budget, cut between runes.
func pieces(line string, cost func(string) int, budget int) []string {
	var out []string
	for cost(line) > budget {
		n := len(line) / 2
		for cost(line[:n]) > budget {
			n /= 2
		}
		for n > 0 && !utf8.RuneStart(line[n]) {
			n--
		}
		if n == 0 {
			break // one rune: cannot cost that much
		}
		out = append(out, line[:n])
		line = line[n:]
	}
	return append(out, line)
}
