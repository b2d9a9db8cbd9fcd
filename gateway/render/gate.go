package render

import (
	"fmt"
	"html"
	"regexp"
	"strings"
)

// Gate is the message of a gate, which comes from the object: the plain body is that text as it is, the HTML sets it for reading. What
// others wrote stands in code, in which clients make nothing clickable. The approvers are mentioned.
func Gate(message string, approvers []string) []Content {
	parts := parts(message)
	out := make([]Content, len(parts))
	for i, part := range parts {
		out[i] = part.content(i, len(parts), "")
	}
	if len(out) > 0 {
		out[0].Mentions.UserIDs = approvers
	}
	return out
}

// Ended is what the messages of a gate become: how it ended, above what was shown. For whom it waited and what to reply is gone.
func Ended(how, message string) []Content {
	parts := parts(message)
	out := make([]Content, len(parts))
	for i, part := range parts {
		if i > 0 {
			how = ""
		}
		out[i] = part.over().content(i, len(parts), how)
		out[i].Short = how
	}
	return out
}

// kind of a line of a gate's message, told by how it begins: nothing that others wrote begins a line.
type kind int

const (
	said    kind = iota // a sentence
	code                // a step, an argument, or a line of a report
	gap                 // nothing
	waiting             // for whom and until when; as long as the gate is open
	choice              // what an answer does; likewise
	reply               // what to type; likewise
)

var (
	numbered = regexp.MustCompile(`^[0-9]+\. `)
	answers  = regexp.MustCompile(`^(continue|replan|abandon): `)
	// theirs are the JSON strings in a line: what others wrote.
	theirs = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
)

const (
	waits   = "Waits for "
	nothing = "Nothing runs until you answer."
	replies = "Reply  "
	// command that a person copies: marks within it would be copied along.
	command = "   kubectl nisse "
)

func kindOf(n int, line string) kind {
	switch {
	case line == "":
		return gap
	case strings.HasPrefix(line, "   "), numbered.MatchString(line):
		return code
	case n == 1 && strings.HasPrefix(line, waits), line == nothing:
		return waiting
	case answers.MatchString(line):
		return choice
	case strings.HasPrefix(line, replies):
		return reply
	}
	return said
}

// line of a gate's message, or a piece of one that is too long for one message.
type line struct {
	kind kind
	text string
	// goesOn: it is not the beginning.
	goesOn bool
}

// part of a gate's message that fits into one of the room.
type part []line

func parts(message string) []part {
	var all []part
	var now part
	spent := 0
	for n, l := range strings.Split(message, "\n") {
		k := kindOf(n, l)
		cost := func(s string) int { return size(s) + size((part{{kind: k, text: s}}).html()) }
		for i, piece := range pieces(l, cost, room/2) {
			c := cost(piece)
			if spent+c > room && len(now) > 0 {
				all, now, spent = append(all, now), nil, 0
			}
			if i > 0 && len(now) > 0 {
				now[len(now)-1].text += piece
			} else {
				now = append(now, line{k, piece, i > 0})
			}
			spent += c
		}
	}
	return append(all, now)
}

// over leaves out what concerns an open gate only.
func (p part) over() part {
	var left part
	for _, l := range p {
		if l.kind != waiting && l.kind != choice && l.kind != reply {
			left = append(left, l)
		}
	}
	for len(left) > 0 && left[len(left)-1].kind == gap {
		left = left[:len(left)-1]
	}
	return left
}

func (p part) content(n, of int, how string) Content {
	var body, markup strings.Builder
	if how != "" {
		body.WriteString(how + "\n\nWhat was shown:\n")
		markup.WriteString("<p><strong>" + lines(how) + "</strong></p><p>What was shown:</p>")
	}
	if of > 1 {
		head := fmt.Sprintf("Part %d of %d", n+1, of)
		if len(p) > 0 && p[0].goesOn {
			head += ", which begins within a line"
		}
		body.WriteString(head + "\n")
		markup.WriteString("<p>" + head + "</p>")
	}
	for i, l := range p {
		if i > 0 {
			body.WriteByte('\n')
		}
		body.WriteString(l.text)
	}
	markup.WriteString(p.html())
	return Content{Type: text, Body: body.String(), Format: htmlType, Formatted: markup.String()}
}

// html of a part: sentences as paragraphs, steps and reports as blocks of code.
func (p part) html() string {
	var b strings.Builder
	for i := 0; i < len(p); {
		end := i
		for end < len(p) && p[end].kind != gap && (p[end].kind == code) == (p[i].kind == code) && (end == i || p[end].kind != reply) {
			end++
		}
		switch {
		case end == i: // a gap
			end++
		case p[i].kind == code:
			b.WriteString("<pre><code>")
			for _, l := range p[i:end] {
				text := l.text
				if !strings.HasPrefix(text, command) {
					text = wrap(text)
				}
				if l.goesOn {
					text = goesOn + text
				}
				b.WriteString(html.EscapeString(text) + "\n")
			}
			b.WriteString("</code></pre>")
		default:
			sentences := make([]string, 0, end-i)
			for _, l := range p[i:end] {
				sentences = append(sentences, l.html())
			}
			b.WriteString("<p>" + strings.Join(sentences, "<br>") + "</p>")
		}
		i = end
	}
	return b.String()
}

// html of a sentence.
func (l line) html() string {
	if l.goesOn {
		return "<code>" + html.EscapeString(strings.TrimSpace(goesOn)+" "+l.text) + "</code>"
	}
	if l.kind == reply {
		var ways []string
		for way := range strings.SplitSeq(strings.TrimPrefix(l.text, replies), "  ·  ") {
			ways = append(ways, "<code>"+html.EscapeString(way)+"</code>")
		}
		return "Reply " + strings.Join(ways, " · ")
	}
	if m := answers.FindStringSubmatch(l.text); l.kind == choice && m != nil {
		return "<code>" + m[1] + "</code>" + html.EscapeString(l.text[len(m[1]):])
	}
	var b strings.Builder
	at := 0
	for _, m := range theirs.FindAllStringIndex(l.text, -1) {
		b.WriteString(html.EscapeString(l.text[at:m[0]]) + "<code>" + html.EscapeString(l.text[m[0]:m[1]]) + "</code>")
		at = m[1]
	}
	return b.String() + html.EscapeString(l.text[at:])
}
